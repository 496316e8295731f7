"""How good and how fast: recall against the truth, and a table of recall, speed and work for search settings."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from html import escape
from typing import Any, Protocol, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._progress import reports

__all__ = ["Row", "Table", "evaluate", "recall"]

BLOCK = 1 << 22
"""Comparisons of one id with another that `recall` does at once: 4 MiB of booleans."""


class Found(Protocol):
    """What a search returns, as far as this module reads it."""

    @property
    def ids(self) -> NDArray[np.int64]:
        """Ids of the neighbours."""

    @property
    def scanned(self) -> int:
        """Rows whose distance was estimated."""

    @property
    def reranked(self) -> int:
        """Rows whose distance was computed from the full vector."""

    @property
    def leaves(self) -> int:
        """Leaves that were scanned."""


class Searchable(Protocol):
    """Anything with the search method of `sapwood.Index`."""

    def search(self, *args: Any, **options: Any) -> Found:
        """Search for the neighbours of each query."""


def recall(ids: ArrayLike, truth: ArrayLike, k: int | None = None) -> float:
    """Mean share of the true nearest neighbours that were found.

    Parameters
    ----------
    ids : array_like of int, shape (queries, at least k) or (at least k,)
        What a search returned. Entries of -1 (fillers) never count, an id that is repeated counts once.
    truth : array_like of int, shape (queries, at least k) or (at least k,)
        The true neighbours, nearest first, as `sapwood.exact_search` returns them. It may be wider than `k`: the first `k` count.
        Entries of -1 mean that there are fewer than `k` rows; they are not asked for. A query without any true neighbour is left
        out of the mean, and where no query has one the recall is 1: nothing was missed.
    k : int, optional
        How many neighbours count; by default the width of `ids`.

    Returns
    -------
    float
        Between 0 and 1. The order of the ids within the first `k` does not matter.

    Raises
    ------
    ValueError
        When the shapes do not fit each other or `k`.
    TypeError
        When `ids` or `truth` does not hold integers, or `k` is not one.

    Notes
    -----
    Ties: ids are compared, not distances. Every search of Sapwood orders equal distances by id, so a tie at the `k`-th place is
    broken alike in `ids` and in `truth`. Ids from elsewhere may break ties another way, and lose a little here for it.

    Examples
    --------
    >>> from sapwood.evaluate import recall
    >>> recall([[4, 7, 9], [1, 2, -1]], truth=[[7, 4, 8], [1, 2, 3]])
    0.6666666666666666
    >>> recall([4, 7, 9], truth=[4, 8, 7, 9], k=1)
    1.0
    """
    found, wanted = _id_rows("ids", ids), _id_rows("truth", truth)
    if np.ndim(found) != np.ndim(wanted):
        raise ValueError(f"truth: expected {found.ndim} dimensions as in ids, got {wanted.ndim}")
    found, wanted = np.atleast_2d(found), np.atleast_2d(wanted)
    if len(found) != len(wanted):
        raise ValueError(f"truth: expected {len(found):,} rows as in ids, got {len(wanted):,}")
    k = _count("k", found.shape[1] if k is None else k)
    for argument, array in (("ids", found), ("truth", wanted)):
        if array.shape[1] < k:
            raise ValueError(f"{argument}: expected at least k = {k} columns, got {array.shape[1]}")
    return _mean_share(found[:, :k], wanted[:, :k])


def _mean_share(found: NDArray[np.int64], wanted: NDArray[np.int64]) -> float:
    """Mean over the rows of the share of `wanted` that is in `found`; both have k columns."""
    real = wanted >= 0
    hit = np.zeros_like(real)
    step = max(1, BLOCK // (wanted.shape[1] ** 2))
    for start in range(0, len(wanted), step):
        rows = slice(start, start + step)
        hit[rows] = (wanted[rows, :, None] == found[rows, None, :]).any(axis=2)
    asked = real.sum(axis=1)
    if not asked.any():
        return 1.0
    shares = (hit & real).sum(axis=1)[asked > 0] / asked[asked > 0]
    return float(shares.mean())


@dataclass(frozen=True)
class Row:
    """One setting, measured.

    Attributes
    ----------
    setting : mapping
        The options given to `search`; empty for the defaults.
    k : int
        Neighbours asked for.
    recall : float
        Mean share of the true `k` neighbours, 0 to 1.
    qps : float
        Queries a second, one query a call, of all threads together.
    p50_ms, p99_ms : float
        Median and 99th percentile of the time of one call, in milliseconds.
    scanned, reranked, leaves : float
        Rows estimated, rows compared by their full vectors and leaves read, on average for one query.
    calls : int
        How many calls were timed.
    threads : int
        How many threads called at the same time.
    """

    setting: Mapping[str, Any]
    k: int
    recall: float
    qps: float
    p50_ms: float
    p99_ms: float
    scanned: float
    reranked: float
    leaves: float
    calls: int
    threads: int


@dataclass(frozen=True, repr=False)
class Table(Sequence[Row]):
    """Measured settings: a sequence of `Row` that prints as a table.

    Attributes
    ----------
    rows : tuple of Row
        The settings in the order in which they were given.
    """

    rows: tuple[Row, ...]

    @overload
    def __getitem__(self, place: int) -> Row: ...
    @overload
    def __getitem__(self, place: slice) -> Table: ...
    def __getitem__(self, place: int | slice) -> Row | Table:
        return Table(self.rows[place]) if isinstance(place, slice) else self.rows[place]

    def __len__(self) -> int:
        return len(self.rows)

    def as_dicts(self) -> list[dict[str, Any]]:
        """Rows as dictionaries, for instance for ``pandas.DataFrame``; the options of a setting are entries of their own.

        Returns
        -------
        list of dict
            The options of the setting, then the fields of `Row`.
        """
        return [dict(row.setting) | {name: value for name, value in asdict(row).items() if name != "setting"} for row in self.rows]

    def _cells(self) -> list[list[str]]:
        """The header and the rows as text."""
        header = ["setting", f"recall@{self.rows[0].k}" if self.rows else "recall", *_COLUMNS]
        return [header, *([_describe(row.setting), f"{row.recall:.4f}", *_figures(row)] for row in self.rows)]

    def __repr__(self) -> str:
        cells = self._cells()
        widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
        return "\n".join(
            "  ".join([line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))])
            for line in cells
        )

    def _repr_html_(self) -> str:
        header, *body = self._cells()
        return (
            "<table><thead><tr>"
            + "".join(f"<th>{escape(cell)}</th>" for cell in header)
            + "</tr></thead><tbody>"
            + "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>" for line in body)
            + "</tbody></table>"
        )


_COLUMNS = ("queries/s", "p50 ms", "p99 ms", "scanned", "reranked", "leaves")


def _figures(row: Row) -> list[str]:
    """The cells under `_COLUMNS`."""
    return [
        f"{row.qps:,.0f}",
        f"{row.p50_ms:.3f}",
        f"{row.p99_ms:.3f}",
        f"{row.scanned:,.1f}",
        f"{row.reranked:,.1f}",
        f"{row.leaves:,.1f}",
    ]


def _describe(setting: Mapping[str, Any]) -> str:
    """A setting as it would be written in a call."""
    return " ".join(f"{name}={value!r}" for name, value in setting.items()) or "default"


def evaluate(
    index: Searchable,
    queries: ArrayLike,
    truth: ArrayLike,
    *,
    k: int = 10,
    settings: Sequence[Mapping[str, Any]] | None = None,
    targets: Sequence[float] = (),
    seconds: float = 1.0,
    threads: int = 1,
    progress: Callable[[int, int], object] | bool | None = None,
) -> Table:
    """Measure recall, speed and work of an index for each of some search settings.

    Recall and work come from one search for all queries. Time comes from a second pass, one query a call, repeated in turn until
    `seconds` have passed: what a service that gets one query at a time would see, the call from Python included.

    Parameters
    ----------
    index : Index
        What to measure. Nothing else should run at the same time.
    queries : array_like, shape (queries, dim)
        Held-out queries: rows of the index find themselves and flatter it.
    truth : array_like of int, shape (queries, at least k)
        Ids of the true neighbours, nearest first; see `sapwood.exact_search`.
    k : int, default 10
        Neighbours asked for.
    settings : sequence of mappings
        Options for `search`, such as ``{"tau": 1.2, "beam": 64}``; by default one measurement with the index's defaults, or none
        where there are `targets`.
    targets : sequence of float, optional
        Recall targets to measure after the settings: each stands for the setting ``{"recall": target}``.
    seconds : float, default 1.0
        How long to time each setting.
    threads : int, default 1
        How many Python threads call at the same time, each call using one thread.
    progress : callable or bool, optional
        Called as ``progress(done, total)`` after each setting. An exception from it ends the measurement. True shows a bar.

    Returns
    -------
    Table
        One `Row` for each setting, then one for each target, in the same order.

    Raises
    ------
    ValueError
        When a shape does not fit, there are no queries or no settings, or a setting names ``k`` or ``threads``.

    Examples
    --------
    >>> import numpy as np, sapwood as sw
    >>> from sapwood.evaluate import evaluate
    >>> vectors = np.random.default_rng(0).standard_normal((1_000, 16), dtype=np.float32)
    >>> index = sw.Index(16, "l2")
    >>> _ = index.add(vectors[100:])
    >>> truth = sw.exact_search(vectors[100:], vectors[:100], 10, "l2").ids
    >>> table = evaluate(index, vectors[:100], truth, settings=[{}, {"beam": 10_000}], seconds=0.05)
    >>> table[1].recall > 0.99, [row["k"] for row in table.as_dicts()]
    (True, [10, 10])
    """
    if settings is None:
        settings = () if len(targets) else ({},)
    settings = [*settings, *({"recall": target} for target in targets)]
    _check_evaluate(k, settings, seconds, threads)
    rows = np.ascontiguousarray(queries)
    if rows.ndim != 2 or not len(rows):
        raise ValueError(f"queries: expected shape (queries, dim) with at least one query, got {rows.shape}")
    wanted = _id_rows("truth", truth)
    if wanted.ndim != 2 or len(wanted) != len(rows) or wanted.shape[1] < k:
        raise ValueError(f"truth: expected shape ({len(rows)}, at least {k}), got {wanted.shape}")
    with reports(progress, "settings") as report:
        measured = []
        for setting in settings:
            measured.append(_measure(index, rows, wanted, k, dict(setting), seconds, threads))
            report(len(measured), len(settings))
    return Table(tuple(measured))


def _check_evaluate(k: int, settings: Sequence[Mapping[str, Any]], seconds: float, threads: int) -> None:
    """Refuse what `evaluate` can't measure."""
    _count("k", k)
    _count("threads", threads)
    if not seconds > 0:
        raise ValueError(f"seconds: expected more than 0, got {seconds}")
    if not settings:
        raise ValueError("settings: expected at least one mapping of search options, got none; use [{}] for the defaults")
    for setting in settings:
        if taken := {"k", "threads"} & setting.keys():
            raise ValueError(f"settings: expected no k and no threads, which are arguments of evaluate, got {sorted(taken)}")


