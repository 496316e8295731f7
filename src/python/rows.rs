//! `read_vectors` and `iter_vectors`: rows of files, straight into numpy's memory.
#![allow(clippy::doc_lazy_continuation)] // Docstrings are numpydoc for `help()`, not Markdown.

use std::path::PathBuf;
use std::sync::Arc;

use numpy::{PyArray1, PyArray2, PyArrayMethods};
use parking_lot::Mutex;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyString};

use super::arguments::{expected, size, text, threads, truth, whole};
use super::gate::{Call, Share};
use super::progress::Progress;
use super::{grouped, results};
use crate::dataset::walk::Filled;
use crate::dataset::{Nulls, Request, Source, Walk};
use crate::params::available_threads;

/// The most rows of a batch.
const MAX_BATCH: usize = 1 << 31;

/// The rows of files: Parquet, ``.npy``, ``.fvecs``, ``.bvecs`` or ``.ivecs``.
///
/// Parameters
/// ----------
/// paths : str, os.PathLike, or a sequence of them
///     Files, or folders: those of a folder are taken in the order of their names and have to be of one kind. All rows have to have as many
///     values.
/// column : str, optional
///     The Parquet column of the vectors: lists of numbers (list, large list, fixed-size list or list view of float16, float32, float64 or
///     integers). Default: the only such column.
/// id_column : str, optional
///     The Parquet column of the ids: integers from 0 to 2**63 - 1, each once. Default: rows are numbered over all files.
/// start : int, default 0
///     Rows to leave out at the beginning of all files taken together. Row groups before them aren't read.
/// count : int, optional
///     Rows to read, with those that are then left out. Default: all that follow.
/// nulls : {"raise", "skip"}, default "raise"
///     Whether a row that is null or empty, or has a null, a NaN, an infinity or a null id, is an error, or left out and counted. The ids
///     of the others don't change by that. Rows of another length are an error always.
/// threads : int, optional
///     Row groups and files to read at the same time. Default: the cores this process may use.
/// progress : callable or bool, optional
///     Called as ``progress(done, total)``, counted in rows, at most ten times a second; True shows a bar.
///
/// Returns
/// -------
/// Rows
///     ``(ids, vectors)``: int64 of shape (n,), float32 in C order of shape (n, dim). Without any row that has values, dim is 0 for
///     Parquet.
///
/// Raises
/// ------
/// ValueError
///     No or several columns to choose from; a file that is damaged, cut off or of another format; a row that can't be taken, by file and
///     row number, counted from 0. Nothing is loaded then.
/// TypeError
///     An id column of another type than integers.
/// FileNotFoundError, OSError
///     A file that is not there or can't be read.
/// KeyboardInterrupt
///     Ctrl-C, within a second.
///
/// Notes
/// -----
/// Of a Parquet file only the columns asked for are read. Beside the result, memory is that of some pages for each thread. Other types than
/// float32 are rounded to the nearest float32.
///
/// Examples
/// --------
/// >>> import numpy as np, sapwood as sw, tempfile, pathlib
/// >>> path = pathlib.Path(tempfile.mkdtemp()) / "vectors.npy"
/// >>> np.save(path, np.eye(3))
/// >>> sw.read_vectors(path)
/// Rows(3 rows, dim=3, ids=0..2)
/// >>> ids, vectors = sw.read_vectors(path, start=1)
/// >>> ids, vectors
/// (array([1, 2]), array([[0., 1., 0.], [0., 0., 1.]], dtype=float32))
#[pyfunction]
#[pyo3(
    signature = (paths, column=None, id_column=None, start=None, count=None, *, nulls=None, threads=None, progress=None),
    text_signature = "(paths, column=None, id_column=None, start=0, count=None, *, nulls='raise', threads=None, progress=None)"
)]
#[allow(clippy::too_many_arguments)] // Python's keywords.
pub fn read_vectors<'py>(
    paths: &Bound<'py, PyAny>,
    column: Option<&Bound<'py, PyAny>>,
    id_column: Option<&Bound<'py, PyAny>>,
    start: Option<&Bound<'py, PyAny>>,
    count: Option<&Bound<'py, PyAny>>,
    nulls: Option<&Bound<'py, PyAny>>,
    threads: Option<&Bound<'py, PyAny>>,
    progress: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = paths.py();
    let request = Arguments { paths, column, id_column, start, count, nulls, threads }.request()?;
    let call = Call::new(None, Progress::read(progress, "rows")?)?;
    let source = call.run(py, None, true, |task| Source::open(&request, task))?;
    let (rows, _) = source.sizes()?;
    let share = Share { from: 0, to: source.rows(), total: source.rows() };
    let found = Arrays::new(py, rows, source.dim())?;
    let found = found.fill(|vectors, ids| call.run(py, Some(share), true, |task| source.read_into(vectors, ids, task)))?;
    call.finish(py, source.rows())?;
    Ok(found)
}

