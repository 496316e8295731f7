//! From a row to its leaves.
//!
//! The owner is the leaf with the nearest centroid. The spilled copy goes where its residual is as orthogonal as possible to the owner's:
//! among the nearest leaves, the one with the least `|r2|^2 + w <r2, r1>^2 / |r1|^2` (SOAR, Sun et al. 2023). A query that misses the row in
//! one leaf, since the residual points the wrong way, is then likely to meet it in the other. Under cosine, residuals are those to the
//! centroids' directions.

use super::aim::Target;
use super::leaf::Postings;
use super::navigate::{Choice, Order, navigate_together};
use super::snapshot::Snapshot;
use super::store::Store;
use crate::ids::{LeafId, Location, NONE};
use crate::params::Beam;
use crate::vectors::Row;

/// Leaves among which a row's two are chosen. More hardly change the second choice.
const NEAREST: usize = 24;
/// The weight `w` of the part along the owner's residual. On real text embeddings 2 to 3 scan 5 to 15 % fewer rows than 1.
const ORTHOGONAL: f32 = 2.0;

/// How rows find their leaves: a fixed beam, without `tau`.
pub fn write_beam() -> Beam {
    Beam { tau: 1.0, least: NEAREST, most: NEAREST, levels: Vec::new() }
}

/// Rows that are routed together: see [`navigate_together`].
pub const TOGETHER: usize = 8;

/// Routes rows, a few at a time, with its own scratch.
pub struct Router<'a> {
    store: &'a Store,
    beam: Beam,
    targets: Vec<Target>,
    first: Vec<f32>,
    residual: Vec<f32>,
}

impl<'a> Router<'a> {
    /// A router over `store`.
    pub fn new(store: &'a Store) -> Self {
        let padded = store.padded();
        let targets = vec![Target::new(padded); TOGETHER];
        Self { store, beam: write_beam(), targets, first: vec![0.0; padded], residual: vec![0.0; padded] }
    }

    /// Takes a stored vector as number `number` of those that are routed next, below [`TOGETHER`].
    pub fn aim(&mut self, number: usize, vector: &[f32]) {
        self.targets[number].aim(self.store.kernels, &self.store.rotation, vector);
    }

    /// The leaves for the first `count` vectors that were taken, in `snapshot`, without `exclude` ([`NONE`]: all).
    pub fn route(&mut self, snapshot: &Snapshot, count: usize, exclude: LeafId) -> Vec<Location> {
        let (kernels, order) = (self.store.kernels, self.store.write_order());
        let found = navigate_together(snapshot, kernels, &self.targets[..count], order, &self.beam, &[exclude]);
        found.iter().enumerate().map(|(number, choices)| self.locate(number, choices)).collect()
    }

    fn locate(&mut self, number: usize, choices: &[Choice<'_>]) -> Location {
        let Some(owner) = choices.first() else { return [NONE; 2] };
        let spilled = if self.store.params.spill == 0 { NONE } else { self.spilled(number, choices) };
        [owner.id, spilled]
    }

    fn spilled(&mut self, number: usize, choices: &[Choice<'_>]) -> LeafId {
        let rotated = &self.targets[number].rotated;
        let Some(owner) = choices.first() else { return NONE };
        let dot = self.store.kernels.dot;
        // Under cosine a centroid counts by its direction.
        let scale = |choice: &Choice<'_>| if self.store.write_order() == Order::Angle { choice.inverse } else { 1.0 };
        let length = scale(owner);
        for ((r, v), c) in self.first.iter_mut().zip(rotated).zip(owner.centroid.iter()) {
            *r = v - length * c;
        }
        let norm = dot(&self.first, &self.first).max(f32::MIN_POSITIVE);
        let vector_part = dot(&self.first, rotated);
        let cost = |choice: &Choice<'_>| {
            // <r2, r1> = <v, r1> - <c2, r1>; |r2|^2 = |v|^2 - 2 <v, c2> + |c2|^2, and with directions 2 + 2 score.
            let along = vector_part - scale(choice) * dot(&self.first, choice.centroid);
            let square = if self.store.write_order() == Order::Angle { 2.0 * choice.score } else { choice.score };
            square + ORTHOGONAL * along * along / norm
        };
        let costs = choices[1..].iter().map(|choice| (cost(choice), choice.id));
        costs.min_by(|a, b| a.0.total_cmp(&b.0)).map_or(NONE, |(_, id)| id)
    }

    /// Encodes vector `number` of those that were taken for a leaf of `snapshot`.
    pub fn encode(&mut self, number: usize, snapshot: &Snapshot, leaf: LeafId, row: Row, postings: &mut Postings) {
        if let Some(leaf) = snapshot.leaf(leaf) {
            let (residual, rotated) = (&mut self.residual, &self.targets[number].rotated);
            postings.push(row, |bits| self.store.encoder.encode(rotated, &leaf.reference, residual, bits));
        }
    }
}
