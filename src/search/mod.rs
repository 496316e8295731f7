//! What goes out.
//!
//! | module | what it does |
//! |---|---|
//! | [`topk`] | keeps the k nearest, ties by the smaller id; writes fixed-width result rows |
//! | [`scan`] | one query: leaves by a beam, candidates by bounds, exact distances |
//! | [`margin`] | what an approximate product proves of an exact distance |
//! | [`exact`] | brute force over all rows: the ground truth |

pub mod exact;
pub mod margin;
pub mod scan;
pub mod topk;

pub use exact::exact_search;
pub use topk::{Neighbour, TopK};
