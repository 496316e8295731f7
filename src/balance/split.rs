//! One leaf becomes several: two, or more where it is far too large.
//!
//! The leaf stays in place, readable and writable, while its rows are clustered and encoded. The edit then takes it out, lists the new leaves, and
//! gives them what was added meanwhile. Rows that are all alike can't be told apart: such a leaf is kept whole and marked.

use super::kmeans::{Nearest, Points, Settings, kmeans};
use super::moves::{move_rows, neighbours_to_move};
use crate::cancel::Task;
use crate::error::Result;
use crate::ids::{LeafId, NONE};
use crate::tree::Centroid;
use crate::tree::aim::Target;
use crate::tree::inner::{inverse_norm, mean};
use crate::tree::insert::same_reference;
use crate::tree::leaf::{Care, Leaf, Postings};
use crate::tree::store::{Edit, Store};
use crate::vectors::Row;

/// Lloyd iterations.
const ROUNDS: usize = 8;
/// Rows that are clustered; all are then assigned.
const MOST_POINTS: usize = 4096;

/// So many late rows may be encoded under the lock.
const MOST_LATE: usize = 512;

/// What a split did.
#[derive(Debug, Default)]
pub struct Split {
    /// The new leaves; none if the rows are alike or the leaf was gone.
    pub leaves: Vec<LeafId>,
    /// The node that lists them.
    pub parent: u32,
    /// Rows that moved to or from the neighbours afterwards.
    pub reassigned: usize,
    /// Leaves that changed.
    pub touched: Vec<LeafId>,
}

/// Splits leaf `id` into about `ways`.
pub fn split(store: &Store, id: LeafId, ways: usize, task: &Task) -> Result<Split> {
    split_around(store, id, ways, task, || {})
}

/// [`split`] with `meanwhile` done between the planning and the publishing.
#[cfg(test)]
pub(crate) fn staged(store: &Store, id: LeafId, meanwhile: impl FnOnce()) -> Split {
    split_around(store, id, 2, &Task::new(), meanwhile).unwrap_or_default()
}

fn split_around(store: &Store, id: LeafId, ways: usize, task: &Task, meanwhile: impl FnOnce()) -> Result<Split> {
    let snapshot = store.snapshot();
    let Some(leaf) = snapshot.leaf(id) else { return Ok(Split::default()) };
    let rows: Vec<Row> = store.whole(leaf)?.rows().collect();
    // A spilled copy isn't here for being near, so it has no say in where the centroids are.
    let mut owned: Vec<Row> = store.look(|state, _| rows.iter().copied().filter(|&row| state.directory.location(row)[0] == id).collect());
    if owned.len() < ways {
        owned.clone_from(&rows);
    }
    owned.sort_unstable();
    let mut groups = divide(store, &rows, &owned, ways, task)?;
    if groups.len() < 2 && ways > 2 {
        // Of several pieces all but one may be thin; two can be evened out.
        groups = divide(store, &rows, &owned, 2, task)?;
    }
    if groups.len() < 2 {
        return Ok(mark_alike(store, id, leaf, rows.len()));
    }
    let pieces: Vec<Piece> = groups.into_iter().map(|group| Piece::new(store, group, &owned)).collect::<Result<_>>()?;
    meanwhile();
    let mut edit = store.edit();
    if !same_reference(Some(leaf), edit.next.leaf(id)) {
        return Ok(Split::default());
    }
    if !edit.next.leaf(id).is_some_and(|now| now.same_stored(leaf)) {
        // It was committed meanwhile; what came late can't be told from the rest any more.
        return Ok(Split { touched: vec![id], ..Split::default() });
    }
    let late = late_rows(&edit, id, &rows);
    if late.len() > MOST_LATE {
        // It grows faster than it can be split: the next attempt begins with more pieces.
        return Ok(Split::default());
    }
    let parent = edit.leaf_parent(id);
    let centroids: Vec<Centroid> = pieces.iter().map(|piece| piece.leaf.reference.clone()).collect();
    let leaves = publish_pieces(store, &mut edit, id, leaf.care.attempts, pieces, &late)?;
    let mut result = Split { leaves, parent, touched: edit.publish(), reassigned: 0 };
    reassign(store, &leaf.reference, &centroids, &mut result, task)?;
    Ok(result)
}

/// Rows of a new leaf, with their rotated vectors' mean and their codes.
struct Piece {
    rows: Vec<Row>,
    leaf: Leaf,
}

