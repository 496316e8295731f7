//! Distances and inner products in registers of sixteen floats; the loops are those of [`crate::kernel::tile`].
//!
//! Thirty-two registers hold 24 running sums, six queries and a row for inner products. Squared distances need one more for the
//! difference, and leave one to spare.

use std::arch::x86_64::*;

use super::{load, load_part};
use crate::kernel::avx2;
use crate::kernel::tile::products;

type Vector = __m512;
const WIDTH: usize = 16;

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn zero() -> Vector {
    _mm512_setzero_ps()
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn add(a: Vector, b: Vector) -> Vector {
    _mm512_add_ps(a, b)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn subtract(a: Vector, b: Vector) -> Vector {
    _mm512_sub_ps(a, b)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn multiply_add(a: Vector, b: Vector, sum: Vector) -> Vector {
    _mm512_fmadd_ps(a, b, sum)
}

/// The sum of the two halves.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn fold(vector: Vector) -> __m256 {
    _mm256_add_ps(_mm512_castps512_ps256(vector), _mm512_extractf32x8_ps::<1>(vector))
}

/// The sum of all lanes: halves first, then the tree of AVX2.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn total(vector: Vector) -> f32 {
    avx2::total(fold(vector))
}

/// [`total`] of four vectors at once.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn totals(vectors: &[Vector; 4]) -> [f32; 4] {
    avx2::totals(&[fold(vectors[0]), fold(vectors[1]), fold(vectors[2]), fold(vectors[3])])
}

products!(features: "avx512f,avx512bw,avx512vl,avx512dq", l2_queries: 5, dot_queries: 6);
