//! Nodes of the tree as records, and from records.

use std::sync::Arc;

use super::bytes::{Cursor, put, put_all, put_extent};
use super::segment::Segments;
use crate::error::Result;
use crate::kernel::BLOCK;
use crate::tree::Centroid;
use crate::tree::block::Block;
use crate::tree::inner::{ChildBlock, ChildCoder, Inner};
use crate::tree::leaf::{Care, Extent};

/// The record of up to 32 children of a node.
pub fn block_record(block: &ChildBlock) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, block.centroids.len() as u32);
    out.extend_from_slice(block.block.raw());
    block.centroids.iter().for_each(|centroid| put_all(&mut out, centroid));
    out
}

/// The record of a node whose blocks of children are at `blocks`.
pub fn node_record(node: &Inner, blocks: &[Extent]) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, node.level);
    put(&mut out, blocks.len() as u32);
    blocks.iter().for_each(|&extent| put_extent(&mut out, extent));
    put_all(&mut out, &node.reference);
    out
}

/// Reads a node, with the places of its blocks.
pub fn read_node(segments: &Segments, extent: Extent, coder: &ChildCoder, padded: usize) -> Result<(Inner, Vec<Extent>)> {
    let (level, extents, reference) = segments.decode(extent, |cursor| {
        let level = cursor.take::<u32>()?;
        let blocks = cursor.take::<u32>()?;
        let extents = (0..blocks).map(|_| cursor.extent()).collect::<Result<Vec<Extent>>>()?;
        let reference: Centroid = cursor.take_all::<f32>(padded)?.into();
        if level == 0 { cursor.broken("a node is at level 0") } else { Ok((level, extents, reference)) }
    })?;
    let mut blocks = Vec::with_capacity(extents.len());
    for (i, &extent) in extents.iter().enumerate() {
        let last = i + 1 == extents.len();
        blocks.push(Arc::new(segments.decode(extent, |cursor| read_block(cursor, coder, &reference, last))?));
    }
    Ok((Inner::of_blocks(reference, level, blocks), extents))
}

fn read_block(cursor: &mut Cursor<'_>, coder: &ChildCoder, reference: &[f32], last: bool) -> Result<ChildBlock> {
    let count = cursor.take::<u32>()? as usize;
    if count == 0 || count > BLOCK || !last && count < BLOCK {
        return cursor.broken(format!("a block of {count} children"));
    }
    let mut block = Block::new(&coder.pool);
    block.copy_from(cursor.bytes(block.raw().len())?);
    let centroids = (0..count).map(|_| Ok(cursor.take_all::<f32>(reference.len())?.into())).collect::<Result<Vec<Centroid>>>()?;
    Ok(ChildBlock::restored(coder, reference, block, centroids))
}

/// A leaf as its page lists it.
#[derive(Debug, Clone)]
pub struct LeafEntry {
    /// Its number.
    pub id: u32,
    /// Live rows.
    pub rows: u32,
    /// What the balancer knows of it.
    pub care: Care,
    /// Where its reference is, if that isn't its centroid.
    pub reference: Option<Extent>,
    /// Where its entries are; none if it is empty.
    pub extents: Vec<Extent>,
}

/// The record of the leaves of a page.
pub fn page_record(leaves: &[LeafEntry]) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, leaves.len() as u32);
    for leaf in leaves {
        let care = &leaf.care;
        let numbers = [leaf.id, leaf.rows, care.appended as u32, care.unsplittable_at as u32, u32::from(care.attempts)];
        put_all(&mut out, &numbers);
        put_all(&mut out, &[u32::from(leaf.reference.is_some()), leaf.extents.len() as u32]);
        leaf.reference.iter().chain(&leaf.extents).for_each(|&extent| put_extent(&mut out, extent));
    }
    out
}

/// Reads the leaves of a page.
pub fn read_page(cursor: &mut Cursor<'_>) -> Result<Vec<LeafEntry>> {
    let mut leaves = Vec::new();
    for _ in 0..cursor.take::<u32>()? {
        let [id, rows, appended, unsplittable_at, attempts, referenced, extents]: [u32; 7] = cursor.take()?;
        let care = Care { appended: appended as usize, unsplittable_at: unsplittable_at as usize, attempts: attempts as u8 };
        let reference = if referenced == 1 { Some(cursor.extent()?) } else { None };
        let extents = (0..extents).map(|_| cursor.extent()).collect::<Result<Vec<Extent>>>()?;
        if extents.is_empty() != (rows == 0) || id == u32::MAX {
            return cursor.broken(format!("leaf {id} has {rows} rows in {} records", extents.len()));
        }
        leaves.push(LeafEntry { id, rows, care, reference, extents });
    }
    Ok(leaves)
}
