"""``python -m sapwood build``: an index in a directory from files of rows; started again, it goes on after the last commit.

How far the files were read is kept in the note of each checkpoint, so it can't disagree with the rows that are there. Rows that were added
but not committed when a run ended are gone with it, and read again by the next one: none is lost, and none is there twice.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import Error, Rows, iter_vectors
from ._clock import Clock
from ._progress import reports
from .durable import Checkpoint, Writer, load_checkpoint

if TYPE_CHECKING:
    from typing import Literal, TypeAlias

    _Path: TypeAlias = str | os.PathLike[str]
    _Metric: TypeAlias = Literal["cosine", "l2", "ip"]
    _Nulls: TypeAlias = Literal["raise", "skip"]
    _Progress: TypeAlias = Callable[[int, int], object] | bool | None
    _Mark: TypeAlias = list[str | int]

__all__ = ["Built", "Source", "build", "run"]

COMMIT_ROWS = 500_000
"""Rows between two commits: some minutes of work, and a few GB of vectors in memory at the widest usual dimensions."""

BATCH_ROWS = 65_536

TAIL = 1 << 16
"""Bytes at the end of a file by which it is known again. The footer of a Parquet file is among them, with the statistics of its columns."""

LISTED = 500
"""Files that a note names; a note has at most 1 MiB. Any number of them is known again by the digest."""

PHASES = ("open", "read", "add", "balance", "validate", "commit")


@dataclass(frozen=True)
class Source:
    """Which rows of which files.

    Attributes
    ----------
    paths : str, os.PathLike, or an iterable of them
        Files or folders, as for `read_vectors`.
    column, id_column : str, optional
        As for `read_vectors`; but an id may come again, and its last row is the one that stays.
    nulls : {"raise", "skip"}
        As for `read_vectors`.
    """

    paths: _Path | Iterable[_Path]
    column: str | None = None
    id_column: str | None = None
    nulls: _Nulls = "raise"


@dataclass
class Built:
    """What a build did.

    Attributes
    ----------
    path : str
        The directory, absolute and with all links followed.
    version : int
        The newest checkpoint.
    rows : int
        Live rows in it.
    read : int
        Rows of the files that this run read and committed, `skipped` included.
    skipped : int
        Rows left out by this run, as ``nulls="skip"`` asks for.
    replaced : int
        Rows of this run with an id that was there already, from an earlier row or from before.
    resumed : int
        Rows of the files that earlier runs had committed.
    bytes_written : int
        By the commits of this run.
    seconds : dict
        Wall time of this run by phase: "open" (files and directory), "read", "add", "balance", "validate", "commit".
    total_seconds : float
        Wall time of this run, the sum of them.
    """

    path: str
    version: int = 0
    rows: int = 0
    read: int = 0
    skipped: int = 0
    replaced: int = 0
    resumed: int = 0
    bytes_written: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    total_seconds: float = 0.0


def build(
    path: _Path,
    source: Source,
    metric: _Metric | None = None,
    *,
    commit_rows: int = COMMIT_ROWS,
    batch_rows: int = BATCH_ROWS,
    validate: bool = False,
    progress: _Progress = None,
    **options: Any,
) -> Built:
    """Build an index in a directory, or go on where an earlier call ended.

    Parameters
    ----------
    path : str or os.PathLike
        The directory; made where it is missing. One that a build made may be given again with the same files, and with further ones after
        them: what isn't in the index yet is added. Files are known again by name, length and their last 64 KiB, wherever they lie; those
        of which no row is committed yet may have changed.
    source : Source
        The rows. Without an id column ids are the numbers of the rows over all files, with those that are skipped. With one, the later
        row of an id replaces the former.
    metric : {"cosine", "l2", "ip"}, optional
        Default for a new index: "cosine". For one that is there it must be the same.
    commit_rows : int
        A commit is made each time at least so many rows have been read.
    batch_rows : int
        Rows read at once, at most `commit_rows`.
    validate : bool
        Prove before each commit, and of what is read back at the end, that every id is reachable exactly once.
    progress : callable or bool, optional
        Called as ``progress(done, total)``, in rows of the files; True shows a bar.
    **options
        As for `Writer`: `storage`, `threads`, `cache_bytes`, `spill`, `keep` and the others.

    Returns
    -------
    Built
        What was done.

    Raises
    ------
    ValueError
        The directory holds an index that no build made, one with other options, or one of other files; no file has a row; and as
        `iter_vectors` and `Writer` raise it.
    LockedError
        Somebody else has the directory open for writing.
    TypeError, OSError, Error, KeyboardInterrupt
        As `iter_vectors` and `Writer` raise them. What was committed stays, and the next call goes on after it.

    Notes
    -----
    In memory are a batch, the rows added since the last commit, the posting lists that these have changed, what the writer has read
    (`cache_bytes`), and the tree with the tables of rows and ids, some tens of bytes a row.

    Examples
    --------
    >>> import tempfile, pathlib, numpy as np, sapwood as sw
    >>> from sapwood.build import Source, build
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for part in "a", "b":
    ...     np.save(folder / f"{part}.npy", np.random.default_rng(0).standard_normal((1000, 32)))
    >>> build(folder / "index", Source(folder / "a.npy"), "l2").rows
    1000
    >>> built = build(folder / "index", Source([folder / "a.npy", folder / "b.npy"]), "l2")
    >>> built.resumed, built.read, built.rows
    (1000, 1000, 2000)
    """
    if commit_rows < 1:
        raise ValueError(f"commit_rows: expected a whole number from 1 on, got {commit_rows}")
    clock = Clock(PHASES)
    state = _Build(path, source, metric, options, commit_rows, validate, clock)
    with reports(progress, "rows") as report:
        state.add(min(batch_rows, commit_rows), report)
    return state.end()


@dataclass(frozen=True)
class _Begun:
    """What the newest checkpoint says of the runs before: nothing, where there is none."""

    version: int | None = None
    rows: int = 0
    count: int = 0
    digest: str = ""
    listed: tuple[_Mark, ...] = ()


class _Build:
    """One run."""

    def __init__(
        self,
        path: _Path,
        source: Source,
        metric: _Metric | None,
        options: dict[str, Any],
        commit_rows: int,
        validate: bool,
        clock: Clock,
    ) -> None:
        self._path, self._source, self._metric, self._options = path, source, metric, options
        self._commit_rows, self._validate, self._clock = commit_rows, validate, clock
        self._begun = _begun(path, source, metric, options)
        self._version = self._begun.version
        self._marks: list[_Mark] = []
        self._starts: list[int] = []
        """The number of the first row of each file, and of the one after the last."""
        self._built = Built(os.path.realpath(path), resumed=self._begun.rows, seconds=clock.seconds)
        # Read, skipped and replaced since the last commit.
        self._pending = [0, 0, 0]

    def add(self, batch_rows: int, report: Callable[[int, int], object]) -> None:
        """Add and commit the rows that aren't there yet."""
        source, before = self._source, self._begun.rows
        batches = iter_vectors(
            source.paths,
            source.column,
            source.id_column,
            before,
            batch=batch_rows,
            nulls=source.nulls,
            unique=False,
            threads=self._options.get("threads"),
            progress=lambda done, total: report(before + done, before + total),
        )
        files = batches._files()
        self._marks = [_mark(Path(file)) for file, _ in files]
        self._starts = list(accumulate((rows for _, rows in files), initial=0))
        _check_files(self._path, self._begun, self._marks)
        if self._starts[-1] == 0:
            raise ValueError(f"paths: expected files with rows, got {_shown(self._marks)} without any")
        self._write(batches)

    def _write(self, batches: Iterator[Rows]) -> None:
        writer: Writer | None = None
        try:
            while True:
                self._clock.enter("read")
                rows = next(batches, None)
                if rows is None:
                    break
                if writer is None or writer.closed:
                    writer = self._open(rows.vectors.shape[1])
                self._add(writer, rows)
                # So that the next batch isn't read beside this one.
                del rows
                if self._pending[0] >= self._commit_rows:
                    self._commit(writer)
                    # A writer keeps the vectors that were added to it in memory; one that is opened anew has them on disk.
                    writer.close()
            if writer is not None and not writer.closed:
                self._commit(writer)
        finally:
            # Without a commit: after an exception the note would tell of rows that aren't there, and else all is committed.
            if writer is not None:
                writer.close()

    def _open(self, dim: int) -> Writer:
        """The directory, as this run knows it."""
        self._clock.enter("open")
        if dim == 0 and self._version is None:
            raise ValueError(f"paths: expected rows with vectors, got {_shown(self._marks)} with empty rows only")
        # Where all rows that are left are empty, they don't say how many values a row has.
        writer = Writer(self._path, dim or None, self._metric, **self._options)
        now = _newest(self._path)
        if (now and now.version) != self._version:
            writer.close()
            raise Error(f"{os.fspath(self._path)}: somebody else has committed to it meanwhile; build again to go on after that")
        return writer

    def _add(self, writer: Writer, rows: Rows) -> None:
        self._clock.enter("add")
        added = writer.add(rows.vectors, rows.ids).added if len(rows.ids) else 0
        for place, more in enumerate((len(rows.ids) + rows.skipped, rows.skipped, len(rows.ids) - added)):
            self._pending[place] += more

    def _commit(self, writer: Writer) -> None:
        built, (read, skipped, replaced) = self._built, self._pending
        self._clock.enter("balance")
        writer.balance()
        if self._validate:
            self._clock.enter("validate")
            writer.validate()
        self._clock.enter("commit")
        done = writer.commit(self._note(built.resumed + built.read + read))
        self._version = done.version
        built.bytes_written += done.bytes_written
        built.read, built.skipped, built.replaced = built.read + read, built.skipped + skipped, built.replaced + replaced
        self._pending = [0, 0, 0]
        self._clock.enter("open")

    def _note(self, rows: int) -> str:
        """What the next run needs to know: how far the files were read, and which files these rows are from."""
        marks = self._marks[: bisect_left(self._starts, rows, hi=len(self._marks))]
        source = self._source
        files = {"file_count": len(marks), "file_digest": _digest(marks), "files": marks[:LISTED]}
        return json.dumps({"build": {"rows_read": rows, "column": source.column, "id_column": source.id_column, **files}})

    def end(self) -> Built:
        """What was done, after a look at what is there now."""
        self._clock.enter("open")
        checkpoint = load_checkpoint(self._path)
        self._built.version, self._built.rows = checkpoint.version, checkpoint.rows
        if self._validate:
            self._clock.enter("validate")
            checkpoint.validate()
        self._built.total_seconds = self._clock.stop()
        return self._built


