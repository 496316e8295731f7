//! Kernels for AVX-512 F, BW, VL, DQ and VPOPCNTDQ: Intel servers since Ice Lake, AMD since Zen 4.
//!
//! The problem: twice the width of AVX2, twice the registers, and an instruction that counts bits.
//! The rule of use: [`kernels`] looks at the processor; its table is the only way in.
//! The hazard: as for AVX2, intrinsics that take pointers trust them. Loads with a mask touch no memory where the mask is 0.
//!
//! Rotation, encoding and query tables are those of AVX2, which every such processor has: they wait for memory or run once a query.

#![allow(unsafe_code)]

mod planes;
mod products;
mod scan;

use std::arch::x86_64::*;

use self::planes::dot_planes;
use self::products::{dot, dot_bytes, dot_rows, dot_tile, l2, l2_rows, l2_tile};
use self::scan::{scan, scan_sums};
use super::avx2;
use super::avx2::transform::{build_table, encode, hadamard};
use super::{Isa, Kernels, fenced_table};

static KERNELS: Kernels = fenced_table!(Isa::Avx512);

/// The table, where the processor has all that its functions are compiled for.
pub fn kernels() -> Option<&'static Kernels> {
    let present = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vpopcntdq");
    // The kernels of AVX2 that are used here.
    (present && avx2::kernels().is_some()).then_some(&KERNELS)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn load(values: &[f32; 16]) -> __m512 {
    // SAFETY: the reference covers the 64 bytes that are read, and this load needs no alignment.
    unsafe { _mm512_loadu_ps(values.as_ptr()) }
}

/// At most sixteen values, zeros after them.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn load_part(values: &[f32]) -> __m512 {
    let mask = first(values.len().min(16)) as u16;
    // SAFETY: only lanes below `values.len()` are read; a masked load touches no memory of the other lanes.
    unsafe { _mm512_maskz_loadu_ps(mask, values.as_ptr()) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn store(values: &mut [f32; 16], vector: __m512) {
    // SAFETY: the reference covers the 64 bytes that are written, and this store needs no alignment.
    unsafe { _mm512_storeu_ps(values.as_mut_ptr(), vector) }
}

/// A mask of the first `count` lanes; `count` is below 64.
#[inline]
fn first(count: usize) -> u64 {
    (1u64 << count) - 1
}

/// `sum over j of 2^j popcount(code & plane_j)`, eight words at a time.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vpopcntdq")]
fn popcount(code: &[u64], planes: &[u64]) -> u32 {
    let mut total = _mm512_setzero_si512();
    for (j, plane) in planes.chunks_exact(code.len().max(1)).enumerate() {
        let mut ones = _mm512_setzero_si512();
        let (code, code_rest) = code.as_chunks::<8>();
        let (plane, plane_rest) = plane.as_chunks::<8>();
        for (code, plane) in code.iter().zip(plane) {
            let common = _mm512_and_si512(load_words(code), load_words(plane));
            ones = _mm512_add_epi64(ones, _mm512_popcnt_epi64(common));
        }
        if !code_rest.is_empty() {
            let common = _mm512_and_si512(load_words(code_rest), load_words(plane_rest));
            ones = _mm512_add_epi64(ones, _mm512_popcnt_epi64(common));
        }
        total = _mm512_add_epi64(total, _mm512_sll_epi64(ones, _mm_cvtsi32_si128(j as i32)));
    }
    _mm512_reduce_add_epi64(total) as u32
}

/// At most eight words, zeros after them.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn load_words(words: &[u64]) -> __m512i {
    let mask = first(words.len().min(8)) as u8;
    // SAFETY: only lanes below `words.len()` are read; a masked load touches no memory of the other lanes.
    unsafe { _mm512_maskz_loadu_epi64(mask, words.as_ptr().cast()) }
}
