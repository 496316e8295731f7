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
