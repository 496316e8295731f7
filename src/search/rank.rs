//! From candidates to the k nearest: the exact distances of those that may be among them.
//!
//! The problem: an exact distance is a read from a random place, of memory or of a disk.
//! The rule of use: [`Searcher::rank`] after the leaves were scanned; candidates are compared in the order of their estimates, so that the k-th
//! exact distance soon shows which lower bounds are beyond it, and the reads of the next ones are started early.
//! The hazard: what is started early may turn out not to be needed.

use std::collections::VecDeque;
use std::time::Instant;

use super::scan::{Candidate, Cost, Request, Searcher};
use super::topk::TopK;
use crate::error::Result;
use crate::params::Rerank;
use crate::tree::store::Store;
use crate::value::QuerySums;
use crate::vectors::Row;

/// Candidates ahead whose vector is fetched while one is compared.
const VECTORS_AHEAD: usize = 6;
/// Vectors from which on exact distances are shared with a team. Tests share more.
const SHARED_VECTORS: usize = if cfg!(test) { 1 << 4 } else { 1 << 9 };

impl Searcher<'_> {
    /// Writes the neighbours of `query` among `rows`, each compared exactly.
    pub fn search_rows(&mut self, rows: &[Row], query: &[f32], k: usize, ids: &mut [i64], distances: &mut [f32]) -> Result<Cost> {
        let began = Instant::now();
        let store = self.store;
        self.prepared.copy_from_slice(query);
        store.metric.prepare(&mut self.prepared);
        if store.vectors.codec().is_coded() {
            store.rotation.rotate(&self.prepared, &mut self.target.rotated);
            self.sums = store.vectors.codec().sums(&self.target.rotated);
        }
        let mut best = TopK::new(k);
        for (distance, &row) in self.compare(rows)?.into_iter().zip(rows) {
            best.push(distance, self.id(row)?);
        }
        best.write_row(ids, distances);
        Ok(Cost { reranked: rows.len() as u64, rerank: began.elapsed(), ..Cost::default() })
    }

    /// The distance of the query to `row`.
    pub(super) fn exact(&mut self, row: Row) -> Result<f32> {
        let Self { store, prepared, target, sums, room, .. } = self;
        Asked { store, prepared, rotated: &target.rotated, sums }.distance(row, room)
    }

    /// Drops the candidates beyond `limit`; the nearest by estimate come first.
    pub(super) fn order_candidates(&mut self, limit: f32) {
        self.candidates.retain(|candidate| candidate.may_pass(limit));
        self.candidates.sort_unstable_by(|a, b| a.estimate.total_cmp(&b.estimate).then(a.row.cmp(&b.row)));
    }

    /// The k nearest of the candidates up to `limit`.
    pub(super) fn rank(&mut self, request: &Request<'_>, limit: f32) -> Result<TopK> {
        self.order_candidates(limit);
        let mut best = TopK::new(request.k);
        let candidates = std::mem::take(&mut self.candidates);
        if request.rerank == Rerank::Estimate {
            for candidate in &candidates {
                best.push(candidate.estimate, self.id(candidate.row)?);
            }
            self.candidates = candidates;
            return Ok(best);
        }
        let most = match request.rerank {
            Rerank::Factor(_) => request.wanted(),
            _ => usize::MAX,
        };
        // Vectors on disk are read some at a time, in the order in which they lie there.
        let mut batch = request.k.max(8);
        let mut rest = &candidates[..candidates.len().min(most)];
        if self.rank_shared(rest, request, &mut best)? {
            rest = &[];
        }
        while !rest.is_empty() {
            let (some, others) = rest.split_at(batch.min(rest.len()));
            let near = some.iter().filter(|candidate| request.compares(candidate, &best));
            self.store.vectors.expect(near.map(|candidate| candidate.row))?;
            self.rank_some(some, request, &mut best)?;
            (rest, batch) = (others, 32);
        }
        self.candidates = candidates;
        Ok(best)
    }

    /// Compares candidates in their order, the next ones' vectors on their way from memory.
    fn rank_some(&mut self, candidates: &[Candidate], request: &Request<'_>, best: &mut TopK) -> Result<()> {
        // None that is known not to be needed.
        let mut ahead = candidates.iter();
        let mut fetched = VecDeque::with_capacity(VECTORS_AHEAD);
        loop {
            while fetched.len() < VECTORS_AHEAD {
                let Some(next) = ahead.find(|candidate| request.compares(candidate, best)) else { break };
                self.store.vectors.prefetch(next.row);
                self.store.ids.prefetch(next.row);
                fetched.push_back(next);
            }
            let Some(candidate) = fetched.pop_front() else { return Ok(()) };
            if !request.compares(candidate, best) {
                continue;
            }
            self.cost.reranked += 1;
            let distance = self.exact(candidate.row)?;
            // The id is only read where it may matter: it is one more read from a random place.
            if distance <= best.worst() {
                best.push(distance, self.id(candidate.row)?);
            }
        }
    }

    /// The distances of `rows`, in their order; with the team where there are many.
    fn compare(&mut self, rows: &[Row]) -> Result<Vec<f32>> {
        let asked = Asked { store: self.store, prepared: &self.prepared, rotated: &self.target.rotated, sums: &self.sums };
        let some = |rows: &[Row]| -> Result<Vec<f32>> {
            asked.store.vectors.expect(rows.iter().copied())?;
            let mut room = Room::default();
            rows.iter().map(|&row| asked.distance(row, &mut room)).collect()
        };
        let Some(team) = self.team.filter(|_| rows.len() >= SHARED_VECTORS) else { return some(rows) };
        let parts: Vec<&[Row]> = rows.chunks(rows.len().div_ceil(team.threads)).collect();
        Ok(team.share(parts.len(), |number| some(parts[number]))?.concat())
    }

    /// Ranks candidates, in the order of their estimates, with the team; false where there is none, or so little to do that one thread does it.
    fn rank_shared(&mut self, candidates: &[Candidate], request: &Request<'_>, best: &mut TopK) -> Result<bool> {
        let wanted = request.wanted();
        if self.team.is_none() || wanted < SHARED_VECTORS {
            return Ok(false);
        }
        // At least as many as are wanted are compared, whatever their bounds.
        for some in candidates.chunks(wanted) {
            let rows: Vec<Row> = some.iter().filter(|candidate| request.compares(candidate, best)).map(|candidate| candidate.row).collect();
            self.cost.reranked += rows.len() as u64;
            for (distance, &row) in self.compare(&rows)?.into_iter().zip(&rows) {
                if distance <= best.worst() {
                    best.push(distance, self.id(row)?);
                }
            }
        }
        Ok(true)
    }
}

/// Where a row is read from disk to, and decoded.
#[derive(Debug, Default)]
pub(super) struct Room {
    words: Vec<u32>,
    values: Vec<f32>,
}

/// A query, as rows are compared with it.
#[derive(Debug, Clone, Copy)]
struct Asked<'a> {
    store: &'a Store,
    prepared: &'a [f32],
    rotated: &'a [f32],
    sums: &'a QuerySums,
}

impl Asked<'_> {
    /// The distance to the stored vector; +inf where it overflows to what is not a number, as [`exact_search`](super::exact_search) has it. Codes
    /// are compared as they are, without being decoded.
    #[inline]
    fn distance(&self, row: Row, room: &mut Room) -> Result<f32> {
        let (store, codec) = (self.store, self.store.vectors.codec());
        let distance = if codec.is_coded() {
            codec.distance(self.rotated, self.sums, store.vectors.raw(row, &mut room.words)?)
        } else {
            store.metric.distance(store.kernels, self.prepared, store.vectors.get(row, &mut room.values)?)
        };
        Ok(if distance.is_nan() { f32::INFINITY } else { distance })
    }
}
