//! Keeping the tree good while it is written and searched.
//!
//! | module | what it does |
//! |---|---|
//! | [`plan`] | pure: facts about a leaf in, an action out |
//! | [`kmeans`] | the one k-means |
//! | [`cluster`] | clusters the whole tree anew when it has outgrown its centroids |
//! | [`split`] | one leaf becomes several |
//! | [`moves`] | rows to other leaves: reassignment after a split, and merging |
//! | [`refresh`] | a routing centroid follows its rows |
//! | [`inner`] | internal nodes that are too wide or too thin |
//! | [`workers`] | the queue and its threads |
//!
//! Each action works on a snapshot, without a lock, and publishes one short edit that reconciles what happened meanwhile.

pub mod cluster;
pub mod inner;
pub mod kmeans;
pub mod moves;
pub mod plan;
pub mod refresh;
pub mod split;
pub mod workers;
