//! `Index`: the live tree, as Python holds it.
#![allow(clippy::doc_lazy_continuation)] // Docstrings are numpydoc for `help()`, not Markdown.

use std::path::PathBuf;
use std::sync::Arc;

use numpy::{PyArray1, PyArrayMethods};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::arguments::{expected, index as integer, size, timeout};
use super::arrays::{Ids, Matrix};
use super::durable;
use super::functions::metric;
use super::gate::{Call, Share, quick};
use super::options::{Given, IndexArguments, SearchArguments, neighbours};
use super::progress::Progress;
use super::results::{self, Found};
use crate::error::Error;
use crate::index::{Index, Wanted};
use crate::metric::MAX_DIM;
use crate::value::ValueType;

/// Additions of at most this many values run on the calling thread: some hundred rows, some tens of milliseconds.
const SHORT_ADD: usize = 1 << 18;

/// Searches of at most this many queries run on the calling thread: a thread would cost as much as a query.
const SHORT_SEARCH: usize = 16;

/// As many multiplications as even a scan of everything does in a second.
const SHORT_SCAN: usize = 1 << 33;

/// Vectors that take a while to copy.
const LONG: usize = 4096;

/// A vector index in memory that stays good while it changes.
///
/// A tree of centroids leads a vector to its leaf and, spilled, to a second one; leaves hold 1-bit codes, and the best candidates are
/// compared by their stored vectors. Background threads split and merge leaves while rows come and go. All methods may be called from any
/// number of threads at the same time; none of them holds the interpreter while it computes.
///
/// Parameters
/// ----------
/// dim : int
///     Values a row, 1 to 65,535.
/// metric : {"cosine", "l2", "ip"}, default "cosine"
///     What "near" means. Smaller is nearer, always:
///     ``"l2"`` is ``((q - x) ** 2).sum()``, the squared Euclidean distance;
///     ``"cosine"`` is ``1 - (q @ x) / (norm(q) * norm(x))``, from 0 to 2, and 1 where either is zero;
///     ``"ip"`` is ``-(q @ x)``.
/// path : str or os.PathLike, optional
///     A directory to be bound to: `commit` writes checkpoints there. If it holds a checkpoint the index goes on from it, and `dim`, `metric`
///     and options that are given must be those of the checkpoint. Nobody else may have the directory open for writing.
/// keep : int, default 1
///     Checkpoints that a commit keeps in the directory, the newest first.
/// spill : {1, 0}, default 1
///     Further leaves that list a row. One copy takes memory and lets a search visit far fewer rows.
/// split_threshold : int, optional
///     A leaf with more postings is split, 8 to 1,048,576. Default by profile: 192 or 2048.
/// merge_threshold : int, optional
///     A leaf with fewer postings is merged into its neighbours, at most a quarter of `split_threshold`; 0 merges empty leaves only.
///     Default by profile: an eighth or a quarter of `split_threshold`.
/// branching : int, default 65536
///     A node with more children is split, 4 to 1,048,576.
/// profile : {"memory", "disk"}, default "memory"
///     Small leaves, or leaves large enough to be worth a read from disk.
/// storage : {"f32", "f16", "bf16", "int8", "rabitq3", ..., "rabitq8"}, default "f32"
///     How vectors are stored: as they came (4 bytes a dimension), in half floats (2), as whole numbers with one scale a row (1), or as codes
///     of 3 to 8 bits a dimension (extended RaBitQ; 3/8 to 1, and 8 bytes a row; dimensions count up to the next multiple of 64, at
///     least 128). Distances are those of what is stored, which `get` returns: exactly, or of codes within the rounding of float32, some
///     millionths of the squared lengths. Of 200,000 text embeddings of 384 dimensions, scanned so widely that "f32" finds 0.997 of the ten
///     nearest, "rabitq8" finds 0.993, "rabitq6" 0.981, "rabitq5" 0.964, "rabitq4" 0.939 and "rabitq3" 0.895. The error of a
///     code is a share of its row's length: under "l2", centre rows that are much nearer to each other than to the origin, or keep floats. A recall target counts
///     neighbours by what is stored.
/// seed : int, default 0
///     Seed of the rotation and of every clustering, 0 to 2**64 - 1.
/// threads : int, optional
///     Threads for additions and for balancing, 1 to 1,024. Default: the cores this process may use.
///
/// Raises
/// ------
/// ValueError
///     An option out of its range.
/// TypeError
///     An option of the wrong type.
///
/// Notes
/// -----
/// The partitioned index is SPANN (Chen et al. 2021), kept balanced by the rules of SPFresh (LIRE; Xu et al. 2023); the second leaf of a
/// row is chosen as in SOAR (Sun et al. 2023); codes and their error bounds are RaBitQ (Gao & Long 2024).
///
/// An index made before ``fork`` can't be used in the child: its methods raise `sapwood.Error` there.
///
/// Examples
/// --------
/// >>> import numpy as np, sapwood as sw
/// >>> vectors = np.random.default_rng(0).standard_normal((1000, 64), dtype=np.float32)
/// >>> index = sw.Index(64)
/// >>> index.add(vectors)
/// AddResult(added=1000, replaced=0)
/// >>> ids, distances = index.search(vectors[:3], k=5)
/// >>> ids.shape, ids[:, 0]
/// ((3, 5), array([0, 1, 2]))
#[pyclass(frozen, weakref, name = "Index", module = "sapwood")]
pub struct PyIndex {
    pub(super) core: Arc<Index>,
}

