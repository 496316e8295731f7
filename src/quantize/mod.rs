//! From a vector to a code: a random rotation, then RaBitQ: one bit a dimension in posting lists, [several](extended) in place of vectors.
//!
//! | symbol | meaning |
//! |---|---|
//! | `D` | padded dimension: the dimension rounded up to a multiple of 64, at least 128 |
//! | `v`, `c`, `q` | row, code reference (a centroid), query; all rotated |
//! | `r = v - c` | residual |
//! | `x_i = +-1/2` | the code: the sign of `r_i` |
//! | `f_add`, `f_rescale`, `f_error` | a code's factors |

pub mod extended;
pub mod rabitq;
pub mod rotation;

pub use rabitq::{Encoder, Factors, Form};
pub use rotation::Rotation;
