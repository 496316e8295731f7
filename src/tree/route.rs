//! From a row to its leaves.
//!
//! The owner is the leaf with the nearest centroid. The spilled copy goes where its residual is as orthogonal as possible to the owner's:
//! among the nearest leaves, the one with the least `|r2|^2 + <r2, r1>^2 / |r1|^2` (SOAR, Sun et al. 2023). A query that misses the row in
//! one leaf, since the residual points the wrong way, is then likely to meet it in the other.

use super::leaf::Postings;
use super::navigate::{Choice, Order, Target, navigate};
use super::snapshot::Snapshot;
use super::store::Store;
use crate::ids::{LeafId, Location, NONE};
use crate::params::Beam;
use crate::vectors::Row;

/// Leaves among which a row's two are chosen. More hardly change the second choice.
const NEAREST: usize = 16;

/// How rows find their leaves: a fixed beam, without `tau`.
pub fn write_beam() -> Beam {
    Beam { tau: 1.0, least: NEAREST, most: NEAREST, levels: Vec::new() }
}

/// Routes rows one after the other, with its own scratch.
pub struct Router<'a> {
    store: &'a Store,
    beam: Beam,
    target: Target,
    first: Vec<f32>,
    residual: Vec<f32>,
}

impl<'a> Router<'a> {
    /// A router over `store`.
    pub fn new(store: &'a Store) -> Self {
        let padded = store.padded();
        Self { store, beam: write_beam(), target: Target::new(padded), first: vec![0.0; padded], residual: vec![0.0; padded] }
    }

    /// The leaves for a stored vector, in `snapshot`, without `exclude`.
    pub fn route(&mut self, snapshot: &Snapshot, vector: &[f32], exclude: LeafId) -> Location {
        self.target.aim(self.store.kernels, &self.store.rotation, vector);
        let choices = navigate(snapshot, self.store.kernels, &self.target, Order::Distance, &self.beam, exclude);
        let Some(owner) = choices.first() else { return [NONE; 2] };
        let spilled = if self.store.params.spill == 0 { NONE } else { self.spilled(snapshot, &choices) };
        [owner.id, spilled]
    }

    fn spilled(&mut self, snapshot: &Snapshot, choices: &[Choice]) -> LeafId {
        let Some(owner) = choices.first().and_then(|choice| snapshot.leaf(choice.id)) else { return NONE };
        let dot = self.store.kernels.dot;
        subtract(&mut self.first, &self.target.rotated, &owner.reference);
        let norm = dot(&self.first, &self.first).max(f32::MIN_POSITIVE);
        let vector_part = dot(&self.first, &self.target.rotated);
        let cost = |choice: &Choice| {
            // <r2, r1> = <v, r1> - <c2, r1>
            let along = snapshot.leaf(choice.id).map_or(0.0, |leaf| vector_part - dot(&self.first, &leaf.reference));
            choice.score + along * along / norm
        };
        let costs = choices[1..].iter().map(|choice| (cost(choice), choice.id));
        costs.min_by(|a, b| a.0.total_cmp(&b.0)).map_or(NONE, |(_, id)| id)
    }

    /// Encodes the vector of the last call of [`Router::route`] for a leaf of `snapshot`.
    pub fn encode(&mut self, snapshot: &Snapshot, leaf: LeafId, row: Row, postings: &mut Postings) {
        if let Some(leaf) = snapshot.leaf(leaf) {
            let (residual, rotated) = (&mut self.residual, &self.target.rotated);
            postings.push(row, |bits| self.store.encoder.encode(rotated, &leaf.reference, residual, bits));
        }
    }
}

fn subtract(out: &mut [f32], a: &[f32], b: &[f32]) {
    for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
        *out = a - b;
    }
}
