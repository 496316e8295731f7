//! What goes out: arrays that own their memory, in the named tuples of `sapwood/_results.py`.

use numpy::{PyArray1, PyArray2, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

use super::{bytes_text, grouped};
use crate::error::{Error, Result};
use crate::index::{AddResult, SearchResult, Stats};

/// `AddResult(added, replaced)`.
pub fn added(py: Python<'_>, result: AddResult) -> PyResult<Bound<'_, PyAny>> {
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    CLASS.import(py, "sapwood._results", "AddResult")?.call1((result.added, result.replaced))
}

/// `Rows(ids, vectors)`, which also knows how many rows were left out.
pub fn rows<'py>(ids: Bound<'py, PyArray1<i64>>, vectors: Bound<'py, PyArray2<f32>>, skipped: u64) -> PyResult<Bound<'py, PyAny>> {
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    CLASS.import(ids.py(), "sapwood._results", "Rows")?.call1((ids, vectors, skipped))
}

/// The results of a call's blocks of queries, one after the other.
pub struct Found {
    queries: usize,
    k: usize,
    result: SearchResult,
}

impl Found {
    /// Nothing yet. Fails where the whole of `queries * k` results can't be had, before any work was done.
    pub fn new(queries: usize, k: usize) -> Result<Self> {
        let wanted = queries.checked_mul(k).and_then(|hits| hits.checked_mul(size_of::<(i64, f32)>()));
        let bytes = wanted.unwrap_or(usize::MAX);
        let no_memory = Error::OutOfMemory { bytes, purpose: "results; lower k or pass fewer queries at once" };
        // Only asked for: pages that are not written cost nothing, and the core takes its own.
        Vec::<u8>::new().try_reserve_exact(bytes).map_err(|_| no_memory)?;
        Ok(Self { queries, k, result: SearchResult::default() })
    }

    /// The results of the next block of queries.
    pub fn append(&mut self, block: SearchResult) {
        if self.result.ids.is_empty() {
            // The usual single block is handed on as it is.
            (self.result.ids, self.result.distances) = (block.ids, block.distances);
        } else {
            self.result.ids.extend_from_slice(&block.ids);
            self.result.distances.extend_from_slice(&block.distances);
        }
        self.result.scanned += block.scanned;
        self.result.reranked += block.reranked;
        self.result.leaves += block.leaves;
    }

    /// `SearchResult(ids, distances, ...)`; 1-D for a 1-D query.
    pub fn finish(self, py: Python<'_>, flat: bool) -> PyResult<Bound<'_, PyAny>> {
        static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let Self { queries, k, result } = self;
        let ids = PyArray1::from_vec(py, result.ids);
        let distances = PyArray1::from_vec(py, result.distances);
        let class = CLASS.import(py, "sapwood._results", "SearchResult")?;
        let counts = (result.scanned, result.reranked, result.leaves);
        if flat {
            return class.call1((ids, distances, counts.0, counts.1, counts.2));
        }
        class.call1((ids.reshape([queries, k])?, distances.reshape([queries, k])?, counts.0, counts.1, counts.2))
    }
}

/// Sizes and counters as a dict of plain numbers; `Index.stats` documents the keys.
pub fn stats<'py>(py: Python<'py>, stats: &Stats) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let counts = [
        ("rows", stats.rows),
        ("leaves", stats.leaves),
        ("nodes", stats.nodes),
        ("levels", stats.levels),
        ("postings", stats.postings),
        ("largest_leaf", stats.largest_leaf),
        ("smallest_leaf", stats.smallest_leaf),
        ("empty_leaves", stats.empty_leaves),
        ("queue", stats.queue),
        ("queries", stats.search.queries),
        ("unsplittable", stats.unsplittable),
        ("given_up", stats.given_up),
        ("splits", stats.splits),
        ("merges", stats.merges),
        ("reassigned", stats.reassigned),
        ("refreshed", stats.refreshed),
        ("clusterings", stats.clusterings),
        ("target_rows", stats.targets.rows),
        ("target_queries", stats.targets.queries),
        ("bytes_vectors", stats.bytes_vectors),
        ("bytes_postings", stats.bytes_postings),
        ("bytes_tree", stats.bytes_tree),
        ("bytes_ids", stats.bytes_ids),
        ("bytes", bytes(stats)),
    ];
    let numbers = [
        ("mean_leaf", stats.mean_leaf),
        ("imbalance", stats.imbalance),
        ("balance_seconds", stats.balance_seconds),
        ("lock_wait_seconds", stats.lock_wait_seconds),
        ("route_seconds", stats.search.route),
        ("scan_seconds", stats.search.scan),
        ("rerank_seconds", stats.search.rerank),
        ("target_seconds", stats.targets.seconds),
        ("target_leaves_90", stats.targets.leaves[0]),
        ("target_leaves_95", stats.targets.leaves[1]),
        ("target_leaves_99", stats.targets.leaves[2]),
    ];
    if let Some(cache) = stats.cache {
        let counts = [
            ("cache_bytes", cache.bytes),
            ("cache_capacity", cache.capacity),
            ("bytes_read", cache.postings_read + cache.vectors_read),
            ("bytes_read_postings", cache.postings_read),
            ("bytes_read_vectors", cache.vectors_read),
            ("reads", cache.reads),
            ("cache_hits", cache.hits),
        ];
        counts.iter().try_for_each(|(key, count)| dict.set_item(key, count))?;
        dict.set_item("read_seconds_postings", cache.postings_seconds)?;
        dict.set_item("read_seconds_vectors", cache.vectors_seconds)?;
    }
    counts.iter().try_for_each(|(key, count)| dict.set_item(key, count))?;
    numbers.iter().try_for_each(|(key, number)| dict.set_item(key, number))?;
    Ok(dict)
}

/// All the memory that an index knows of.
pub fn bytes(stats: &Stats) -> u64 {
    stats.bytes_vectors + stats.bytes_postings + stats.bytes_tree + stats.bytes_ids
}

/// What `repr` says of the size.
pub fn summary(stats: &Stats) -> String {
    format!("rows={}, leaves={}, {}", grouped(stats.rows), grouped(stats.leaves), bytes_text(bytes(stats)))
}
