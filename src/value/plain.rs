//! Values in fewer bytes, one by one: half floats, and whole numbers with a scale.

use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use half::{bf16, f16};

use super::SCALE;

/// Half floats of IEEE 754; the first value that they can't hold, if there is one.
pub fn encode_f16(row: &[f32], out: &mut [u8]) -> Option<f32> {
    let out: &mut [u16] = &mut bytemuck::cast_slice_mut(out)[..row.len()];
    out.iter_mut().zip(row).for_each(|(out, &x)| *out = f16::from_f32(x).to_bits());
    row.iter().zip(out).find(|(_, bits)| !f16::from_bits(**bits).is_finite()).map(|(x, _)| *x)
}

/// Upper halves of floats; the first value that they can't hold, if there is one.
pub fn encode_bf16(row: &[f32], out: &mut [u8]) -> Option<f32> {
    let out: &mut [u16] = &mut bytemuck::cast_slice_mut(out)[..row.len()];
    out.iter_mut().zip(row).for_each(|(out, &x)| *out = bf16::from_f32(x).to_bits());
    row.iter().zip(out).find(|(_, bits)| !bf16::from_bits(**bits).is_finite()).map(|(x, _)| *x)
}

/// A scale, and signed bytes to be multiplied by it.
pub fn encode_int8(row: &[f32], out: &mut [u8]) {
    let scale = row.iter().fold(0.0f32, |most, x| most.max(x.abs())) / 127.0;
    out[..SCALE].copy_from_slice(&scale.to_le_bytes());
    // A scale that underflows stands for zeros.
    let inverse = if scale.is_normal() { 1.0 / scale } else { 0.0 };
    // The conversion saturates, and what is not a number doesn't get here.
    out[SCALE..].iter_mut().zip(row).for_each(|(out, x)| *out = (x * inverse).round() as i8 as u8);
}

/// Reads back what [`encode_f16`] wrote.
pub fn decode_f16(bytes: &[u8], out: &mut [f32]) {
    bytemuck::cast_slice::<u8, u16>(bytes)[..out.len()].reinterpret_cast::<f16>().convert_to_f32_slice(out);
}

/// Reads back what [`encode_bf16`] wrote.
pub fn decode_bf16(bytes: &[u8], out: &mut [f32]) {
    let bits: &[u16] = &bytemuck::cast_slice(bytes)[..out.len()];
    bits.iter().zip(out).for_each(|(&bits, x)| *x = bf16::from_bits(bits).to_f32());
}

/// Reads back what [`encode_int8`] wrote.
pub fn decode_int8(bytes: &[u8], out: &mut [f32]) {
    let scale = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    bytes[SCALE..].iter().zip(out).for_each(|(&byte, x)| *x = f32::from(byte as i8) * scale);
}
