//! Inner products with whole numbers in bit planes, sixteen values a register: the bits of a plane are the masks of additions.
//!
//! Each plane has two running sums, so that an addition doesn't wait for the one before.

use std::arch::x86_64::*;

use super::load;
use super::products::total;
use crate::kernel::{planes_of, run_of_bits};

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub(super) fn dot_planes(query: &[f32], planes: &[u8], bits: usize) -> f32 {
    run_of_bits!(run, query, planes, bits)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn run<const BITS: usize>(query: &[f32], planes: &[u8]) -> f32 {
    let planes: [&[[u8; 8]]; BITS] = planes_of(planes, query.len() / 8);
    let (chunks, _) = query.as_chunks::<64>();
    let mut sums = [[_mm512_setzero_ps(); 2]; BITS];
    for (i, chunk) in chunks.iter().enumerate() {
        let (values, _) = chunk.as_chunks::<16>();
        for (sums, plane) in sums.iter_mut().zip(&planes) {
            let word = u64::from_le_bytes(plane[i]);
            for (part, values) in values.iter().enumerate() {
                let sum = &mut sums[part % 2];
                *sum = _mm512_mask_add_ps(*sum, (word >> (16 * part)) as u16, *sum, load(values));
            }
        }
    }
    let mut all = _mm512_setzero_ps();
    for [a, b] in sums.into_iter().rev() {
        all = _mm512_add_ps(_mm512_add_ps(all, all), _mm512_add_ps(a, b));
    }
    total(all)
}
