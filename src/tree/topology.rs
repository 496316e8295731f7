//! A whole tree together with what an edit must know of it: the node above each node.
//!
//! Snapshots don't hold parents, since a change of a node would then change all nodes below it.

use std::sync::Arc;

use super::Centroid;
use super::inner::{Child, ChildCoder, Inner, NodeId};
use super::leaf::Leaf;
use super::snapshot::{Snapshot, Table};
use crate::ids::{LeafId, NONE};

/// A whole tree with its parents.
#[derive(Debug)]
pub struct Topology {
    /// The tree; its leaves may be empty.
    pub snapshot: Snapshot,
    /// The node that lists each leaf.
    pub(super) leaf_parents: Vec<NodeId>,
    /// The node that lists each internal node; [`NONE`] for the root.
    pub(super) inner_parents: Vec<NodeId>,
}

impl Topology {
    /// Of a snapshot; parents follow from it.
    pub fn of_snapshot(snapshot: Snapshot) -> Self {
        let (mut leaf_parents, mut inner_parents) = (Vec::new(), Vec::new());
        set_parent(&mut inner_parents, snapshot.root, NONE);
        for (id, inner) in snapshot.inners.iter() {
            let parents = if inner.level == 1 { &mut leaf_parents } else { &mut inner_parents };
            inner.blocks().iter().for_each(|block| block.items().iter().for_each(|&child| set_parent(parents, child, id)));
        }
        Self { snapshot, leaf_parents, inner_parents }
    }

    /// A root over one empty leaf for each centroid.
    pub fn of_centroids(coder: &ChildCoder, centroids: &[Centroid], padded: usize) -> Self {
        Self::of_groups(coder, centroids, &[(0..centroids.len() as u32).collect()], padded)
    }

    /// One empty leaf for each centroid (numbered as they come), one node for each group of leaves, and as many levels above as
    /// it takes: a root over the nodes.
    pub fn of_groups(coder: &ChildCoder, centroids: &[Centroid], groups: &[Vec<LeafId>], padded: usize) -> Self {
        let mut leaves = Table::default();
        let mut inners = Table::default();
        let mut leaf_parents = Vec::new();
        let mut inner_parents = Vec::new();
        for (id, centroid) in centroids.iter().enumerate() {
            leaves.set(id as u32, Some(Arc::new(Leaf::new(centroid.clone()))));
        }
        let mut upper = Vec::new();
        for (number, group) in groups.iter().enumerate() {
            let children: Vec<Child> = group.iter().map(|&id| Child { id, centroid: centroids[id as usize].clone() }).collect();
            group.iter().for_each(|&id| set_parent(&mut leaf_parents, id, number as u32));
            let inner = Inner::new(coder, 1, &children, padded);
            upper.push(Child { id: number as u32, centroid: inner.reference.clone() });
            inners.set(number as u32, Some(Arc::new(inner)));
        }
        let mut root = 0;
        if groups.len() > 1 {
            root = groups.len() as u32;
            (0..root).for_each(|id| set_parent(&mut inner_parents, id, root));
            inners.set(root, Some(Arc::new(Inner::new(coder, 2, &upper, padded))));
        }
        set_parent(&mut inner_parents, root, NONE);
        Self { snapshot: Snapshot { leaves, inners, root, rows: 0, sequence: 0, changes: 0 }, leaf_parents, inner_parents }
    }
}

/// Says that `parent` lists node `id`.
pub(super) fn set_parent(parents: &mut Vec<NodeId>, id: u32, parent: NodeId) {
    let place = id as usize;
    if place >= parents.len() {
        parents.resize(place + 1, NONE);
    }
    parents[place] = parent;
}
