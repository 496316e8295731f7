//! The tree: immutable snapshots of nodes and posting lists, how a query finds its leaves, and how a change is published.
//!
//! A [`snapshot::Snapshot`] is the whole state that a search needs. It never changes: a change builds the nodes that differ, shares all others, and
//! swaps the pointer. A search loads the pointer once, so it sees one moment of the index, whatever is added, moved, split or
//! removed while it runs, and there is nothing to lock and nothing to look up again.

pub mod aim;
pub mod block;
pub mod check;
pub mod graveyard;
pub mod inner;
pub mod insert;
pub mod leaf;
pub mod navigate;
pub mod pool;
pub mod rounds;
pub mod route;
pub mod snapshot;
pub mod store;
pub mod topology;

use std::sync::Arc;

/// A rotated centroid, shared by the leaf that is coded against it and the node that lists it.
pub type Centroid = Arc<[f32]>;
