//! Numbers as they lie in files, and as float32.

use half::f16;

/// A type of numbers. Each is widened, or rounded to the nearest float32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cell {
    /// IEEE half precision.
    F16,
    /// IEEE single precision.
    F32,
    /// IEEE double precision.
    F64,
    /// Signed integers.
    I8,
    /// Of two bytes.
    I16,
    /// Of four bytes.
    I32,
    /// Of eight bytes.
    I64,
    /// Unsigned integers.
    U8,
    /// Of two bytes.
    U16,
    /// Of four bytes.
    U32,
    /// Of eight bytes.
    U64,
}

impl Cell {
    /// Bytes a number.
    pub fn bytes(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::F16 | Self::I16 | Self::U16 => 2,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F64 | Self::I64 | Self::U64 => 8,
        }
    }

    /// The numbers of `bytes`, which are as many as `out` holds, in this order of bytes.
    pub fn widen(self, big_endian: bool, bytes: &[u8], out: &mut [f32]) {
        /// Rounds as `as` does, which is to the nearest.
        macro_rules! each {
            ($type:ty, $to:expr) => {{
                let cells = bytes.as_chunks().0.iter().zip(out);
                match big_endian {
                    false => cells.for_each(|(cell, x)| *x = $to(<$type>::from_le_bytes(*cell))),
                    true => cells.for_each(|(cell, x)| *x = $to(<$type>::from_be_bytes(*cell))),
                }
            }};
        }
        match self {
            Self::F16 => each!(f16, f16::to_f32),
            Self::F32 => each!(f32, |x| x),
            Self::F64 => each!(f64, |x| x as f32),
            Self::I8 => each!(i8, f32::from),
            Self::I16 => each!(i16, f32::from),
            Self::I32 => each!(i32, |x| x as f32),
            Self::I64 => each!(i64, |x| x as f32),
            Self::U8 => each!(u8, f32::from),
            Self::U16 => each!(u16, f32::from),
            Self::U32 => each!(u32, |x| x as f32),
            Self::U64 => each!(u64, |x| x as f32),
        }
    }
}
