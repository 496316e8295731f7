//! How far a query has come: what it has met in which leaf, for the decision whether it goes on.
//!
//! The problem: the decision must cost little beside the scan, and be the same in a search and where it is measured.
//! The rule of use: [`Front::enter`] before each leaf, [`Front::meet`] for each row that may be near. With a [`Stop`] it ends the query; without
//! one it keeps the [`Sight`]s of each place where a query might have ended.
//! The hazard: it goes by estimates, which every way of reranking has, and not by bounds, which in few dimensions say little.

use super::target::{Sight, Stop, group};
use super::topk::TopK;
use crate::tree::aim::Target;
use crate::tree::navigate::Order;
use crate::tree::store::Store;
use crate::vectors::Row;

/// See the module's page.
#[derive(Debug)]
pub struct Front {
    /// For each depth the nearest by estimate. Their ids hold the distance of the leaf where they were met, and the row.
    nearest: Vec<TopK>,
    /// The distance of a leaf is its score times this, plus the other.
    scale: f32,
    add: f32,
    first: f32,
    leaf: f32,
    leaves: usize,
    next_check: usize,
    stop: Option<Stop>,
    /// Rows that might have been near, and were met or turned away by the filter.
    passed: u64,
    refused: u64,
    sights: Vec<Vec<Sight>>,
}

impl Front {
    /// For a query of `target` that looks for as many neighbours as each of `depths`.
    pub fn new(depths: &[usize], store: &Store, target: &Target) -> Self {
        let (scale, add) = match store.order() {
            Order::Distance => (1.0, 0.0),
            Order::Angle => (1.0, 1.0),
            Order::Product => (1.0 / target.norm.sqrt().max(f32::MIN_POSITIVE), 0.0),
        };
        Self {
            nearest: depths.iter().map(|&depth| TopK::new(depth)).collect(),
            scale,
            add,
            first: 0.0,
            leaf: 0.0,
            leaves: 0,
            next_check: group(0),
            stop: None,
            passed: 0,
            refused: 0,
            sights: Vec::new(),
        }
    }

    /// The same, with the end decided.
    pub fn until(self, stop: Stop) -> Self {
        Self { stop: Some(stop), ..self }
    }

    /// Leaves so far.
    pub fn leaves(&self) -> usize {
        self.leaves
    }

    /// Leaves up to where it is asked next whether the query goes on.
    pub fn group(&self) -> usize {
        self.next_check.saturating_sub(self.leaves).max(1)
    }

    /// Whether the query ends before a leaf of this score, which is entered otherwise.
    pub fn enter(&mut self, score: f32) -> bool {
        let next = score * self.scale + self.add;
        if self.leaves == self.next_check {
            self.next_check += group(self.leaves);
            match &self.stop {
                Some(stop) => {
                    let sight = self.sight(&self.nearest[0], next);
                    if stop.near_query(self.passed, self.refused).as_ref().unwrap_or(stop).ends(&sight) {
                        return true;
                    }
                }
                None => self.sights.push(self.nearest.iter().map(|nearest| self.sight(nearest, next)).collect()),
            }
        }
        if self.leaves == 0 {
            self.first = next;
        }
        (self.leaf, self.leaves) = (next, self.leaves + 1);
        false
    }

    /// Notes a row in the leaf that was entered last.
    #[inline]
    pub fn meet(&mut self, estimate: f32, row: Row) {
        let id = (u64::from(self.leaf.to_bits()) << 32 | u64::from(row)) as i64;
        self.nearest.iter_mut().for_each(|nearest| nearest.push(estimate, id));
        self.passed += 1;
    }

    /// Notes that the filter turned rows away that might have been near.
    #[inline]
    pub fn refuse(&mut self, rows: u32) {
        self.refused += u64::from(rows);
    }

    fn sight(&self, nearest: &TopK, next: f32) -> Sight {
        // Under cosine estimates are distances already, as leaves' are with what is added to them.
        let kth = nearest.worst() * self.scale;
        let spread = if kth < f32::INFINITY {
            let leaves = nearest.kept().map(|kept| f64::from(f32::from_bits((kept.id as u64 >> 32) as u32)));
            (leaves.sum::<f64>() / nearest.len().max(1) as f64) as f32
        } else {
            f32::INFINITY
        };
        Sight { next, kth, spread, first: self.first, leaves: self.leaves as u32 }
    }

    /// What was seen where the query might have ended.
    pub fn into_sights(self) -> Vec<Vec<Sight>> {
        self.sights
    }
}