/// The rows of files, a batch at a time, in bounded memory.
///
/// Parameters
/// ----------
/// paths, column, id_column, start, count, nulls, threads, progress
///     As for `read_vectors`.
/// batch : int, default 65536
///     Rows a batch; the last one has what is left. With ``nulls="skip"`` those that are left out count, so a batch may have fewer.
/// unique : bool, default True
///     Whether an id of the column that comes twice in a batch is an error. Files of which later rows replace former ones need False: `add`
///     takes the last one.
///
/// Returns
/// -------
/// iterator of Rows
///     In the order of the files. Files are looked at at once, and read as the batches are asked for.
///
/// Raises
/// ------
/// ValueError, TypeError, OSError, KeyboardInterrupt
///     As for `read_vectors`; an error in a row comes with its batch, and ends the iteration. That ids repeat is seen within a batch only.
///
/// Notes
/// -----
/// Memory is that of a batch and of some pages of a file for each thread, however many rows there are.
///
/// Examples
/// --------
/// >>> import numpy as np, sapwood as sw, tempfile, pathlib
/// >>> path = pathlib.Path(tempfile.mkdtemp()) / "vectors.npy"
/// >>> np.save(path, np.random.default_rng(0).standard_normal((1000, 32)))
/// >>> index = sw.Index(32)
/// >>> for ids, vectors in sw.iter_vectors(path, batch=400):
/// ...     print(index.add(vectors, ids))
/// AddResult(added=400, replaced=0)
/// AddResult(added=400, replaced=0)
/// AddResult(added=200, replaced=0)
#[pyfunction]
#[pyo3(
    signature = (
        paths, column=None, id_column=None, start=None, count=None, *,
        batch=None, nulls=None, unique=None, threads=None, progress=None
    ),
    text_signature = "(paths, column=None, id_column=None, start=0, count=None, *, \
        batch=65536, nulls='raise', unique=True, threads=None, progress=None)"
)]
#[allow(clippy::too_many_arguments)] // Python's keywords.
pub fn iter_vectors<'py>(
    paths: &Bound<'py, PyAny>,
    column: Option<&Bound<'py, PyAny>>,
    id_column: Option<&Bound<'py, PyAny>>,
    start: Option<&Bound<'py, PyAny>>,
    count: Option<&Bound<'py, PyAny>>,
    batch: Option<&Bound<'py, PyAny>>,
    nulls: Option<&Bound<'py, PyAny>>,
    unique: Option<&Bound<'py, PyAny>>,
    threads: Option<&Bound<'py, PyAny>>,
    progress: Option<&Bound<'py, PyAny>>,
) -> PyResult<RowBatches> {
    let py = paths.py();
    let request = Arguments { paths, column, id_column, start, count, nulls, threads }.request()?;
    let batch = batch.map_or(Ok(1 << 16), |batch| size("batch", batch, 1, MAX_BATCH))?;
    let unique = unique.map_or(Ok(true), |unique| truth("unique", unique))?;
    let call = Call::new(None, Progress::read(progress, "rows")?)?;
    let source = call.run(py, None, true, |task| Source::open(&request, task))?;
    let walk = if unique { Walk::new(&source) } else { Walk::new(&source).with_repeats() };
    let state = State { walk, call, done: 0 };
    Ok(RowBatches { source: Arc::new(source), batch, state: Mutex::new(Some(state)) })
}

/// What `iter_vectors` returns: gives the next `Rows` each time it is asked.
#[pyclass(frozen, module = "sapwood")]
pub struct RowBatches {
    source: Arc<Source>,
    batch: usize,
    /// None after the last batch and after an error.
    state: Mutex<Option<State>>,
}

struct State {
    walk: Walk,
    call: Call,
    done: u64,
}

#[pymethods]
impl RowBatches {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        // Not waited for: who holds it may need the interpreter.
        let Some(mut held) = self.state.try_lock() else {
            return Err(PyValueError::new_err("iter_vectors: another thread is reading the next batch; use one iterator a thread"));
        };
        // Taken out: an error ends the iteration.
        let Some(State { mut walk, call, done }) = held.take() else { return Ok(None) };
        let total = self.source.rows();
        let rows = (total - done).min(self.batch as u64);
        if rows == 0 {
            call.finish(py, total)?;
            return Ok(None);
        }
        let share = Share { from: done, to: done + rows, total };
        let arrays = Arrays::new(py, rows as usize, self.source.dim())?;
        let found = arrays.fill(|vectors, ids| {
            call.run(py, Some(share), true, |task| {
                task.set_total(rows);
                walk.fill(&self.source, vectors, ids, task)
            })
        })?;
        *held = Some(State { walk, call, done: done + rows });
        Ok(Some(found))
    }

    /// The files, those of folders one by one, and the rows of each.
    fn _files(&self) -> Vec<(PathBuf, u64)> {
        self.source.files().map(|(path, rows)| (path.to_path_buf(), rows)).collect()
    }

    fn __repr__(&self) -> String {
        format!("RowBatches({} rows, dim={}, batch={})", grouped(self.source.rows()), self.source.dim(), grouped(self.batch as u64))
    }
}

