#![doc = include_str!("FORMAT.md")]

mod bytes;
mod collect;
mod commit;
mod home;
mod leaves;
mod manifest;
mod nodes;
mod open;
mod root;
mod rows;
mod segment;
#[cfg(test)]
mod tests;
mod vectors;

pub use commit::files_of;
pub use home::{Home, Info};
pub use manifest::{CURRENT, FORMAT, MOST_NOTE, Manifest, checkpoint_numbers, current, manifest_name, manifest_numbers};
pub use open::{Held, Opened, Residence, hold_checkpoint, open};
pub use segment::Segments;
