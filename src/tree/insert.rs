//! Batches of rows on their way into leaves: routed and encoded against one snapshot, applied to a later one.
//!
//! Routing takes long and holds no lock, so by the time a batch is applied some of its leaves may be gone. A posting is only good for the
//! reference it was coded against: [`Routed::stale`] finds the rows that must be routed again, and everything else is applied as it is.

use std::sync::Arc;

use rayon::prelude::*;

use super::leaf::{Leaf, Postings};
use super::pool::Pool;
use super::route::{Router, TOGETHER};
use super::snapshot::Snapshot;
use super::store::{Edit, Store};
use crate::cancel::Task;
use crate::error::Result;
use crate::ids::{LeafId, Location, NONE};
use crate::quantize::Factors;
use crate::vectors::Row;

/// Fewest rows that are worth handing to another thread.
const CHUNK: usize = 256;
/// Most rows that are routed before the task is polled again.
const LARGEST_CHUNK: usize = 8192;

/// Rows that are routed in one piece: a few pieces a thread. Large pieces have large buffers, whose memory goes back to the system at once.
fn chunk_size(rows: usize) -> usize {
    let pieces = 4 * rayon::current_thread_index().map_or(1, |_| rayon::current_num_threads());
    (rows / pieces).clamp(CHUNK, LARGEST_CHUNK)
}

/// True where parallel work may spread over the pool that this thread belongs to. Threads outside a pool work alone: the global
/// pool is never used.
pub fn may_spread(items: usize) -> bool {
    items >= CHUNK && rayon::current_thread_index().is_some()
}

/// One posting of a routed row.
#[derive(Debug, Clone, Copy)]
struct Entry {
    leaf: LeafId,
    chunk: u32,
    place: u32,
    /// Index of the row in the batch.
    index: u32,
}

/// Rows with their locations in one snapshot, and their postings sorted by leaf.
#[derive(Debug)]
pub struct Routed {
    snapshot: Arc<Snapshot>,
    /// The rows of the batch.
    pub rows: Vec<Row>,
    /// The leaves that each row should be in.
    pub locations: Vec<Location>,
    postings: Vec<Postings>,
    entries: Vec<Entry>,
}

impl Routed {
    /// [`Routed::new`] without `from` and `exclude` on this thread alone: what may be called under the lock. (A thread that waits for parallel work
    /// takes up other work of its pool, which may want the lock.)
    pub fn alone(store: &Store, snapshot: Arc<Snapshot>, rows: Vec<Row>) -> Result<Self> {
        let chunks = rows.chunks(LARGEST_CHUNK).map(|part| route_chunk(store, &snapshot, part, None, NONE)).collect::<Result<_>>()?;
        Ok(Self::gather(snapshot, rows, chunks))
    }

    /// Routes `rows` in `snapshot`. With `from` (the locations they have), only postings in leaves that are new to a row are encoded.
    pub fn new(
        store: &Store,
        snapshot: Arc<Snapshot>,
        rows: Vec<Row>,
        from: Option<&[Location]>,
        exclude: LeafId,
        task: &Task,
    ) -> Result<Self> {
        let size = chunk_size(rows.len());
        let route = |(chunk, part): (usize, &[Row])| {
            task.check()?;
            let first = chunk * size;
            let from = from.map(|from| &from[first..first + part.len()]);
            let routed = route_chunk(store, &snapshot, part, from, exclude)?;
            task.advance(part.len() as u64);
            Ok(routed)
        };
        let chunks: Vec<Chunk> = if may_spread(rows.len()) {
            rows.par_chunks(size).enumerate().map(route).collect::<Result<_>>()?
        } else {
            rows.chunks(size).enumerate().map(route).collect::<Result<_>>()?
        };
        Ok(Self::gather(snapshot, rows, chunks))
    }

    fn gather(snapshot: Arc<Snapshot>, rows: Vec<Row>, chunks: Vec<Chunk>) -> Self {
        let mut routed = Self { snapshot, locations: Vec::with_capacity(rows.len()), rows, postings: Vec::new(), entries: Vec::new() };
        for (number, chunk) in chunks.into_iter().enumerate() {
            let base = routed.locations.len() as u32;
            let own = |&(leaf, place, index): &(LeafId, u32, u32)| Entry { leaf, chunk: number as u32, place, index: base + index };
            routed.entries.extend(chunk.entries.iter().map(own));
            routed.locations.extend(chunk.locations);
            routed.postings.push(chunk.postings);
        }
        routed.entries.sort_unstable_by_key(|entry| (entry.leaf, entry.index));
        routed
    }

    /// Takes the rows of these indices as they were routed `again`; afterwards the whole batch belongs to that snapshot, in which no
    /// other row may be stale.
    fn reroute(&mut self, stale: &[u32], again: Routed) {
        self.entries.retain(|entry| stale.binary_search(&entry.index).is_err());
        let first = self.postings.len() as u32;
        self.entries.extend(again.entries.iter().map(|entry| Entry {
            chunk: first + entry.chunk,
            index: stale[entry.index as usize],
            ..*entry
        }));
        self.entries.sort_unstable_by_key(|entry| (entry.leaf, entry.index));
        self.postings.extend(again.postings);
        for (&index, location) in stale.iter().zip(again.locations) {
            self.locations[index as usize] = location;
        }
        self.snapshot = again.snapshot;
    }

    fn rows_of(&self, indices: &[u32]) -> Vec<Row> {
        indices.iter().map(|&index| self.rows[index as usize]).collect()
    }

    fn posting(&self, entry: &Entry) -> (Row, Factors, &[u8]) {
        self.postings[entry.chunk as usize].get(entry.place as usize)
    }

