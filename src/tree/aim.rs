//! A query as the scans of a tree need it.
//!
//! The problem: a vector is rotated and its fast-scan table built once, though many nodes and leaves are scanned with it.
//! The rule of use: one [`Target`] a thread, aimed at one vector after the other.
//! The hazard: it belongs to one rotation; a target of another index has other codes.

use crate::kernel::{Kernels, ScanTable, TableScale};
use crate::quantize::Rotation;

/// Values that a coarse target scans, if it has as many. With 256 of 384, leaves scan up to a tenth more at equal recall.
const LEAST_REACH: usize = 512;

/// A rotated vector with its fast-scan table: what every scan needs. Reused from query to query.
#[derive(Debug, Clone)]
pub struct Target {
    /// The rotated vector.
    pub rotated: Vec<f32>,
    /// Its squared norm.
    pub norm: f32,
    /// Values whose codes are scanned.
    reach: usize,
    table: Vec<u8>,
    scale: TableScale,
}

impl Target {
    /// Room for vectors of `padded` values.
    pub fn new(padded: usize) -> Self {
        Self { rotated: vec![0.0; padded], norm: 0.0, reach: padded, table: vec![0; padded * 4], scale: TableScale::default() }
    }

    /// The same for a target that scans only the first values of long codes, since after the rotation these are a sample of all: for
    /// clustering, whose centroids move anyhow. With half of 1,024 values no more leaves are scanned at equal recall.
    pub fn coarse(padded: usize) -> Self {
        let reach = padded.min((padded / 4).next_multiple_of(64).max(LEAST_REACH));
        Self { reach, table: vec![0; reach * 4], ..Self::new(padded) }
    }

    /// Aims at `vector` (prepared, not rotated).
    pub fn aim(&mut self, kernels: &Kernels, rotation: &Rotation, vector: &[f32]) {
        rotation.rotate(vector, &mut self.rotated);
        self.finish(kernels);
    }

    /// Aims at a vector that is rotated already.
    pub fn aim_rotated(&mut self, kernels: &Kernels, rotated: &[f32]) {
        self.rotated.copy_from_slice(rotated);
        self.finish(kernels);
    }

    fn finish(&mut self, kernels: &Kernels) {
        self.norm = (kernels.dot)(&self.rotated, &self.rotated);
        self.scale = (kernels.build_table)(&self.rotated[..self.reach], &mut self.table);
        if self.is_coarse() {
            let share = self.rotated.len() as f32 / self.reach as f32;
            let TableScale { step, offset, error } = self.scale;
            self.scale = TableScale { step: step * share, offset: offset * share, error: error * share };
        }
    }

    /// Whether it scans a part of the codes.
    pub fn is_coarse(&self) -> bool {
        self.reach < self.rotated.len()
    }

    /// The kernel's view.
    pub fn table(&self) -> ScanTable<'_> {
        ScanTable { table: &self.table, scale: self.scale }
    }
}
