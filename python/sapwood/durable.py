"""Indexes in directories: `Writer` changes one, `Reader` answers from one, `Checkpoint` says what is in one."""

from __future__ import annotations

import json
import os
import threading
from typing import TYPE_CHECKING, Any

from sapwood import _core

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import TracebackType
    from typing import Literal, TypeAlias

    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from sapwood._results import AddResult, CheckpointInfo, SearchResult

    _Path: TypeAlias = str | os.PathLike[str]
    _Metric: TypeAlias = Literal["cosine", "l2", "ip"]
    _Storage: TypeAlias = Literal["f32", "f16", "bf16", "int8", "rabitq3", "rabitq4", "rabitq5", "rabitq6", "rabitq7", "rabitq8"]
    _Progress: TypeAlias = Callable[[int, int], object] | bool | None
    _Rows: TypeAlias = ArrayLike | Any

__all__ = ["Checkpoint", "Reader", "Writer", "load_checkpoint"]


class _Handle:
    """What a writer and a reader have in common: questions to the index behind them."""

    _index: _core.Index
    _path: str

    def search(
        self,
        queries: _Rows,
        k: int = 10,
        *,
        tau: float | None = None,
        beam: int | tuple[int, int] | None = None,
        recall: float | None = None,
        rerank: Literal["bound"] | int | None = "bound",
        epsilon: float | None = None,
        filter: _Rows | _core.Filter | None = None,
        levels: Iterable[Any] | None = None,
        threads: int | None = None,
        timeout: float | None = None,
        progress: _Progress = None,
    ) -> SearchResult:
        """Find the nearest rows of each query; arguments, results and errors are those of `Index.search`.

        Beside those, `CorruptCheckpoint` where bytes on disk are not what was written.
        """
        return self._index.search(
            queries,
            k,
            tau=tau,
            beam=beam,
            recall=recall,
            rerank=rerank,
            epsilon=epsilon,
            filter=filter,
            levels=levels,
            threads=threads,
            timeout=timeout,
            progress=progress,
        )

    def get(self, ids: _Rows) -> NDArray[np.float32]:
        """The stored rows of ids; see `Index.get`."""
        return self._index.get(ids)

    def ids(self) -> NDArray[np.int64]:
        """All live ids, ascending: int64, shape (n,)."""
        return self._index.ids()

    def stats(self) -> dict[str, int | float]:
        """Sizes and counters as plain numbers: those of `Index.stats`, and what was read from disk.

        Returns
        -------
        dict
            As `Index.stats`; and, where posting lists and vectors are read when they are needed, ``cache_bytes`` and ``cache_capacity``:
            bytes in the cache and its room, ``bytes_read`` and ``reads``: bytes and reads from disk, ``bytes_read_postings`` and
            ``bytes_read_vectors``: the parts of it, ``read_seconds_postings`` and ``read_seconds_vectors``: the time they took (a part
            of ``scan_seconds`` and ``rerank_seconds``), ``cache_hits``: lookups that needed no read. All are counted from the moment
            the checkpoint was opened; `Reader.refresh` begins anew if there is a newer one.
        """
        return self._index.stats()

    def validate(self) -> None:
        """Prove that every live id is reachable from the root exactly once and that its vector and codes can be read.

        Raises
        ------
        CorruptCheckpoint
            Bytes on disk are not what was written.
        Error
            The index contradicts itself.
        """
        self._index.validate()

    def close(self) -> None:
        """Let go of the directory and free the memory; closing twice does no harm."""
        self._index.close()

    @property
    def dim(self) -> int:
        """Values a row."""
        return self._index.dim

    @property
    def metric(self) -> _Metric:
        """What "near" means: "l2", "cosine" or "ip"."""
        return self._index.metric

    @property
    def config(self) -> dict[str, int | str]:
        """The options in force; see `Index.config`."""
        return self._index.config

    @property
    def path(self) -> str:
        """The directory, absolute and with all links followed."""
        return self._path

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._index.closed

    def __contains__(self, id: int) -> bool:
        return id in self._index

    def __len__(self) -> int:
        return len(self._index)


