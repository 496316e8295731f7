//! What goes out: candidates by bounds, exact distances, the k nearest.

pub mod scan;
pub mod topk;
