//! Distances and inner products in registers of four floats; the loops are those of [`crate::kernel::tile`].
//!
//! Thirty-two registers hold sixteen running sums, enough for cores that start four multiply-adds a cycle, and all else.

use std::arch::aarch64::*;

use super::{load, load_part, store};
use crate::kernel::tile::products;

type Vector = float32x4_t;
const WIDTH: usize = 4;

#[inline]
#[target_feature(enable = "neon")]
fn zero() -> Vector {
    vdupq_n_f32(0.0)
}

#[inline]
#[target_feature(enable = "neon")]
fn add(a: Vector, b: Vector) -> Vector {
    vaddq_f32(a, b)
}

#[inline]
#[target_feature(enable = "neon")]
fn subtract(a: Vector, b: Vector) -> Vector {
    vsubq_f32(a, b)
}

#[inline]
#[target_feature(enable = "neon")]
fn multiply_add(a: Vector, b: Vector, sum: Vector) -> Vector {
    vfmaq_f32(sum, a, b)
}

/// The sum of all lanes, added as a tree: neighbours, then pairs.
#[inline]
#[target_feature(enable = "neon")]
fn total(vector: Vector) -> f32 {
    totals(&[vector, zero(), zero(), zero()])[0]
}

/// [`total`] of four vectors at once.
#[inline]
#[target_feature(enable = "neon")]
fn totals(vectors: &[Vector; 4]) -> [f32; 4] {
    let mut out = [0.0; 4];
    store(&mut out, vpaddq_f32(vpaddq_f32(vectors[0], vectors[1]), vpaddq_f32(vectors[2], vectors[3])));
    out
}

products!(features: "neon", l2_queries: 4, dot_queries: 4);

/// Bytes are widened to 16 bits, and products added in 32.
#[target_feature(enable = "neon")]
pub(super) fn dot_bytes(query: &[i16], row: &[i8]) -> i32 {
    debug_assert!(query.len() == row.len() && row.len().is_multiple_of(64));
    let mut sums = [vdupq_n_s32(0); 4];
    let (queries, _) = query.as_chunks::<16>();
    let (rows, _) = row.as_chunks::<16>();
    for (query, row) in queries.iter().zip(rows) {
        // SAFETY: the references cover the 32 and 16 bytes that are read, and these loads need no more alignment than their values'.
        let (query, row) = unsafe { (vld1q_s16_x2(query.as_ptr()), vld1q_s8(row.as_ptr())) };
        let (low, high) = (vmovl_s8(vget_low_s8(row)), vmovl_high_s8(row));
        sums[0] = vmlal_s16(sums[0], vget_low_s16(query.0), vget_low_s16(low));
        sums[1] = vmlal_high_s16(sums[1], query.0, low);
        sums[2] = vmlal_s16(sums[2], vget_low_s16(query.1), vget_low_s16(high));
        sums[3] = vmlal_high_s16(sums[3], query.1, high);
    }
    vaddvq_s32(vaddq_s32(vaddq_s32(sums[0], sums[1]), vaddq_s32(sums[2], sums[3])))
}
