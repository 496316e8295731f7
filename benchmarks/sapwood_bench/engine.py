"""The timing loops that every engine runs through, ours and the peers alike.

An engine lives alone in a child process (`worker.py`), so that its resident memory and
its threads are its own. The parent calls the public methods by name; arguments and
answers are JSON, arrays travel as .npy files.
"""

from __future__ import annotations

import gc
import time
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import measure
from .measure import Ids, Phases

Matrix = NDArray[np.float32]
Setting = dict[str, Any]
Answer = dict[str, Any]

WARM_UP_QUERIES = 100


class Engine(ABC):
    """An index under measurement."""

    def __init__(self) -> None:
        self.metric = "cosine"
        self.vectors: Matrix = np.empty((0, 0), np.float32)
        self.queries: dict[str, Matrix] = {}
        self.truth: dict[str, Ids] = {}
        # What the record says beside every setting, such as rows that had to be padded.
        self.notes: Setting = {}
        self._base_memory = 0

    @abstractmethod
    def versions(self) -> dict[str, str]:
        """Names and versions of what is measured."""

    @abstractmethod
    def construct(self, phases: Phases, threads: int, options: Setting) -> None:
        """Build the index over `self.vectors`, marking the phases."""

    @abstractmethod
    def prepare(self, setting: Setting, threads: int) -> None:
        """Take a search setting; called in each searching thread, off the clock."""

    @abstractmethod
    def search(self, queries: Matrix, k: int) -> Any:
        """One call of the engine's own search, exactly as its user writes it."""

    @abstractmethod
    def results(self, raw: list[Any]) -> tuple[Ids, dict[str, int]]:
        """The ids of many answers, and counts summed over them."""

    def sizes(self) -> dict[str, float]:
        """What the index says of its own memory and shape."""
        return {}

    def load(self, base: str, queries: dict[str, str], truth: dict[str, str], metric: str) -> Answer:
        """Read the raw rows, the queries and their true neighbours into memory."""
        self.metric = metric
        self.vectors = np.load(base)
        self.queries = {name: np.load(path) for name, path in queries.items()}
        self.truth = {name: np.load(path) for name, path in truth.items()}
        return {"raw_bytes": self.vectors.nbytes}

    def build(self, threads: int, options: Setting) -> Answer:
        """Build once. Memory is the growth over the raw array and what came before."""
        gc.collect()
        before = measure.memory()["now"]
        measure.reset_peak()
        phases = Phases()
        self.construct(phases, threads, options)
        after = measure.memory()
        self._base_memory = before
        return {
            "phases": phases.seconds,
            "total": phases.total,
            "peak_growth": after["peak"] - before,
            "growth": after["now"] - before,
            "raw_bytes": self.vectors.nbytes,
            "notes": self.notes,
        }

    def growth(self) -> Answer:
        """Resident growth since before the build, as of now, and the engine's figures."""
        gc.collect()
        grown = measure.memory()["now"] - self._base_memory
        return {"growth": grown, "sizes": self.sizes()}

    def singles(self, queries: str, k: int, setting: Setting) -> Answer:
        """One query a call, one thread: the whole set in order."""
        rows = one_by_one(self.queries[queries])
        self.prepare(setting, threads=1)
        for row in rows[:WARM_UP_QUERIES]:
            self.search(row, k)
        raw, times, seconds = self._timed(rows, k)
        answer = self._answer(queries, raw)
        answer["qps"] = len(rows) / seconds
        answer["p50_ms"] = measure.percentile(times, 50) * 1e3
        answer["p99_ms"] = measure.percentile(times, 99) * 1e3
        return answer

    def batch(self, queries: str, k: int, setting: Setting, threads: int) -> Answer:
        """The whole set in one call, the engine's own threads."""
        rows = self.queries[queries]
        self.prepare(setting, threads)
        self.search(rows[:WARM_UP_QUERIES], k)
        start = time.perf_counter()
        raw = self.search(rows, k)
        seconds = time.perf_counter() - start
        return self._answer(queries, [raw]) | {"qps": len(rows) / seconds}

    def crowd(self, queries: str, k: int, setting: Setting, threads: int) -> Answer:
        """One query a call from many Python threads at once."""
        rows = one_by_one(self.queries[queries])
        shares = [rows[i::threads] for i in range(threads)]

        def begin() -> None:
            self.prepare(setting, threads=1)

        with ThreadPoolExecutor(threads, initializer=begin) as pool:
            for _ in pool.map(lambda share: self._timed(share[:50], k), shares):
                pass
            start = time.perf_counter()
            done = list(pool.map(lambda share: self._timed(share, k), shares))
            seconds = time.perf_counter() - start
        raw: list[Any] = [None] * len(rows)
        for i, (answers, _, _) in enumerate(done):
            raw[i::threads] = answers
        return self._answer(queries, raw) | {"qps": len(rows) / seconds}

    def _timed(self, rows: list[Matrix], k: int) -> tuple[list[Any], list[float], float]:
        """Answers, the time of each call and of all, with no collector in between."""
        raw: list[Any] = [None] * len(rows)
        times = [0.0] * len(rows)
        clock = time.perf_counter
        gc.collect()
        gc.disable()
        try:
            start = last = clock()
            for i, row in enumerate(rows):
                raw[i] = self.search(row, k)
                now = clock()
                times[i] = now - last
                last = now
        finally:
            gc.enable()
        return raw, times, last - start

    def _answer(self, queries: str, raw: list[Any]) -> Answer:
        found, counts = self.results(raw)
        answer: Answer = {"recall": measure.recall(found, self.truth[queries])}
        for name, count in counts.items():
            answer[name] = count / len(found)
        return answer


def one_by_one(queries: Matrix) -> list[Matrix]:
    return [queries[i : i + 1] for i in range(len(queries))]
