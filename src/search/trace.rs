//! A query scanned far beyond where a search would end, with the true neighbours that it met.

use super::fit::Trace;
use super::front::Front;
use super::scan::{Request, Searcher};
use super::topk::TopK;
use crate::error::Result;
use crate::params::{Beam, EPSILON, Rerank};
use crate::tree::snapshot::Snapshot;
use crate::vectors::Row;

impl Searcher<'_> {
    /// Scans the `most` nearest leaves of `query`, among whose neighbours row `without` doesn't count; watches as many neighbours as each of
    /// `depths`, ascending.
    pub fn trace(&mut self, snapshot: &Snapshot, query: &[f32], without: Row, depths: &[usize], most: usize) -> Result<Trace> {
        let k = depths.last().copied().unwrap_or(1);
        let request =
            Request { k, beam: Beam::default(), stop: None, rerank: Rerank::Bound, epsilon: EPSILON, filter: None, without: Some(without) };
        self.begin(query);
        self.front = Some(Front::new(depths, self.store, &self.target));
        let limit = self.collect_leaves(snapshot, &request, most)?;
        self.order_candidates(limit);
        let candidates = std::mem::take(&mut self.candidates);
        let mut best = TopK::new(k);
        for some in candidates.chunks(k.max(32)) {
            let near = some.iter().filter(|candidate| candidate.lower <= best.worst());
            self.store.vectors.expect(near.map(|candidate| candidate.row))?;
            for candidate in some {
                if candidate.lower > best.worst() {
                    continue;
                }
                let id = u64::from(candidate.leaf) << 32 | u64::from(candidate.row);
                best.push(self.exact(candidate.row)?, id as i64);
            }
        }
        self.candidates = candidates;
        let met = best.into_sorted().iter().map(|neighbour| (neighbour.id as u64 >> 32) as u32).collect();
        Ok(Trace { sights: self.front.take().map(Front::into_sights).unwrap_or_default(), met })
    }
}