    /// Indices of the rows that can't be applied to `next`, since a leaf they were routed to is gone. Ascending.
    pub fn stale(&self, next: &Snapshot) -> Vec<u32> {
        let mut stale = Vec::new();
        for group in self.entries.chunk_by(|a, b| a.leaf == b.leaf) {
            if !same_reference(self.snapshot.leaf(group[0].leaf), next.leaf(group[0].leaf)) {
                stale.extend(group.iter().map(|entry| entry.index));
            }
        }
        stale.sort_unstable();
        stale.dedup();
        stale
    }

    /// The leaves of this batch's snapshot with its postings appended, made before the lock is taken.
    pub fn prepare(&self, pool: &Arc<Pool>) -> Vec<(LeafId, Leaf)> {
        let groups: Vec<&[Entry]> = self.entries.chunk_by(|a, b| a.leaf == b.leaf).collect();
        let one = |group: &&[Entry]| {
            let leaf = self.snapshot.leaf(group[0].leaf)?;
            Some((group[0].leaf, leaf.append(pool, group.iter().map(|entry| self.posting(entry)))))
        };
        if may_spread(self.entries.len()) {
            groups.par_iter().with_min_len(16).filter_map(one).collect()
        } else {
            groups.iter().filter_map(one).collect()
        }
    }

    /// Lists the rows in their leaves. `prepared` is used for leaves that nobody changed meanwhile; where `wanted` (by index of the row, and
    /// leaf) keeps postings out it must be empty. Locations are the caller's to set.
    pub fn apply(&self, edit: &mut Edit<'_>, prepared: Vec<(LeafId, Leaf)>, wanted: impl Fn(u32, LeafId) -> bool) {
        let mut prepared = prepared.into_iter().peekable();
        for group in self.entries.chunk_by(|a, b| a.leaf == b.leaf) {
            let id = group[0].leaf;
            let ready = prepared.next_if(|(leaf, _)| *leaf == id).map(|(_, leaf)| leaf);
            let unchanged = matches!((self.snapshot.leaf(id), edit.next.leaf(id)), (Some(a), Some(b)) if Arc::ptr_eq(a, b));
            match ready {
                Some(leaf) if unchanged => edit.set_leaf(id, leaf),
                _ => edit.append(id, group.iter().filter(|entry| wanted(entry.index, id)).map(|entry| self.posting(entry))),
            }
        }
    }
}

/// Whether postings for one leaf are good for the other.
pub fn same_reference(a: Option<&Arc<Leaf>>, b: Option<&Arc<Leaf>>) -> bool {
    matches!((a, b), (Some(a), Some(b)) if Arc::ptr_eq(&a.reference, &b.reference))
}

struct Chunk {
    locations: Vec<Location>,
    postings: Postings,
    /// Leaf, place among the postings, index of the row in the chunk.
    entries: Vec<(LeafId, u32, u32)>,
}

fn route_chunk(store: &Store, snapshot: &Snapshot, rows: &[Row], from: Option<&[Location]>, exclude: LeafId) -> Result<Chunk> {
    let mut router = Router::new(store);
    // Before the first clustering there is one leaf; moves encode only what is new.
    let most = rows.len() * (1 + store.params.spill).min(snapshot.leaves.len());
    let mut chunk = Chunk {
        locations: Vec::with_capacity(rows.len()),
        postings: Postings::with_capacity(store.encoder.code_bytes(), most),
        entries: Vec::with_capacity(most),
    };
    let mut room = Vec::new();
    for (first, some) in (0..).step_by(TOGETHER).zip(rows.chunks(TOGETHER)) {
        for (number, &row) in some.iter().enumerate() {
            router.aim(number, store.vectors.get(row, &mut room)?);
        }
        let locations = router.route(snapshot, some.len(), exclude);
        for (number, (&row, location)) in some.iter().zip(&locations).enumerate() {
            let index: usize = first + number;
            let has = from.map_or([NONE; 2], |from| from[index]);
            for &leaf in location.iter().filter(|leaf| **leaf != NONE && !has.contains(leaf)) {
                chunk.entries.push((leaf, chunk.postings.len() as u32, index as u32));
                router.encode(number, snapshot, leaf, row, &mut chunk.postings);
            }
        }
        chunk.locations.extend(locations);
    }
    Ok(chunk)
}

/// A batch is routed again at most so often outside the lock.
const ROUNDS: usize = 4;
/// So few rows may be routed under the lock.
const FEW: usize = 32;

/// An edit, a batch that fits it, and the leaves that were prepared for it.
pub type Settled<'s> = (Edit<'s>, Routed, Vec<(LeafId, Leaf)>);

/// Routes `rows` and takes an edit to which the whole batch can be applied. What became stale meanwhile is routed again, outside the lock
/// while it is much.
pub fn settle<'s>(store: &'s Store, rows: Vec<Row>, task: &Task) -> Result<Settled<'s>> {
    let mut routed = Routed::new(store, store.snapshot(), rows, None, NONE, task)?;
    let mut round = 0;
    loop {
        let many = routed.rows.len() > FEW;
        let prepared = if many { routed.prepare(store.pool()) } else { Vec::new() };
        let edit = store.edit();
        let stale = routed.stale(&edit.next);
        if stale.is_empty() {
            return Ok((edit, routed, prepared));
        }
        if stale.len() <= FEW || round == ROUNDS {
            let again = Routed::alone(store, Arc::new(edit.next.clone()), routed.rows_of(&stale))?;
            routed.reroute(&stale, again);
            return Ok((edit, routed, Vec::new()));
        }
        drop(edit);
        task.check()?;
        let snapshot = store.snapshot();
        let stale = routed.stale(&snapshot);
        let again = Routed::new(store, snapshot, routed.rows_of(&stale), None, NONE, task)?;
        routed.reroute(&stale, again);
        round += 1;
    }
}
