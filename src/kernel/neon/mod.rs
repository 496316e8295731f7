//! Kernels for Armv8 Advanced SIMD (NEON), which every 64-bit Arm processor has.
//!
//! The problem: registers of four floats, but many of them, a table lookup by bytes, and sums that widen as they go.
//! The rule of use: [`kernels`] looks at the processor; its table is the only way in.
//! The hazard: intrinsics that take pointers trust them. They appear in the few loads and stores below only, behind references
//! to arrays of the right length; everything else is safe code under `#[target_feature]`.
//!
//! Query tables and popcounts are the portable ones: compilers for this processor use its vectors and its byte counts unasked.

#![allow(unsafe_code)]
// Where the target has NEON anyway, its functions are safe to call; the table of functions is written for those where not.
#![allow(unused_unsafe)]

mod planes;
mod products;
mod scan;
mod transform;

use std::arch::aarch64::*;

use self::planes::dot_planes;
use self::products::{dot, dot_bytes, dot_rows, dot_tile, l2, l2_rows, l2_tile};
use self::scan::{scan, scan_sums};
use self::transform::{encode, hadamard};
use super::scalar::{build_table, popcount};
use super::{Isa, Kernels, fenced_table};

static KERNELS: Kernels = fenced_table!(Isa::Neon);

/// The table, where the processor has all that its functions are compiled for.
pub fn kernels() -> Option<&'static Kernels> {
    std::arch::is_aarch64_feature_detected!("neon").then_some(&KERNELS)
}

#[inline]
#[target_feature(enable = "neon")]
fn load(values: &[f32; 4]) -> float32x4_t {
    // SAFETY: the reference covers the 16 bytes that are read, and this load needs no more alignment than a float's.
    unsafe { vld1q_f32(values.as_ptr()) }
}

/// At most four values, zeros after them.
#[inline]
#[target_feature(enable = "neon")]
fn load_part(values: &[f32]) -> float32x4_t {
    let mut padded = [0.0; 4];
    for (to, &from) in padded.iter_mut().zip(values) {
        *to = from;
    }
    load(&padded)
}

#[inline]
#[target_feature(enable = "neon")]
fn store(values: &mut [f32; 4], vector: float32x4_t) {
    // SAFETY: the reference covers the 16 bytes that are written, and this store needs no more alignment than a float's.
    unsafe { vst1q_f32(values.as_mut_ptr(), vector) }
}

#[inline]
#[target_feature(enable = "neon")]
fn load_bytes(bytes: &[u8; 16]) -> uint8x16_t {
    // SAFETY: the reference covers the 16 bytes that are read, and this load needs no alignment.
    unsafe { vld1q_u8(bytes.as_ptr()) }
}

#[inline]
#[target_feature(enable = "neon")]
fn load_words(words: &[u32; 4]) -> uint32x4_t {
    // SAFETY: the reference covers the 16 bytes that are read, and this load needs no more alignment than a word's.
    unsafe { vld1q_u32(words.as_ptr()) }
}