def _newest(path: _Path) -> Checkpoint | None:
    try:
        return load_checkpoint(path)
    except FileNotFoundError:
        return None


def _begun(path: _Path, source: Source, metric: _Metric | None, options: dict[str, Any]) -> _Begun:
    """What is in the directory; fails where it is something else than the call asks for."""
    checkpoint = _newest(path)
    if checkpoint is None:
        return _Begun()
    try:
        note = json.loads(checkpoint.note)["build"]
        columns = note["column"], note["id_column"]
        begun = _Begun(checkpoint.version, int(note["rows_read"]), int(note["file_count"]), str(note["file_digest"]), tuple(note["files"]))
    except (ValueError, KeyError, TypeError):
        raise ValueError(
            f"path: expected an empty directory or one that a build made, got {os.fspath(path)}, which holds another index"
        ) from None
    for name, there, given in zip(("column", "id_column"), columns, (source.column, source.id_column), strict=True):
        if given != there:
            raise ValueError(f"{name}: expected {there!r}, as the build in {os.fspath(path)} was begun with, got {given!r}")
    # The writer checks them too, but is opened only where rows are left to add.
    for name, given in {"metric": metric, **options}.items():
        there = checkpoint.metric if name == "metric" else checkpoint.config.get(name, given)
        if given is not None and given != there:
            raise ValueError(f"{name}: expected {there!r}, as in the checkpoint, got {given!r}")
    return begun


