//! Directories: what binds an index to one, reads one, saves into one. The classes that people hold are in `sapwood/durable.py`.
#![allow(clippy::doc_lazy_continuation)] // Docstrings are numpydoc for `help()`, not Markdown.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use super::arguments::{size, text, threads, whole};
use super::functions::metric;
use super::gate::{Call, quick};
use super::index::PyIndex;
use super::options::IndexArguments;
use super::progress::Progress;
use crate::checkpoint::{Info, Manifest, checkpoint_numbers, current, hold_checkpoint};
use crate::error::{Error, Result};
use crate::index::{Index, Wanted};
use crate::metric::MAX_DIM;
use crate::params::Params;
use crate::storage::{Cache, Disk, Storage};

/// Indexes of this process that are bound to a directory.
static BOUND: Mutex<Option<HashMap<PathBuf, Weak<Index>>>> = Mutex::new(None);

/// The default of `cache_bytes`.
const CACHE_BYTES: u64 = 1 << 30;

/// `keep=`.
pub fn keep(value: Option<&Bound<'_, PyAny>>) -> PyResult<usize> {
    value.map_or(Ok(1), |value| size("keep", value, 1, 1 << 20))
}

fn cache_bytes(value: Option<&Bound<'_, PyAny>>) -> PyResult<u64> {
    value.map_or(Ok(CACHE_BYTES), |value| whole("cache_bytes", value, 0, 1 << 60))
}

fn version(value: Option<&Bound<'_, PyAny>>) -> PyResult<Option<u32>> {
    // Such numbers fit.
    value.map(|value| whole("version", value, 1, u64::from(u32::MAX)).map(|number| number as u32)).transpose()
}

fn others(value: Option<&Bound<'_, PyAny>>) -> PyResult<Params> {
    let params = Params { threads: threads(value)?, ..Params::default() };
    params.validate()?;
    Ok(params)
}

/// The index of a directory, for writing. A handle of this process that has it open gives way if it has nothing uncommitted: a cell of a
/// notebook may be run again.
pub fn bind(py: Python<'_>, path: &Path, wanted: Wanted) -> PyResult<PyIndex> {
    let call = Call::new(None, None)?;
    let core = call.run(py, None, true, |task| {
        let disk = Disk::create(path)?;
        let root = disk.root().to_path_buf();
        let storage: Arc<dyn Storage> = Arc::new(disk);
        let bound = match Index::bind(&storage, &wanted, task) {
            Err(locked @ Error::Locked { .. }) => {
                make_way(&root, locked)?;
                Index::bind(&storage, &wanted, task)
            }
            done => done,
        };
        let core = Arc::new(bound?);
        let mut all = BOUND.lock();
        let all = all.get_or_insert_default();
        all.retain(|_, index| index.strong_count() > 0);
        all.insert(root, Arc::downgrade(&core));
        Ok(core)
    })?;
    Ok(PyIndex { core })
}

fn make_way(root: &Path, locked: Error) -> Result<()> {
    let held = BOUND.lock().as_ref().and_then(|all| all.get(root)).and_then(Weak::upgrade);
    match held {
        Some(index) if index.is_clean() => {
            index.close();
            Ok(())
        }
        Some(index) if !index.is_closed() => Err(Error::Locked {
            path: root.display().to_string(),
            holder: "this process, by a handle with changes that aren't committed (commit it first, to open the directory again)".into(),
        }),
        _ => Err(locked),
    }
}

