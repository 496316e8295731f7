//! From the vectors of an index to stored rows and back, and distances to them.
//!
//! The problem: a row may be the vector itself, its values in fewer bytes, or a code of several bits a dimension of the rotated vector.
//! The rule of use: the stored vector is what [`Codec::decode`] gives, and all distances are those of it. Of codes they are computed without
//! decoding, by [`Codec::distance`]; [`Metric::distance`] of the decoded vector differs from it by rounding.
//! The hazard: rows are encoded once. A decoded row that is encoded again may come out different, so rows are moved as bytes.
//!
//! A code's row has two factors: `g`, and the squared length of the decoded vector `x`, which is the first `dim` values of `g û` rotated
//! back. A rotated query has no part in what is cut off, so `<q, x> = g <Rq, û>`. What `g` is goes with the metric, `v` the vector:
//!
//! | metric | `g` | so that |
//! |---|---|---|
//! | `l2` | `<û, v> / \|x / g\|^2` | `x` is as near to `v` as it can be; distances keep their order on average, since they shrink alike |
//! | `cosine` | `1 / \|x / g\|` | `x` has unit length, as all rows have |
//! | `ip` | `\|v\|^2 / <û, v>` | `<q, x>` is `<q, v>` on average, without bias |
//!
//! The error of an inner product is a share of the row's length, the smaller the more bits: rows that are much nearer to each other than to
//! the origin are told apart less well under `l2`.

use std::sync::Arc;

use super::{FACTORS, ValueType, plain};
use crate::kernel::Kernels;
use crate::metric::Metric;
use crate::quantize::{Rotation, extended};

/// How the vectors of one index are stored.
#[derive(Debug, Clone)]
pub struct Codec {
    kernels: &'static Kernels,
    metric: Metric,
    kind: ValueType,
    /// Bits a dimension, where rows are codes.
    bits: usize,
    rotation: Arc<Rotation>,
}

/// What is known of a rotated query before it is compared with codes.
#[derive(Debug, Clone, Copy, Default)]
pub struct QuerySums {
    /// The sum of its values, times the centre of the codes' levels.
    shift: f32,
    /// Its squared length.
    square: f32,
}

impl Codec {
    /// Rows of type `kind` under `metric`; `rotation` is the index's.
    pub fn new(kernels: &'static Kernels, metric: Metric, kind: ValueType, rotation: Arc<Rotation>) -> Self {
        Self { kernels, metric, kind, bits: kind.code_bits().unwrap_or(0), rotation }
    }

    /// Values of a vector.
    pub fn dim(&self) -> usize {
        self.rotation.dim()
    }

    /// The type of the stored values.
    pub fn kind(&self) -> ValueType {
        self.kind
    }

    /// Bytes of a stored row.
    pub fn row_bytes(&self) -> usize {
        self.kind.row_bytes(self.dim())
    }

    /// Writes the stored form of a prepared row; the first value that it can't hold, if there is one.
    pub fn encode(&self, row: &[f32], out: &mut [u8]) -> Option<f32> {
        match self.kind {
            ValueType::F32 => bytemuck::cast_slice_mut(out).copy_from_slice(row),
            ValueType::F16 => return plain::encode_f16(row, out),
            ValueType::Bf16 => return plain::encode_bf16(row, out),
            ValueType::Int8 => plain::encode_int8(row, out),
            _ => return self.encode_planes(row, out),
        }
        None
    }

    /// Whether rows are codes, to which [`Codec::distance`] is the way.
    pub fn is_coded(&self) -> bool {
        self.bits > 0
    }

    fn encode_planes(&self, row: &[f32], out: &mut [u8]) -> Option<f32> {
        let largest = row.iter().fold(0.0f32, |most, x| most.max(x.abs()));
        if largest == 0.0 {
            out.fill(0);
            return None;
        }
        // The largest value is 1 from here on, so that no square overflows or vanishes.
        let scaled: Vec<f32> = row.iter().map(|x| x / largest).collect();
        let mut rotated = vec![0.0; self.rotation.padded()];
        self.rotation.rotate(&scaled, &mut rotated);
        let (factors, planes) = out.split_at_mut(FACTORS);
        extended::encode(&rotated, self.bits, planes);
        extended::decode(planes, self.bits, &mut rotated);
        self.rotation.unrotate(&mut rotated);
        let decoded = &rotated[..row.len()];
        let sum = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(&x, &y)| f64::from(x) * f64::from(y)).sum::<f64>();
        let (product, square) = (sum(&scaled, decoded), sum(decoded, decoded));
        let factor = match self.metric {
            Metric::L2 => f64::from(largest) * product / square,
            Metric::Cosine => square.sqrt().recip(),
            Metric::Ip => f64::from(largest) * sum(&scaled, &scaled) / product,
        };
        let factor = factor as f32;
        let square = f64::from(factor) * f64::from(factor) * square;
        factors[..4].copy_from_slice(&factor.to_le_bytes());
        factors[4..].copy_from_slice(&(square as f32).to_le_bytes());
        // Only of rows near the largest float a value may come back larger still.
        row.iter().zip(decoded).find(|(_, half)| !(*half * factor).is_finite()).map(|(x, _)| *x)
    }

    /// Reads a stored row back, into `room`. Whatever the bytes are, it gives `dim` values.
    pub fn decode<'a>(&self, bytes: &[u8], room: &'a mut Vec<f32>) -> &'a [f32] {
        room.resize(if self.is_coded() { self.rotation.padded() } else { self.dim() }, 0.0);
        match self.kind {
            ValueType::F32 => room.copy_from_slice(bytemuck::cast_slice(bytes)),
            ValueType::F16 => plain::decode_f16(bytes, room),
            ValueType::Bf16 => plain::decode_bf16(bytes, room),
            ValueType::Int8 => plain::decode_int8(bytes, room),
            _ => {
                let (factor, _, planes) = parts(bytes);
                extended::decode(planes, self.bits, room);
                self.rotation.unrotate(room);
                room[..self.dim()].iter_mut().for_each(|x| *x *= factor);
            }
        }
        &room[..self.dim()]
    }

    /// What [`Codec::distance`] needs to know of a rotated query; nothing where rows are no codes.
    pub fn sums(&self, rotated: &[f32]) -> QuerySums {
        if !self.is_coded() {
            return QuerySums::default();
        }
        let sum = rotated.iter().map(|&x| f64::from(x)).sum::<f64>() as f32;
        QuerySums { shift: extended::centre(self.bits) * sum, square: (self.kernels.dot)(rotated, rotated) }
    }

    /// The distance of a rotated query (prepared before) to a row, where rows are codes.
    #[inline]
    pub fn distance(&self, rotated: &[f32], sums: &QuerySums, bytes: &[u8]) -> f32 {
        let (factor, square, planes) = parts(bytes);
        let product = factor * ((self.kernels.dot_planes)(rotated, planes, self.bits) - sums.shift);
        self.metric.of_product(product, sums.square, square)
    }
}

/// The factors and the planes of a code's row.
#[inline]
fn parts(bytes: &[u8]) -> (f32, f32, &[u8]) {
    let (factors, planes) = bytes.split_at(FACTORS);
    let float = |at: usize| f32::from_le_bytes([factors[at], factors[at + 1], factors[at + 2], factors[at + 3]]);
    (float(0), float(4), planes)
}

#[cfg(test)]
mod tests;
