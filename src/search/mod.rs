//! Finding the nearest rows.
//!
//! | module | what it does |
//! |---|---|
//! | [`topk`] | keeps the k nearest, ties by the smaller id; writes fixed-width result rows |

pub mod margin;
pub mod topk;

pub use topk::{Neighbour, TopK};
