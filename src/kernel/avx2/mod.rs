//! Kernels for AVX2 with FMA: every x86-64 server since 2013 and every AMD Zen.
//!
//! The problem: the baseline of x86-64 has registers of four floats and no byte shuffle.
//! The rule of use: [`kernels`] looks at the processor; its table is the only way in.
//! The hazard: intrinsics that take pointers trust them. They appear in the few loads and stores below only, behind references
//! to arrays of the right length; everything else is safe code under `#[target_feature]`.

#![allow(unsafe_code)]

mod planes;
mod products;
mod scan;
pub(super) mod transform;

use std::arch::x86_64::*;

use self::planes::dot_planes;
use self::products::{dot, dot_bytes, dot_rows, dot_tile, l2, l2_rows, l2_tile};
use self::scan::{scan, scan_sums};
use self::transform::{build_table, encode, hadamard};
use super::{Isa, Kernels, fenced_table, scalar};

static KERNELS: Kernels = fenced_table!(Isa::Avx2);

/// The table, where the processor has all that its functions are compiled for.
pub fn kernels() -> Option<&'static Kernels> {
    let present = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("popcnt");
    present.then_some(&KERNELS)
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn load(values: &[f32; 8]) -> __m256 {
    // SAFETY: the reference covers the 32 bytes that are read, and this load needs no alignment.
    unsafe { _mm256_loadu_ps(values.as_ptr()) }
}

/// At most eight values, zeros after them.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn load_part(values: &[f32]) -> __m256 {
    let count = _mm256_set1_epi32(values.len() as i32);
    let mask = _mm256_cmpgt_epi32(count, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    // SAFETY: only lanes below `values.len()` are read; a masked load touches no memory of the other lanes.
    unsafe { _mm256_maskload_ps(values.as_ptr(), mask) }
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn store(values: &mut [f32; 8], vector: __m256) {
    // SAFETY: the reference covers the 32 bytes that are written, and this store needs no alignment.
    unsafe { _mm256_storeu_ps(values.as_mut_ptr(), vector) }
}

/// The sum of all lanes, added as a tree: neighbours, neighbouring pairs, halves.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(super) fn total(vector: __m256) -> f32 {
    totals(&[vector, _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()])[0]
}

/// [`total`] of four vectors at once.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(super) fn totals(vectors: &[__m256; 4]) -> [f32; 4] {
    let pairs = _mm256_hadd_ps(_mm256_hadd_ps(vectors[0], vectors[1]), _mm256_hadd_ps(vectors[2], vectors[3]));
    let sums = _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps::<1>(pairs));
    let mut out = [0.0; 4];
    // SAFETY: the array covers the 16 bytes that are written, and this store needs no alignment.
    unsafe { _mm_storeu_ps(out.as_mut_ptr(), sums) };
    out
}

/// The processor's own bit counter keeps up with what is loaded: four counts a cycle on AMD, one on Intel.
#[target_feature(enable = "avx2,fma,popcnt")]
fn popcount(code: &[u64], planes: &[u64]) -> u32 {
    scalar::popcount_body(code, planes)
}