class Writer(_Handle):
    """The only writer of a directory: what it adds and removes becomes durable with `commit`.

    It opens the newest checkpoint lazily: posting lists and vectors stay on disk until an operation needs them, and what was read lately
    is kept in a cache. It searches its own uncommitted state. As a context manager it commits at the end, also where only balancing has
    changed the tree since the last commit (but not where nothing but reading was done), or discards what is not committed if the block
    ends with an exception.

    Parameters
    ----------
    path : str or os.PathLike
        The directory; made where it is missing. Only one writer, in all processes, may have it open; readers don't matter. A handle of
        this process without uncommitted changes gives way, so that a cell of a notebook can be run again.
    dim : int, optional
        Values a row; needed for a new index. For one that is there it must be the same.
    metric : {"cosine", "l2", "ip"}, optional
        Default for a new index: "cosine". For one that is there it must be the same.
    cache_bytes : int, default 1 GiB
        Room for what is read from disk.
    keep : int, default 1
        Checkpoints that a commit keeps, the newest first. Older ones go as soon as no reader holds them.
    spill, split_threshold, merge_threshold, branching, profile, storage, seed, threads
        As for `Index`. Options that a checkpoint keeps (all but `threads`) must be those of the index that is there.

    Raises
    ------
    LockedError
        Somebody else has the directory open for writing; the message names the process.
    FileNotFoundError
        No `dim` was given, and there is no checkpoint.
    ValueError
        `dim`, `metric` or an option differ from those of the index that is there.
    CorruptCheckpoint, FormatError
        The newest checkpoint is damaged, or from a newer version.

    Notes
    -----
    A row that is removed or replaced is gone for this writer's searches when the call returns, for readers opened or refreshed
    after the next commit, and never for those that hold an older checkpoint.

    Examples
    --------
    >>> import tempfile, numpy as np, sapwood as sw
    >>> path = tempfile.mkdtemp()
    >>> with sw.Writer(path, dim=2, metric="l2") as writer:
    ...     writer.add([[0, 0], [3, 4]], ids=[7, 8])
    AddResult(added=2, replaced=0)
    >>> sw.Reader(path).search([0, 0], k=2).ids
    array([7, 8])
    """

    def __init__(
        self,
        path: _Path,
        dim: int | None = None,
        metric: _Metric | None = None,
        *,
        cache_bytes: int | None = None,
        keep: int = 1,
        spill: int | None = None,
        split_threshold: int | None = None,
        merge_threshold: int | None = None,
        branching: int | None = None,
        profile: Literal["memory", "disk"] | None = None,
        storage: _Storage | None = None,
        seed: int | None = None,
        threads: int | None = None,
    ) -> None:
        options = (spill, split_threshold, merge_threshold, branching, profile, storage, seed, threads)
        self._index = _core.open_writer(path, dim, metric, keep, cache_bytes, *options)
        self._path = os.path.realpath(path)

    def add(self, vectors: _Rows, ids: _Rows | None = None, *, progress: _Progress = None) -> AddResult:
        """Add rows, or replace those whose ids are live; see `Index.add`."""
        return self._index.add(vectors, ids, progress=progress)

    def remove(self, ids: _Rows) -> int:
        """Remove ids and return how many were live; see `Index.remove`."""
        return self._index.remove(ids)

    def balance(self, progress: _Progress = None) -> None:
        """Wait until nothing is left to split or merge; see `Index.balance`."""
        self._index.balance(progress)

    def commit(self, note: str | None = None, *, progress: _Progress = None) -> CheckpointInfo:
        """Make the present state the newest checkpoint, with a note; see `Index.commit`."""
        return self._index.commit(note, progress=progress)

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None = None,
        exception: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        try:
            if exception_type is None and not self.closed:
                self.commit()
        finally:
            self.close()

    def __repr__(self) -> str:
        return _describe(self)


class Reader(_Handle):
    """Answers from a checkpoint, exactly as the index did that was committed; writers, also of other processes, don't disturb it.

    It opens in milliseconds: the tree is read at once, posting lists and vectors when they are needed, through one cache. It needs no
    lock and no right to write, and any number of readers may share a directory. The checkpoint stays on disk as long as the reader is
    there. A reader is pickled as its path and version, and opened again where it is unpickled.

    Parameters
    ----------
    path : str or os.PathLike
        A directory with a checkpoint.
    version : int, optional
        The checkpoint's number. Default: the newest.
    cache_bytes : int, default 1 GiB
        Room for posting lists and vectors, and for what searches and the allocator need beside them. The tree and the table of rows (20
        bytes a row, as far as it is needed) come on top: see bytes_tree and bytes_ids of `stats`.
    threads : int, optional
        Threads for batches of queries. Default: the cores this process may use.

    Raises
    ------
    FileNotFoundError
        No directory, or no checkpoint in it.
    ValueError
        There is no checkpoint `version`.
    CorruptCheckpoint, FormatError
        The checkpoint is damaged, or from a newer version.

    Examples
    --------
    >>> import tempfile, numpy as np, sapwood as sw
    >>> path = tempfile.mkdtemp()
    >>> with sw.Writer(path, dim=2) as writer:
    ...     _ = writer.add(np.eye(2))
    >>> reader = sw.Reader(path)
    >>> len(reader), reader.version, reader.refresh()
    (2, 1, False)
    """

    def __init__(self, path: _Path, version: int | None = None, cache_bytes: int | None = None, *, threads: int | None = None) -> None:
        self._path = os.path.realpath(path)
        self._options = (cache_bytes, threads)
        self._lock = threading.Lock()
        self._ended = False
        self._index, self._version = _core.open_reader(path, version, *self._options)

    @property
    def version(self) -> int:
        """The number of the checkpoint that is read."""
        return self._version

    def refresh(self) -> bool:
        """Move on to the newest checkpoint.

        Searches that run end on the one they began with. The cache and the counters of `stats` begin anew.

        Returns
        -------
        bool
            Whether there was a newer one.
        """
        with self._lock:
            if self.closed:
                raise ValueError("the reader is closed; make a new one")
            if _core.read_manifest(self._path, None)[1] == self._version:
                return False
            self._index, self._version = _core.open_reader(self._path, None, *self._options)
            if self._ended:
                # It was closed meanwhile, and what was opened here with it. A lock in `close` could hang in a forked child.
                self._index.close()
                raise ValueError("the reader is closed; make a new one")
            return True

    def close(self) -> None:
        """Let go of the checkpoint and free the memory; closing twice does no harm."""
        self._ended = True
        super().close()

    def clear_cache(self) -> None:
        """Forget what was read, so that the next searches read from disk again; the system's own cache is asked to forget too."""
        self._index._clear_cache()

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None = None,
        exception: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        cache_bytes, threads = self._options
        return (_reopen, (self._path, self._version, cache_bytes, threads))

    def __repr__(self) -> str:
        return _describe(self, f", version={self._version}")


