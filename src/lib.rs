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
//! | [`filter`] | ids that may, or may not, be returned |
//! | [`quantize`] | rotation, RaBitQ codes of one bit and of several |
//! | [`value`] | how stored vectors keep their values: f32, f16, bf16, int8, rabitq3 to rabitq8 |
//! | [`params`] | every tunable, with default, unit and reason |
//! | [`dataset`] | what comes in: checked views of rows |
//! | [`storage`] | files of a checkpoint directory, and a bounded cache of what was read |
//! | [`scratch`] | large buffers for a while |
//! | [`vectors`] | the store of full vectors, by row |
//! | [`ids`] | external ids and rows: the one authority on what is live |
//! | [`tree`] | blocks, leaves, nodes, snapshots, navigation, publishing |
//! | [`search`] | candidates by bounds, exact distances, the k nearest |
//! | [`balance`] | clustering, splits, merges, reassignment, in background threads |
//! | [`checkpoint`] | files of a durable index: commit, open, collect |
//! | [`index`] | the handle that people hold |
//! | `python` | the Python bindings (feature `python`): a gate and a converter |

pub mod balance;
pub mod cancel;
pub mod checkpoint;
pub mod dataset;
pub mod error;
pub mod filter;
pub mod ids;
pub mod index;
pub mod kernel;
pub mod metric;
pub mod params;
#[cfg(feature = "python")]
mod python;
pub mod quantize;
pub mod scratch;
pub mod search;
pub mod storage;
pub mod tree;
pub mod value;
pub mod vectors;

pub use error::{Error, Result};