impl Piece {
    /// A leaf of `rows`, around the mean of those that are `owned` (ascending).
    fn new(store: &Store, rows: Vec<Row>, owned: &[Row]) -> Result<Self> {
        let rotated = store.rotate_rows(&rows)?;
        let padded = store.padded();
        let own = rows.iter().zip(rotated.chunks_exact(padded)).filter(|(row, _)| owned.binary_search(row).is_ok()).map(|(_, point)| point);
        let reference: Centroid = match own.clone().next() {
            Some(_) => mean(own, padded).into(),
            None => mean(rotated.chunks_exact(padded), padded).into(),
        };
        let mut leaf = Leaf::new(reference);
        let postings = encode_all(store, &leaf, &rows, &rotated);
        leaf = leaf.append(store.pool(), (0..postings.len()).map(|i| postings.get(i)));
        leaf.care = Care::default();
        Ok(Self { rows, leaf })
    }
}

fn encode_all(store: &Store, leaf: &Leaf, rows: &[Row], rotated: &[f32]) -> Postings {
    let mut postings = Postings::new(store.encoder.code_bytes());
    let mut residual = vec![0.0; store.padded()];
    for (&row, vector) in rows.iter().zip(rotated.chunks_exact(store.padded())) {
        postings.push(row, |bits| store.encoder.encode(vector, &leaf.reference, &mut residual, bits));
    }
    postings
}

/// Clusters `rows`; returns the groups that have any.
fn divide(store: &Store, rows: &[Row], owned: &[Row], ways: usize, task: &Task) -> Result<Vec<Vec<Row>>> {
    let stride = owned.len().div_ceil(MOST_POINTS.max(ways * 32)).max(1);
    let sample: Vec<Row> = owned.iter().copied().step_by(stride).collect();
    let load = |number: usize, out: &mut [f32]| store.rotate_row(sample[number], out);
    let points = Points { len: sample.len(), padded: store.padded(), load: &load };
    let settings = Settings {
        clusters: ways,
        rounds: ROUNDS,
        branching: store.params.branching,
        order: store.write_order(),
        coarse: false,
        seed: store.params.seed ^ rows.len() as u64,
    };
    let centres = kmeans(&store.coder, points, settings, task)?;
    let nearest = Nearest::new(&store.coder, &centres, store.padded(), settings, task)?;
    let (mut target, mut distances, mut point) = (Target::new(store.padded()), Vec::new(), vec![0.0; store.padded()]);
    let mut groups = vec![Vec::new(); centres.len()];
    let mut both = Vec::new();
    for &row in rows {
        store.rotate_row(row, &mut point)?;
        let label = nearest.find(&store.coder, &point, &mut target, &mut distances);
        groups[label].push(row);
        if centres.len() == 2 {
            both.push((label, row, distances[0], distances[1]));
        }
    }
    if centres.len() == 2 {
        even_out(&mut groups, &both);
    }
    dissolve_thin(store, &mut groups, &centres)?;
    Ok(groups)
}

/// Gives the rows of groups that would have to be merged at once to the nearest of the others. Fewer than two groups may be left: then the
/// rows are alike but for a few.
fn dissolve_thin(store: &Store, groups: &mut Vec<Vec<Row>>, centres: &[Centroid]) -> Result<()> {
    let least = store.params.merge_threshold.max(1);
    let lasting: Vec<usize> = (0..groups.len()).filter(|&group| groups[group].len() >= least).collect();
    if lasting.is_empty() {
        *groups = vec![groups.concat()];
        return Ok(());
    }
    let mut point = vec![0.0; store.padded()];
    for thin in (0..groups.len()).filter(|group| !lasting.contains(group)) {
        for row in std::mem::take(&mut groups[thin]) {
            store.rotate_row(row, &mut point)?;
            let distance = |group: &&usize| (store.kernels.l2)(&point, &centres[**group]);
            if let Some(&nearest) = lasting.iter().min_by(|a, b| distance(a).total_cmp(&distance(b))) {
                groups[nearest].push(row);
            }
        }
    }
    groups.retain(|group| !group.is_empty());
    Ok(())
}

/// Gives the smaller of two groups at least a quarter of the rows: those that lose least by it. Rows that are far nearer to their own centre
/// than to the other (copies of one vector, say) stay: a small group is better than one torn apart.
fn even_out(groups: &mut [Vec<Row>], rows: &[(usize, Row, f32, f32)]) {
    let small = usize::from(groups[1].len() < groups[0].len());
    let wanted = rows.len() / 4;
    if groups[small].is_empty() || groups[small].len() >= wanted {
        return;
    }
    let apart = |&(label, row, d0, d1): &(usize, Row, f32, f32)| {
        let (own, other) = if label == 0 { (d0, d1) } else { (d1, d0) };
        (label, row, own, other)
    };
    let mut large: Vec<_> = rows.iter().map(apart).filter(|(label, ..)| *label != small).collect();
    let typical = large.iter().map(|(_, _, own, _)| own).sum::<f32>() / large.len().max(1) as f32;
    large.retain(|(_, _, own, other)| *other <= 4.0 * own.max(typical));
    large.sort_unstable_by(|a, b| (a.3 - a.2).total_cmp(&(b.3 - b.2)));
    let moving: Vec<Row> = large.iter().take(wanted - groups[small].len()).map(|&(_, row, ..)| row).collect();
    groups[1 - small].retain(|row| !moving.contains(row));
    groups[small].extend(moving);
}