def _measure(
    index: Searchable, queries: NDArray[Any], truth: NDArray[np.int64], k: int, setting: dict[str, Any], seconds: float, threads: int
) -> Row:
    """One row of the table."""
    found = index.search(queries, k, **setting)
    times, wall = _time_calls(index, queries, k, setting, seconds, threads)
    p50, p99 = np.percentile(times, [50, 99]) * 1e3
    return Row(
        setting=setting,
        k=k,
        recall=recall(found.ids, truth, k),
        qps=len(times) / wall,
        p50_ms=float(p50),
        p99_ms=float(p99),
        scanned=found.scanned / len(queries),
        reranked=found.reranked / len(queries),
        leaves=found.leaves / len(queries),
        calls=len(times),
        threads=threads,
    )


def _time_calls(
    index: Searchable, queries: NDArray[Any], k: int, setting: dict[str, Any], seconds: float, threads: int
) -> tuple[NDArray[np.float64], float]:
    """Seconds of each call with one query, and of the whole; `threads` callers start at different queries."""
    started = time.perf_counter()
    end = started + seconds

    def caller(number: int) -> list[float]:
        times = []
        for query in _in_turn(queries, number * len(queries) // threads):
            before = time.perf_counter()
            index.search(query, k, threads=1, **setting)
            after = time.perf_counter()
            times.append(after - before)
            if after >= end:
                break
        return times

    if threads == 1:
        every = [caller(0)]
    else:
        with ThreadPoolExecutor(threads) as pool:
            every = list(pool.map(caller, range(threads)))
    return np.concatenate(every), time.perf_counter() - started


def _in_turn(queries: NDArray[Any], start: int) -> Iterator[NDArray[Any]]:
    """The queries over and over, from `start`."""
    while True:
        yield from queries[start:]
        start = 0


def _id_rows(argument: str, given: ArrayLike) -> NDArray[np.int64]:
    """An array of ids with one or two dimensions."""
    array = np.asarray(given)
    if array.size and array.dtype.kind not in "iu":
        raise TypeError(f"{argument}: expected integers, got {array.dtype} of shape {array.shape}")
    if array.ndim not in (1, 2):
        raise ValueError(f"{argument}: expected shape (queries, k) or (k,), got {array.shape}")
    return array.astype(np.int64, copy=False)


def _count(argument: str, given: int) -> int:
    """A whole number of at least 1."""
    if isinstance(given, bool) or not isinstance(given, int | np.integer):
        raise TypeError(f"{argument}: expected an integer of at least 1, got {given!r}")
    if given < 1:
        raise ValueError(f"{argument}: expected at least 1, got {given}")
    return int(given)
