//! Sapwood: a vector index that stays good while it changes.
//!
//! This crate is the core; the Python package of the same name is a thin layer over it (feature `python`).
//! Modules follow the way of a vector, and a module imports only from those above it in this table:
//!
//! | module | what it does |
//! |---|---|
//! | [`error`] | the one public error |
//! | [`cancel`] | what long work polls: stop, deadline, progress |
//! | [`kernel`] | the SIMD fence: one table of functions, chosen once a process |
//! | [`metric`] | l2, cosine, ip: preparation of rows, sign and order of distances |
//! | [`params`] | every tunable, with default, unit and reason |
//! | [`dataset`] | what comes in: checked views of rows |
//! | [`search`] | finding the nearest rows: top-k, brute force |

pub mod cancel;
pub mod dataset;
pub mod error;
pub mod kernel;
pub mod metric;
pub mod params;
pub mod search;

pub use error::{Error, Result};