def _mark(file: Path) -> _Mark:
    """What a file is known by when a build goes on: its name, its length and its end."""
    with file.open("rb") as stream:
        length = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, length - TAIL))
        return [file.name, length, zlib.crc32(stream.read(TAIL))]


def _digest(marks: list[_Mark]) -> str:
    return hashlib.sha256(json.dumps(marks).encode()).hexdigest()


def _check_files(path: _Path, begun: _Begun, marks: list[_Mark]) -> None:
    """Fails where the files that were read before aren't the first ones now, or aren't what they were."""
    if begun.version is None or (len(marks) >= begun.count and _digest(marks[: begun.count]) == begun.digest):
        return
    wanted = f"the {begun.count:,} files of which rows are in {os.fspath(path)}, first, in the same order and unchanged"
    remedy = "give these files, or build into another directory"
    for place, mark in enumerate(begun.listed):
        given = marks[place] if place < len(marks) else None
        if given != mark:
            other = "nothing" if given is None else "other bytes" if given[:2] == mark[:2] else _told(given)
            raise ValueError(f"paths: expected {wanted}, got {other} as file {place + 1:,}, which was {_told(mark)}; {remedy}")
    raise ValueError(f"paths: expected {wanted}, got {len(marks):,} files that differ after the first {len(begun.listed):,}; {remedy}")


