//! Large buffers for a while.
//!
//! The problem: a general allocator keeps what a large buffer leaves behind, in an arena for each thread; measured after building an index of
//! 200,000 rows, a sixth of the index's size. Mapped on its own, a buffer's memory goes back to the system when it is dropped.

use memmap2::MmapMut;

use crate::error::{Error, Result};

/// A buffer of f32 values, zeros at first.
#[derive(Debug)]
pub struct Scratch {
    map: MmapMut,
}

impl Scratch {
    /// Room for `len` values.
    pub fn new(len: usize) -> Result<Self> {
        let bytes = len.max(1).saturating_mul(size_of::<f32>());
        let map = MmapMut::map_anon(bytes).map_err(|_| Error::OutOfMemory { bytes, purpose: "clustering" })?;
        Ok(Self { map })
    }

    /// The values.
    pub fn values(&self) -> &[f32] {
        bytemuck::cast_slice(&self.map)
    }

    /// The values, to be changed.
    pub fn values_mut(&mut self) -> &mut [f32] {
        bytemuck::cast_slice_mut(&mut self.map)
    }
}
