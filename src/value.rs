//! How the values of a stored vector are kept: as they came, or in fewer bytes.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// The type of stored values. Exact distances are those of what is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ValueType {
    /// 32-bit floats: as they came.
    #[default]
    F32,
    /// 16-bit floats of IEEE 754: eleven significant bits, up to 65,504.
    F16,
    /// The upper half of a 32-bit float: eight significant bits, the whole range.
    Bf16,
    /// Whole numbers from -127 to 127 times a scale of the row, its largest value over 127.
    Int8,
}

/// Bytes of the scale before the values of an [`ValueType::Int8`] row.
const SCALE: usize = 4;

impl ValueType {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::F32, Self::F16, Self::Bf16, Self::Int8];

    /// The name that Python uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Int8 => "int8",
        }
    }

    /// The type of a name that Python uses.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Bytes of a stored row of `dim` values, a multiple of 4.
    pub fn row_bytes(self, dim: usize) -> usize {
        match self {
            Self::F32 => 4 * dim,
            Self::F16 | Self::Bf16 => (2 * dim).next_multiple_of(4),
            Self::Int8 => SCALE + dim.next_multiple_of(4),
        }
    }

    /// Writes the stored form of `row`; the first value that it can't hold, if there is one.
    pub fn encode(self, row: &[f32], out: &mut [u8]) -> Option<f32> {
        match self {
            Self::F32 => bytemuck::cast_slice_mut(out).copy_from_slice(row),
            Self::F16 => {
                let out: &mut [u16] = &mut bytemuck::cast_slice_mut(out)[..row.len()];
                out.iter_mut().zip(row).for_each(|(out, &x)| *out = f16::from_f32(x).to_bits());
                return row.iter().zip(out).find(|(_, bits)| !f16::from_bits(**bits).is_finite()).map(|(x, _)| *x);
            }
            Self::Bf16 => {
                let out: &mut [u16] = &mut bytemuck::cast_slice_mut(out)[..row.len()];
                out.iter_mut().zip(row).for_each(|(out, &x)| *out = bf16::from_f32(x).to_bits());
                return row.iter().zip(out).find(|(_, bits)| !bf16::from_bits(**bits).is_finite()).map(|(x, _)| *x);
            }
            Self::Int8 => {
                let scale = row.iter().fold(0.0f32, |most, x| most.max(x.abs())) / 127.0;
                out[..SCALE].copy_from_slice(&scale.to_le_bytes());
                // A scale that underflows stands for zeros.
                let inverse = if scale.is_normal() { 1.0 / scale } else { 0.0 };
                // The conversion saturates, and what is not a number doesn't get here.
                out[SCALE..].iter_mut().zip(row).for_each(|(out, x)| *out = (x * inverse).round() as i8 as u8);
            }
        }
        None
    }

    /// Reads a stored row back.
    pub fn decode(self, bytes: &[u8], out: &mut [f32]) {
        match self {
            Self::F32 => out.copy_from_slice(bytemuck::cast_slice(bytes)),
            Self::F16 => bytemuck::cast_slice::<u8, u16>(bytes)[..out.len()].reinterpret_cast_f16().convert_to_f32_slice(out),
            Self::Bf16 => {
                let bits: &[u16] = &bytemuck::cast_slice(bytes)[..out.len()];
                bits.iter().zip(out).for_each(|(&bits, x)| *x = bf16::from_bits(bits).to_f32());
            }
            Self::Int8 => {
                let scale = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                bytes[SCALE..].iter().zip(out).for_each(|(&byte, x)| *x = f32::from(byte as i8) * scale);
            }
        }
    }
}

/// Bits of half floats as such.
trait AsF16 {
    fn reinterpret_cast_f16(&self) -> &[f16];
}

impl AsF16 for [u16] {
    fn reinterpret_cast_f16(&self) -> &[f16] {
        use half::slice::HalfBitsSliceExt;
        self.reinterpret_cast::<f16>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rows_come_back_within_the_precision_of_their_type(row in prop::collection::vec(-1000.0f32..1000.0, 1..70)) {
            let largest = row.iter().fold(0.0f32, |most, x| most.max(x.abs()));
            for kind in ValueType::ALL {
                let mut words = vec![0u32; kind.row_bytes(row.len()) / 4];
                let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
                prop_assert_eq!(kind.encode(&row, bytes), None);
                let mut back = vec![f32::NAN; row.len()];
                kind.decode(bytes, &mut back);
                for (&x, &y) in row.iter().zip(&back) {
                    let most = match kind {
                        ValueType::F32 => 0.0,
                        ValueType::F16 => x.abs() / 2048.0 + 1e-7,
                        ValueType::Bf16 => x.abs() / 256.0,
                        ValueType::Int8 => largest / 127.0 * 0.501,
                    };
                    prop_assert!((x - y).abs() <= most, "{x} as {kind:?} is {y}");
                }
                let mut again = words.clone();
                kind.encode(&back, bytemuck::cast_slice_mut(&mut again));
                let mut twice = vec![0.0; row.len()];
                kind.decode(bytemuck::cast_slice(&again), &mut twice);
                if kind != ValueType::Int8 {
                    prop_assert_eq!(twice, back);
                }
            }
        }
    }

    #[test]
    fn what_a_type_cannot_hold_is_named() {
        let mut bytes = [0u32; 3];
        assert_eq!(ValueType::F16.encode(&[1.0, 70_000.0], &mut bytemuck::cast_slice_mut(&mut bytes)[..4]), Some(70_000.0));
        assert_eq!(ValueType::Bf16.encode(&[1.0, f32::MAX], &mut bytemuck::cast_slice_mut(&mut bytes)[..4]), Some(f32::MAX));
        assert_eq!(ValueType::Int8.encode(&[0.0, 0.0], &mut bytemuck::cast_slice_mut(&mut bytes)[..8]), None);
    }
}
