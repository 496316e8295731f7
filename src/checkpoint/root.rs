//! The root record of a checkpoint: where everything else is.

use std::collections::HashMap;
use std::sync::Arc;

use super::bytes::{Cursor, put, put_extent};
use super::nodes::{LeafEntry, read_node, read_page};
use super::segment::Segments;
use crate::error::{Error, Result};
use crate::ids::PAGE;
use crate::tree::Centroid;
use crate::tree::inner::{ChildBlock, ChildCoder};
use crate::tree::leaf::{Extent, Leaf, Stored};
use crate::tree::snapshot::{Snapshot, Table};
use crate::vectors::Row;

/// Leaves of a page.
pub const LEAVES: u32 = 64;

/// Leaves and nodes have smaller numbers: they are given out from 0 on, and 4 billion rows don't need more.
const MOST: u32 = 1 << 27;

/// See the module's page.
#[derive(Debug, Clone, Default)]
pub struct Root {
    /// Live rows.
    pub rows: u64,
    /// Rows have numbers below.
    pub end: Row,
    /// The next id that is given out.
    pub next_id: u64,
    /// Rows that were live when the whole tree was last clustered, and rows added since.
    pub clustered: [u64; 2],
    /// The root node.
    pub node: u32,
    /// Nodes by number.
    pub nodes: Vec<(u32, Extent)>,
    /// Pages of leaves, those without leaves left out.
    pub leaf_pages: Vec<(u32, Extent)>,
    /// Pages of the table of rows.
    pub row_pages: Vec<Extent>,
}

impl Root {
    /// The record.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out, self.rows);
        put(&mut out, self.next_id);
        put(&mut out, self.clustered);
        put(&mut out, [self.end, self.node]);
        put(&mut out, [self.nodes.len() as u32, self.leaf_pages.len() as u32, self.row_pages.len() as u32]);
        for &(number, extent) in self.nodes.iter().chain(&self.leaf_pages) {
            put(&mut out, number);
            put_extent(&mut out, extent);
        }
        self.row_pages.iter().for_each(|&extent| put_extent(&mut out, extent));
        out
    }

    /// Reads the record.
    pub fn decode(cursor: &mut Cursor<'_>) -> Result<Self> {
        let mut root = Self { rows: cursor.take()?, next_id: cursor.take()?, clustered: cursor.take()?, ..Self::default() };
        [root.end, root.node] = cursor.take()?;
        let [nodes, leaf_pages, row_pages]: [u32; 3] = cursor.take()?;
        let mut numbered = |count: u32| (0..count).map(|_| Ok((cursor.take()?, cursor.extent()?))).collect::<Result<Vec<_>>>();
        root.nodes = numbered(nodes)?;
        root.leaf_pages = numbered(leaf_pages)?;
        root.row_pages = (0..row_pages).map(|_| cursor.extent()).collect::<Result<Vec<_>>>()?;
        if (root.end as usize).div_ceil(PAGE) != root.row_pages.len() || root.rows > u64::from(root.end) || root.next_id > 1 << 63 {
            return cursor.broken("the numbers of rows don't fit each other");
        }
        Ok(root)
    }
}

/// Parts of a tree with their places: what the next commit need not write again. Parts are known by their address, and kept so that no
/// other part gets it.
#[derive(Debug, Default)]
pub struct Known {
    /// Blocks of children.
    pub blocks: HashMap<usize, (Arc<ChildBlock>, Extent)>,
    /// References of leaves that aren't their centroids.
    pub references: HashMap<usize, (Centroid, Extent)>,
    /// Records of nodes, by number of the node.
    pub nodes: HashMap<u32, (Vec<u8>, Extent)>,
    /// Records of pages of leaves.
    pub leaf_pages: HashMap<u32, (Vec<u8>, Extent)>,
}

/// The address of a centroid.
pub fn centroid_address(centroid: &Centroid) -> usize {
    centroid.as_ptr() as usize
}

