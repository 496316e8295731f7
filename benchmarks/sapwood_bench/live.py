"""Measurements of our index while it changes; run in its child process."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

from . import measure
from .engine import Answer, Setting, one_by_one
from .measure import Ids

if TYPE_CHECKING:
    from .ours import Ours

# Searches under ingestion are many; the recall of about so many of them is enough.
RECALL_SAMPLE = 4000


def time_order(
    ours: Ours,
    upto: int,
    batch: int,
    k: int,
    setting: Setting,
    truth: dict[str, str],
    threads: int,
    options: Setting,
) -> Answer:
    """Grow the index to `upto` rows in batches, and build another of them at once.

    Balancing runs in the background all the while; both are balanced before they are
    searched, with one setting.
    """
    ours.truth = {name: np.load(path) for name, path in truth.items()}
    if ours.index is None:
        ours.index = ours.new_index(threads, options)
    start = time.perf_counter()
    for first in range(len(ours.index), upto, batch):
        ours.index.add(ours.vectors[first : min(first + batch, upto)])
    added = time.perf_counter()
    ours.index.balance()
    balanced = time.perf_counter()
    grown = ours.index
    answer: Answer = {
        "add_seconds": added - start,
        "balance_seconds": balanced - added,
        "grown": _searched(ours, k, setting, threads),
    }
    try:
        ours.index = ours.new_index(threads, options)
        ours.index.add(ours.vectors[:upto])
        ours.index.balance()
        answer["at_once"] = _searched(ours, k, setting, threads)
    finally:
        ours.index = grown
    return answer


def grow(ours: Ours, upto: int, batch: int, truth: dict[str, str], threads: int, options: Setting) -> Answer:
    """Add rows in batches until there are `upto`, and balance; searches from now on are held against `truth`."""
    ours.truth = {name: np.load(path) for name, path in truth.items()}
    if ours.index is None:
        ours.index = ours.new_index(threads, options)
    start = time.perf_counter()
    for first in range(len(ours.index), upto, batch):
        ours.index.add(ours.vectors[first : min(first + batch, upto)])
    added = time.perf_counter()
    ours.index.balance()
    balanced = time.perf_counter()
    return {"add_seconds": added - start, "balance_seconds": balanced - added, "leaves": ours.sizes()["leaves"]}


def slide(ours: Ours, window: int, upto: int, batch: int, k: int, threads: int, options: Setting) -> Answer:
    """Move the index on to the `window` rows before `upto`, a batch removed for each that is added.

    Another is built of the same rows at once; both are balanced. Searches of either
    (`batch_of`) are held against the true neighbours among these rows. Ids are row numbers.
    """
    ours.use("changed")
    if ours.index is None:
        ours.index = ours.new_index(threads, options)
    start = time.perf_counter()
    for first in range(upto - window, upto, batch):
        last = min(first + batch, upto)
        ours.index.remove(np.arange(max(first - window, 0), max(last - window, 0)))
        ours.index.add(ours.vectors[first:last], np.arange(first, last))
    changed = time.perf_counter()
    ours.index.balance()
    balanced = time.perf_counter()
    answer: Answer = {"change_seconds": changed - start, "balance_seconds": balanced - changed, "leaves": ours.sizes()["leaves"]}
    rows = ours.vectors[upto - window : upto]
    exact = ours.sapwood.exact_search
    found = {name: exact(rows, queries, k, ours.metric, threads=threads) for name, queries in ours.queries.items()}
    ours.truth = {name: result.ids + (upto - window) for name, result in found.items()}
    ours.use("at_once")
    ours.index = ours.new_index(threads, options)
    ours.index.add(rows, np.arange(upto - window, upto))
    ours.index.balance()
    return answer | {"leaves_at_once": ours.sizes()["leaves"]}


def _searched(ours: Ours, k: int, setting: Setting, threads: int) -> Answer:
    """Recall and work of every query set, and the shape of the index."""
    sets = {name: ours.batch(name, k, setting, threads) for name in ours.queries}
    return {"sets": sets, "sizes": ours.sizes()}


def start_with(ours: Ours, rows: int, threads: int, options: Setting) -> Answer:
    """An index of the first rows, balanced; the others wait to be added."""
    ours.index = ours.new_index(threads, options)
    ours.index.add(ours.vectors[:rows])
    ours.index.balance()
    return {"rows": len(ours.index)}


@dataclass
class Searches:
    """Single searches, and how many rows each could and could not yet see."""

    times: list[float] = field(default_factory=list)
    raw: list[Any] = field(default_factory=list)
    before: list[int] = field(default_factory=list)
    after: list[int] = field(default_factory=list)

    def answer(self, ours: Ours, wide_truth: Ids, k: int) -> Answer:
        ids, _ = ours.results(self.raw)
        return {
            "searches": len(self.times),
            "p50_ms": measure.percentile(self.times, 50) * 1e3,
            "p99_ms": measure.percentile(self.times, 99) * 1e3,
            "worst_ms": max(self.times) * 1e3,
            "recall": moving_recall(ids, wide_truth, self.before, self.after, k),
        }


class Adder:
    """Adds batches until the rows given to it are all in; run in another thread."""

    def __init__(self, ours: Ours, rows: int, batch: int, pace: float) -> None:
        self.ours = ours
        self.begun = self.done = len(ours.index)
        self.stop_at = self.done + rows
        self.batch = batch
        self.pace = pace

    def run(self) -> float:
        """The seconds it took; a pace is rows a second, 0 is as fast as it goes."""
        start = time.perf_counter()
        first = self.done
        while self.done < self.stop_at:
            upto = min(self.done + self.batch, self.stop_at)
            self.begun = upto
            self.ours.index.add(self.ours.vectors[self.done : upto])
            self.done = upto
            if self.pace:
                due = start + (upto - first) / self.pace
                time.sleep(max(0.0, due - time.perf_counter()))
        return time.perf_counter() - start


def rest_then_ingest(
    ours: Ours,
    queries: str,
    k: int,
    setting: Setting,
    wide_truth: str,
    rest_searches: int,
    rows: int,
    batch: int,
    pace: float,
) -> Answer:
    """Single searches of a balanced index, then while another thread adds rows."""
    truth = np.load(wide_truth)
    ours.index.balance()
    ours.prepare(setting, threads=1)
    still = Adder(ours, 0, batch, pace)
    at_rest = iter(range(rest_searches))
    rest = _search_while(ours, queries, k, still, lambda: next(at_rest, None) is None)
    adder = Adder(ours, rows, batch, pace)
    with ThreadPoolExecutor(1) as pool:
        adding = pool.submit(adder.run)
        busy = _search_while(ours, queries, k, adder, adding.done)
    return {
        "rest": rest.answer(ours, truth, k),
        "ingest": busy.answer(ours, truth, k),
        "rows_per_second": rows / adding.result(),
    }


def _search_while(ours: Ours, queries: str, k: int, adder: Adder, stop: Callable[[], bool]) -> Searches:
    """Search query after query, once at least, until told to stop."""
    rows = one_by_one(ours.queries[queries])
    found = Searches()
    clock = time.perf_counter
    gc.collect()
    gc.disable()
    try:
        for row in cycle(rows):
            found.before.append(adder.done)
            start = clock()
            found.raw.append(ours.search(row, k))
            found.times.append(clock() - start)
            found.after.append(adder.begun)
            if stop():
                break
    finally:
        gc.enable()
    return found


def moving_recall(ids: Ids, wide_truth: Ids, before: list[int], after: list[int], k: int) -> float:
    """Recall of searches over rows 0..n, where n moved while they ran.

    A search had to see the rows acknowledged before it and may see those begun by its
    end; a true neighbour among either counts. A query whose wide truth holds fewer
    than k of the first rows is left out.
    """
    hits = counted = 0
    step = max(1, len(ids) // RECALL_SAMPLE)
    for i in range(0, len(ids), step):
        found = ids[i]
        ranked = wide_truth[i % len(wide_truth)]
        least = ranked[ranked < before[i]][:k]
        most = ranked[ranked < after[i]][:k]
        if len(least) < k:
            continue
        hits += min(k, len(np.intersect1d(found, np.union1d(least, most))))
        counted += k
    return hits / counted if counted else float("nan")


def single_adds(ours: Ours, count: int, jitter_seconds: float) -> Answer:
    """Add rows one a call with background balancing on; how long each call took."""
    jitter = measure.clock_jitter(jitter_seconds)
    rows = ours.vectors[len(ours.index) :][:count]
    clock = time.perf_counter
    times = [0.0] * len(rows)
    gc.collect()
    gc.disable()
    try:
        for i, row in enumerate(one_by_one(rows)):
            start = clock()
            ours.index.add(row)
            times[i] = clock() - start
    finally:
        gc.enable()
    ours.index.balance()
    return {
        "added": len(rows),
        "worst_ms": max(times) * 1e3,
        "p99.9_ms": measure.percentile(times, 99.9) * 1e3,
        "p50_ms": measure.percentile(times, 50) * 1e3,
        "jitter_ms": jitter * 1e3,
    }
