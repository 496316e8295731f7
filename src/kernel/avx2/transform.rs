//! Rotation, encoding and query tables in registers of eight floats.
//!
//! The hazard is the order of operations: [`hadamard`] and [`build_table`] round exactly as the portable kernels do, so that a code
//! or a table does not depend on the processor. [`encode`] does so for the bits; its sums may differ in the last places.

use std::arch::x86_64::*;

use super::{load, store, total};
use crate::kernel::{CodeSums, GROUP, TableScale, scalar};

/// Butterflies of half-widths 1, 2 and 4 inside a register. Each adds the neighbour to the value, with the value negated where the
/// butterfly subtracts.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn first_stages(v: __m256) -> __m256 {
    let v =
        _mm256_add_ps(_mm256_permute_ps::<0b10_11_00_01>(v), _mm256_xor_ps(v, _mm256_setr_ps(0.0, -0.0, 0.0, -0.0, 0.0, -0.0, 0.0, -0.0)));
    let v =
        _mm256_add_ps(_mm256_permute_ps::<0b01_00_11_10>(v), _mm256_xor_ps(v, _mm256_setr_ps(0.0, 0.0, -0.0, -0.0, 0.0, 0.0, -0.0, -0.0)));
    _mm256_add_ps(_mm256_permute2f128_ps::<1>(v, v), _mm256_xor_ps(v, _mm256_setr_ps(0.0, 0.0, 0.0, 0.0, -0.0, -0.0, -0.0, -0.0)))
}

/// The stages of half-widths `half` and `2 * half` in one pass over memory; `half` counts registers.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn two_stages(chunks: &mut [[f32; 8]], half: usize) {
    for part in chunks.chunks_exact_mut(4 * half) {
        let (front, back) = part.split_at_mut(2 * half);
        let ((a, b), (c, d)) = (front.split_at_mut(half), back.split_at_mut(half));
        for ((a, b), (c, d)) in a.iter_mut().zip(b).zip(c.iter_mut().zip(d)) {
            let (va, vb, vc, vd) = (load(a), load(b), load(c), load(d));
            let (sum_front, difference_front) = (_mm256_add_ps(va, vb), _mm256_sub_ps(va, vb));
            let (sum_back, difference_back) = (_mm256_add_ps(vc, vd), _mm256_sub_ps(vc, vd));
            store(a, _mm256_add_ps(sum_front, sum_back));
            store(b, _mm256_add_ps(difference_front, difference_back));
            store(c, _mm256_sub_ps(sum_front, sum_back));
            store(d, _mm256_sub_ps(difference_front, difference_back));
        }
    }
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn hadamard(values: &mut [f32]) {
    if values.len() < 8 {
        return scalar::hadamard_body(values);
    }
    debug_assert!(values.len().is_power_of_two());
    let (chunks, _) = values.as_chunks_mut::<8>();
    for chunk in chunks.iter_mut() {
        let done = first_stages(load(chunk));
        store(chunk, done);
    }
    let mut half = 1;
    while 4 * half <= chunks.len() {
        two_stages(chunks, half);
        half *= 4;
    }
    if half < chunks.len() {
        let (front, back) = chunks.split_at_mut(half);
        for (a, b) in front.iter_mut().zip(back) {
            let (va, vb) = (load(a), load(b));
            store(a, _mm256_add_ps(va, vb));
            store(b, _mm256_sub_ps(va, vb));
        }
    }
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn encode(residual: &[f32], reference: &[f32], bits: &mut [u8]) -> CodeSums {
    debug_assert!(residual.len() == reference.len() && residual.len() == 8 * bits.len());
    let (residual, _) = residual.as_chunks::<8>();
    let (reference, _) = reference.as_chunks::<8>();
    let sign = _mm256_set1_ps(-0.0);
    let mut sums = [_mm256_setzero_ps(); 4];
    for ((r, c), byte) in residual.iter().zip(reference).zip(bits) {
        let (r, c) = (load(r), load(c));
        let positive = _mm256_cmp_ps::<_CMP_GE_OQ>(r, _mm256_setzero_ps());
        *byte = _mm256_movemask_ps(positive) as u8;
        sums[0] = _mm256_add_ps(sums[0], _mm256_andnot_ps(sign, r));
        sums[1] = _mm256_fmadd_ps(r, r, sums[1]);
        sums[2] = _mm256_add_ps(sums[2], _mm256_xor_ps(c, _mm256_andnot_ps(positive, sign)));
        sums[3] = _mm256_fmadd_ps(r, c, sums[3]);
    }
    CodeSums { absolute: total(sums[0]), square: total(sums[1]), reference_sign: total(sums[2]), reference_residual: total(sums[3]) }
}

/// The entries of one group: pattern by pattern the sum of the chosen values, less the least sum, in steps.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn group_entries(group: &[f32; GROUP], inverse: f32) -> __m128i {
    let base = group.iter().map(|x| x.min(0.0)).sum::<f32>();
    let patterns = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    let (mut low, mut high) = (_mm256_set1_ps(-base), _mm256_set1_ps(-base));
    for (j, &x) in group.iter().enumerate() {
        let bit = _mm256_set1_epi32(1 << j);
        let chosen =
            |patterns| _mm256_and_ps(_mm256_set1_ps(x), _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(patterns, bit), bit)));
        low = _mm256_add_ps(low, chosen(patterns));
        high = _mm256_add_ps(high, chosen(_mm256_add_epi32(patterns, _mm256_set1_epi32(8))));
    }
    let whole = |sums| {
        let steps = _mm256_add_ps(_mm256_mul_ps(sums, _mm256_set1_ps(inverse)), _mm256_set1_ps(0.5));
        // The order of arguments lets a NaN through, which becomes 0 like in the portable kernel.
        _mm256_cvttps_epi32(_mm256_min_ps(_mm256_set1_ps(255.0), steps))
    };
    let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packus_epi32(whole(low), whole(high)));
    _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words))
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn build_table(query: &[f32], table: &mut [u8]) -> TableScale {
    debug_assert!(query.len().is_multiple_of(GROUP) && table.len() == query.len() / GROUP * 16);
    let (groups, _) = query.as_chunks::<GROUP>();
    let (tables, _) = table.as_chunks_mut::<16>();
    let (scale, inverse) = scalar::table_scale(groups);
    for (group, entries) in groups.iter().zip(tables) {
        let bytes = group_entries(group, inverse);
        // SAFETY: the reference covers the 16 bytes that are written, and this store needs no alignment.
        unsafe { _mm_storeu_si128(entries.as_mut_ptr().cast(), bytes) };
    }
    scale
}
