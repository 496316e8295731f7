//! Inner products with whole numbers in bit planes, eight values a register.
//!
//! This processor has no masks of bits: 32 bits of a plane go to all lanes, each of which keeps its value where its own bit is set.

use std::arch::x86_64::*;

use super::{load, total};
use crate::kernel::{planes_of, run_of_bits};

#[target_feature(enable = "avx2,fma")]
pub(super) fn dot_planes(query: &[f32], planes: &[u8], bits: usize) -> f32 {
    run_of_bits!(run, query, planes, bits)
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn run<const BITS: usize>(query: &[f32], planes: &[u8]) -> f32 {
    let first = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    let own = [first, _mm256_slli_epi32::<8>(first), _mm256_slli_epi32::<16>(first), _mm256_slli_epi32::<24>(first)];
    let planes: [&[[u8; 4]]; BITS] = planes_of(planes, query.len() / 8);
    let (chunks, _) = query.as_chunks::<32>();
    let mut sums = [_mm256_setzero_ps(); BITS];
    for (i, chunk) in chunks.iter().enumerate() {
        let (values, _) = chunk.as_chunks::<8>();
        for (sum, plane) in sums.iter_mut().zip(&planes) {
            let word = _mm256_set1_epi32(i32::from_le_bytes(plane[i]));
            for (values, own) in values.iter().zip(own) {
                let chosen = _mm256_cmpeq_epi32(_mm256_and_si256(word, own), own);
                *sum = _mm256_add_ps(*sum, _mm256_and_ps(_mm256_castsi256_ps(chosen), load(values)));
            }
        }
    }
    let mut all = _mm256_setzero_ps();
    for sum in sums.into_iter().rev() {
        all = _mm256_add_ps(_mm256_add_ps(all, all), sum);
    }
    total(all)
}
