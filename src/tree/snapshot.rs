//! The immutable state that searches read.

use std::sync::Arc;

use super::inner::{Inner, NodeId};
use super::leaf::Leaf;
use crate::ids::LeafId;

const CHUNK: usize = 64;

/// Nodes by number, in chunks that versions share: a change copies the chunks it touches and the list of chunks.
#[derive(Debug)]
pub struct Table<T> {
    chunks: Vec<Arc<[Option<Arc<T>>; CHUNK]>>,
    len: usize,
}

impl<T> Clone for Table<T> {
    fn clone(&self) -> Self {
        Self { chunks: self.chunks.clone(), len: self.len }
    }
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { chunks: Vec::new(), len: 0 }
    }
}

impl<T> Table<T> {
    /// Node `id`, if there is one.
    #[inline]
    pub fn get(&self, id: u32) -> Option<&Arc<T>> {
        self.chunks.get(id as usize / CHUNK)?[id as usize % CHUNK].as_ref()
    }

    /// Sets or clears node `id`.
    pub fn set(&mut self, id: u32, node: Option<Arc<T>>) {
        let (chunk, place) = (id as usize / CHUNK, id as usize % CHUNK);
        if chunk >= self.chunks.len() {
            self.chunks.resize(chunk + 1, Arc::new([const { None }; CHUNK]));
        }
        let slot = &mut Arc::make_mut(&mut self.chunks[chunk])[place];
        self.len += usize::from(node.is_some());
        self.len -= usize::from(slot.is_some());
        *slot = node;
    }

    /// The number of nodes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True without nodes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All nodes with their numbers, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Arc<T>)> {
        let numbered = self.chunks.iter().flat_map(|chunk| chunk.iter()).enumerate();
        numbered.filter_map(|(id, node)| node.as_ref().map(|node| (id as u32, node)))
    }

    /// The least number from `from` on that has no node.
    pub fn vacant(&self, from: u32) -> u32 {
        (from..).find(|&id| self.get(id).is_none()).unwrap_or(u32::MAX)
    }
}

/// One moment of the index: topology, posting lists, liveness.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The leaves.
    pub leaves: Table<Leaf>,
    /// The internal nodes.
    pub inners: Table<Inner>,
    /// The root, always an internal node.
    pub root: NodeId,
    /// Live rows.
    pub rows: usize,
    /// Counts the snapshots.
    pub sequence: u64,
    /// Counts changes of rows: what the balancer does is none.
    pub changes: u64,
}

impl Snapshot {
    /// Leaf `id`.
    #[inline]
    pub fn leaf(&self, id: LeafId) -> Option<&Arc<Leaf>> {
        self.leaves.get(id)
    }

    /// Internal node `id`.
    #[inline]
    pub fn inner(&self, id: NodeId) -> Option<&Arc<Inner>> {
        self.inners.get(id)
    }

    /// Levels of internal nodes; 1 when the root lists leaves.
    pub fn levels(&self) -> u32 {
        self.inner(self.root).map_or(0, |root| root.level)
    }
}