#[pymethods]
impl PyIndex {
    #[new]
    #[pyo3(
        signature = (dim, metric=None, *, path=None, keep=None, spill=None, split_threshold=None, merge_threshold=None, branching=None, profile=None, storage=None, seed=None, threads=None),
        text_signature = "(dim, metric='cosine', *, path=None, keep=1, spill=1, split_threshold=None, merge_threshold=None, branching=65536, profile='memory', storage='f32', seed=0, threads=None)"
    )]
    #[allow(clippy::too_many_arguments)] // Python's keywords.
    fn new<'py>(
        py: Python<'py>,
        dim: &Bound<'py, PyAny>,
        metric: Option<&Bound<'py, PyAny>>,
        path: Option<PathBuf>,
        keep: Option<&Bound<'py, PyAny>>,
        spill: Option<&Bound<'py, PyAny>>,
        split_threshold: Option<&Bound<'py, PyAny>>,
        merge_threshold: Option<&Bound<'py, PyAny>>,
        branching: Option<&Bound<'py, PyAny>>,
        profile: Option<&Bound<'py, PyAny>>,
        storage: Option<&Bound<'py, PyAny>>,
        seed: Option<&Bound<'py, PyAny>>,
        threads: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Self> {
        let dim = size("dim", dim, 1, MAX_DIM)?;
        let options = IndexArguments { spill, split_threshold, merge_threshold, branching, profile, storage, seed, threads };
        let Some(path) = path else {
            let (metric, params) = (self::metric(metric)?, options.params()?);
            return Ok(Self { core: Arc::new(quick(py, || Index::new(dim, metric, params))?) });
        };
        let metric = metric.map(|metric| self::metric(Some(metric))).transpose()?;
        let (params, given, keep) = (options.params()?, options.given(), durable::keep(keep)?);
        durable::bind(py, &path, Wanted { dim: Some(dim), metric, params, given, keep, cache_bytes: None })
    }

    /// Add rows, or replace those whose ids are live. The whole batch is applied or nothing.
    ///
    /// Parameters
    /// ----------
    /// vectors : array_like, shape (n, dim)
    ///     Finite numbers. float32 in C order is read where it lies; float64, float16, bfloat16 (ml_dtypes), integers, strided, big-endian
    ///     and Fortran arrays, lists, CPU tensors, Arrow lists, polars and pandas columns are converted block by block. Never written to.
    ///     One row of shape (dim,) is taken if `ids` is one int.
    /// ids : array_like of int, shape (n,), optional
    ///     Ids from 0 to 2**63 - 1. A repeated id means its last row. Default: a counter that starts above the largest id so far, 0 at
    ///     first, and never gives an id twice.
    /// progress : callable or bool, optional
    ///     Called as ``progress(done, total)``, counted in rows, at most ten times a second; an exception from it ends the call with
    ///     nothing applied. True shows a bar.
    ///
    /// Returns
    /// -------
    /// AddResult
    ///     ``(added, replaced)``: ids that were new, and ids that were live before.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     Wrong shape, NaN or infinity (naming the row), ids out of range or not one a row; a closed index.
    /// TypeError
    ///     No numbers, or ids that are no integers.
    /// KeyboardInterrupt
    ///     Ctrl-C; the batch was applied as a whole or not at all.
    ///
    /// Examples
    /// --------
    /// >>> import numpy as np, sapwood as sw
    /// >>> index = sw.Index(3, "l2")
    /// >>> index.add(np.zeros((2, 3)), ids=[10, 20])
    /// AddResult(added=2, replaced=0)
    /// >>> index.add([1, 2, 3], ids=20)
    /// AddResult(added=0, replaced=1)
    #[pyo3(signature = (vectors, ids=None, *, progress=None))]
    fn add<'py>(
        &self,
        vectors: &Bound<'py, PyAny>,
        ids: Option<&Bound<'py, PyAny>>,
        progress: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = vectors.py();
        let call = Call::new(None, Progress::read(progress, "rows")?)?;
        let vectors = Matrix::read("vectors", vectors, Some(self.core.dim()))?;
        let ids = ids.map(|ids| Ids::read("ids", ids)).transpose()?;
        check_pairs(&vectors, ids.as_ref())?;
        let rows = vectors.rows();
        let total = rows as u64;
        let long = rows.saturating_mul(vectors.dim()) > SHORT_ADD;
        let mut batch = quick(py, || self.core.stage(rows))?;
        // Storing rows is the smaller part of the work; the eighth is for the bar to move evenly.
        let stored = total / 8;
        if rows > 0 {
            vectors.each(|start, block| {
                let share = Share { total, ..vectors.share(start, block.len(), stored) };
                call.run(py, Some(share), long, |task| batch.fill(start, block, task))
            })?;
        }
        let share = Share { from: stored, to: total, total };
        let ids = ids.as_ref().map(|ids| ids.values.as_slice());
        let result = call.run(py, Some(share), long, |task| batch.commit(ids, task))?;
        call.finish(py, total)?;
        results::added(py, result)
    }

    /// Remove ids; those that aren't live are ignored.
    ///
    /// Parameters
    /// ----------
    /// ids : array_like of int, shape (n,), or int
    ///     Ids from 0 to 2**63 - 1.
    ///
    /// Returns
    /// -------
    /// int
    ///     How many were live. A search that begins after this can't return them.
    ///
    /// Examples
    /// --------
    /// >>> import numpy as np, sapwood as sw
    /// >>> index = sw.Index(2)
    /// >>> index.add(np.eye(2))
    /// AddResult(added=2, replaced=0)
    /// >>> index.remove([1, 7])
    /// 1
    fn remove(&self, ids: &Bound<'_, PyAny>) -> PyResult<u64> {
        let values = Ids::read("ids", ids)?.values;
        quick(ids.py(), || self.core.remove(&values))
    }

    /// Find the nearest rows of each query.
    ///
    /// Parameters
    /// ----------
    /// queries : array_like, shape (nq, dim) or (dim,)
    ///     Finite numbers, in any form that `add` takes. A 1-D query gives 1-D results.
    /// k : int, default 10
    ///     Neighbours a query, 1 to 1,048,576.
    /// tau : float, optional
    ///     At each level nodes within `tau` (at least 1) times the distance of the nearest are visited. Default: 1.6, or no such limit
    ///     where `beam` is given.
    /// beam : int or (int, int), optional
    ///     Leaves to scan, at least 1: the most, or (least, most). An int without `tau` means exactly so many, the nearest first.
    ///     Default: (16, 64).
    /// recall : float, optional
    ///     The share of the true neighbours to find on average, above 0 and at most 1, in place of `tau`, `beam` and `levels`: each query scans
    ///     leaves until it is likely to have found so many. The first such search measures the index with its own rows as queries, and a
    ///     later one measures anew where the rows have changed by a quarter; `stats` says how long that took. 1.0 scans every leaf. Queries far
    ///     from all rows, and a filter that leaves out just the rows near a query, may make it less.
    /// rerank : "bound", int or None, default "bound"
    ///     Which candidates are compared by their stored vectors: all that may belong to the best k by the codes' error bound, the best
    ///     ``rerank * k`` estimates, or none; with None the distances are estimates.
    /// epsilon : float, optional
    ///     Deviations that the error bound keeps away from an estimate (RaBitQ's epsilon_0), 0 to 16: the fewer, the fewer vectors are
    ///     compared, and the more neighbours are missed. Default: 2.4, which misses almost none, and with `recall` what suits that target
    ///     (1.4 for 0.9, 1.75 for 0.95; not below 2.4 for fewer than 10 neighbours and under ``"ip"``).
    /// filter : array_like of int, Filter, optional
    ///     Ids that may be returned, or a `Filter`.
    /// levels : list of dict, optional
    ///     Exceptions by level, the root's children first: any of ``tau``, ``least``, ``most``, ``least_percent``; None for no exception.
    /// threads : int, optional
    ///     Threads for a batch, which its queries share out; a single query uses them where it
    ///     is large, if no batch does. Then another neighbour may be missed than with one thread. Default: the index's.
    /// timeout : float, optional
    ///     Seconds after which `TimeoutError` is raised.
    /// progress : callable or bool, optional
    ///     Called as ``progress(done, total)``, counted in queries, at most ten times a second; an exception from it ends the call. True
    ///     shows a bar.
    ///
    /// Returns
    /// -------
    /// SearchResult
    ///     Unpacks as ``ids, distances``: int64 and float32, both (nq, k) or (k,). Distances ascend, ties by id. Where fewer than k rows are
    ///     live and allowed, the rest is id -1 and distance +inf; ``counts`` says how many are real.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     Wrong shape, NaN or infinity (naming the query), an option out of range; a closed index.
    /// TypeError
    ///     Queries that are no numbers, an option of the wrong type.
    /// TimeoutError
    ///     `timeout` ran out.
    ///
    /// Examples
    /// --------
    /// >>> import numpy as np, sapwood as sw
    /// >>> index = sw.Index(2, "l2")
    /// >>> index.add([[0, 0], [3, 4]])
    /// AddResult(added=2, replaced=0)
    /// >>> index.search([0, 0], k=3)
    /// SearchResult(ids=array([ 0,  1, -1]), distances=array([ 0., 25., inf], dtype=float32))
    #[pyo3(
        signature = (queries, k=None, *, tau=None, beam=None, recall=None, rerank=Given::NOTHING, epsilon=None, filter=None, levels=None, threads=None, timeout=None, progress=None),
        text_signature = "($self, queries, k=10, *, tau=None, beam=None, recall=None, rerank='bound', epsilon=None, filter=None, levels=None, threads=None, timeout=None, progress=None)"
    )]
    #[allow(clippy::too_many_arguments)] // Python's keywords.
    fn search<'py>(
        &self,
        queries: &Bound<'py, PyAny>,
        k: Option<&Bound<'py, PyAny>>,
        tau: Option<&Bound<'py, PyAny>>,
        beam: Option<&Bound<'py, PyAny>>,
        recall: Option<&Bound<'py, PyAny>>,
        rerank: Given<'py>,
        epsilon: Option<&Bound<'py, PyAny>>,
        filter: Option<&Bound<'py, PyAny>>,
        levels: Option<&Bound<'py, PyAny>>,
        threads: Option<&Bound<'py, PyAny>>,
        timeout: Option<&Bound<'py, PyAny>>,
        progress: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = queries.py();
        let k = neighbours(k)?;
        let options = SearchArguments { tau, beam, recall, rerank: &rerank, epsilon, filter, levels, threads }.options()?;
        let call = Call::new(self::timeout(timeout)?, Progress::read(progress, "queries")?)?;
        let queries = Matrix::read("queries", queries, Some(self.core.dim()))?;
        let mut found = Found::new(queries.rows(), k)?;
        let total = queries.rows() as u64;
        let scan = self.core.len().saturating_mul(queries.rows()).saturating_mul(queries.dim());
        let long = queries.rows() > SHORT_SEARCH || scan > SHORT_SCAN;
        queries.each(|start, block| {
            let share = queries.share(start, block.len(), total);
            found.append(call.run(py, Some(share), long, |task| self.core.search(block, k, &options, task))?);
            Ok(())
        })?;
        call.finish(py, total)?;
        found.finish(py, queries.is_flat())
    }

    /// The stored rows of ids.
    ///
    /// Parameters
    /// ----------
    /// ids : array_like of int, shape (n,), or int
    ///     Live ids, in any order and repeated at will.
    ///
    /// Returns
    /// -------
    /// numpy.ndarray of float32, shape (n, dim), or (dim,) for one int
    ///     A copy. Under ``"cosine"`` the rows are stored, and returned, at unit length (a zero row stays zero); otherwise as they came.
    ///
    /// Raises
    /// ------
    /// KeyError
    ///     An id is not live.
    ///
    /// Examples
    /// --------
    /// >>> import sapwood as sw
    /// >>> index = sw.Index(2)
    /// >>> index.add([3, 4], ids=7)
    /// AddResult(added=1, replaced=0)
    /// >>> index.get(7)
    /// array([0.6, 0.8], dtype=float32)
    fn get<'py>(&self, ids: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = ids.py();
        let ids = Ids::read("ids", ids)?;
        let values =
            PyArray1::from_vec(py, Call::new(None, None)?.run(py, None, ids.values.len() > LONG, |task| self.core.get(&ids.values, task))?);
        if ids.scalar { Ok(values.into_any()) } else { Ok(values.reshape([ids.values.len(), self.core.dim()])?.into_any()) }
    }

    /// All live ids, ascending: int64, shape (n,).
    fn ids<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<i64>>> {
        Ok(PyArray1::from_vec(py, quick(py, || self.core.ids())?))
    }

    /// Wait until nothing is left to split or merge.
    ///
    /// Background threads do this work anyway; waiting is for measurements, and for before a quiet time.
    ///
    /// Parameters
    /// ----------
    /// progress : callable or bool, optional
    ///     Called as ``progress(done, total)``, counted in rows looked at, at most ten times a second; the total grows when a split makes more
    ///     work. An exception from it ends the waiting. True shows a bar.
    #[pyo3(signature = (progress=None))]
    fn balance(&self, py: Python<'_>, progress: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let call = Call::new(None, Progress::read(progress, "rows")?)?;
        let total = call.run(py, None, true, |task| {
            self.core.balance(task)?;
            Ok(task.progress().1)
        })?;
        call.finish(py, total)
    }

    /// Sizes and counters as plain numbers.
    ///
    /// Returns
    /// -------
    /// dict
    ///     ``rows``: live rows; ``leaves``, ``nodes``, ``levels``: leaves, inner nodes and levels of the tree; ``postings``: entries of
    ///     leaves, two for a spilled row; ``largest_leaf``, ``smallest_leaf``, ``mean_leaf``: postings a leaf; ``imbalance``: the mean
    ///     square of the leaf sizes over the square of their mean, 1 when all are equal; ``empty_leaves``; ``queue``: leaves that wait
    ///     for balancing; ``unsplittable``: leaves too large, but of rows all alike; ``given_up``: leaves left alone after too many
    ///     attempts; ``splits``, ``merges``, ``reassigned``, ``refreshed``, ``clusterings``: leaves split and merged, rows moved, centroids
    ///     replaced and clusterings of the whole tree so far; ``balance_seconds``, ``lock_wait_seconds``: time spent on balancing and on
    ///     waiting for locks, over all threads; ``target_rows``, ``target_queries``, ``target_seconds``: rows of the index when it was measured
    ///     for searches with `recall`, rows that stood for queries, and how long it took (all 0 before the first such search; 0 seconds
    ///     where a checkpoint had it); ``target_leaves_90``, ``target_leaves_95``, ``target_leaves_99``: leaves that such a search for ten
    ///     neighbours scans on average; ``queries`` and ``route_seconds``, ``scan_seconds``, ``rerank_seconds``: searches so far, and
    ///     the time spent on choosing leaves, scanning them and comparing exactly, summed over queries; ``bytes_vectors``,
    ///     ``bytes_postings``, ``bytes_tree``, ``bytes_ids`` and their sum ``bytes``: memory.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        results::stats(py, &quick(py, || self.core.stats())?)
    }

    /// Check every invariant of the index; raises `sapwood.Error` naming the first broken one. For tests: it reads everything.
    fn validate(&self, py: Python<'_>) -> PyResult<()> {
        Call::new(None, None)?.run(py, None, true, |task| self.core.validate(task))
    }

    /// Values a row.
    #[getter]
    fn dim(&self) -> usize {
        self.core.dim()
    }

    /// What "near" means: "l2", "cosine" or "ip".
    #[getter]
    fn metric(&self) -> &'static str {
        self.core.metric().name()
    }

    /// The options in force: a dict of ``spill``, ``split_threshold``, ``merge_threshold``, ``branching``, ``storage``, ``seed`` and ``threads``.
    #[getter]
    fn config<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let params = self.core.params();
        let dict = PyDict::new(py);
        dict.set_item("spill", params.spill)?;
        dict.set_item("split_threshold", params.split_threshold)?;
        dict.set_item("merge_threshold", params.merge_threshold)?;
        dict.set_item("branching", params.branching)?;
        dict.set_item("storage", params.storage.name())?;
        dict.set_item("seed", params.seed)?;
        dict.set_item("threads", params.thread_count())?;
        Ok(dict)
    }

    /// True after `close`.
    #[getter]
    fn closed(&self) -> bool {
        self.core.is_closed()
    }

    /// Stop the background threads and free the memory; calls that run end first. Closing twice does no harm.
    ///
    /// Afterwards every method but `close` raises `ValueError`.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        quick(py, || {
            self.core.close();
            Ok(())
        })
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }

    fn __len__(&self) -> PyResult<usize> {
        if self.closed() { Err(Error::Closed.into()) } else { Ok(self.core.len()) }
    }

    fn __contains__(&self, id: &Bound<'_, PyAny>) -> PyResult<bool> {
        let Some(number) = integer(id) else { return Err(PyTypeError::new_err(expected("id", "an int", id))) };
        match number.extract::<i64>() {
            Ok(number) => quick(id.py(), || self.core.contains(number)),
            // No id is that large or that small.
            Err(_) => Ok(false),
        }
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let storage = match self.core.params().storage {
            ValueType::F32 => String::new(),
            kind => format!(", storage='{}'", kind.name()),
        };
        let shape = format!("Index(dim={}, metric='{}'{storage}", self.core.dim(), self.core.metric().name());
        match py.detach(|| self.core.stats()) {
            Ok(stats) => format!("{shape}, {})", results::summary(&stats)),
            Err(Error::Closed) => format!("{shape}, closed)"),
            Err(error) => format!("{shape}, {error})"),
        }
    }
}

impl Drop for PyIndex {
    /// Stopping threads and freeing gigabytes takes a while, during which other threads may run.
    fn drop(&mut self) {
        Python::try_attach(|py| py.detach(|| self.core.close()));
    }
}

/// Each row needs one id, and a row of one dimension an id of none.
fn check_pairs(vectors: &Matrix<'_>, ids: Option<&Ids>) -> PyResult<()> {
    let scalar = ids.is_some_and(|ids| ids.scalar);
    if vectors.is_flat() && !scalar {
        return Err(vectors.needs_two_dimensions(", or give its id as one int"));
    }
    match ids {
        Some(ids) if ids.values.len() != vectors.rows() => {
            let given = if scalar { "one int".to_string() } else { format!("({},)", ids.values.len()) };
            Err(Error::invalid("ids", format!("({},), one a row of vectors", vectors.rows()), given).into())
        }
        _ => Ok(()),
    }
}
