//! A routing centroid follows its rows.
//!
//! A leaf's centroid is the mean of the rows it was made with. Rows that come later pull the true mean away, and queries are then routed to the
//! wrong place. So when a leaf has grown by half, the mean of the rows it owns is computed anew; if it has drifted, the parent lists the
//! new one. The code reference stays: codes remain good.

use crate::error::Result;
use crate::ids::LeafId;
use crate::tree::Centroid;
use crate::tree::inner::mean;
use crate::tree::insert::same_reference;
use crate::tree::leaf::Care;
use crate::tree::store::Store;
use crate::vectors::Row;

/// A centroid is replaced when it is off by more than this share of its rows' mean squared distance to the mean.
const DRIFT: f32 = 0.02;
/// Rows that are looked at.
const MOST_ROWS: usize = 1024;

/// Compares the centroid of leaf `id` with its rows; true if it was replaced.
pub fn refresh(store: &Store, id: LeafId) -> Result<bool> {
    let snapshot = store.snapshot();
    let Some(leaf) = snapshot.leaf(id) else { return Ok(false) };
    let stride = leaf.len().div_ceil(MOST_ROWS).max(1);
    let whole = store.whole(leaf)?;
    let owned: Vec<Row> =
        store.look(|state, _| whole.rows().step_by(stride).filter(|&row| state.directory.location(row)[0] == id).collect());
    let padded = store.padded();
    let rotated = store.rotate_rows(&owned)?;
    let centre: Centroid = mean(rotated.chunks_exact(padded), padded).into();
    let spread = rotated.chunks_exact(padded).map(|row| (store.kernels.l2)(row, &centre)).sum::<f32>() / owned.len().max(1) as f32;

    let mut edit = store.edit();
    if !same_reference(Some(leaf), edit.next.leaf(id)) {
        return Ok(false);
    }
    let parent = edit.leaf_parent(id);
    let present = edit.next.inner(parent).and_then(|inner| inner.centroid_of(id));
    let drifted = present.is_some_and(|present| (store.kernels.l2)(present, &centre) > DRIFT * spread) && !owned.is_empty();
    if drifted {
        edit.change_children(parent, |inner, coder| inner.moved(coder, id, centre));
    }
    if let Some(now) = edit.next.leaf(id) {
        let care = Care { appended: now.care.appended.saturating_sub(leaf.care.appended), ..now.care };
        let rested = now.with_care(care);
        edit.set_leaf(id, rested);
    }
    edit.publish();
    Ok(drifted)
}