/// `CheckpointInfo(version, rows, bytes_written)`.
fn info(py: Python<'_>, info: Info) -> PyResult<Bound<'_, PyAny>> {
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    CLASS.import(py, "sapwood._results", "CheckpointInfo")?.call1((info.version, info.rows, info.bytes_written))
}

#[pymethods]
impl PyIndex {
    /// Open the index of a directory in memory, bound to it: `commit` writes further checkpoints.
    ///
    /// Parameters
    /// ----------
    /// path : str or os.PathLike
    ///     A directory with a checkpoint. Nobody else may have it open for writing; for reading, use `Reader`.
    /// keep : int, default 1
    ///     Checkpoints that a commit keeps.
    /// threads : int, optional
    ///     Threads for additions and for balancing. Default: the cores this process may use.
    ///
    /// Returns
    /// -------
    /// Index
    ///     As it was committed last.
    ///
    /// Raises
    /// ------
    /// FileNotFoundError
    ///     No directory, or no checkpoint in it.
    /// LockedError
    ///     Another process writes to the directory.
    /// CorruptCheckpoint, FormatError
    ///     The checkpoint is damaged, or from a newer version.
    #[staticmethod]
    #[pyo3(signature = (path, *, keep=None, threads=None), text_signature = "(path, *, keep=1, threads=None)")]
    fn open(py: Python<'_>, path: PathBuf, keep: Option<&Bound<'_, PyAny>>, threads: Option<&Bound<'_, PyAny>>) -> PyResult<PyIndex> {
        require_checkpoint(py, &path)?;
        let wanted = Wanted { params: others(threads)?, keep: self::keep(keep)?, ..Wanted::default() };
        bind(py, &path, wanted)
    }

    /// Make the present state the newest checkpoint of the directory.
    ///
    /// When it has returned the state survives the end of the process and a loss of power; until then the former checkpoint does. Adds,
    /// removals and searches go on meanwhile. What is written follows what changed. Without a change nothing is written.
    ///
    /// Parameters
    /// ----------
    /// note : str, optional
    ///     A text of at most 1 MiB that is kept with the checkpoint, atomically: for instance how far a source was read, to go on from there
    ///     after a crash. `Checkpoint.note` returns it. Default: that of the checkpoint before.
    /// progress : callable or bool, optional
    ///     Called as ``progress(done, total)``, counted in rows that are written; an exception from it ends the call and leaves the former
    ///     checkpoint. True shows a bar.
    ///
    /// Returns
    /// -------
    /// CheckpointInfo
    ///     ``(version, rows, bytes_written)``.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     The index is bound to no directory (use `save`), or is closed.
    /// OSError
    ///     The system refused a write, for instance on a full disk: the former checkpoint is whole, and committing again is possible.
    ///
    /// Examples
    /// --------
    /// >>> import tempfile, numpy as np, sapwood as sw
    /// >>> path = tempfile.mkdtemp()
    /// >>> with sw.Index(2, "l2", path=path) as index:
    /// ...     _ = index.add([[0, 0], [3, 4]])
    /// ...     print(index.commit().version)
    /// 1
    /// >>> sw.Index.open(path).search([0, 0], k=1)
    /// SearchResult(ids=array([0]), distances=array([0.], dtype=float32))
    #[pyo3(signature = (note=None, *, progress=None))]
    fn commit<'py>(
        &self,
        py: Python<'py>,
        note: Option<&Bound<'py, PyAny>>,
        progress: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let note = note.map(|note| text("note", note, "a string")).transpose()?;
        let call = Call::new(None, Progress::read(progress, "rows")?)?;
        let (done, total) = call.run(py, None, true, |task| {
            let done = self.core.commit_with_note(note.as_deref(), task)?;
            Ok((done, task.progress().1))
        })?;
        call.finish(py, total)?;
        info(py, done)
    }

    /// Write the present state into a directory, as its newest checkpoint. The index stays bound to what it is bound to.
    ///
    /// Parameters
    /// ----------
    /// path : str or os.PathLike
    ///     Made where it is missing. A checkpoint that is there is replaced once the new one is whole.
    /// progress : callable or bool, optional
    ///     Called as ``progress(done, total)``, counted in rows; an exception from it ends the call. True shows a bar.
    ///
    /// Returns
    /// -------
    /// CheckpointInfo
    ///     ``(version, rows, bytes_written)``.
    ///
    /// Raises
    /// ------
    /// LockedError
    ///     Somebody has the directory open for writing.
    /// OSError
    ///     The system refused a write; what was there before is whole.
    #[pyo3(signature = (path, progress=None))]
    fn save<'py>(&self, py: Python<'py>, path: PathBuf, progress: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        let call = Call::new(None, Progress::read(progress, "rows")?)?;
        let (done, total) = call.run(py, None, true, |task| {
            let storage: Arc<dyn Storage> = Arc::new(Disk::create(&path)?);
            let done = self.core.save(&storage, task)?;
            Ok((done, task.progress().1))
        })?;
        call.finish(py, total)?;
        info(py, done)
    }

    /// Forget what was read from disk; see `Reader.clear_cache`.
    fn _clear_cache(&self, py: Python<'_>) -> PyResult<()> {
        quick(py, || self.core.clear_cache())
    }

    /// Whether everything is committed.
    fn _is_clean(&self, py: Python<'_>) -> PyResult<bool> {
        quick(py, || Ok(self.core.is_clean()))
    }
}

fn require_checkpoint(py: Python<'_>, path: &Path) -> PyResult<()> {
    quick(py, || {
        let disk = Disk::open(path)?;
        match current(&disk)? {
            Some(_) => Ok(()),
            None => {
                let missing = std::io::Error::new(std::io::ErrorKind::NotFound, "there is no checkpoint in this directory");
                Err(Error::io(disk.describe(""), &missing))
            }
        }
    })
}

