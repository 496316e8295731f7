//! What an index says of itself.

use std::sync::atomic::Ordering;

use super::calibrate::Measured;
use super::{CacheStats, SearchTimes};
use crate::balance::workers::Balancer;
use crate::search::target::TARGETS;
use crate::tree::store::Store;

/// Sizes, counters and bytes of an index.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Stats {
    /// Live rows.
    pub rows: u64,
    /// Leaves.
    pub leaves: u64,
    /// Internal nodes.
    pub nodes: u64,
    /// Levels of internal nodes.
    pub levels: u64,
    /// Postings; a spilled row has two.
    pub postings: u64,
    /// Postings of the largest leaf.
    pub largest_leaf: u64,
    /// Postings of the smallest leaf.
    pub smallest_leaf: u64,
    /// Mean postings of a leaf.
    pub mean_leaf: f64,
    /// Mean square of the leaf sizes over the square of their mean: 1 when all are equal.
    pub imbalance: f64,
    /// Leaves without rows.
    pub empty_leaves: u64,
    /// Leaves that wait for, or are at, balancing.
    pub queue: u64,
    /// Oversized leaves whose rows are all alike.
    pub unsplittable: u64,
    /// Leaves left alone after too many fruitless attempts.
    pub given_up: u64,
    /// Splits so far.
    pub splits: u64,
    /// Merges so far.
    pub merges: u64,
    /// Rows moved after splits so far.
    pub reassigned: u64,
    /// Centroids replaced so far.
    pub refreshed: u64,
    /// Times the whole tree was clustered.
    pub clusterings: u64,
    /// Seconds of balancing work, over all threads.
    pub balance_seconds: f64,
    /// Seconds that threads waited for the lock.
    pub lock_wait_seconds: f64,
    /// Bytes of the stored vectors, rows waiting to be used again included.
    pub bytes_vectors: u64,
    /// Bytes of the posting lists.
    pub bytes_postings: u64,
    /// Bytes of internal nodes and centroids.
    pub bytes_tree: u64,
    /// Bytes of ids and locations.
    pub bytes_ids: u64,
    /// Queries and their time.
    pub search: SearchTimes,
    /// What recall targets go by.
    pub targets: TargetStats,
    /// Reads from disk, where vectors and posting lists are there.
    pub cache: Option<CacheStats>,
}

/// The measurement that searches with a recall target go by; zeros where there is none.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TargetStats {
    /// Live rows when it was made.
    pub rows: u64,
    /// Rows that stood for queries.
    pub queries: u64,
    /// Seconds that it took; 0 for one that came with a checkpoint.
    pub seconds: f64,
    /// Mean leaves that a search for ten neighbours scans for a recall of 0.9, 0.95 and 0.99.
    pub leaves: [f64; 3],
}

impl TargetStats {
    /// The numbers of a measurement.
    pub fn of(measured: &Measured) -> Self {
        let table = &measured.table;
        let ten = table.rules.iter().find(|rule| rule.depth == 10);
        let leaves = |target: f64| {
            let place = TARGETS.iter().position(|&other| other == target);
            place.zip(ten).map_or(0.0, |(place, rule)| rule.leaves[place])
        };
        Self { rows: table.rows, queries: table.queries, seconds: measured.seconds, leaves: [0.9, 0.95, 0.99].map(leaves) }
    }
}

impl Stats {
    /// The present numbers.
    pub fn of(store: &Store, balancer: &Balancer) -> Self {
        let snapshot = store.snapshot();
        let sizes: Vec<u64> = snapshot.leaves.iter().map(|(_, leaf)| leaf.len() as u64).collect();
        let postings: u64 = sizes.iter().sum();
        let mean = postings as f64 / sizes.len().max(1) as f64;
        let squares: f64 = sizes.iter().map(|&size| (size as f64).powi(2)).sum::<f64>() / sizes.len().max(1) as f64;
        let alike = |rows: usize| rows > store.params.split_threshold;
        let unsplittable = snapshot.leaves.iter().filter(|(_, leaf)| leaf.care.unsplittable_at > 0 && alike(leaf.len())).count();
        let counters = balancer.counters();
        let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let directory_bytes = store.look(|state, _| state.directory.bytes() + state.graveyard_bytes());
        Self {
            rows: snapshot.rows as u64,
            leaves: sizes.len() as u64,
            nodes: snapshot.inners.len() as u64,
            levels: u64::from(snapshot.levels()),
            postings,
            largest_leaf: sizes.iter().copied().max().unwrap_or(0),
            smallest_leaf: sizes.iter().copied().min().unwrap_or(0),
            mean_leaf: mean,
            imbalance: if mean > 0.0 { squares / (mean * mean) } else { 1.0 },
            empty_leaves: sizes.iter().filter(|&&size| size == 0).count() as u64,
            queue: balancer.backlog() as u64,
            unsplittable: unsplittable as u64,
            given_up: balancer.given_up() as u64,
            splits: count(&counters.splits),
            merges: count(&counters.merges),
            reassigned: count(&counters.reassigned),
            refreshed: count(&counters.refreshed),
            clusterings: count(&counters.clusterings),
            balance_seconds: count(&counters.work) as f64 * 1e-9,
            lock_wait_seconds: store.lock_wait(),
            bytes_vectors: store.vectors.bytes() as u64,
            bytes_postings: snapshot.leaves.iter().map(|(_, leaf)| leaf.bytes() as u64).sum(),
            bytes_tree: snapshot.inners.iter().map(|(_, inner)| inner.bytes() as u64).sum(),
            search: SearchTimes::default(),
            targets: TargetStats::default(),
            cache: None,
            bytes_ids: (directory_bytes + store.table_bytes() + 8 * store.vectors.bytes() / store.vectors.row_bytes()) as u64,
        }
    }
}
