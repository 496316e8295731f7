//! A checked `n x dim` view of f32 values: the only type of rows that the core accepts.

use crate::error::{Error, Result};

/// `n` rows of `dim` contiguous f32 values. The values may be anything; [`Rows::check_finite`] is asked where they enter.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a> {
    values: &'a [f32],
    dim: usize,
}

impl<'a> Rows<'a> {
    /// A view of `values` as rows of `dim`. `argument` names it in the error.
    pub fn new(argument: &'static str, values: &'a [f32], dim: usize) -> Result<Self> {
        if dim == 0 || !values.len().is_multiple_of(dim) {
            let given = format!("{} values", values.len());
            return Err(Error::invalid(argument, format!("rows of {dim} values, dim at least 1"), given));
        }
        Ok(Self { values, dim })
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.values.len() / self.dim
    }

    /// True without rows.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Values a row.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// All values, row after row.
    pub fn values(&self) -> &'a [f32] {
        self.values
    }

    /// Row `i`.
    pub fn row(&self, i: usize) -> &'a [f32] {
        &self.values[i * self.dim..(i + 1) * self.dim]
    }

    /// The rows of `range`.
    pub fn slice(&self, range: std::ops::Range<usize>) -> Rows<'a> {
        Rows { values: &self.values[range.start * self.dim..range.end * self.dim], dim: self.dim }
    }

    /// Refuses NaN and infinity, naming the first such row (counted from `first`).
    pub fn check_finite(&self, argument: &'static str, first: usize) -> Result<()> {
        for (i, row) in self.values.chunks_exact(self.dim).enumerate() {
            if let Some(bad) = not_finite(row) {
                return Err(refused(argument, first + i, bad));
            }
        }
        Ok(())
    }
}

/// The error for a row with a value that is NaN or infinite.
pub fn refused(argument: &'static str, row: usize, value: f32) -> Error {
    Error::invalid(argument, "finite values (drop or mend such rows first)", format!("{value} in row {row}"))
}

/// The first value that is NaN or infinite.
pub fn not_finite(row: &[f32]) -> Option<f32> {
    // x * 0 is 0 for finite x, NaN otherwise; a sum vectorises and needs no branch a value.
    let sum: f32 = lane_sum(row);
    if sum == 0.0 { None } else { row.iter().find(|x| !x.is_finite()).copied() }
}

/// The sum of `x * 0` in eight lanes, which may be added in any order.
fn lane_sum(row: &[f32]) -> f32 {
    let (chunks, rest) = row.as_chunks::<8>();
    let mut lanes = [0.0f32; 8];
    for chunk in chunks {
        lanes.iter_mut().zip(chunk).for_each(|(lane, x)| *lane += x * 0.0);
    }
    lanes.iter().sum::<f32>() + rest.iter().map(|x| x * 0.0).sum::<f32>()
}
