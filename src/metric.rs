//! Metrics: how rows are prepared, and the one place for the sign and the order of a distance.
//!
//! | metric | distance | prepared row |
//! |---|---|---|
//! | `l2` | squared Euclidean, `sum((q - x)^2)` | as given |
//! | `cosine` | `1 - <q, x> / (|q| |x|)`, in `[0, 2]`; 1 where either is zero | unit length (a zero row stays zero) |
//! | `ip` | `-<q, x>` | as given |
//!
//! Smaller is nearer, always.

use crate::error::{Error, Result};
use crate::kernel::Kernels;

/// The largest dimension that is accepted.
pub const MAX_DIM: usize = 65_535;

/// What "near" means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Metric {
    /// Squared Euclidean distance.
    L2,
    /// One minus the cosine of the angle.
    Cosine,
    /// The negated inner product.
    Ip,
}

impl Metric {
    /// The name that Python uses.
    pub fn name(self) -> &'static str {
        match self {
            Metric::L2 => "l2",
            Metric::Cosine => "cosine",
            Metric::Ip => "ip",
        }
    }

    /// The metric of that name.
    pub fn from_name(name: &str) -> Result<Self> {
        match name {
            "l2" => Ok(Metric::L2),
            "cosine" => Ok(Metric::Cosine),
            "ip" => Ok(Metric::Ip),
            _ => Err(Error::invalid("metric", "\"l2\", \"cosine\" or \"ip\"", format!("{name:?}"))),
        }
    }

    /// Distance of two prepared rows. Every exact distance in the crate comes from here or, of codes, from [`Metric::of_product`], so equal rows
    /// have equal distances.
    pub fn distance(self, kernels: &Kernels, query: &[f32], row: &[f32]) -> f32 {
        match self {
            Metric::L2 => (kernels.l2)(query, row),
            Metric::Cosine => (1.0 - (kernels.dot)(query, row)).clamp(0.0, 2.0),
            Metric::Ip => -(kernels.dot)(query, row),
        }
    }

    /// Distance of two prepared rows by their inner product and their squared lengths: but for rounding, that of [`Metric::distance`]. Under
    /// `l2` rounding is a share of the squared lengths, however near the rows are.
    pub fn of_product(self, product: f32, query_square: f32, row_square: f32) -> f32 {
        match self {
            Metric::L2 => {
                let distance = query_square + row_square - 2.0 * product;
                // Not f32::max, which would make 0 of what overflowed to NaN.
                if distance < 0.0 { 0.0 } else { distance }
            }
            Metric::Cosine => (1.0 - product).clamp(0.0, 2.0),
            Metric::Ip => -product,
        }
    }

    /// Turns a checked row into what is stored and compared. Under cosine it is scaled to unit length.
    ///
    /// Norms are summed in f64: rows as long as f32 can hold, or as short, keep their direction.
    pub fn prepare(self, row: &mut [f32]) {
        if self != Metric::Cosine {
            return;
        }
        let norm = row.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt();
        if norm > 0.0 {
            let scale = 1.0 / norm;
            row.iter_mut().for_each(|x| *x = (f64::from(*x) * scale) as f32);
        }
    }
}
