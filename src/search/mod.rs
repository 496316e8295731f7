//! What goes out.
//!
//! | module | what it does |
//! |---|---|
//! | [`topk`] | keeps the k nearest, ties by the smaller id; writes fixed-width result rows |
//! | [`scan`] | one query: leaves by a beam, candidates by bounds |
//! | `rank` | from candidates to the k nearest, by exact distances |
//! | [`spread`] | one query over several threads |
//! | [`target`] | recall targets: when a query has seen enough leaves |
//! | [`fit`] | from measured queries to the rules of recall targets |
//! | [`front`] | how far a query has come, for the decision whether it goes on |
//! | [`trace`] | a query scanned far, to measure on |
//! | [`margin`] | what an approximate product proves of an exact distance |
//! | [`exact`] | brute force over all rows: the ground truth |

pub mod exact;
pub mod fit;
pub mod front;
pub mod margin;
mod rank;
pub mod scan;
mod seen;
pub mod spread;
pub mod target;
pub mod topk;
pub mod trace;

pub use exact::exact_search;
pub use topk::{Neighbour, TopK};