def _told(mark: _Mark) -> str:
    return f"{mark[0]} of {mark[1]:,} bytes"


def _shown(marks: list[_Mark]) -> str:
    """The files, as many as fit into a line."""
    names = ", ".join(str(mark[0]) for mark in marks[:3])
    return names if len(marks) <= 3 else f"{names} and {len(marks) - 3:,} others"


def run(
    path: str,
    source: Source,
    metric: _Metric | None,
    *,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> int:
    """The command: results on stdout, progress and errors on stderr.

    Parameters
    ----------
    path, source, metric, **options
        As for `build`.
    as_json : bool
        Print one JSON object with the fields of `Built`, instead of text.
    quiet : bool
        Show no progress.

    Returns
    -------
    int
        0; 1 if something failed; 130 after Ctrl-C.
    """
    try:
        built = build(path, source, metric, progress=not quiet, **options)
    except (ValueError, TypeError, OSError, MemoryError, Error) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; the same command goes on after the last checkpoint", file=sys.stderr)
        return 130
    print(json.dumps(asdict(built)) if as_json else _text(built))
    return 0


def _text(built: Built) -> str:
    phases = ", ".join(f"{name} {seconds:.1f}" for name, seconds in built.seconds.items() if seconds >= 0.05)
    before = f" ({built.resumed:,} were there)" if built.resumed else ""
    skipped = f", {built.skipped:,} of them left out" if built.skipped else ""
    replaced = f", {built.replaced:,} of them in place of an earlier row" if built.replaced else ""
    rate = f", {built.read / built.total_seconds:,.0f} rows/s" if built.total_seconds > 0 and built.read else ""
    return (
        f"{built.path}: checkpoint {built.version} with {built.rows:,} rows\n"
        f"read {built.read:,} rows{before}{skipped}{replaced}, wrote {built.bytes_written / 1e6:,.1f} MB\n"
        f"{built.total_seconds:.1f} s{rate}" + (f": {phases}" if phases else "")
    )
