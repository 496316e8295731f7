//! Rotation and encoding in registers of four floats.
//!
//! The hazard is the order of operations: [`hadamard`] rounds exactly as the portable kernel does, so that a code does not depend on
//! the processor. [`encode`] does so for the bits; its sums may differ in the last places.

use std::arch::aarch64::*;

use super::{load, load_words, store};
use crate::kernel::{CodeSums, scalar};

/// `v` with the signs of those lanes flipped where `signs` is negative zero.
#[inline]
#[target_feature(enable = "neon")]
fn flip(v: float32x4_t, signs: uint32x4_t) -> float32x4_t {
    vreinterpretq_f32_u32(veorq_u32(vreinterpretq_u32_f32(v), signs))
}

/// Butterflies of half-widths 1 and 2 inside a register. Each adds the neighbour to the value, with the value negated where the
/// butterfly subtracts.
#[inline]
#[target_feature(enable = "neon")]
fn first_stages(v: float32x4_t) -> float32x4_t {
    const SIGN: u32 = 1 << 31;
    let v = vaddq_f32(vrev64q_f32(v), flip(v, load_words(&[0, SIGN, 0, SIGN])));
    vaddq_f32(vextq_f32::<2>(v, v), flip(v, load_words(&[0, 0, SIGN, SIGN])))
}

#[target_feature(enable = "neon")]
pub(super) fn hadamard(values: &mut [f32]) {
    if values.len() < 4 {
        return scalar::hadamard_body(values);
    }
    debug_assert!(values.len().is_power_of_two());
    let (chunks, _) = values.as_chunks_mut::<4>();
    for chunk in chunks.iter_mut() {
        let done = first_stages(load(chunk));
        store(chunk, done);
    }
    let mut half = 1;
    while half < chunks.len() {
        for pair in chunks.chunks_exact_mut(2 * half) {
            let (front, back) = pair.split_at_mut(half);
            for (a, b) in front.iter_mut().zip(back) {
                let (va, vb) = (load(a), load(b));
                store(a, vaddq_f32(va, vb));
                store(b, vsubq_f32(va, vb));
            }
        }
        half *= 2;
    }
}

#[target_feature(enable = "neon")]
pub(super) fn encode(residual: &[f32], reference: &[f32], bits: &mut [u8]) -> CodeSums {
    debug_assert!(residual.len() == reference.len() && residual.len() == 8 * bits.len());
    let (residual, _) = residual.as_chunks::<8>();
    let (reference, _) = reference.as_chunks::<8>();
    let sign = vdupq_n_u32(1 << 31);
    let weights = [load_words(&[1, 2, 4, 8]), load_words(&[16, 32, 64, 128])];
    let mut sums = [vdupq_n_f32(0.0); 4];
    for ((r, c), byte) in residual.iter().zip(reference).zip(bits) {
        let (r, _) = r.as_chunks::<4>();
        let (c, _) = c.as_chunks::<4>();
        let mut packed = vdupq_n_u32(0);
        for ((r, c), weights) in r.iter().zip(c).zip(weights) {
            let (r, c) = (load(r), load(c));
            let positive = vcgeq_f32(r, vdupq_n_f32(0.0));
            packed = vorrq_u32(packed, vandq_u32(positive, weights));
            sums[0] = vaddq_f32(sums[0], vabsq_f32(r));
            sums[1] = vfmaq_f32(sums[1], r, r);
            sums[2] = vaddq_f32(sums[2], flip(c, vbicq_u32(sign, positive)));
            sums[3] = vfmaq_f32(sums[3], r, c);
        }
        *byte = vaddvq_u32(packed) as u8;
    }
    let [absolute, square, reference_sign, reference_residual] = sums.map(|sum| vaddvq_f32(sum));
    CodeSums { absolute, square, reference_sign, reference_residual }
}
