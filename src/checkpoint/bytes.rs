//! Numbers to bytes and back. All are little-endian; what is read is checked, and a length never asks for more than there is.

use bytemuck::{AnyBitPattern, NoUninit};

use crate::error::{Error, Result};
use crate::tree::leaf::Extent;

#[cfg(target_endian = "big")]
compile_error!("checkpoints are little-endian and written as memory holds them");

/// Appends `value`.
pub fn put<T: NoUninit>(out: &mut Vec<u8>, value: T) {
    out.extend_from_slice(bytemuck::bytes_of(&value));
}

/// Appends `values`.
pub fn put_all<T: NoUninit>(out: &mut Vec<u8>, values: &[T]) {
    out.extend_from_slice(bytemuck::cast_slice(values));
}

/// Appends an extent.
pub fn put_extent(out: &mut Vec<u8>, extent: Extent) {
    put(out, extent.segment);
    put(out, extent.bytes);
    put(out, extent.offset);
    put(out, extent.check);
}

/// Reads a record from front to back.
#[derive(Debug)]
pub struct Cursor<'a> {
    rest: &'a [u8],
    file: &'a str,
}

impl<'a> Cursor<'a> {
    /// Over the bytes of a record of `file`.
    pub fn new(bytes: &'a [u8], file: &'a str) -> Self {
        Self { rest: bytes, file }
    }

    /// The record isn't what it should be.
    pub fn broken<T>(&self, what: impl Into<String>) -> Result<T> {
        Err(Error::corrupt(self.file, what))
    }

    /// The next `len` bytes.
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8]> {
        let Some((part, rest)) = self.rest.split_at_checked(len) else {
            return self.broken(format!("a record ends {} bytes early", len - self.rest.len()));
        };
        self.rest = rest;
        Ok(part)
    }

    /// The next value.
    pub fn take<T: AnyBitPattern>(&mut self) -> Result<T> {
        Ok(bytemuck::pod_read_unaligned(self.bytes(size_of::<T>())?))
    }

    /// The next `count` values.
    pub fn take_all<T: AnyBitPattern>(&mut self, count: usize) -> Result<Vec<T>> {
        let Some(len) = count.checked_mul(size_of::<T>()) else { return self.broken("a count is out of range") };
        Ok(self.bytes(len)?.chunks_exact(size_of::<T>().max(1)).map(bytemuck::pod_read_unaligned).collect())
    }

    /// The next extent.
    pub fn extent(&mut self) -> Result<Extent> {
        Ok(Extent { segment: self.take()?, bytes: self.take()?, offset: self.take()?, check: self.take()? })
    }

    /// Fails unless all was read.
    pub fn end(&self) -> Result<()> {
        if self.rest.is_empty() { Ok(()) } else { self.broken(format!("a record has {} bytes too many", self.rest.len())) }
    }
}
