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

/// Bytes are widened to 16 bits, multiplied, and added in pairs: exact, since a product has 31 bits.
#[target_feature(enable = "avx2,fma")]
pub(super) fn dot_bytes(query: &[i16], row: &[i8]) -> i32 {
    debug_assert!(query.len() == row.len() && row.len().is_multiple_of(64));
    let mut sums = [_mm256_setzero_si256(); 2];
    let (queries, _) = query.as_chunks::<16>();
    let (rows, _) = row.as_chunks::<16>();
    for (i, (query, row)) in queries.iter().zip(rows).enumerate() {
        // SAFETY: the references cover the 32 and 16 bytes that are read, and these loads need no alignment.
        let (query, row) = unsafe { (_mm256_loadu_si256(query.as_ptr().cast()), _mm_loadu_si128(row.as_ptr().cast())) };
        sums[i % 2] = _mm256_add_epi32(sums[i % 2], _mm256_madd_epi16(query, _mm256_cvtepi8_epi16(row)));
    }
    let sum = _mm256_add_epi32(sums[0], sums[1]);
    let half = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256::<1>(sum));
    let pair = _mm_add_epi32(half, _mm_shuffle_epi32::<0b01_00_11_10>(half));
    _mm_cvtsi128_si32(_mm_add_epi32(pair, _mm_shuffle_epi32::<0b10_11_00_01>(pair)))
}
