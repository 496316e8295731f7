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
pub(super) fn total(vector: Vector) -> f32 {
    avx2::total(fold(vector))
}

/// [`total`] of four vectors at once.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn totals(vectors: &[Vector; 4]) -> [f32; 4] {
    avx2::totals(&[fold(vectors[0]), fold(vectors[1]), fold(vectors[2]), fold(vectors[3])])
}

products!(features: "avx512f,avx512bw,avx512vl,avx512dq", l2_queries: 5, dot_queries: 6);

/// As for AVX2, with registers of twice the width.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub(super) fn dot_bytes(query: &[i16], row: &[i8]) -> i32 {
    debug_assert!(query.len() == row.len() && row.len().is_multiple_of(64));
    let mut sums = [_mm512_setzero_si512(); 2];
    let (queries, _) = query.as_chunks::<64>();
    let (rows, _) = row.as_chunks::<64>();
    for (query, row) in queries.iter().zip(rows) {
        for (half, sum) in sums.iter_mut().enumerate() {
            let (query, row) = (&query[32 * half..32 * half + 32], &row[32 * half..32 * half + 32]);
            // SAFETY: the slices cover the 64 and 32 bytes that are read, and these loads need no alignment.
            let (query, row) = unsafe { (_mm512_loadu_si512(query.as_ptr().cast()), _mm256_loadu_si256(row.as_ptr().cast())) };
            *sum = _mm512_add_epi32(*sum, _mm512_madd_epi16(query, _mm512_cvtepi8_epi16(row)));
        }
    }
    _mm512_reduce_add_epi32(_mm512_add_epi32(sums[0], sums[1]))
}
