//! How the values of a stored vector are kept: as they came, in fewer bytes, or as a code of the rotated vector.

mod codec;
mod plain;

use crate::quantize::{extended, rotation};
pub use codec::{Codec, QuerySums};

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
    /// A code of the rotated vector, three bits a dimension, and two factors; see [`Codec`].
    Rabitq3,
    /// The same with four bits.
    Rabitq4,
    /// The same with five bits.
    Rabitq5,
    /// The same with six bits.
    Rabitq6,
    /// The same with seven bits.
    Rabitq7,
    /// The same with eight bits.
    Rabitq8,
}

/// Bytes of the factors of a code.
const FACTORS: usize = 8;
/// Bytes of the scale before the values of an [`ValueType::Int8`] row.
const SCALE: usize = 4;

impl ValueType {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::F32,
        Self::F16,
        Self::Bf16,
        Self::Int8,
        Self::Rabitq3,
        Self::Rabitq4,
        Self::Rabitq5,
        Self::Rabitq6,
        Self::Rabitq7,
        Self::Rabitq8,
    ];
    /// Their names, as errors list them.
    pub const NAMES: &'static str = "\"f32\", \"f16\", \"bf16\", \"int8\" or \"rabitq3\" to \"rabitq8\"";

    /// The name that Python uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Int8 => "int8",
            Self::Rabitq3 => "rabitq3",
            Self::Rabitq4 => "rabitq4",
            Self::Rabitq5 => "rabitq5",
            Self::Rabitq6 => "rabitq6",
            Self::Rabitq7 => "rabitq7",
            Self::Rabitq8 => "rabitq8",
        }
    }

    /// The type of a name that Python uses.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Bits a dimension, of those that are codes.
    pub fn code_bits(self) -> Option<usize> {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 | Self::Int8 => None,
            Self::Rabitq3 => Some(3),
            Self::Rabitq4 => Some(4),
            Self::Rabitq5 => Some(5),
            Self::Rabitq6 => Some(6),
            Self::Rabitq7 => Some(7),
            Self::Rabitq8 => Some(8),
        }
    }

    /// Bytes of a stored row of `dim` values, a multiple of 4.
    pub fn row_bytes(self, dim: usize) -> usize {
        match self {
            Self::F32 => 4 * dim,
            Self::F16 | Self::Bf16 => (2 * dim).next_multiple_of(4),
            Self::Int8 => SCALE + dim.next_multiple_of(4),
            _ => FACTORS + self.code_bits().map_or(0, |bits| extended::code_bytes(bits, rotation::padded(dim))),
        }
    }
}
