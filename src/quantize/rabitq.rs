//! RaBitQ 1-bit codes with their factors (Gao and Long, "RaBitQ", SIGMOD 2024).
//!
//! With `r = v - c`, `x` the signs of `r` times 1/2 and `g = |r|^2 / <r, x>`, `<r, q - c>` is estimated without bias by
//! `g (<x, q> - <x, c>)`, and the error's deviation is `|r| |q - c| sqrt((|r|^2 |x|^2 / <r, x>^2 - 1) / (D - 1))`.
//! What doesn't depend on the query goes into three factors, so that one table of the query serves every reference:
//!
//! | form | estimate | `f_add` | `f_rescale` | `f_error` |
//! |---|---|---|---|---|
//! | squared distance | `f_add + \|q - c\|^2 + f_rescale <x, q>` | `\|r\|^2 + 2 g <x, c>` | `-2 g` | `2 e` |
//! | negated product | `f_add - <q, c> + f_rescale <x, q>` | `g <x, c> - <r, c>` | `-g` | `e` |
//!
//! where `e` is the deviation without `|q - c|`.

use crate::kernel::Kernels;

/// What an estimate is an estimate of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `|q - v|^2`
    Distance,
    /// `-<q, v>`
    Product,
}

/// A code's factors; see the table in the module's page.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Factors {
    /// `f_add`
    pub add: f32,
    /// `f_rescale`
    pub rescale: f32,
    /// `f_error`
    pub error: f32,
}

/// Makes codes of one form and padded dimension.
#[derive(Debug, Clone, Copy)]
pub struct Encoder {
    kernels: &'static Kernels,
    form: Form,
    padded: usize,
}

impl Encoder {
    /// An encoder of residuals of `padded` values, a multiple of 64.
    pub fn new(kernels: &'static Kernels, form: Form, padded: usize) -> Self {
        Self { kernels, form, padded }
    }

    /// What its estimates are estimates of.
    pub fn form(&self) -> Form {
        self.form
    }

    /// Bytes of a code.
    pub fn code_bytes(&self) -> usize {
        self.padded / 8
    }

    /// Writes the code of `vector` against `reference` to `bits` and returns its factors. `residual` is scratch of the same length.
    pub fn encode(&self, vector: &[f32], reference: &[f32], residual: &mut [f32], bits: &mut [u8]) -> Factors {
        for ((r, v), c) in residual.iter_mut().zip(vector).zip(reference) {
            *r = v - c;
        }
        let sums = (self.kernels.encode)(residual, reference, bits);
        if sums.absolute <= 0.0 {
            // The row is its reference: every estimate is exact.
            return Factors::default();
        }
        let padded = self.padded as f32;
        let gain = 2.0 * sums.square / sums.absolute;
        let variance = (sums.square * padded / (sums.absolute * sums.absolute) - 1.0).max(0.0) / (padded - 1.0);
        let error = (sums.square * variance).sqrt();
        match self.form {
            Form::Distance => Factors { add: sums.square + gain * sums.reference_sign, rescale: -2.0 * gain, error: 2.0 * error },
            Form::Product => Factors { add: 0.5 * gain * sums.reference_sign - sums.reference_residual, rescale: -gain, error },
        }
    }
}
