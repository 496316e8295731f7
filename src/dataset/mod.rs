//! What comes in: checked views of rows, and rows from files.
//!
//! | file | what it does |
//! |---|---|
//! | [`rows`] | the view that the core takes |
//! | [`source`] | files as one run of rows: what is where, and what of it to read |
//! | [`walk`] | reading on, by several threads, into the caller's memory |
//! | `flaw` | rows that can't be taken, and which of them may be left out |
//! | `parquet`, `npy`, `vecs` | the formats |
//! | `cells`, `file` | numbers as they lie in files; files that are read by place |

mod cells;
mod file;
mod flaw;
mod npy;
mod parquet;
pub mod rows;
pub mod source;
mod vecs;
pub mod walk;

pub use flaw::Nulls;
pub use rows::Rows;
pub use source::{Loaded, Request, Source};
pub use walk::Walk;