/// What both functions take.
struct Arguments<'a, 'py> {
    paths: &'a Bound<'py, PyAny>,
    column: Option<&'a Bound<'py, PyAny>>,
    id_column: Option<&'a Bound<'py, PyAny>>,
    start: Option<&'a Bound<'py, PyAny>>,
    count: Option<&'a Bound<'py, PyAny>>,
    nulls: Option<&'a Bound<'py, PyAny>>,
    threads: Option<&'a Bound<'py, PyAny>>,
}

impl Arguments<'_, '_> {
    fn request(&self) -> PyResult<Request> {
        let most = i64::MAX as u64;
        let name = |argument, value: Option<&Bound<'_, PyAny>>| {
            value.map(|value| text(argument, value, "the name of a column, or None")).transpose()
        };
        Ok(Request {
            paths: paths(self.paths)?,
            column: name("column", self.column)?,
            id_column: name("id_column", self.id_column)?,
            start: self.start.map_or(Ok(0), |start| whole("start", start, 0, most))?,
            count: self.count.map(|count| whole("count", count, 0, most)).transpose()?,
            nulls: nulls(self.nulls)?,
            threads: threads(self.threads)?.unwrap_or_else(available_threads),
        })
    }
}

/// `nulls=`.
fn nulls(value: Option<&Bound<'_, PyAny>>) -> PyResult<Nulls> {
    const WANTED: &str = "\"raise\" or \"skip\"";
    let Some(value) = value else { return Ok(Nulls::Raise) };
    match text("nulls", value, WANTED)?.as_str() {
        "raise" => Ok(Nulls::Raise),
        "skip" => Ok(Nulls::Skip),
        _ => Err(PyValueError::new_err(expected("nulls", WANTED, value))),
    }
}

/// `paths=`: one path, or some.
fn paths(value: &Bound<'_, PyAny>) -> PyResult<Vec<PathBuf>> {
    const WANTED: &str = "a path (str or os.PathLike), or a sequence of paths";
    let refused = |value: &Bound<'_, PyAny>| PyTypeError::new_err(expected("paths", WANTED, value));
    let single = value.is_instance_of::<PyString>() || value.hasattr("__fspath__")?;
    if single {
        return Ok(vec![value.extract().map_err(|_| refused(value))?]);
    }
    if value.is_instance_of::<PyBytes>() {
        return Err(refused(value));
    }
    let items = value.try_iter().map_err(|_| refused(value))?;
    items.map(|item| item.and_then(|item| item.extract::<PathBuf>().map_err(|_| refused(&item)))).collect()
}

/// Memory of numpy's for rows and their ids.
struct Arrays<'py> {
    vectors: Bound<'py, PyArray2<f32>>,
    ids: Bound<'py, PyArray1<i64>>,
}

impl<'py> Arrays<'py> {
    /// Of zeros, which the system gives out as they are first touched; numpy raises where there is too little.
    fn new(py: Python<'py>, rows: usize, dim: usize) -> PyResult<Self> {
        static ZEROS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let zeros = ZEROS.import(py, "numpy", "zeros")?;
        Ok(Self { vectors: zeros.call1(((rows, dim), "float32"))?.cast_into()?, ids: zeros.call1((rows, "int64"))?.cast_into()? })
    }

    /// Has them filled; what is left over at their ends is given back.
    fn fill(self, work: impl FnOnce(&mut [f32], &mut [i64]) -> PyResult<Filled>) -> PyResult<Bound<'py, PyAny>> {
        let Self { vectors, ids } = self;
        let filled = {
            let (mut vectors, mut ids) = (vectors.try_readwrite()?, ids.try_readwrite()?);
            work(vectors.as_slice_mut()?, ids.as_slice_mut()?)?
        };
        if !filled.dropped.is_empty() {
            // Nobody else has seen the arrays yet, so their memory may be cut in place.
            let own = pyo3::types::PyDict::new(vectors.py());
            own.set_item("refcheck", false)?;
            let dim = vectors.dims()[1];
            vectors.call_method("resize", ((filled.kept, dim),), Some(&own))?;
            ids.call_method("resize", (filled.kept,), Some(&own))?;
        }
        results::rows(ids, vectors, filled.dropped.len() as u64)
    }
}
