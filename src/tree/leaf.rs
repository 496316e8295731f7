//! A leaf: the posting list of one centroid.
//!
//! Entries are coded against the leaf's reference, its centroid at the time the leaf was made. A row that dies or moves away only loses its bit
//! in `live`; when many bits are gone the entries are packed again. A leaf is a value: every change makes a new one that shares the blocks
//! that stay.

use std::sync::Arc;

use super::Centroid;
use super::block::Block;
use super::pool::Pool;
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

/// A posting list. See the module's page.
#[derive(Debug, Clone)]
pub struct Leaf {
    /// What the entries are coded against (rotated).
    pub reference: Centroid,
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
        Self { reference, blocks: Vec::new(), live: Vec::new(), entries: 0, live_rows: 0, care: Care::default() }
    }

    /// Live rows.
    pub fn len(&self) -> usize {
        self.live_rows
    }

    /// True without live rows.
    pub fn is_empty(&self) -> bool {
        self.live_rows == 0
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
        blocks + size_of::<Self>() + self.blocks.capacity() * size_of::<Block>() + self.live.capacity() * size_of::<u32>()
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

    /// This leaf without `rows`; those it doesn't list are ignored. Packs the entries when a quarter of them is dead.
    pub fn without(&self, pool: &Arc<Pool>, rows: &[Row]) -> Leaf {
        let mut leaf = self.clone();
        match rows {
            // Few rows: look for each among the entries.
            _ if rows.len() <= 4 => rows.iter().for_each(|&row| leaf.clear(|item| item == row)),
            _ => {
                let mut sorted = rows.to_vec();
                sorted.sort_unstable();
                leaf.clear(|item| sorted.binary_search(&item).is_ok());
            }
        }
        let dead = leaf.entries - leaf.live_rows;
        if leaf.live_rows == 0 || dead >= BLOCK / 2 && dead * 4 >= leaf.entries { leaf.packed(pool) } else { leaf }
    }

    fn clear(&mut self, gone: impl Fn(Row) -> bool) {
        for (block, live) in self.blocks.iter().zip(&mut self.live) {
            for place in lanes(*live) {
                if gone(block.items()[place]) {
                    *live &= !(1 << place);
                    self.live_rows -= 1;
                }
            }
        }
    }

    /// The same rows in as few blocks as they need.
    fn packed(&self, pool: &Arc<Pool>) -> Leaf {
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
