//! Inner products with whole numbers in bit planes, four values a register.
//!
//! Sixteen bits of a plane go to all lanes, each of which keeps its value where its own bit is set. Each plane has two running sums, so
//! that an addition doesn't wait for the one before.

use std::arch::aarch64::*;

use super::{load, load_words};
use crate::kernel::{planes_of, run_of_bits};

#[target_feature(enable = "neon")]
pub(super) fn dot_planes(query: &[f32], planes: &[u8], bits: usize) -> f32 {
    run_of_bits!(run, query, planes, bits)
}

#[inline]
#[target_feature(enable = "neon")]
fn run<const BITS: usize>(query: &[f32], planes: &[u8]) -> f32 {
    let first = load_words(&[1, 2, 4, 8]);
    let own = [first, vshlq_n_u32::<4>(first), vshlq_n_u32::<8>(first), vshlq_n_u32::<12>(first)];
    let planes: [&[[u8; 2]]; BITS] = planes_of(planes, query.len() / 8);
    let (chunks, _) = query.as_chunks::<16>();
    let mut sums = [[vdupq_n_f32(0.0); 2]; BITS];
    for (i, chunk) in chunks.iter().enumerate() {
        let (values, _) = chunk.as_chunks::<4>();
        for (sums, plane) in sums.iter_mut().zip(&planes) {
            let word = vdupq_n_u32(u32::from(u16::from_le_bytes(plane[i])));
            for (part, (values, own)) in values.iter().zip(own).enumerate() {
                let chosen = vandq_u32(vtstq_u32(word, own), vreinterpretq_u32_f32(load(values)));
                sums[part % 2] = vaddq_f32(sums[part % 2], vreinterpretq_f32_u32(chosen));
            }
        }
    }
    let mut all = vdupq_n_f32(0.0);
    for [a, b] in sums.into_iter().rev() {
        all = vaddq_f32(vaddq_f32(all, all), vaddq_f32(a, b));
    }
    vaddvq_f32(all)
}