/// Reads the tree; leaves are on disk.
pub fn read_tree(segments: &Segments, root: &Root, coder: &ChildCoder, padded: usize) -> Result<(Snapshot, Known)> {
    let mut known = Known::default();
    let mut inners = Table::default();
    let mut centroids: HashMap<u32, Centroid> = HashMap::new();
    let mut children = HashMap::new();
    for &(id, extent) in &root.nodes {
        if id >= MOST {
            return broken(segments, format!("node {id} is out of range"));
        }
        let (node, extents) = read_node(segments, extent, coder, padded)?;
        known.nodes.insert(id, (super::nodes::node_record(&node, &extents), extent));
        for (block, &extent) in node.blocks().iter().zip(&extents) {
            known.blocks.insert(Arc::as_ptr(block) as usize, (block.clone(), extent));
            for (&child, centroid) in block.items().iter().zip(&block.centroids) {
                match node.level {
                    1 => drop(centroids.insert(child, centroid.clone())),
                    level => drop(children.insert(child, level - 1)),
                }
            }
        }
        inners.set(id, Some(Arc::new(node)));
    }
    let mut leaves = Table::default();
    for &(page, extent) in &root.leaf_pages {
        let entries = segments.decode(extent, read_page)?;
        known.leaf_pages.insert(page, (super::nodes::page_record(&entries), extent));
        for entry in entries {
            let id = entry.id;
            if id / LEAVES != page || id >= MOST {
                return broken(segments, format!("leaf {id} is listed on page {page}"));
            }
            let Some(centroid) = centroids.remove(&id) else {
                return broken(segments, format!("leaf {id} has no parent or is listed twice"));
            };
            leaves.set(id, Some(Arc::new(read_leaf(segments, entry, centroid, padded, &mut known)?)));
        }
    }
    let snapshot = Snapshot { leaves, inners, root: root.node, rows: root.rows as usize, sequence: 0, changes: 0 };
    check_shape(segments, &snapshot, &children, centroids.len())?;
    Ok((snapshot, known))
}

fn broken<T>(segments: &Segments, what: String) -> Result<T> {
    Err(Error::corrupt(segments.storage().describe("segments"), what))
}

fn read_leaf(segments: &Segments, entry: LeafEntry, centroid: Centroid, padded: usize, known: &mut Known) -> Result<Leaf> {
    let reference = match entry.reference {
        None => centroid,
        Some(extent) => {
            let reference: Centroid = segments.decode(extent, |cursor| cursor.take_all::<f32>(padded))?.into();
            known.references.insert(centroid_address(&reference), (reference.clone(), extent));
            reference
        }
    };
    if entry.rows == 0 {
        let mut leaf = Leaf::new(reference);
        leaf.care = entry.care;
        return Ok(leaf);
    }
    let tokens = segments.tokens(&entry.extents);
    let stored = Stored { extents: entry.extents, rows: entry.rows as usize, pinned: None, tokens };
    Ok(Leaf::on_disk(reference, Arc::new(stored), entry.care))
}

/// Every node is listed by one of the level above, every leaf by one of level 1, and the root by none.
fn check_shape(segments: &Segments, snapshot: &Snapshot, children: &HashMap<u32, u32>, orphans: usize) -> Result<()> {
    let fits = |(id, node): (u32, &Arc<crate::tree::inner::Inner>)| match children.get(&id) {
        Some(&level) => node.level == level,
        None => id == snapshot.root,
    };
    if orphans > 0 || snapshot.inner(snapshot.root).is_none() || children.contains_key(&snapshot.root) {
        return broken(segments, format!("{orphans} leaves are missing, or the root is"));
    }
    if !snapshot.inners.iter().all(fits) || children.len() + 1 != snapshot.inners.len() {
        return broken(segments, "nodes are missing or at the wrong level".to_string());
    }
    Ok(())
}