def _reopen(path: str, version: int, cache_bytes: int | None, threads: int | None) -> Reader:
    return Reader(path, version, cache_bytes, threads=threads)


def _describe(handle: Writer | Reader, more: str = "") -> str:
    kind = type(handle).__name__
    if handle.closed:
        return f"{kind}({handle.path!r}, closed)"
    stats, storage = handle.stats(), handle.config["storage"]
    what = f"dim={handle.dim}, metric={handle.metric!r}" + ("" if storage == "f32" else f", storage={storage!r}")
    return f"{kind}({handle.path!r}{more}, {what}, rows={stats['rows']:,}, leaves={stats['leaves']:,})"


class Checkpoint:
    """What a checkpoint says of itself; nothing of the index is read.

    Attributes
    ----------
    path : str
        The directory.
    version : int
        The checkpoint's number.
    versions : list of int
        The numbers of all checkpoints in the directory when this was read, ascending.
    dim, rows, leaves : int
        Values a row, live rows, leaves of the tree.
    metric : str
        "l2", "cosine" or "ip".
    config : mapping
        The options that the index was made with.
    created : float
        When it was committed: seconds since 1970.
    library : str
        The version of Sapwood that wrote it.
    bytes : int
        Length of all files that it needs; checkpoints share files.
    note : str
        What was given to `Writer.commit` or `Index.commit`, last.
    """

    def __init__(self, path: _Path, version: int | None = None) -> None:
        self.versions, self.version, text = _core.read_manifest(path, version)
        manifest = json.loads(text)
        self.path = os.path.realpath(path)
        self.dim: int = manifest["dim"]
        self.rows: int = manifest["rows"]
        self.leaves: int = manifest["leaves"]
        self.metric: str = manifest["metric"]
        self.config: Mapping[str, int | str] = manifest["config"]
        self.created = float(manifest["created"])
        self.library: str = manifest["library"]
        self.note: str = manifest["note"]
        self.bytes: int = sum(file["bytes"] for file in [*manifest["segments"], *manifest["vectors"]])

    def reader(self, cache_bytes: int | None = None, *, threads: int | None = None) -> Reader:
        """A `Reader` of this checkpoint."""
        return Reader(self.path, self.version, cache_bytes, threads=threads)

    def index(self, *, threads: int | None = None) -> _core.Index:
        """This checkpoint in memory, bound to no directory; see `load`."""
        return _core.load(self.path, self.version, threads=threads)

    def validate(self) -> None:
        """Read all of it and prove that every live id is reachable exactly once; see `Reader.validate`."""
        with self.reader() as reader:
            reader.validate()

    def __repr__(self) -> str:
        return (
            f"Checkpoint({self.path!r}, version={self.version}, dim={self.dim}, metric={self.metric!r}, rows={self.rows:,}, "
            f"leaves={self.leaves:,}, {self.bytes:,} bytes)"
        )


def load_checkpoint(path: _Path, version: int | None = None) -> Checkpoint:
    """Read what a checkpoint says of itself.

    Parameters
    ----------
    path : str or os.PathLike
        A directory with a checkpoint.
    version : int, optional
        The checkpoint's number. Default: the newest.

    Returns
    -------
    Checkpoint
        Metadata, with methods to validate it and to open it.

    Raises
    ------
    FileNotFoundError
        No directory, or no checkpoint in it.
    ValueError
        There is no checkpoint `version`.
    CorruptCheckpoint, FormatError
        The manifest is damaged, or from a newer version.

    Examples
    --------
    >>> import tempfile, numpy as np, sapwood as sw
    >>> path = tempfile.mkdtemp()
    >>> with sw.Writer(path, dim=2, keep=2) as writer:
    ...     _ = writer.add(np.eye(2)), writer.commit(), writer.remove(0)
    >>> checkpoint = sw.load_checkpoint(path)
    >>> checkpoint.versions, checkpoint.version, checkpoint.rows
    ([1, 2], 2, 1)
    >>> sw.load_checkpoint(path, version=1).rows
    2
    """
    return Checkpoint(path, version)
