//! Distances and inner products in registers of eight floats; the loops are those of [`crate::kernel::tile`].
//!
//! Sixteen registers hold twelve running sums, three queries and a row for inner products. Squared distances need one more for
//! the difference, which is why their tile is narrower.

use std::arch::x86_64::*;

use super::{load, load_part, total, totals};
use crate::kernel::tile::products;

type Vector = __m256;
const WIDTH: usize = 8;

#[inline]
#[target_feature(enable = "avx2,fma")]
fn zero() -> Vector {
    _mm256_setzero_ps()
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn add(a: Vector, b: Vector) -> Vector {
    _mm256_add_ps(a, b)
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn subtract(a: Vector, b: Vector) -> Vector {
    _mm256_sub_ps(a, b)
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn multiply_add(a: Vector, b: Vector, sum: Vector) -> Vector {
    _mm256_fmadd_ps(a, b, sum)
}

products!(features: "avx2,fma", l2_queries: 2, dot_queries: 3);
