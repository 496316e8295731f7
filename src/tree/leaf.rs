//! A leaf: the posting list of one centroid.
//!
//! Entries are coded against the leaf's reference, its centroid at the time the leaf was made. A row that dies or moves away only loses its bit
//! in `live`; when many bits are gone the entries are packed again. A leaf is a value: every change makes a new one that shares the blocks
//! that stay.
//!
//! Of a leaf that was committed, the entries are [`Stored`]: they stay on disk while rows are added to it (in memory) and removed from it
//! (noted), and meet them only where an operation must see all. [`Leaf::blocks`] and [`Leaf::rows`] know the entries in memory alone.

use std::sync::Arc;

use super::Centroid;
use super::block::Block;
use super::pool::Pool;
use crate::error::Result;
use crate::kernel::{BLOCK, prefetch};
use crate::quantize::Factors;
use crate::vectors::Row;

/// Encoded rows on their way to leaves.
#[derive(Debug, Default)]
pub struct Postings {
    rows: Vec<Row>,
    factors: Vec<Factors>,
    bits: Vec<u8>,
    code_bytes: usize,
}

impl Postings {
    /// Room for codes of `code_bytes`.
    pub fn new(code_bytes: usize) -> Self {
        Self { code_bytes, ..Self::default() }
    }

    /// Room for so many postings.
    pub fn with_capacity(code_bytes: usize, postings: usize) -> Self {
        let (rows, factors) = (Vec::with_capacity(postings), Vec::with_capacity(postings));
        Self { rows, factors, bits: Vec::with_capacity(postings * code_bytes), code_bytes }
    }

    /// Adds a row; `encode` writes its code and returns its factors.
    pub fn push(&mut self, row: Row, encode: impl FnOnce(&mut [u8]) -> Factors) {
        let start = self.bits.len();
        self.bits.resize(start + self.code_bytes, 0);
        self.factors.push(encode(&mut self.bits[start..]));
        self.rows.push(row);
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// True without rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Row, factors and code of posting `i`.
    pub fn get(&self, i: usize) -> (Row, Factors, &[u8]) {
        (self.rows[i], self.factors[i], &self.bits[i * self.code_bytes..(i + 1) * self.code_bytes])
    }
}

/// A place in the files of a checkpoint, with the checksum of its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Extent {
    /// Number of the segment file.
    pub segment: u32,
    /// Its length in bytes.
    pub bytes: u32,
    /// Where it begins.
    pub offset: u64,
    /// Its CRC-32C.
    pub check: u32,
}

/// Entries of a leaf that are on disk.
#[derive(Debug, Clone)]
pub struct Stored {
    /// The entries as they were written at first, then what was added and removed by each later commit.
    pub extents: Vec<Extent>,
    /// Live rows.
    pub rows: usize,
    /// The same entries in memory, for as long as the leaf is there.
    pub pinned: Option<Arc<Leaf>>,
    /// One for each segment that is to be read: its file stays for as long as one of them is held.
    pub tokens: Vec<Token>,
}

/// Keeps a segment, of this number, from being removed.
pub type Token = Arc<u32>;

/// Reads entries of leaves from disk.
pub trait LeafSource: std::fmt::Debug + Send + Sync {
    /// The entries, without those removed since, as a leaf in memory.
    fn load(&self, stored: &Stored) -> Result<Arc<Leaf>>;
}

/// A posting list. See the module's page.
#[derive(Debug, Clone)]
pub struct Leaf {
    /// What the entries are coded against (rotated).
    pub reference: Centroid,
    stored: Option<Arc<Stored>>,
    /// Stored rows that were removed, ascending.
    removed: Vec<Row>,
    blocks: Vec<Block>,
    live: Vec<u32>,
    entries: usize,
    live_rows: usize,
    /// What the balancer knows of it.
    pub care: Care,
}

/// What the balancer knows of a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Care {
    /// Rows appended since the routing centroid was last compared with their mean.
    pub appended: usize,
    /// Rows at which a split last failed since they are alike; 0: never.
    pub unsplittable_at: usize,
    /// Fruitless attempts to bring the leaf within its bounds.
    pub attempts: u8,
}

impl Leaf {
    /// An empty leaf.
    pub fn new(reference: Centroid) -> Self {
        let (blocks, live, removed) = Default::default();
        Self { reference, stored: None, removed, blocks, live, entries: 0, live_rows: 0, care: Care::default() }
    }

