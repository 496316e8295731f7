//! The fast-scan, one group at a time: two table lookups, then additions that widen bytes to 16 bits as they go.
//!
//! What can go wrong is overflow: 257 groups of 255 still fit 16 bits, so sums are widened to 32 bits each 256 groups.

use std::arch::aarch64::*;

use super::{load, load_bytes, load_words, store};
use crate::kernel::{BLOCK, CodeBlock, Lanes, ScanLimit, ScanTable};

/// Bytes of codes between two widenings: 256 groups.
const WIDEN: usize = 256 * 16;

/// Sums of at most [`WIDEN`] bytes, eight entries a register.
#[inline]
#[target_feature(enable = "neon")]
fn run(codes: &[u8], table: &[u8]) -> [uint16x8_t; 4] {
    let mut sums = [vdupq_n_u16(0); 4];
    let (codes, _) = codes.as_chunks::<16>();
    let (tables, _) = table.as_chunks::<16>();
    for (codes, table) in codes.iter().zip(tables) {
        let (codes, table) = (load_bytes(codes), load_bytes(table));
        let low = vqtbl1q_u8(table, vandq_u8(codes, vdupq_n_u8(15)));
        let high = vqtbl1q_u8(table, vshrq_n_u8::<4>(codes));
        sums[0] = vaddw_u8(sums[0], vget_low_u8(low));
        sums[1] = vaddw_high_u8(sums[1], low);
        sums[2] = vaddw_u8(sums[2], vget_low_u8(high));
        sums[3] = vaddw_high_u8(sums[3], high);
    }
    sums
}

/// Sums of any number of bytes, four entries a register.
#[inline]
#[target_feature(enable = "neon")]
fn block_sums(codes: &[u8], table: &[u8]) -> [uint32x4_t; 8] {
    debug_assert!(codes.len() == table.len() && codes.len().is_multiple_of(16));
    let mut totals = [vdupq_n_u32(0); 8];
    for (codes, table) in codes.chunks(WIDEN).zip(table.chunks(WIDEN)) {
        for (i, sum) in run(codes, table).into_iter().enumerate() {
            totals[2 * i] = vaddw_u16(totals[2 * i], vget_low_u16(sum));
            totals[2 * i + 1] = vaddw_high_u16(totals[2 * i + 1], sum);
        }
    }
    totals
}

#[target_feature(enable = "neon")]
pub(super) fn scan_sums(codes: &[u8], table: &[u8], out: &mut [u32; BLOCK]) {
    let (parts, _) = out.as_chunks_mut::<4>();
    for (part, total) in parts.iter_mut().zip(block_sums(codes, table)) {
        // SAFETY: the reference covers the 16 bytes that are written, and this store needs no more alignment than a word's.
        unsafe { vst1q_u32(part.as_mut_ptr(), total) };
    }
}

/// Where nothing is within the limit, nothing is stored.
#[target_feature(enable = "neon")]
pub(super) fn scan(table: &ScanTable, block: &CodeBlock, limit: &ScanLimit, estimates: &mut Lanes, lowers: &mut Lanes) -> u32 {
    let sums = block_sums(block.codes, table.table);
    let (adds, _) = block.add.as_chunks::<4>();
    let (rescales, _) = block.rescale.as_chunks::<4>();
    let (errors, _) = block.error.as_chunks::<4>();
    let weights = load_words(&[1, 2, 4, 8]);
    let mut passed = 0u32;
    let (mut estimate, mut lower) = ([vdupq_n_f32(0.0); 8], [vdupq_n_f32(0.0); 8]);
    for part in 0..8 {
        let product = vfmaq_n_f32(vdupq_n_f32(table.scale.offset), vcvtq_f32_u32(sums[part]), table.scale.step);
        let rescale = load(&rescales[part]);
        let base = vaddq_f32(load(&adds[part]), vdupq_n_f32(limit.add));
        estimate[part] = vfmaq_f32(base, rescale, product);
        let bound = vfmsq_f32(estimate[part], load(&errors[part]), vdupq_n_f32(limit.error));
        lower[part] = vfmsq_f32(bound, vabsq_f32(rescale), vdupq_n_f32(table.scale.error));
        let within = vmvnq_u32(vcgtq_f32(lower[part], vdupq_n_f32(limit.limit)));
        passed |= vaddvq_u32(vandq_u32(within, weights)) << (4 * part);
    }
    if passed != 0 {
        let (estimates, _) = estimates.as_chunks_mut::<4>();
        let (lowers, _) = lowers.as_chunks_mut::<4>();
        for part in 0..8 {
            store(&mut estimates[part], estimate[part]);
            store(&mut lowers[part], lower[part]);
        }
    }
    passed
}
