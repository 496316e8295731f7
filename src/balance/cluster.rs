//! Clusters the whole tree anew: centroids made globally are better than those that splits make.
//!
//! The problem: rows added one leaf at a time leave a tree of splits, and one giant leaf can't be split well from the top down. So when the
//! index has grown enough since it was last clustered (at first from nothing; see [`clustering`](super::plan::clustering)), k-means over a sample of all live rows
//! gives new centroids, all rows are routed to them, and the new tree replaces the old one at once. Adds, removals and searches go
//! on meanwhile in the old tree; what they changed is caught up with, the last of it under the lock.

use std::sync::Arc;

use rand::SeedableRng;
use rand::seq::index;
use rand_pcg::Pcg64Mcg;

use super::kmeans::{Points, Settings, grow, kmeans, lloyd};
use super::plan::target_size;
use crate::cancel::Task;
use crate::error::Result;
use crate::ids::{DEAD, LeafId, Location, NONE};
use crate::params::Params;
use crate::tree::Centroid;
use crate::tree::insert::Routed;
use crate::tree::leaf::Care;
use crate::tree::snapshot::Snapshot;
use crate::tree::store::{Edit, Store};
use crate::tree::topology::Topology;
use crate::vectors::Row;

/// Sampled rows a centroid, for the first iterations.
const SAMPLE: usize = 16;
/// Lloyd iterations over the sample.
const ROUNDS: usize = 4;
/// Lloyd iterations over all rows. A centroid of few sampled rows fits those and no others: at 50 rows a leaf, iterations over half of the
/// rows leave a tree that scans a fifth more at equal recall.
const FULL_ROUNDS: usize = 2;
/// Rows that are routed before they are appended.
const SLICE: usize = 8_192;
/// Rounds of catching up outside the lock.
const CATCH_UPS: usize = 6;
/// So few late rows are routed under the lock.
const FEW: usize = 64;

/// How often a clustering of so many rows looks at one: what its task counts.
pub fn visits(rows: usize, params: &Params) -> usize {
    rows.min(clusters(rows, params) * SAMPLE) * ROUNDS + rows * (FULL_ROUNDS + 1)
}

/// Leaves for so many rows.
fn clusters(rows: usize, params: &Params) -> usize {
    (rows * (1 + params.spill)).div_ceil(target_size(params)).max(1)
}

/// Replaces the tree; returns its leaves.
pub fn cluster(store: &Store, task: &Task) -> Result<Vec<LeafId>> {
    task.set_total(visits(store.view().rows, &store.params) as u64);
    let mut plan = Plan::new(store, task)?;
    for _ in 0..CATCH_UPS {
        let (late, pin) = store.look(|state, snapshot| (plan.late(state.directory.live_rows()), snapshot.clone()));
        if late.len() <= FEW {
            break;
        }
        plan.pins.push(pin);
        plan.take(store, late, task)?;
    }
    task.check()?;
    plan.publish(store)
}

/// [`cluster`] with `meanwhile` done between the planning and the publishing.
#[cfg(test)]
pub(crate) fn staged(store: &Store, meanwhile: impl FnOnce()) {
    if let Ok(plan) = Plan::new(store, &Task::new()) {
        meanwhile();
        let _ = plan.publish(store);
    }
}

/// A tree in the making.
struct Plan {
    topology: Topology,
    /// Rows that the centroids were made of: the first of `rows`.
    clustered: usize,
    rows: Vec<Row>,
    locations: Vec<Location>,
    /// Rows that were taken, by number.
    taken: Vec<bool>,
    /// Versions that list the rows that were taken: while they are held, no row number means another row.
    pins: Vec<Arc<Snapshot>>,
}

impl Plan {
    fn new(store: &Store, task: &Task) -> Result<Self> {
        let (rows, pin) = store.look(|state, snapshot| (state.directory.live_rows().collect::<Vec<Row>>(), snapshot.clone()));
        let centroids = centroids(store, &rows, pin.sequence, task)?;
        let topology = grow(&store.coder, &centroids, store.padded(), store.params.branching, store.params.seed, task)?;
        let mut plan =
            Self { topology, clustered: rows.len(), rows: Vec::new(), locations: Vec::new(), taken: Vec::new(), pins: vec![pin] };
        plan.take(store, rows, task)?;
        Ok(plan)
    }