    /// A leaf of full blocks with `entries` entries, all live; only the last may be partly filled.
    pub fn of_blocks(reference: Centroid, blocks: Vec<Block>, entries: usize) -> Self {
        let mask = |i: usize| ((1u64 << (entries - i * BLOCK).min(BLOCK)) - 1) as u32;
        let live = (0..blocks.len()).map(mask).collect();
        Self { blocks, live, entries, live_rows: entries, ..Self::new(reference) }
    }

    /// A leaf whose entries are on disk.
    pub fn on_disk(reference: Centroid, stored: Arc<Stored>, care: Care) -> Self {
        Self { stored: Some(stored), care, ..Self::new(reference) }
    }

    /// These entries, which were coded against `reference`.
    pub fn around(self, reference: Centroid, care: Care) -> Self {
        Self { reference, care, ..self }
    }

    /// Live rows.
    pub fn len(&self) -> usize {
        self.live_rows + self.stored.as_ref().map_or(0, |stored| stored.rows - self.removed.len())
    }

    /// True without live rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entries on disk, if there are any.
    pub fn stored(&self) -> Option<&Arc<Stored>> {
        self.stored.as_ref()
    }

    /// Stored rows that were removed since, ascending.
    pub fn removed(&self) -> &[Row] {
        &self.removed
    }

    /// True if this leaf and `other` have the same entries on disk, or none.
    pub fn same_stored(&self, other: &Leaf) -> bool {
        match (&self.stored, &other.stored) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        }
    }

    /// This leaf with all its entries in memory; `base` has those on disk.
    pub fn whole(&self, pool: &Arc<Pool>, base: &Leaf) -> Leaf {
        let mut leaf = Leaf { reference: self.reference.clone(), ..base.without(pool, &self.removed) };
        let mut bits = vec![0; self.blocks.first().map_or(0, Block::code_bytes)];
        for (block, live) in self.blocks() {
            for place in lanes(live) {
                block.take(place, &mut bits);
                leaf.extend(pool, [(block.items()[place], block.factors(place), bits.as_slice())]);
            }
        }
        leaf.care = self.care;
        leaf
    }

    /// Blocks with the mask of their live entries.
    pub fn blocks(&self) -> impl Iterator<Item = (&Block, u32)> {
        self.blocks.iter().zip(self.live.iter().copied())
    }

    /// Begins to fetch the list of blocks.
    pub fn prefetch_list(&self) {
        prefetch(&self.blocks[..self.blocks.len().min(4)]);
        prefetch(&self.live[..self.live.len().min(1)]);
    }

    /// The same rows with other notes of the balancer.
    pub fn with_care(&self, care: Care) -> Leaf {
        Leaf { care, ..self.clone() }
    }

    /// The live rows, in the order of their entries.
    pub fn rows(&self) -> impl Iterator<Item = Row> + '_ {
        self.blocks().flat_map(|(block, live)| lanes(live).map(|place| block.items()[place]))
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        let blocks: usize = self.blocks.iter().map(|block| block.bytes()).sum();
        let pinned = self.stored.as_ref().and_then(|stored| stored.pinned.as_ref()).map_or(0, |pinned| pinned.bytes());
        pinned + blocks + size_of::<Self>() + self.blocks.capacity() * size_of::<Block>() + self.live.capacity() * size_of::<u32>()
    }

    /// This leaf with further postings.
    pub fn append<'p>(&self, pool: &Arc<Pool>, postings: impl IntoIterator<Item = (Row, Factors, &'p [u8])>) -> Leaf {
        let mut leaf = self.clone();
        leaf.extend(pool, postings);
        leaf
    }

    fn extend<'p>(&mut self, pool: &Arc<Pool>, postings: impl IntoIterator<Item = (Row, Factors, &'p [u8])>) {
        // The tail is copied once, if it is shared, then owned.
        for (row, factors, bits) in postings {
            let place = self.entries % BLOCK;
            if place == 0 {
                self.blocks.push(Block::new(pool));
                self.live.push(0);
            }
            if let (Some(block), Some(live)) = (self.blocks.last_mut(), self.live.last_mut()) {
                block.put(place, row, factors, bits);
                *live |= 1 << place;
            }
            self.entries += 1;
            self.live_rows += 1;
            self.care.appended += 1;
        }
    }

    /// This leaf without `rows`. Those it doesn't list are ignored, but a leaf with stored entries must list them all: which those are isn't
    /// known here. Packs the entries when a quarter of them is dead.
    pub fn without(&self, pool: &Arc<Pool>, rows: &[Row]) -> Leaf {
        let mut leaf = self.clone();
        let mut sorted = rows.to_vec();
        sorted.sort_unstable();
        let mut found = Vec::new();
        leaf.clear(&sorted, &mut found);
        if leaf.stored.is_some() {
            found.sort_unstable();
            leaf.removed.extend(sorted.iter().filter(|row| found.binary_search(row).is_err()));
            leaf.removed.sort_unstable();
            leaf.removed.dedup();
            if leaf.is_empty() {
                (leaf.stored, leaf.removed) = (None, Vec::new());
            }
        }
        let dead = leaf.entries - leaf.live_rows;
        if leaf.live_rows == 0 || dead >= BLOCK / 2 && dead * 4 >= leaf.entries { leaf.packed(pool) } else { leaf }
    }

    /// Takes the rows of `gone` (ascending) out of the entries in memory, and notes which were there.
    fn clear(&mut self, gone: &[Row], found: &mut Vec<Row>) {
        let is_gone = |row: Row| match *gone {
            [one] => row == one,
            [one, other] => row == one || row == other,
            _ => gone.binary_search(&row).is_ok(),
        };
        for (block, live) in self.blocks.iter().zip(&mut self.live) {
            for place in lanes(*live) {
                let row = block.items()[place];
                if is_gone(row) {
                    *live &= !(1 << place);
                    self.live_rows -= 1;
                    found.push(row);
                }
            }
        }
    }

    /// Whether the entries in memory fill their blocks, but for the last, without a gap.
    pub fn is_dense(&self) -> bool {
        self.entries == self.live_rows
    }

    /// The same rows in as few blocks as they need.
    pub fn packed(&self, pool: &Arc<Pool>) -> Leaf {
        let mut leaf = Leaf { blocks: Vec::new(), live: Vec::new(), entries: 0, live_rows: 0, ..self.clone() };
        let mut bits = vec![0; self.blocks.first().map_or(0, Block::code_bytes)];
        for (block, live) in self.blocks() {
            for place in lanes(live) {
                block.take(place, &mut bits);
                leaf.extend(pool, [(block.items()[place], block.factors(place), bits.as_slice())]);
            }
        }
        leaf.care = self.care;
        leaf
    }
}

