//! Rows to other leaves: reassignment after a split (the LIRE conditions of SPFresh, Xu et al. 2023), and merging.

use std::collections::HashMap;

use crate::cancel::Task;
use crate::error::Result;
use crate::ids::{LeafId, Location, NONE};
use crate::kernel::{BLOCK, ScanLimit};
use crate::params::Beam;
use crate::quantize::Form;
use crate::tree::Centroid;
use crate::tree::aim::Target;
use crate::tree::inner::inverse_norm;
use crate::tree::insert::Routed;
use crate::tree::leaf::{Care, Leaf, lanes};
use crate::tree::navigate::{Order, navigate};
use crate::tree::snapshot::Snapshot;
use crate::tree::store::{Edit, Store};
use crate::vectors::Row;

use super::cluster::unlist_all;

/// What moving did.
#[derive(Debug, Default)]
pub struct Moved {
    /// Rows whose location changed.
    pub rows: usize,
    /// Leaves that changed.
    pub touched: Vec<LeafId>,
}

/// Gives each row the location that it would get if it were added now, without `exclude`. A row that was moved, replaced or removed
/// meanwhile stays as it is. `exclude` is taken out of the tree in the same edit if that leaves it empty.
pub fn move_rows(store: &Store, mut rows: Vec<Row>, exclude: LeafId, task: &Task) -> Result<Moved> {
    // A row that was moved by another thread while its leaves were looked at may have been noted in both.
    rows.sort_unstable();
    rows.dedup();
    // The snapshot is held until the end: while it is, no row number means another row.
    let (snapshot, rows, from) = store.look(|state, snapshot| {
        let located = rows.iter().map(|&row| (row, state.directory.location(row))).filter(|(_, at)| at[0] != NONE);
        let (rows, from): (Vec<Row>, Vec<Location>) = located.unzip();
        (snapshot.clone(), rows, from)
    });
    let routed = Routed::new(store, snapshot, rows, Some(&from), exclude, task)?;
    let mut edit = store.edit();
    let moves = accept(&edit, &routed, &from, exclude, store.params.merge_threshold);
    let mut leaving = Vec::new();
    for (i, &row) in routed.rows.iter().enumerate() {
        if let Some(to) = moves[i] {
            leaving.extend(left(from[i], to).map(|leaf| (leaf, row)));
            edit.state().directory.set_location(row, to);
        }
    }
    routed.apply(&mut edit, Vec::new(), |index, leaf| moves[index as usize].is_some_and(|to| to.contains(&leaf)));
    unlist_all(&mut edit, leaving);
    let moved = moves.iter().flatten().count();
    let emptied = exclude != NONE && edit.next.leaf(exclude).is_some_and(|leaf| leaf.is_empty());
    if emptied && edit.next.leaves.len() > 1 {
        retire(&mut edit, exclude);
    } else if exclude != NONE {
        count_attempt(&mut edit, exclude);
    }
    Ok(Moved { rows: moved, touched: edit.publish() })
}

/// The leaves of `from` that aren't in `to`.
fn left(from: Location, to: Location) -> impl Iterator<Item = LeafId> {
    from.into_iter().filter(move |leaf| *leaf != NONE && !to.contains(leaf))
}

/// Where each routed row goes, if it moves.
///
/// No move takes from a leaf so much that it would have to be merged. Splits don't leave such leaves either, so the only ones there are come
/// from removals, each is merged once, and balancing ends: splits and merges can't undo each other.
fn accept(edit: &Edit<'_>, routed: &Routed, from: &[Location], exclude: LeafId, least: usize) -> Vec<Option<Location>> {
    let stale = routed.stale(&edit.next);
    let mut rows_left: HashMap<LeafId, usize> = HashMap::new();
    let mut one = |i: usize| {
        let mut to = routed.locations[i];
        let unmoved = edit.location(routed.rows[i]) == from[i] && stale.binary_search(&(i as u32)).is_err();
        if !unmoved || to == from[i] || to[0] == NONE {
            return None;
        }
        let mut count = |leaf| *rows_left.entry(leaf).or_insert_with(|| edit.next.leaf(leaf).map_or(0, |leaf| leaf.len()));
        let held = left(from[i], to).find(|&leaf| leaf != exclude && count(leaf) <= least);
        if let Some(held) = held {
            if exclude == NONE {
                return None;
            }
            // It must leave the leaf that is merged, but stays in the other one.
            let other = to.into_iter().find(|&leaf| leaf != held)?;
            to = from[i].map(|leaf| if leaf == exclude { other } else { leaf });
        }
        for leaf in left(from[i], to) {
            if let Some(rows) = rows_left.get_mut(&leaf) {
                *rows -= 1;
            }
        }
        Some(to)
    };
    (0..routed.rows.len()).map(&mut one).collect()
}

