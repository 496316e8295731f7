//! What comes in: checked views of rows.

pub mod rows;

pub use rows::Rows;