/// The places of the set bits, ascending.
pub fn lanes(mut mask: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let place = mask.trailing_zeros() as usize;
        mask &= mask.wrapping_sub(1);
        (place < BLOCK).then_some(place)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn lists_exactly_the_rows_that_were_added_and_not_removed(steps in prop::collection::vec((0u32..200, any::<bool>()), 0..400)) {
            let pool = Block::pool(8);
            let mut leaf = Leaf::new(vec![0.0; 64].into());
            let mut model = std::collections::BTreeSet::new();
            for (row, add) in steps {
                if add && model.insert(row) {
                    let bits = row.to_le_bytes().repeat(2);
                    let factors = Factors { add: row as f32, rescale: 1.0, error: 2.0 };
                    leaf = leaf.append(&pool, [(row, factors, bits.as_slice())]);
                } else if !add {
                    model.remove(&row);
                    leaf = leaf.without(&pool, &[row, row + 1000]);
                }
                let mut rows: Vec<Row> = leaf.rows().collect();
                rows.sort_unstable();
                prop_assert_eq!(rows, model.iter().copied().collect::<Vec<_>>());
                prop_assert_eq!(leaf.len(), model.len());
                prop_assert!(leaf.entries <= leaf.len() + leaf.len() / 3 + BLOCK);
                for (block, live) in leaf.blocks() {
                    for place in lanes(live) {
                        let row = block.items()[place];
                        let mut bits = [0; 8];
                        block.take(place, &mut bits);
                        prop_assert_eq!(bits.to_vec(), row.to_le_bytes().repeat(2));
                        prop_assert_eq!(block.factors(place).add, row as f32);
                    }
                }
            }
        }
    }
}
