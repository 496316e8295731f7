"""``python -m sapwood bench``: how good and how fast the index is on somebody's own rows, and how a saved one answers from disk.

A recall without a speed, or a speed without its recall, tells nothing; and both depend on the rows. So everything is measured on the given
rows, with queries that are not among them, against the exact answer, and what an effort gives and costs stands in one line of a table.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from . import Error, Index, exact_search, read_vectors
from ._bench_text import disk_text, text
from ._clock import Clock
from ._progress import reports
from .durable import Reader
from .evaluate import Row, evaluate, recall

if TYPE_CHECKING:
    from typing import Literal, TypeAlias

    _Path: TypeAlias = str | os.PathLike[str]
    _Metric: TypeAlias = Literal["cosine", "l2", "ip"]
    _Storage: TypeAlias = Literal["f32", "f16", "bf16", "int8", "rabitq3", "rabitq4", "rabitq5", "rabitq6", "rabitq7", "rabitq8"]
    _Setting: TypeAlias = dict[str, Any]

__all__ = ["Benched", "BenchedCheckpoint", "Data", "DiskRow", "bench", "bench_checkpoint", "run"]

TARGETS = (0.9, 0.95, 0.99)
QUERY_ROWS = 1_000
SECONDS = 0.5
"""How long each setting is timed."""

COLD_QUERIES = 200
"""Queries with an empty cache; each reads from disk, and may take as long as a disk does."""

BLOCK_ROWS = 65_536
"""Vectors of a checkpoint that are in memory at once while the truth is computed."""

PHASES = ("read", "add", "balance", "truth", "search")
CHECKPOINT_PHASES = ("open", "read", "truth", "search")
PARTS = ("vectors", "postings", "tree", "ids")


@dataclass(frozen=True)
class Data:
    """Which rows, and which queries.

    Attributes
    ----------
    base : str, os.PathLike, or an iterable of them
        Files or folders of rows, as for `read_vectors`.
    queries : str or os.PathLike, optional
        A file of queries. By default rows spread over the base are held out of the index and serve as queries.
    column, query_column : str, optional
        As for `read_vectors`.
    rows : int, optional
        Rows of the index; by default all.
    query_rows : int
        Queries at most.
    """

    base: _Path | Iterable[_Path]
    queries: _Path | None = None
    column: str | None = None
    query_column: str | None = None
    rows: int | None = None
    query_rows: int = QUERY_ROWS


@dataclass
class Benched:
    """What was measured of an index in memory.

    Attributes
    ----------
    library : str
        The version of Sapwood.
    rows, dim, queries, k, threads : int
        Rows of the index, values a row, queries, neighbours asked for, and threads that build it and compute the truth.
    held_out : bool
        Whether the queries were taken from the base.
    metric, storage : str
        As for `Index`.
    leaves : int
        Leaves of the tree: the most that `beam` can be.
    table : list of dict
        A setting a line: the fields of `sapwood.evaluate.Row`. One thread, one query a call.
    reached : dict
        For each target recall the setting of least effort that reached it, or None.
    bytes_a_row : dict
        By part, and their "total".
    seconds : dict
        Wall time by phase: "read", "add", "balance", "truth", "search".
    total_seconds : float
        The sum of them.
    """

    library: str
    rows: int
    dim: int
    queries: int
    k: int
    threads: int
    held_out: bool
    metric: str
    storage: str
    leaves: int = 0
    table: list[dict[str, Any]] = field(default_factory=list)
    reached: dict[str, _Setting | None] = field(default_factory=dict)
    bytes_a_row: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    total_seconds: float = 0.0


@dataclass(frozen=True)
class DiskRow:
    """One setting on a checkpoint, with the cache in one state.

    Attributes
    ----------
    cache : str
        "cold": emptied before each query, the system's own cache of the files too; "warm": everything needed was read before.
    setting : dict
        The options given to `search`; empty for the defaults.
    recall, qps, p50_ms, p99_ms, scanned, reranked : float
        As in `sapwood.evaluate.Row`; one thread, one query a call.
    bytes_read : float
        Bytes that a query read from files.
    calls : int
        How many calls were timed.
    """

    cache: str
    setting: _Setting
    recall: float
    qps: float
    p50_ms: float
    p99_ms: float
    scanned: float
    reranked: float
    bytes_read: float
    calls: int


@dataclass
class BenchedCheckpoint:
    """What was measured of an index in a directory.

    Attributes
    ----------
    path : str
        The directory.
    version, rows, dim, queries, k : int
        The checkpoint, its live rows, values a row, queries, and neighbours asked for.
    library, metric, storage, leaves, reached, seconds, total_seconds
        As in `Benched`; phases are "open", "read", "truth" and "search".
    table : list of dict
        A setting and a state of the cache a line: the fields of `DiskRow`.
    """

    library: str
    path: str
    version: int
    rows: int
    dim: int
    queries: int
    k: int
    metric: str
    storage: str
    leaves: int
    table: list[dict[str, Any]] = field(default_factory=list)
    reached: dict[str, _Setting | None] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    total_seconds: float = 0.0


def bench(
    data: Data,
    metric: _Metric = "cosine",
    *,
    k: int = 10,
    targets: Sequence[float] = TARGETS,
    storage: _Storage = "f32",
    threads: int | None = None,
    seconds: float = SECONDS,
    progress: bool = False,
) -> Benched:
    """Build an index in memory and measure what each effort gives and costs.

    Parameters
    ----------
    data : Data
        The rows and the queries.
    metric, storage, threads
        As for `Index`.
    k : int
        Neighbours asked for.
    targets : sequence of float
        Recalls to reach. `beam` is raised until the highest is reached, or all leaves are read.
    seconds : float
        How long each setting is timed.
    progress : bool
        Show progress on stderr.

    Returns
    -------
    Benched
        What was measured.

    Raises
    ------
    ValueError
        The files hold too few rows, queries of another width, or as `read_vectors` and `Index` raise it.
    TypeError, OSError, Error, KeyboardInterrupt
        As `read_vectors` and `Index` raise them.

    Examples
    --------
    >>> import pathlib, tempfile, numpy as np
    >>> from sapwood.bench import Data, bench
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "rows.npy"
    >>> np.save(file, np.random.default_rng(0).standard_normal((2_000, 16)))
    >>> done = bench(Data(file, query_rows=100), "l2", seconds=0.01)
    >>> done.rows, done.queries, done.reached["0.9"] is not None
    (1900, 100, True)
    """
    clock = Clock(PHASES)
    vectors, queries = _read(data, k, threads, progress)
    clock.enter("add")
    index = Index(vectors.shape[1], metric, storage=storage, threads=threads)
    index.add(vectors, progress=_bar("adding", progress))
    clock.enter("balance")
    index.balance(_bar("balancing", progress))
    clock.enter("truth")
    truth = exact_search(vectors, queries, k, metric, threads=threads, progress=_bar("exact search", progress)).ids
    clock.enter("search")
    stats = index.stats()
    done = Benched(
        library=version("sapwood"),
        rows=len(vectors),
        dim=vectors.shape[1],
        queries=len(queries),
        k=k,
        threads=int(index.config["threads"]),
        held_out=data.queries is None,
        metric=metric,
        storage=storage,
        leaves=int(stats["leaves"]),
        bytes_a_row=_bytes_a_row(stats),
        seconds=clock.seconds,
    )
    rows: list[Row] = []
    settings = [{}, *ladder(done.leaves)]
    with reports(_bar("searching", progress), "settings") as report:
        for setting in settings:
            rows += evaluate(index, queries, truth, k=k, settings=[setting], seconds=seconds)
            report(len(rows), len(settings))
            if setting and rows[-1].recall >= max(targets):
                break
    done.table = [asdict(row) for row in rows]
    done.reached = _reached(((dict(row.setting), row.recall) for row in rows), targets)
    done.total_seconds = clock.stop()
    return done


def bench_checkpoint(
    path: _Path,
    queries: _Path,
    *,
    query_column: str | None = None,
    query_rows: int = QUERY_ROWS,
    k: int = 10,
    targets: Sequence[float] = TARGETS,
    threads: int | None = None,
    seconds: float = SECONDS,
    progress: bool = False,
) -> BenchedCheckpoint:
    """Measure searches of the newest checkpoint in a directory, with a cold and with a warm cache.

    The truth is computed from the vectors in the checkpoint, as it keeps them: all of them are read once.

    Parameters
    ----------
    path : str or os.PathLike
        The directory.
    queries : str or os.PathLike
        A file of queries.
    query_column, query_rows
        As for `Data`.
    k, targets, threads, seconds, progress
        As for `bench`.

    Returns
    -------
    BenchedCheckpoint
        What was measured: the default setting, and for each target the least `beam` that reached it.

    Raises
    ------
    ValueError
        There are no queries, or queries of another width, or fewer rows than `k`.
    TypeError, OSError, Error, KeyboardInterrupt
        As `read_vectors` and `Reader` raise them.
    """
    clock = Clock(CHECKPOINT_PHASES)
    with Reader(path, threads=threads) as reader:
        clock.enter("read")
        wanted = read_vectors(queries, query_column, count=query_rows, threads=threads).vectors
        _check(len(reader), reader.dim, wanted, k)
        clock.enter("truth")
        truth = _truth(reader, wanted, k, threads, progress)
        clock.enter("search")
        done = BenchedCheckpoint(
            library=version("sapwood"),
            path=os.path.realpath(path),
            version=reader.version,
            rows=len(reader),
            dim=reader.dim,
            queries=len(wanted),
            k=k,
            metric=reader.metric,
            storage=str(reader.config["storage"]),
            leaves=int(reader.stats()["leaves"]),
            seconds=clock.seconds,
        )
        _measure_on_disk(done, reader, wanted, truth, targets, seconds, progress)
    done.total_seconds = clock.stop()
    return done


def ladder(leaves: int) -> list[_Setting]:
    """Efforts to try, about 1.4 times as much each time, up to all leaves."""
    beams = [beam for power in range(2, 40) for beam in (1 << power, 3 << (power - 1)) if beam < leaves]
    return [{"beam": beam} for beam in [*beams, leaves]]


def _read(data: Data, k: int, threads: int | None, progress: bool) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The rows of the index, and the queries."""
    more = data.query_rows if data.queries is None else 0
    count = None if data.rows is None else data.rows + more
    vectors = read_vectors(data.base, data.column, count=count, threads=threads, progress=_bar("reading", progress)).vectors
    if data.queries is None:
        # Of few rows not more than a tenth is held out, but for what the index doesn't need.
        spare = 0 if data.rows is None else len(vectors) - data.rows
        vectors, queries = hold_out(vectors, min(data.query_rows, max(spare, len(vectors) // 10)))
    else:
        column = data.column if data.query_column is None else data.query_column
        queries = read_vectors(data.queries, column, count=data.query_rows, threads=threads).vectors
    _check(len(vectors), vectors.shape[1], queries, k)
    return vectors, queries


def hold_out(vectors: NDArray[np.float32], count: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Take rows that are spread evenly over all out of them; the last rows move into their places, so that nothing is copied."""
    if not vectors.flags.writeable:
        vectors = vectors.copy()
    left = len(vectors) - count
    places = np.linspace(0, len(vectors), count, endpoint=False).astype(np.int64)
    queries = vectors[places]
    rest = np.setdiff1d(np.arange(left, len(vectors)), places)
    vectors[places[places < left]] = vectors[rest]
    return vectors[:left], queries


def _check(rows: int, dim: int, queries: NDArray[np.float32], k: int) -> None:
    """Refuse what can't be measured."""
    if not len(queries):
        raise ValueError(f"queries: expected at least one, got none; with {rows:,} rows none can be held out, so give a file of them")
    if queries.shape[1] != dim:
        raise ValueError(f"queries: expected {dim} values a row as in the index, got {queries.shape[1]}")
    if k > rows:
        raise ValueError(f"k: expected at most the {rows:,} rows of the index, got {k:,}")


def _truth(reader: Reader, queries: NDArray[np.float32], k: int, threads: int | None, progress: bool) -> NDArray[np.int64]:
    """The true neighbours by the vectors of a checkpoint, of which each is read once."""
    ids = np.sort(reader.ids())
    best_ids = np.empty((len(queries), 0), np.int64)
    best = np.empty((len(queries), 0), np.float32)
    with reports(_bar("exact search", progress), "rows") as report:
        for start in range(0, len(ids), BLOCK_ROWS):
            block = ids[start : start + BLOCK_ROWS]
            found = exact_search(reader.get(block), queries, min(k, len(block)), reader.metric, threads=threads)
            best_ids = np.hstack([best_ids, block[found.ids]])
            best = np.hstack([best, found.distances])
            # Earlier blocks have lower ids, so a stable order breaks ties by the id.
            order = np.argsort(best, axis=1, kind="stable")[:, :k]
            best_ids, best = np.take_along_axis(best_ids, order, 1), np.take_along_axis(best, order, 1)
            report(start + len(block), len(ids))
    return best_ids


def _measure_on_disk(
    done: BenchedCheckpoint,
    reader: Reader,
    queries: NDArray[np.float32],
    truth: NDArray[np.int64],
    targets: Sequence[float],
    seconds: float,
    progress: bool,
) -> None:
    """The efforts that reach the targets, found by searches that aren't timed; then these and the default, timed."""
    recalls: list[tuple[_Setting, float]] = []
    for setting in ladder(done.leaves):
        recalls.append((setting, recall(reader.search(queries, done.k, **setting).ids, truth)))
        if recalls[-1][1] >= max(targets):
            break
    done.reached = _reached(recalls, targets)
    settings: list[_Setting] = [{}]
    for reached in done.reached.values():
        if reached is not None and reached not in settings:
            settings.append(reached)
    with reports(_bar("searching", progress), "settings") as report:
        for number, setting in enumerate(settings, 1):
            done.table += [asdict(row) for row in _on_disk(reader, queries, truth, done.k, setting, seconds)]
            report(number, len(settings))


def _on_disk(
    reader: Reader, queries: NDArray[np.float32], truth: NDArray[np.int64], k: int, setting: _Setting, seconds: float
) -> tuple[DiskRow, DiskRow]:
    """One setting with a cold cache, and with a warm one."""
    # Before: the table of rows is read once, and stays.
    reader.search(queries, k, threads=1, **setting)
    before = reader.stats()["bytes_read"]
    row = evaluate(reader, queries, truth, k=k, settings=[setting], seconds=seconds)[0]
    read = (reader.stats()["bytes_read"] - before) / (row.calls + len(queries))
    warm = DiskRow("warm", setting, row.recall, row.qps, row.p50_ms, row.p99_ms, row.scanned, row.reranked, read, row.calls)
    return _cold(reader, queries[:COLD_QUERIES], truth[:COLD_QUERIES], k, setting), warm


def _cold(reader: Reader, queries: NDArray[np.float32], truth: NDArray[np.int64], k: int, setting: _Setting) -> DiskRow:
    """Each query once, with an empty cache; emptying it is not timed."""
    before = reader.stats()["bytes_read"]
    times, found = [], []
    for query in queries:
        reader.clear_cache()
        began = time.perf_counter()
        found.append(reader.search(query, k, threads=1, **setting))
        times.append(time.perf_counter() - began)
    p50, p99 = np.percentile(times, [50, 99]) * 1e3
    count = len(queries)
    return DiskRow(
        cache="cold",
        setting=setting,
        recall=recall(np.stack([each.ids for each in found]), truth),
        qps=count / sum(times),
        p50_ms=float(p50),
        p99_ms=float(p99),
        scanned=sum(each.scanned for each in found) / count,
        reranked=sum(each.reranked for each in found) / count,
        bytes_read=(reader.stats()["bytes_read"] - before) / count,
        calls=count,
    )


def _reached(measured: Iterable[tuple[_Setting, float]], targets: Sequence[float]) -> dict[str, _Setting | None]:
    """For each target the first setting with a beam that reached it; efforts ascend."""
    tried = [(setting, share) for setting, share in measured if setting]
    return {f"{target:g}": next((setting for setting, share in tried if share >= target), None) for target in targets}


def _bytes_a_row(stats: dict[str, int | float]) -> dict[str, float]:
    rows = max(1, stats["rows"])
    return {part: stats[f"bytes_{part}"] / rows for part in PARTS} | {"total": stats["bytes"] / rows}


def _bar(what: str, progress: bool) -> bool:
    """Say on stderr what comes next, where progress is shown."""
    if progress:
        print(what, file=sys.stderr)
    return progress


def run(data: Data | None, index: _Path | None, *, as_json: bool, quiet: bool, **options: Any) -> int:
    """The command: results on stdout, progress and errors on stderr.

    Parameters
    ----------
    data : Data, optional
        The rows to build an index of; then the options are those of `bench`.
    index : str or os.PathLike, optional
        The directory to search in, where there is no `data`; then the options are those of `bench_checkpoint`.
    as_json : bool
        Print one JSON object with the fields of `Benched` or `BenchedCheckpoint`, instead of text.
    quiet : bool
        Show no progress.

    Returns
    -------
    int
        0; 1 if something failed; 130 after Ctrl-C.
    """
    done: Benched | BenchedCheckpoint
    try:
        if data is not None:
            done = bench(data, progress=not quiet, **options)
        else:
            assert index is not None
            done = bench_checkpoint(index, progress=not quiet, **options)
    except (ValueError, TypeError, OSError, MemoryError, Error) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    print(json.dumps(asdict(done)) if as_json else text(done) if isinstance(done, Benched) else disk_text(done))
    return 0
