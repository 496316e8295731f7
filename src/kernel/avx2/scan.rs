//! The fast-scan in registers of 32 bytes.
//!
//! A load takes two groups: the low half of the register is the 32 codes of one group, the high half those of the next, and their
//! tables lie the same way, so one byte shuffle per 16 entries looks both up. Sums of bytes are kept in 16 bits without unpacking:
//! `whole` adds the registers as they are, `odd` adds only the odd bytes, and the even bytes are `whole - 256 odd` modulo 2^16.
//! What can go wrong is overflow: 257 groups of 255 still fit 16 bits, so sums are widened each 256 groups.

use std::arch::x86_64::*;

use super::{load, store};
use crate::kernel::{BLOCK, CodeBlock, Lanes, ScanLimit, ScanTable};

/// Bytes of codes between two widenings: 256 groups.
const WIDEN: usize = 256 * 16;

#[inline]
#[target_feature(enable = "avx2,fma")]
fn load_pair(bytes: &[u8; 32]) -> __m256i {
    // SAFETY: the reference covers the 32 bytes that are read, and this load needs no alignment.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

/// One group in the low half, zeros in the high half: a table of zeros adds nothing.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn load_single(bytes: &[u8; 16]) -> __m256i {
    // SAFETY: the reference covers the 16 bytes that are read, and this load needs no alignment.
    _mm256_zextsi128_si256(unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) })
}

/// Sums of bytes in 16-bit lanes, for the entries 0 to 15 and 16 to 31.
#[derive(Clone, Copy)]
struct Running {
    whole: [__m256i; 2],
    odd: [__m256i; 2],
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn add_pair(sums: &mut Running, codes: __m256i, table: __m256i) {
    let nibble = _mm256_set1_epi8(15);
    let halves = [_mm256_and_si256(codes, nibble), _mm256_and_si256(_mm256_srli_epi16::<4>(codes), nibble)];
    for (half, index) in halves.into_iter().enumerate() {
        let found = _mm256_shuffle_epi8(table, index);
        sums.whole[half] = _mm256_add_epi16(sums.whole[half], found);
        // A multiply by 0 and 1 rather than a shift: the shuffles keep the units busy that also shift.
        sums.odd[half] = _mm256_add_epi16(sums.odd[half], _mm256_maddubs_epi16(found, _mm256_set1_epi16(0x100)));
    }
}

/// Adds the 16-bit sums to the 32-bit ones, eight entries a register.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn widen(totals: &mut [__m256i; 4], sums: &Running) {
    for half in 0..2 {
        let odd = sums.odd[half];
        let even = _mm256_sub_epi16(sums.whole[half], _mm256_slli_epi16::<8>(odd));
        let even = _mm_add_epi16(_mm256_castsi256_si128(even), _mm256_extracti128_si256::<1>(even));
        let odd = _mm_add_epi16(_mm256_castsi256_si128(odd), _mm256_extracti128_si256::<1>(odd));
        let parts = [_mm_unpacklo_epi16(even, odd), _mm_unpackhi_epi16(even, odd)];
        for (total, part) in totals[2 * half..].iter_mut().zip(parts) {
            *total = _mm256_add_epi32(*total, _mm256_cvtepu16_epi32(part));
        }
    }
}

/// Sums of at most [`WIDEN`] bytes.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn run(codes: &[u8], table: &[u8]) -> Running {
    let mut sums = Running { whole: [_mm256_setzero_si256(); 2], odd: [_mm256_setzero_si256(); 2] };
    let (codes_pairs, codes_rest) = codes.as_chunks::<32>();
    let (table_pairs, table_rest) = table.as_chunks::<32>();
    let (codes_eights, codes_pairs) = codes_pairs.as_chunks::<4>();
    let (table_eights, table_pairs) = table_pairs.as_chunks::<4>();
    for (codes, table) in codes_eights.iter().zip(table_eights) {
        for (codes, table) in codes.iter().zip(table) {
            add_pair(&mut sums, load_pair(codes), load_pair(table));
        }
    }
    for (codes, table) in codes_pairs.iter().zip(table_pairs) {
        add_pair(&mut sums, load_pair(codes), load_pair(table));
    }
    if let (Some(codes), Some(table)) = (codes_rest.first_chunk(), table_rest.first_chunk()) {
        add_pair(&mut sums, load_single(codes), load_single(table));
    }
    sums
}

/// Hands the sums of a block to `finish`, eight entries a register. Compiled once for each `finish`, so that they stay in registers.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn with_sums<T>(codes: &[u8], table: &[u8], finish: impl FnOnce([__m256i; 4]) -> T) -> T {
    debug_assert!(codes.len() == table.len() && codes.len().is_multiple_of(16));
    let mut totals = [_mm256_setzero_si256(); 4];
    for (codes, table) in codes.chunks(WIDEN).zip(table.chunks(WIDEN)) {
        widen(&mut totals, &run(codes, table));
    }
    finish(totals)
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn scan_sums(codes: &[u8], table: &[u8], out: &mut [u32; BLOCK]) {
    with_sums(codes, table, |totals| {
        let (parts, _) = out.as_chunks_mut::<8>();
        for (part, total) in parts.iter_mut().zip(totals) {
            // SAFETY: the reference covers the 32 bytes that are written, and this store needs no alignment.
            unsafe { _mm256_storeu_si256(part.as_mut_ptr().cast(), total) };
        }
    })
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn scan(table: &ScanTable, block: &CodeBlock, limit: &ScanLimit, estimates: &mut Lanes, lowers: &mut Lanes) -> u32 {
    with_sums(block.codes, table.table, |sums| bounds(sums, table, block, limit, estimates, lowers))
}

/// The arithmetic after the sums. Where nothing is within the limit, nothing is stored.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn bounds(sums: [__m256i; 4], table: &ScanTable, block: &CodeBlock, limit: &ScanLimit, estimates: &mut Lanes, lowers: &mut Lanes) -> u32 {
    let (adds, _) = block.add.as_chunks::<8>();
    let (rescales, _) = block.rescale.as_chunks::<8>();
    let (errors, _) = block.error.as_chunks::<8>();
    let sign = _mm256_set1_ps(-0.0);
    let mut passed = 0u32;
    let mut estimate = [_mm256_setzero_ps(); 4];
    let mut lower = [_mm256_setzero_ps(); 4];
    for part in 0..4 {
        let sum = _mm256_cvtepi32_ps(sums[part]);
        let product = _mm256_fmadd_ps(_mm256_set1_ps(table.scale.step), sum, _mm256_set1_ps(table.scale.offset));
        let rescale = load(&rescales[part]);
        let base = _mm256_add_ps(load(&adds[part]), _mm256_set1_ps(limit.add));
        estimate[part] = _mm256_fmadd_ps(rescale, product, base);
        let bound = _mm256_fnmadd_ps(load(&errors[part]), _mm256_set1_ps(limit.error), estimate[part]);
        lower[part] = _mm256_fnmadd_ps(_mm256_andnot_ps(sign, rescale), _mm256_set1_ps(table.scale.error), bound);
        let within = _mm256_cmp_ps::<_CMP_NGT_UQ>(lower[part], _mm256_set1_ps(limit.limit));
        passed |= (_mm256_movemask_ps(within) as u32) << (8 * part);
    }
    if passed != 0 {
        let (estimates, _) = estimates.as_chunks_mut::<8>();
        let (lowers, _) = lowers.as_chunks_mut::<8>();
        for part in 0..4 {
            store(&mut estimates[part], estimate[part]);
            store(&mut lowers[part], lower[part]);
        }
    }
    passed
}
