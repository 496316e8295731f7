//! Internal nodes that are too wide are split, those that are too thin are merged into a sibling.

use std::sync::Arc;

use super::kmeans::{Nearest, Points, Settings, kmeans};
use crate::cancel::Task;
use crate::error::Result;
use crate::ids::NONE;
use crate::tree::aim::Target;
use crate::tree::inner::{Child, Inner, NodeId};
use crate::tree::navigate::Order;
use crate::tree::store::{Edit, Store};

/// Lloyd iterations.
const ROUNDS: usize = 8;
/// A node with fewer children than the branching over this, or with one, is merged into a sibling.
const THIN: usize = 8;

/// Brings internal node `id`, and what is above it, within its bounds. Called after its children changed.
pub fn tend(store: &Store, id: NodeId, task: &Task) -> Result<()> {
    let mut next = id;
    while next != NONE {
        task.check()?;
        let snapshot = store.snapshot();
        let Some(inner) = snapshot.inner(next) else { break };
        next = if inner.len() > store.params.branching {
            split(store, next, inner, task)?
        } else if next == snapshot.root {
            collapse(store, next)
        } else if inner.len() < (store.params.branching / THIN).max(2) {
            merge(store, next)
        } else {
            NONE
        };
    }
    Ok(())
}

/// Splits a node in two; returns the node above it, which may now be too wide.
fn split(store: &Store, id: NodeId, inner: &Arc<Inner>, task: &Task) -> Result<NodeId> {
    let padded = store.padded();
    let children: Vec<Child> = inner.children().collect();
    let load = |number: usize, out: &mut [f32]| {
        out.copy_from_slice(&children[number].centroid);
        Ok(())
    };
    let points = Points { len: children.len(), padded, load: &load };
    let settings = Settings {
        clusters: 2,
        rounds: ROUNDS,
        branching: usize::MAX,
        order: Order::Distance,
        coarse: false,
        seed: store.params.seed ^ u64::from(id),
    };
    let centres = kmeans(&store.coder, points, settings, task)?;
    let nearest = Nearest::new(&store.coder, &centres, padded, settings, task)?;
    let (mut target, mut distances) = (Target::new(padded), Vec::new());
    // Sorted by how much nearer the first centre is, then cut where the sign changes but never outside the middle half.
    let mut sides: Vec<(f32, Child)> = Vec::with_capacity(children.len());
    for child in children {
        nearest.find(&store.coder, &child.centroid, &mut target, &mut distances);
        sides.push((distances[0] - distances.get(1).copied().unwrap_or(0.0), child));
    }
    sides.sort_by(|a, b| a.0.total_cmp(&b.0));
    let quarter = sides.len() / 4;
    let cut = sides.partition_point(|(side, _)| *side <= 0.0).clamp(quarter.max(1), sides.len() - quarter.max(1));
    let node = |part: &[(f32, Child)]| {
        let children: Vec<Child> = part.iter().map(|(_, child)| child.clone()).collect();
        Inner::new(&store.coder, inner.level, &children, padded)
    };
    let (first, second) = (node(&sides[..cut]), node(&sides[cut..]));
    let mut edit = store.edit();
    if !edit.next.inner(id).is_some_and(|now| Arc::ptr_eq(now, inner)) {
        // It changed meanwhile: look again.
        return Ok(id);
    }
    let above = replace_by_two(store, &mut edit, id, first, second);
    edit.publish();
    Ok(above)
}

fn replace_by_two(store: &Store, edit: &mut Edit<'_>, id: NodeId, first: Inner, second: Inner) -> NodeId {
    let above = edit.inner_parent(id);
    let level = first.level;
    let first_child = Child { id, centroid: first.reference.clone() };
    let second_centroid = second.reference.clone();
    edit.set_inner(id, first);
    let second_child = Child { id: edit.add_inner(second), centroid: second_centroid };
    if above == NONE {
        let root = Inner::new(&store.coder, level + 1, &[first_child, second_child], store.padded());
        edit.next.root = edit.add_inner(root);
        edit.set_inner_parent(edit.next.root, NONE);
        return NONE;
    }
    edit.set_inner_parent(second_child.id, above);
    edit.change_children(above, |inner, coder| inner.replaced(coder, &[id], &[first_child, second_child]));
    above
}

/// Moves the children of a thin node to its nearest sibling; returns the node to look at next. Where the sibling has no room for them it is
/// split afterwards, into two that are not thin.
fn merge(store: &Store, id: NodeId) -> NodeId {
    let mut edit = store.edit();
    let above = edit.inner_parent(id);
    let Some(thin) = edit.next.inner(id).cloned() else { return NONE };
    let Some(parent) = edit.next.inner(above).cloned() else { return NONE };
    let Some(own) = parent.centroid_of(id) else { return NONE };
    let distance = |child: &Child| (store.kernels.l2)(&child.centroid, own);
    let siblings = parent.children().filter(|child| child.id != id);
    let Some(sibling) = siblings.min_by(|a, b| distance(a).total_cmp(&distance(b))) else {
        // An only child: the node above is thin as well.
        return above;
    };
    let moving: Vec<Child> = thin.children().collect();
    let Some(merged) = edit.next.inner(sibling.id).map(|inner| inner.replaced(&store.coder, &[], &moving)) else { return NONE };
    let next = if merged.len() > store.params.branching { sibling.id } else { above };
    edit.set_inner(sibling.id, merged);
    edit.next.inners.set(id, None);
    edit.change_children(above, |inner, coder| inner.replaced(coder, &[id], &[]));
    edit.publish();
    next
}

/// A root with one internal child hands over to it.
fn collapse(store: &Store, id: NodeId) -> NodeId {
    let mut edit = store.edit();
    let Some(root) = edit.next.inner(id).cloned() else { return NONE };
    if root.level < 2 || root.len() != 1 || edit.next.root != id {
        return NONE;
    }
    let Some(child) = root.children().next() else { return NONE };
    edit.next.root = child.id;
    edit.next.inners.set(id, None);
    edit.set_inner_parent(child.id, NONE);
    edit.publish();
    child.id
}
