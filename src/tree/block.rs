//! A block: 32 entries of a posting list, or of an internal node's children. One structure, scanned by one kernel, at every level.
//!
//! A block is one buffer of cache lines: items, the three factors, then the codes in fast-scan order, so that a leaf is read front to back.
//! Blocks are immutable once they are shared; adding an entry to a shared block copies it first.
#![allow(unsafe_code)]

use std::sync::Arc;

use crate::kernel::{BLOCK, CodeBlock, GROUP};
use crate::quantize::Factors;

/// Bytes of a cache line, and a block's alignment.
const LINE: usize = 64;
/// Lines before the codes: items and three factors, four bytes each.
const HEAD: usize = 4 * BLOCK * 4 / LINE;
const ITEMS: usize = 0;
const ADD: usize = 1;
const RESCALE: usize = 2;
const ERROR: usize = 3;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; LINE]);

/// 32 entries: an item (a row, or a child's number), factors and a 1-bit code each. A clone shares them until either is changed.
#[derive(Clone)]
pub struct Block {
    lines: Arc<[Line]>,
}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Block").field("items", self.items()).finish_non_exhaustive()
    }
}

impl Block {
    /// An empty block for codes of `code_bytes`, a multiple of 8.
    pub fn new(code_bytes: usize) -> Self {
        let lines = HEAD + (code_bytes * BLOCK).div_ceil(LINE);
        Self { lines: vec![Line([0; LINE]); lines].into() }
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        size_of_val::<[Line]>(&self.lines) + size_of::<Self>()
    }

    fn bytes_view(&self) -> &[u8] {
        // SAFETY: lines are plain bytes without padding, lying one after the other.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.lines.len() * LINE) }
    }

    fn bytes_view_mut(&mut self) -> &mut [u8] {
        let lines = Arc::make_mut(&mut self.lines);
        // SAFETY: as above; the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), lines.len() * LINE) }
    }

    fn array<T: Copy>(&self, which: usize) -> &[T; BLOCK] {
        const { assert!(size_of::<T>() == 4 && align_of::<T>() == 4) };
        // SAFETY: the head holds four arrays of BLOCK four-byte numbers; `T` is u32 or f32 here, for which all bits are valid, and each
        // array starts at a multiple of 128 bytes.
        unsafe { &*self.lines.as_ptr().cast::<[T; BLOCK]>().add(which) }
    }

    /// The items; those past the entries in use are 0.
    pub fn items(&self) -> &[u32; BLOCK] {
        self.array(ITEMS)
    }

    /// The kernel's view.
    pub fn codes(&self) -> CodeBlock<'_> {
        CodeBlock { codes: &self.bytes_view()[HEAD * LINE..], add: self.array(ADD), rescale: self.array(RESCALE), error: self.array(ERROR) }
    }

    /// All bytes, for prefetching.
    pub fn raw(&self) -> &[u8] {
        self.bytes_view()
    }

    /// The factors of entry `place`.
    pub fn factors(&self, place: usize) -> Factors {
        let codes = self.codes();
        Factors { add: codes.add[place], rescale: codes.rescale[place], error: codes.error[place] }
    }

    /// Writes entry `place`, whatever was there. `bits` has `code_bytes` of the block.
    pub fn put(&mut self, place: usize, item: u32, factors: Factors, bits: &[u8]) {
        debug_assert_eq!(self.bytes_view().len(), HEAD * LINE + bits.len() * BLOCK);
        let (head, codes) = self.bytes_view_mut().split_at_mut(HEAD * LINE);
        let words = [item, factors.add.to_bits(), factors.rescale.to_bits(), factors.error.to_bits()];
        for (which, word) in [ITEMS, ADD, RESCALE, ERROR].into_iter().zip(words) {
            let start = (which * BLOCK + place) * 4;
            head[start..start + 4].copy_from_slice(&word.to_ne_bytes());
        }
        let (byte, shift) = (place % 16, place / 16 * 4);
        let keep = !(15u8 << shift);
        let (groups, _) = codes.as_chunks_mut::<16>();
        // One byte of a code is two groups of four dimensions.
        for (pair, &bits) in groups.as_chunks_mut::<2>().0.iter_mut().zip(bits) {
            pair[0][byte] = pair[0][byte] & keep | (bits & 15) << shift;
            pair[1][byte] = pair[1][byte] & keep | (bits >> 4) << shift;
        }
    }

    /// Reads the code of entry `place` back into `bits`.
    pub fn take(&self, place: usize, bits: &mut [u8]) {
        const { assert!(GROUP == 4) };
        let (byte, shift) = (place % 16, place / 16 * 4);
        let (groups, _) = self.bytes_view()[HEAD * LINE..].as_chunks::<16>();
        for (pair, bits) in groups.as_chunks::<2>().0.iter().zip(bits) {
            *bits = pair[0][byte] >> shift & 15 | (pair[1][byte] >> shift & 15) << 4;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_as_they_were_put() {
        let code_bytes = 24;
        let mut block = Block::new(code_bytes);
        let code = |seed: usize| -> Vec<u8> { (0..code_bytes).map(|i| ((seed + 1) * 37 + i * 101) as u8).collect() };
        let factors = |seed: usize| Factors { add: seed as f32, rescale: -(seed as f32), error: 0.5 };
        for round in [0, 100] {
            for place in 0..BLOCK {
                block.put(place, (place + round) as u32, factors(place + round), &code(place + round));
            }
            for place in 0..BLOCK {
                let mut bits = vec![0; code_bytes];
                block.take(place, &mut bits);
                assert_eq!(bits, code(place + round));
                assert_eq!(block.items()[place], (place + round) as u32);
                assert_eq!(block.factors(place), factors(place + round));
            }
        }
    }
}
