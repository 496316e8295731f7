//! Entries of leaves as records, and from records.

use std::sync::Arc;

use super::bytes::{Cursor, put, put_all};
use super::segment::Segments;
use crate::error::Result;
use crate::kernel::BLOCK;
use crate::quantize::Factors;
use crate::storage::{Cache, Kind};
use crate::tree::block::Block;
use crate::tree::leaf::{Extent, Leaf, LeafSource, Stored, lanes};
use crate::tree::pool::Pool;
use crate::vectors::{Row, Vectors};

/// All entries of a leaf.
const WHOLE: u32 = 0;
/// What was removed and added since the record before.
const CHANGE: u32 = 1;

/// The record of all entries of `leaf`, which has none on disk and is dense.
pub fn whole_record(leaf: &Leaf) -> Vec<u8> {
    let bytes = leaf.blocks().map(|(block, _)| block.raw().len()).sum::<usize>();
    let mut out = Vec::with_capacity(2 * size_of::<u32>() + bytes);
    put(&mut out, WHOLE);
    put(&mut out, leaf.len() as u32);
    leaf.blocks().for_each(|(block, _)| out.extend_from_slice(block.raw()));
    out
}

/// The record of what `leaf` has in memory and what it has lost on disk.
pub fn change_record(leaf: &Leaf, code_bytes: usize) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, CHANGE);
    put(&mut out, leaf.removed().len() as u32);
    put(&mut out, leaf.rows().count() as u32);
    put_all(&mut out, leaf.removed());
    let mut bits = vec![0; code_bytes];
    for (block, live) in leaf.blocks() {
        for place in lanes(live) {
            let factors = block.factors(place);
            block.take(place, &mut bits);
            put(&mut out, block.items()[place]);
            put_all(&mut out, &[factors.add, factors.rescale, factors.error]);
            out.extend_from_slice(&bits);
        }
    }
    out
}

/// Reads entries of leaves, through the cache.
#[derive(Debug)]
pub struct Leaves {
    segments: Arc<Segments>,
    cache: Arc<Cache>,
    pool: Arc<Pool>,
    code_bytes: usize,
    /// Whose rows they list.
    vectors: Arc<Vectors>,
}

impl Leaves {
    /// Leaves whose codes have `code_bytes`, of rows of `vectors`.
    pub fn new(segments: Arc<Segments>, cache: Arc<Cache>, pool: Arc<Pool>, code_bytes: usize, vectors: Arc<Vectors>) -> Self {
        Self { segments, cache, pool, code_bytes, vectors }
    }

    /// Reads the entries, past the cache.
    pub fn read(&self, stored: &Stored) -> Result<Leaf> {
        let mut leaf = Leaf::new(Vec::new().into());
        for &extent in &stored.extents {
            leaf = self.segments.decode(extent, |cursor| match cursor.take::<u32>()? {
                WHOLE => self.read_whole(cursor),
                CHANGE => self.read_change(cursor, &leaf),
                kind => cursor.broken(format!("a posting list of unknown kind {kind}")),
            })?;
        }
        let last = stored.extents.last().map_or(0, |extent| extent.segment);
        if leaf.len() != stored.rows {
            let name = self.segments.storage().describe(&super::segment::segment_name(last));
            let what = format!("a posting list has {} rows, {} are expected", leaf.len(), stored.rows);
            return Err(crate::Error::corrupt(name, what));
        }
        Ok(leaf)
    }

    fn read_whole(&self, cursor: &mut Cursor<'_>) -> Result<Leaf> {
        let count = cursor.take::<u32>()? as usize;
        let end = self.vectors.end();
        let mut blocks = Vec::new();
        for start in (0..count).step_by(BLOCK) {
            let mut block = Block::new(&self.pool);
            block.copy_from(cursor.bytes(block.raw().len())?);
            let used = (count - start).min(BLOCK);
            if block.items()[..used].iter().any(|&row| row >= end) {
                return cursor.broken("a posting list names a row that isn't there");
            }
            blocks.push(block);
        }
        Ok(Leaf::of_blocks(Vec::new().into(), blocks, count))
    }

    fn read_change(&self, cursor: &mut Cursor<'_>, before: &Leaf) -> Result<Leaf> {
        let (removed, added) = (cursor.take::<u32>()? as usize, cursor.take::<u32>()? as usize);
        let removed: Vec<Row> = cursor.take_all(removed)?;
        let mut leaf = before.without(&self.pool, &removed);
        let end = self.vectors.end();
        for _ in 0..added {
            let row: Row = cursor.take()?;
            let [add, rescale, error]: [f32; 3] = cursor.take()?;
            if row >= end {
                return cursor.broken("a posting list names a row that isn't there");
            }
            leaf = leaf.append(&self.pool, [(row, Factors { add, rescale, error }, cursor.bytes(self.code_bytes)?)]);
        }
        Ok(leaf)
    }
}

impl LeafSource for Leaves {
    fn load(&self, stored: &Stored) -> Result<Arc<Leaf>> {
        let key = stored.extents.last().map_or((0, 0), |extent| (extent.segment, extent.offset));
        let read: u64 = stored.extents.iter().map(|extent: &Extent| u64::from(extent.bytes)).sum();
        self.cache.get((Kind::Segment, key.0, key.1), || {
            let leaf = self.read(stored)?;
            let bytes = leaf.bytes() as u64;
            Ok((leaf, read, bytes))
        })
    }
}