    /// The rows of `live` that weren't taken.
    fn late(&self, live: impl Iterator<Item = Row>) -> Vec<Row> {
        live.filter(|&row| !self.taken.get(row as usize).copied().unwrap_or(false)).collect()
    }

    /// Routes rows into the new tree, a slice at a time: postings on their way take as much memory as those that have arrived.
    fn take(&mut self, store: &Store, rows: Vec<Row>, task: &Task) -> Result<()> {
        for slice in rows.chunks(SLICE) {
            let snapshot = Arc::new(self.topology.snapshot.clone());
            let routed = Routed::new(store, snapshot, slice.to_vec(), None, NONE, task)?;
            for (id, leaf) in routed.prepare(store.pool()) {
                self.topology.snapshot.leaves.set(id, Some(Arc::new(leaf.with_care(Care::default()))));
            }
            self.note(&routed);
        }
        Ok(())
    }

    fn note(&mut self, routed: &Routed) {
        for &row in &routed.rows {
            let place = row as usize;
            if place >= self.taken.len() {
                self.taken.resize(place + 1, false);
            }
            self.taken[place] = true;
        }
        self.rows.extend(&routed.rows);
        self.locations.extend(&routed.locations);
    }

    fn publish(mut self, store: &Store) -> Result<Vec<LeafId>> {
        let mut edit = store.edit();
        let late = self.late(edit.state().directory.live_rows());
        let snapshot = Arc::new(self.topology.snapshot.clone());
        let routed = Routed::alone(store, snapshot, late)?;
        self.note(&routed);
        let dead = self.dead(&edit);
        edit.replace_topology(self.topology);
        routed.apply(&mut edit, Vec::new(), |_, _| true);
        unlist_all(&mut edit, dead);
        let state = edit.state();
        for (&row, &location) in self.rows.iter().zip(&self.locations) {
            if state.directory.location(row) != DEAD {
                state.directory.set_location(row, location);
            }
        }
        // Rows that came later are in the tree, but had no say in where its centroids are.
        state.clustered_rows = self.clustered;
        state.added_since = self.rows.len() - self.clustered;
        Ok(edit.publish())
    }

    /// Postings of rows that died since they were taken.
    fn dead(&self, edit: &Edit<'_>) -> Vec<(LeafId, Row)> {
        let taken = self.rows.iter().zip(&self.locations);
        let gone = taken.filter(|(row, _)| edit.location(**row) == DEAD);
        gone.flat_map(|(&row, location)| location.iter().filter(|&&leaf| leaf != NONE).map(move |&leaf| (leaf, row))).collect()
    }
}

/// Drops postings, one change a leaf.
pub fn unlist_all(edit: &mut Edit<'_>, mut postings: Vec<(LeafId, Row)>) {
    postings.sort_unstable();
    for group in postings.chunk_by(|a, b| a.0 == b.0) {
        let rows: Vec<Row> = group.iter().map(|&(_, row)| row).collect();
        edit.unlist(group[0].0, &rows);
    }
}

fn centroids(store: &Store, rows: &[Row], sequence: u64, task: &Task) -> Result<Vec<Centroid>> {
    let clusters = clusters(rows.len(), &store.params);
    if rows.is_empty() {
        return Ok(vec![vec![0.0; store.padded()].into()]);
    }
    let seed = store.params.seed.wrapping_add(sequence);
    let size = rows.len().min(clusters * SAMPLE);
    let mut sample: Vec<Row> =
        index::sample(&mut Pcg64Mcg::seed_from_u64(seed), rows.len(), size).iter().map(|place| rows[place]).collect();
    sample.sort_unstable();
    let settings = Settings { clusters, rounds: ROUNDS, branching: store.params.branching, order: store.write_order(), coarse: true, seed };
    let some = |number: usize, out: &mut [f32]| store.rotate_row(sample[number], out);
    let some = Points { len: sample.len(), padded: store.padded(), load: &some };
    let mut centroids = kmeans(&store.coder, some, settings, task)?;
    let all = |number: usize, out: &mut [f32]| store.rotate_row(rows[number], out);
    let all = Points { len: rows.len(), padded: store.padded(), load: &all };
    lloyd(&store.coder, all, &mut centroids, Settings { rounds: FULL_ROUNDS - 1, ..settings }, task)?;
    // The last round decides where the centroids are.
    lloyd(&store.coder, all, &mut centroids, Settings { rounds: 1, coarse: false, ..settings }, task)?;
    Ok(centroids)
}