/// Takes an empty leaf out of the tree, with the nodes that it leaves empty.
fn retire(edit: &mut Edit<'_>, leaf: LeafId) {
    let mut parent = edit.leaf_parent(leaf);
    edit.replace_leaves(parent, &[leaf], Vec::new());
    while edit.next.inner(parent).is_some_and(|inner| inner.is_empty()) && parent != edit.next.root {
        let above = edit.inner_parent(parent);
        let gone = parent;
        edit.next.inners.set(gone, None);
        edit.change_children(above, |inner, coder| inner.replaced(coder, &[gone], &[]));
        parent = above;
    }
}

/// Notes that an action didn't bring a leaf within its bounds.
fn count_attempt(edit: &mut Edit<'_>, id: LeafId) {
    if let Some(leaf) = edit.next.leaf(id) {
        let care = Care { attempts: leaf.care.attempts.saturating_add(1), ..leaf.care };
        let leaf = leaf.with_care(care);
        edit.set_leaf(id, leaf);
    }
}

/// Neighbours that are looked at where they may have to be read from disk: most of the rows that move come from the nearest.
const ON_DISK: usize = 8;

/// Rows of leaves near `old` (a centroid that was split into `new`) that seem nearer to a new centroid than to their own.
pub fn neighbours_to_move(store: &Store, snapshot: &Snapshot, old: &[f32], new: &[Centroid], new_ids: &[LeafId]) -> Result<Vec<Row>> {
    let most = if store.source.is_some() { ON_DISK } else { usize::MAX };
    let count = store.params.reassign_neighbours.min(most);
    if count == 0 {
        return Ok(Vec::new());
    }
    let width = count + new_ids.len();
    let beam = Beam { tau: 1.0, least: width, most: width, levels: Vec::new() };
    let mut target = Target::new(store.padded());
    target.aim_rotated(store.kernels, old);
    let near = navigate(snapshot, store.kernels, &target, store.write_order(), &beam, &[]);
    let targets: Vec<Target> = new
        .iter()
        .map(|centroid| {
            target.aim_rotated(store.kernels, centroid);
            target.clone()
        })
        .collect();
    let mut rows = Vec::new();
    for choice in near.iter().filter(|choice| !new_ids.contains(&choice.id)).take(count) {
        let Some(leaf) = snapshot.leaf(choice.id) else { continue };
        target.aim_rotated(store.kernels, &leaf.reference);
        let seeming = drawn_rows(store, &*store.whole(leaf)?, &target, &targets);
        // Only owners are asked: a spilled copy isn't there for being near.
        store.look(|state, _| rows.extend(seeming.into_iter().filter(|&row| state.directory.location(row)[0] == choice.id)));
    }
    Ok(rows)
}

/// Rows of `leaf` whose estimated distance to one of `targets` is below that to `own`.
fn drawn_rows(store: &Store, leaf: &Leaf, own: &Target, targets: &[Target]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (block, live) in leaf.blocks() {
        let scores = |target: &Target| {
            let add = match store.encoder.form() {
                Form::Distance => (store.kernels.l2)(&target.rotated, &leaf.reference),
                Form::Product => -(store.kernels.dot)(&target.rotated, &leaf.reference),
            };
            let limit = ScanLimit { add, error: 0.0, limit: f32::INFINITY };
            let (mut estimates, mut lowers) = ([0.0f32; BLOCK], [0.0f32; BLOCK]);
            (store.kernels.scan)(&target.table(), &block.codes(), &limit, &mut estimates, &mut lowers);
            match (store.encoder.form(), store.write_order()) {
                (Form::Product, Order::Angle) => {
                    let inverse = inverse_norm(target.norm);
                    estimates.iter_mut().for_each(|estimate| *estimate *= inverse);
                }
                // |v - c|^2 without |v|^2, which is the same for all centroids.
                (Form::Product, _) => estimates.iter_mut().for_each(|estimate| *estimate = target.norm + 2.0 * *estimate),
                (Form::Distance, _) => {}
            }
            estimates
        };
        let own = scores(own);
        let others: Vec<_> = targets.iter().map(scores).collect();
        rows.extend(lanes(live).filter(|&i| others.iter().any(|other| other[i] < own[i])).map(|i| block.items()[i]));
    }
    rows
}
