//! A block: 32 entries of a posting list, or of an internal node's children. One structure, scanned by one kernel, at every level.
//!
//! A block is one buffer of cache lines: items, the three factors, then the codes in fast-scan order, so that a leaf is read front to back.
//! Blocks are immutable once they are shared; adding an entry to a shared block copies it first.
#![allow(unsafe_code)]

use std::sync::Arc;

use super::pool::{LINE, Pool, Slot};
use crate::kernel::{BLOCK, CodeBlock, GROUP};
use crate::quantize::Factors;

/// Bytes before the codes: items and three factors, four bytes each.
const HEAD: usize = 4 * BLOCK * 4;
const ITEMS: usize = 0;
const ADD: usize = 1;
const RESCALE: usize = 2;
const ERROR: usize = 3;

/// 32 entries: an item (a row, or a child's number), factors and a 1-bit code each. A clone shares them until either is changed.
#[derive(Clone)]
pub struct Block {
    slot: Slot,
}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Block").field("items", self.items()).finish_non_exhaustive()
    }
}

impl Block {
    /// A pool for blocks whose codes have `code_bytes`, a multiple of 8.
    pub fn pool(code_bytes: usize) -> Arc<Pool> {
        Pool::new(HEAD + (code_bytes * BLOCK).next_multiple_of(LINE))
    }

    /// An empty block.
    pub fn new(pool: &Arc<Pool>) -> Self {
        Self { slot: Slot::new(pool) }
    }

    /// Bytes of each code.
    pub fn code_bytes(&self) -> usize {
        (self.slot.bytes().len() - HEAD) / BLOCK
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        self.slot.pool().slot_bytes() + size_of::<Self>()
    }

    fn array<T: Copy>(&self, which: usize) -> &[T; BLOCK] {
        const { assert!(size_of::<T>() == 4 && align_of::<T>() == 4) };
        // SAFETY: the head holds four arrays of BLOCK four-byte numbers; `T` is u32 or f32 here, for which all bits are valid; a slot's
        // content is aligned to a line, and each array starts at a multiple of 128 bytes.
        unsafe { &*self.slot.bytes().as_ptr().cast::<[T; BLOCK]>().add(which) }
    }

    /// The items; those past the entries in use are 0.
    pub fn items(&self) -> &[u32; BLOCK] {
        self.array(ITEMS)
    }

    /// The kernel's view.
    pub fn codes(&self) -> CodeBlock<'_> {
        CodeBlock { codes: &self.slot.bytes()[HEAD..], add: self.array(ADD), rescale: self.array(RESCALE), error: self.array(ERROR) }
    }

    /// All bytes, for prefetching.
    pub fn raw(&self) -> &[u8] {
        self.slot.bytes()
    }

    /// The factors of entry `place`.
    pub fn factors(&self, place: usize) -> Factors {
        let codes = self.codes();
        Factors { add: codes.add[place], rescale: codes.rescale[place], error: codes.error[place] }
    }

    /// Writes entry `place`, whatever was there. `bits` has `code_bytes` of the block.
    pub fn put(&mut self, place: usize, item: u32, factors: Factors, bits: &[u8]) {
        debug_assert_eq!(self.code_bytes(), bits.len());
        let (head, codes) = self.slot.make_mut().split_at_mut(HEAD);
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

    /// Takes over all bytes of another block of the same size, as [`Block::raw`] gives them.
    pub fn copy_from(&mut self, raw: &[u8]) {
        let own = self.slot.make_mut();
        if own.len() == raw.len() {
            own.copy_from_slice(raw);
        }
    }

    /// Reads the code of entry `place` back into `bits`.
    pub fn take(&self, place: usize, bits: &mut [u8]) {
        const { assert!(GROUP == 4) };
        let (byte, shift) = (place % 16, place / 16 * 4);
        let (groups, _) = self.slot.bytes()[HEAD..].as_chunks::<16>();
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
        let mut block = Block::new(&Block::pool(code_bytes));
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