fn mark_alike(store: &Store, id: LeafId, leaf: &std::sync::Arc<Leaf>, rows: usize) -> Split {
    let mut edit = store.edit();
    if same_reference(Some(leaf), edit.next.leaf(id)) {
        if let Some(now) = edit.next.leaf(id) {
            let marked = now.with_care(Care { unsplittable_at: rows, ..now.care });
            edit.set_leaf(id, marked);
        }
        edit.publish();
    }
    Split::default()
}

/// Rows that were added to leaf `id` after `rows` were read.
fn late_rows(edit: &Edit<'_>, id: LeafId, rows: &[Row]) -> Vec<Row> {
    let mut known = rows.to_vec();
    known.sort_unstable();
    edit.next.leaf(id).map_or(Vec::new(), |leaf| leaf.rows().filter(|row| known.binary_search(row).is_err()).collect())
}

fn publish_pieces(store: &Store, edit: &mut Edit<'_>, id: LeafId, attempts: u8, pieces: Vec<Piece>, late: &[Row]) -> Result<Vec<LeafId>> {
    let pool = store.pool();
    let mut late_of: Vec<Vec<Row>> = vec![Vec::new(); pieces.len()];
    let rotated = store.rotate_rows(late)?;
    for (&row, vector) in late.iter().zip(rotated.chunks_exact(store.padded())) {
        let distance = |piece: &Piece| (store.kernels.l2)(vector, &piece.leaf.reference);
        let best = pieces.iter().enumerate().min_by(|a, b| distance(a.1).total_cmp(&distance(b.1)));
        late_of[best.map_or(0, |(number, _)| number)].push(row);
    }
    let mut members = Vec::new();
    let mut leaves = Vec::new();
    for (piece, late) in pieces.into_iter().zip(late_of) {
        // A row that was removed, replaced or moved away since then no longer says that it is here.
        let (here, gone): (Vec<Row>, Vec<Row>) = piece.rows.iter().partition(|&&row| edit.location(row).contains(&id));
        let postings = encode_all(store, &piece.leaf, &late, &store.rotate_rows(&late)?);
        let mut leaf = piece.leaf.without(pool, &gone).append(pool, (0..postings.len()).map(|i| postings.get(i)));
        // Only where a split left something too large is it an attempt that failed.
        leaf.care.attempts = if leaf.len() > store.params.split_threshold { attempts.saturating_add(1) } else { 0 };
        leaves.push((leaf.clone(), leaf.reference.clone()));
        members.push([here, late].concat());
    }
    let parent = edit.leaf_parent(id);
    let ids = edit.replace_leaves(parent, &[id], leaves);
    for (&new, rows) in ids.iter().zip(&members) {
        for &row in rows {
            let location = edit.location(row).map(|leaf| if leaf == id { new } else { leaf });
            edit.state().directory.set_location(row, location);
        }
    }
    Ok(ids)
}

/// Moves what the split put in the wrong place: rows that are farther from their new centroid than from the old one, and rows of the
/// neighbours that are nearer to a new centroid than to their own.
fn reassign(store: &Store, old: &[f32], centroids: &[Centroid], split: &mut Split, task: &Task) -> Result<()> {
    let snapshot = store.snapshot();
    let mut rows = neighbours_to_move(store, &snapshot, old, centroids, &split.leaves)?;
    let mut point = vec![0.0; store.padded()];
    let (kernels, order) = (store.kernels, store.write_order());
    let inverse = |centroid: &[f32]| inverse_norm((kernels.dot)(centroid, centroid));
    let old_inverse = inverse(old);
    for (&id, centroid) in split.leaves.iter().zip(centroids) {
        let new_inverse = inverse(centroid);
        let Some(leaf) = snapshot.leaf(id) else { continue };
        let whole = store.whole(leaf)?;
        let owned: Vec<Row> = store.look(|state, _| whole.rows().filter(|&row| state.directory.location(row)[0] == id).collect());
        for row in owned {
            store.rotate_row(row, &mut point)?;
            if order.score(kernels, &point, centroid, new_inverse) > order.score(kernels, &point, old, old_inverse) {
                rows.push(row);
            }
        }
    }
    if !rows.is_empty() {
        let moved = move_rows(store, rows, NONE, task)?;
        split.reassigned = moved.rows;
        split.touched.extend(moved.touched);
    }
    Ok(())
}
