//! The fast-scan in registers of 64 bytes: four groups at a time, otherwise as for AVX2.
//!
//! Each quarter of a register is one group with its table. Sums of bytes are kept in 16 bits as `whole` and `odd`, whose even bytes
//! are `whole - 256 odd` modulo 2^16, and widened each 256 groups, the most whose sum still fits.

use std::arch::x86_64::*;

use super::{first, load, store};
use crate::kernel::{BLOCK, CodeBlock, Lanes, ScanLimit, ScanTable};

/// Bytes of codes between two widenings: 256 groups.
const WIDEN: usize = 256 * 16;

/// At most 64 bytes, zeros after them: a table of zeros adds nothing.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn load_bytes(bytes: &[u8]) -> __m512i {
    let mask = if bytes.len() >= 64 { u64::MAX } else { first(bytes.len()) };
    // SAFETY: only bytes below `bytes.len()` are read; a masked load touches no memory of the other bytes.
    unsafe { _mm512_maskz_loadu_epi8(mask, bytes.as_ptr().cast()) }
}

/// Sums of bytes in 16-bit lanes, for the entries 0 to 15 and 16 to 31.
struct Running {
    whole: [__m512i; 2],
    odd: [__m512i; 2],
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn add_groups(sums: &mut Running, codes: __m512i, table: __m512i) {
    let nibble = _mm512_set1_epi8(15);
    let halves = [_mm512_and_si512(codes, nibble), _mm512_and_si512(_mm512_srli_epi16::<4>(codes), nibble)];
    for (half, index) in halves.into_iter().enumerate() {
        let found = _mm512_shuffle_epi8(table, index);
        sums.whole[half] = _mm512_add_epi16(sums.whole[half], found);
        // A multiply by 0 and 1 rather than a shift: the shuffles keep the units busy that also shift.
        sums.odd[half] = _mm512_add_epi16(sums.odd[half], _mm512_maddubs_epi16(found, _mm512_set1_epi16(0x100)));
    }
}

/// Sums of at most [`WIDEN`] bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn run(codes: &[u8], table: &[u8]) -> Running {
    let mut sums = Running { whole: [_mm512_setzero_si512(); 2], odd: [_mm512_setzero_si512(); 2] };
    let (codes, codes_rest) = codes.as_chunks::<64>();
    let (table, table_rest) = table.as_chunks::<64>();
    for (codes, table) in codes.iter().zip(table) {
        add_groups(&mut sums, load_bytes(codes), load_bytes(table));
    }
    if !codes_rest.is_empty() {
        add_groups(&mut sums, load_bytes(codes_rest), load_bytes(table_rest));
    }
    sums
}

/// The sum of the four quarters, in 16-bit lanes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn fold(sums: __m512i) -> __m128i {
    let half = _mm256_add_epi16(_mm512_castsi512_si256(sums), _mm512_extracti64x4_epi64::<1>(sums));
    _mm_add_epi16(_mm256_castsi256_si128(half), _mm256_extracti128_si256::<1>(half))
}

/// Hands the sums of a block to `finish`, sixteen entries a register. Compiled once for each `finish`, so that they stay in registers.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn with_sums<T>(codes: &[u8], table: &[u8], finish: impl FnOnce([__m512i; 2]) -> T) -> T {
    debug_assert!(codes.len() == table.len() && codes.len().is_multiple_of(16));
    let mut totals = [_mm512_setzero_si512(); 2];
    for (codes, table) in codes.chunks(WIDEN).zip(table.chunks(WIDEN)) {
        let sums = run(codes, table);
        for (half, total) in totals.iter_mut().enumerate() {
            let even = fold(_mm512_sub_epi16(sums.whole[half], _mm512_slli_epi16::<8>(sums.odd[half])));
            let odd = fold(sums.odd[half]);
            let entries = _mm256_set_m128i(_mm_unpackhi_epi16(even, odd), _mm_unpacklo_epi16(even, odd));
            *total = _mm512_add_epi32(*total, _mm512_cvtepu16_epi32(entries));
        }
    }
    finish(totals)
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub(super) fn scan_sums(codes: &[u8], table: &[u8], out: &mut [u32; BLOCK]) {
    with_sums(codes, table, |totals| {
        let (parts, _) = out.as_chunks_mut::<16>();
        for (part, total) in parts.iter_mut().zip(totals) {
            // SAFETY: the reference covers the 64 bytes that are written, and this store needs no alignment.
            unsafe { _mm512_storeu_si512(part.as_mut_ptr().cast(), total) };
        }
    })
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub(super) fn scan(table: &ScanTable, block: &CodeBlock, limit: &ScanLimit, estimates: &mut Lanes, lowers: &mut Lanes) -> u32 {
    with_sums(block.codes, table.table, |sums| bounds(sums, table, block, limit, estimates, lowers))
}

/// The arithmetic after the sums. Where nothing is within the limit, nothing is stored.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn bounds(sums: [__m512i; 2], table: &ScanTable, block: &CodeBlock, limit: &ScanLimit, estimates: &mut Lanes, lowers: &mut Lanes) -> u32 {
    let (adds, _) = block.add.as_chunks::<16>();
    let (rescales, _) = block.rescale.as_chunks::<16>();
    let (errors, _) = block.error.as_chunks::<16>();
    let mut passed = 0u32;
    let (mut estimate, mut lower) = ([_mm512_setzero_ps(); 2], [_mm512_setzero_ps(); 2]);
    for part in 0..2 {
        let sum = _mm512_cvtepi32_ps(sums[part]);
        let product = _mm512_fmadd_ps(_mm512_set1_ps(table.scale.step), sum, _mm512_set1_ps(table.scale.offset));
        let rescale = load(&rescales[part]);
        let base = _mm512_add_ps(load(&adds[part]), _mm512_set1_ps(limit.add));
        estimate[part] = _mm512_fmadd_ps(rescale, product, base);
        let bound = _mm512_fnmadd_ps(load(&errors[part]), _mm512_set1_ps(limit.error), estimate[part]);
        lower[part] = _mm512_fnmadd_ps(_mm512_abs_ps(rescale), _mm512_set1_ps(table.scale.error), bound);
        let within = _mm512_cmp_ps_mask::<_CMP_NGT_UQ>(lower[part], _mm512_set1_ps(limit.limit));
        passed |= u32::from(within) << (16 * part);
    }
    if passed != 0 {
        let (estimates, _) = estimates.as_chunks_mut::<16>();
        let (lowers, _) = lowers.as_chunks_mut::<16>();
        for part in 0..2 {
            store(&mut estimates[part], estimate[part]);
            store(&mut lowers[part], lower[part]);
        }
    }
    passed
}
