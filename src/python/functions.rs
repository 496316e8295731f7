//! Functions of the package.
#![allow(clippy::doc_lazy_continuation)] // Docstrings are numpydoc for `help()`, not Markdown.

use pyo3::prelude::*;

use super::arguments::{text, threads, timeout};
use super::arrays::Matrix;
use super::gate::Call;
use super::options::neighbours;
use super::progress::Progress;
use super::results::Found;
use crate::cancel::Task;
use crate::index::SearchResult;
use crate::metric::Metric;
use crate::params::available_threads;
use crate::search::exact_search as search_exactly;

/// Work of at most this many multiplications runs on the calling thread: some tens of milliseconds.
const SHORT: usize = 1 << 27;

/// `metric=`.
pub fn metric(value: Option<&Bound<'_, PyAny>>) -> PyResult<Metric> {
    let Some(value) = value else { return Ok(Metric::Cosine) };
    Ok(Metric::from_name(&text("metric", value, "\"l2\", \"cosine\" or \"ip\"")?)?)
}

/// The true nearest rows of each query, by comparing all: the ground truth.
///
/// Parameters
/// ----------
/// vectors : array_like, shape (n, dim)
///     The rows to search, as for `Index.add`. float32 in C order is read where it lies; everything else is converted block by block.
/// queries : array_like, shape (nq, dim) or (dim,)
///     The queries, in any of the same forms; other than float32 in C order they are converted as a whole.
/// k : int, default 10
///     Neighbours a query, 1 to 1,048,576.
/// metric : {"l2", "cosine", "ip"}, default "cosine"
///     What "near" means; see `Index`.
/// threads : int, optional
///     Threads to use. Default: the cores this process may use.
/// progress : callable or bool, optional
///     Called as ``progress(done, total)``, counted in queries, at most ten times a second; True shows a bar.
/// timeout : float, optional
///     Seconds after which `TimeoutError` is raised.
///
/// Returns
/// -------
/// SearchResult
///     Its ids are row numbers of `vectors`; distances ascend, ties by id; rows that don't exist are id -1 and distance +inf.
///
/// Raises
/// ------
/// ValueError
///     Wrong shapes, NaN or infinity (naming the row), a `k` out of range.
/// TypeError
///     No numbers.
///
/// Examples
/// --------
/// >>> import numpy as np, sapwood as sw
/// >>> vectors = np.array([[1, 0], [0, 2], [3, 3]], dtype=np.float32)
/// >>> ids, distances = sw.exact_search(vectors, [[1.0, 1.0]], k=2, metric="l2")
/// >>> ids
/// array([[0, 1]])
/// >>> distances
/// array([[1., 2.]], dtype=float32)
#[pyfunction]
#[pyo3(
    signature = (vectors, queries, k=None, metric=None, *, threads=None, progress=None, timeout=None),
    text_signature = "(vectors, queries, k=10, metric='cosine', *, threads=None, progress=None, timeout=None)"
)]
#[allow(clippy::too_many_arguments)] // Python's keywords.
pub fn exact_search<'py>(
    vectors: &Bound<'py, PyAny>,
    queries: &Bound<'py, PyAny>,
    k: Option<&Bound<'py, PyAny>>,
    metric: Option<&Bound<'py, PyAny>>,
    threads: Option<&Bound<'py, PyAny>>,
    progress: Option<&Bound<'py, PyAny>>,
    timeout: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = vectors.py();
    let k = neighbours(k)?;
    let metric = self::metric(metric)?;
    let threads = self::threads(threads)?.unwrap_or_else(available_threads);
    let call = Call::new(self::timeout(timeout)?, Progress::read(progress, "queries")?)?;
    let vectors = Matrix::read("vectors", vectors, None)?;
    if vectors.is_flat() {
        return Err(vectors.needs_two_dimensions(""));
    }
    let queries = Matrix::read("queries", queries, Some(vectors.dim()))?;
    let mut found = Found::new(queries.rows(), k)?;
    let total = queries.rows() as u64;
    queries.with_all(|all| {
        let mut nearest: Option<SearchResult> = None;
        vectors.each(|start, rows| {
            let share = vectors.share(start, rows.len(), total);
            let long = rows.len().saturating_mul(all.values().len()) > SHORT;
            let search = |task: &Task| {
                let (mut ids, distances) = search_exactly(rows, all, k, metric, threads, task)?;
                // Row numbers of the block; -1 is no row.
                ids.iter_mut().filter(|id| **id >= 0).for_each(|id| *id += start as i64);
                let compared = rows.len() as u64 * total;
                let block = SearchResult { ids, distances, scanned: compared, reranked: compared, leaves: 0 };
                Ok(match nearest.take() {
                    Some(before) => merge(before, block, k),
                    None => block,
                })
            };
            nearest = Some(call.run(py, Some(share), long, search)?);
            Ok(())
        })?;
        nearest.into_iter().for_each(|nearest| found.append(nearest));
        Ok(())
    })?;
    call.finish(py, total)?;
    found.finish(py, queries.is_flat())
}

/// The `k` nearest of two sets of results. The rows of `after` have the larger ids, so at equal distance those of `before` come first.
fn merge(before: SearchResult, after: SearchResult, k: usize) -> SearchResult {
    let mut ids = Vec::with_capacity(before.ids.len());
    let mut distances = Vec::with_capacity(before.ids.len());
    for query in 0..before.ids.len() / k {
        let (mut i, mut j) = (query * k, query * k);
        for _ in 0..k {
            let from_before = after.ids[j] < 0 || (before.ids[i] >= 0 && before.distances[i] <= after.distances[j]);
            let (source, place) = if from_before { (&before, &mut i) } else { (&after, &mut j) };
            ids.push(source.ids[*place]);
            distances.push(source.distances[*place]);
            *place += 1;
        }
    }
    SearchResult { ids, distances, scanned: before.scanned + after.scanned, reranked: before.reranked + after.reranked, leaves: 0 }
}