/// The index of a directory for writing, with what it has on disk read when it is needed. See `sapwood.Writer`.
#[pyfunction]
#[pyo3(signature = (path, dim, metric, keep, cache_bytes, spill, split_threshold, merge_threshold, branching, profile, storage, seed, threads))]
#[allow(clippy::too_many_arguments)] // Python's keywords.
pub fn open_writer<'py>(
    py: Python<'py>,
    path: PathBuf,
    dim: Option<&Bound<'py, PyAny>>,
    metric: Option<&Bound<'py, PyAny>>,
    keep: Option<&Bound<'py, PyAny>>,
    cache_bytes: Option<&Bound<'py, PyAny>>,
    spill: Option<&Bound<'py, PyAny>>,
    split_threshold: Option<&Bound<'py, PyAny>>,
    merge_threshold: Option<&Bound<'py, PyAny>>,
    branching: Option<&Bound<'py, PyAny>>,
    profile: Option<&Bound<'py, PyAny>>,
    storage: Option<&Bound<'py, PyAny>>,
    seed: Option<&Bound<'py, PyAny>>,
    threads: Option<&Bound<'py, PyAny>>,
) -> PyResult<PyIndex> {
    let options = IndexArguments { spill, split_threshold, merge_threshold, branching, profile, storage, seed, threads };
    let wanted = Wanted {
        dim: dim.map(|dim| size("dim", dim, 1, MAX_DIM)).transpose()?,
        metric: metric.map(|metric| self::metric(Some(metric))).transpose()?,
        params: options.params()?,
        given: options.given(),
        keep: self::keep(keep)?,
        cache_bytes: Some(self::cache_bytes(cache_bytes)?),
    };
    if wanted.dim.is_none() {
        require_checkpoint(py, &path)?;
    }
    bind(py, &path, wanted)
}

/// A checkpoint for reading, and its number. See `sapwood.Reader`.
#[pyfunction]
#[pyo3(signature = (path, version, cache_bytes, threads))]
pub fn open_reader(
    py: Python<'_>,
    path: PathBuf,
    version: Option<&Bound<'_, PyAny>>,
    cache_bytes: Option<&Bound<'_, PyAny>>,
    threads: Option<&Bound<'_, PyAny>>,
) -> PyResult<(PyIndex, u32)> {
    let (version, bytes, params) = (self::version(version)?, self::cache_bytes(cache_bytes)?, others(threads)?);
    let (core, number) = quick(py, || {
        let storage: Arc<dyn Storage> = Arc::new(Disk::open(&path)?);
        let index = Index::read(&storage, version, &Arc::new(Cache::new(bytes)), &params)?;
        let number = index.version()?.unwrap_or(0);
        Ok((index, number))
    })?;
    Ok((PyIndex { core: Arc::new(core) }, number))
}

/// Load a checkpoint into memory: an index that is bound to no directory.
///
/// Parameters
/// ----------
/// path : str or os.PathLike
///     A directory with a checkpoint, as `Index.save`, `Index.commit` and `Writer.commit` write them.
/// version : int, optional
///     The checkpoint's number. Default: the newest.
/// threads : int, optional
///     Threads of the index. Default: the cores this process may use.
///
/// Returns
/// -------
/// Index
///     With the rows, options and counters of the checkpoint; it answers as the index did that was saved.
///
/// Raises
/// ------
/// FileNotFoundError
///     No directory, or no checkpoint in it.
/// ValueError
///     There is no checkpoint `version`.
/// CorruptCheckpoint, FormatError
///     The checkpoint is damaged, or from a newer version.
///
/// Examples
/// --------
/// >>> import tempfile, numpy as np, sapwood as sw
/// >>> path = tempfile.mkdtemp()
/// >>> index = sw.Index(2)
/// >>> _ = index.add(np.eye(2))
/// >>> index.save(path).version
/// 1
/// >>> len(sw.load(path))
/// 2
#[pyfunction]
#[pyo3(signature = (path, version=None, *, threads=None))]
pub fn load(py: Python<'_>, path: PathBuf, version: Option<&Bound<'_, PyAny>>, threads: Option<&Bound<'_, PyAny>>) -> PyResult<PyIndex> {
    let (version, params) = (self::version(version)?, others(threads)?);
    let call = Call::new(None, None)?;
    let core = call.run(py, None, true, |task| {
        let storage: Arc<dyn Storage> = Arc::new(Disk::open(&path)?);
        Index::load(&storage, version, &params, task)
    })?;
    Ok(PyIndex { core: Arc::new(core) })
}

/// The numbers of the checkpoints of a directory, the newest one's, and the manifest of `version` (or of the newest) as JSON.
#[pyfunction]
#[pyo3(signature = (path, version))]
pub fn read_manifest(py: Python<'_>, path: PathBuf, version: Option<&Bound<'_, PyAny>>) -> PyResult<(Vec<u32>, u32, String)> {
    let version = self::version(version)?;
    quick(py, || {
        let disk = Disk::open(&path)?;
        // Held, so that a commit of another process doesn't remove it meanwhile.
        let held = hold_checkpoint(&disk, version)?;
        Ok((checkpoint_numbers(&disk)?, held.number, Manifest::read(&disk, held.number)?.text()?))
    })
}
