"""Sapwood's index in a directory under measurement; each step in a process of its own."""

from __future__ import annotations

import gc
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import measure
from .engine import Answer, Matrix, Setting, one_by_one
from .measure import Ids, Phases
from .ours import our_versions

# What a reranked vector costs on disk at the least: vectors are read by the page.
PAGE = 4096
# The table of rows of a reader, as its documentation gives it.
ROW_TABLE_BYTES = 20


class OurDirectory:
    """`Writer` and `Reader`, driven as their user does."""

    def __init__(self) -> None:
        import sapwood

        self.sapwood: Any = sapwood
        self.metric = "cosine"
        self.queries: dict[str, Matrix] = {}
        self.truth: dict[str, Ids] = {}

    def versions(self) -> dict[str, str]:
        return our_versions()

    def load(self, queries: dict[str, str], truth: dict[str, str], metric: str) -> Answer:
        """Read the queries and their true neighbours; rows only where they are added."""
        self.metric = metric
        self.queries = {name: np.load(path) for name, path in queries.items()}
        self.truth = {name: np.load(path) for name, path in truth.items()}
        return {}

    def build(self, path: str, base: str, later: int, scattered: bool, threads: int, options: Setting) -> Answer:
        """Add all rows but those for `extend`, balance, commit."""
        vectors = np.load(base)
        wanted = np.delete(np.arange(len(vectors)), _held_back(len(vectors), later, scattered))
        first = vectors if later == 0 else vectors[wanted]
        phases = Phases()
        writer = self.sapwood.Writer(path, vectors.shape[1], self.metric, threads=threads, **options)
        phases.mark("open")
        answer = _change(writer, first, wanted, phases)
        writer.close()
        return answer

    def extend(self, path: str, base: str, later: int, scattered: bool, threads: int) -> Answer:
        """Open what `build` committed, add the rows it left out, balance, commit."""
        vectors = np.load(base)
        wanted = _held_back(len(vectors), later, scattered)
        rest = vectors[wanted]
        phases = Phases()
        writer = self.sapwood.Writer(path, threads=threads)
        phases.mark("open")
        answer = _change(writer, rest, wanted, phases)
        answer["stats"] = writer.stats()
        writer.close()
        return answer

    def series(self, path: str, base: str, commits: int, threads: int, options: Setting) -> Answer:
        """All rows in their order, a commit after every equal part."""
        vectors = np.load(base)
        parts = np.array_split(np.arange(len(vectors)), commits)
        writer = self.sapwood.Writer(path, vectors.shape[1], self.metric, threads=threads, **options)
        answers = [_change(writer, vectors[ids[0] : ids[-1] + 1], ids, Phases()) for ids in parts]
        writer.close()
        return {"commits": answers}

    def in_parts(self, path: str, base: str, commits: int, threads: int, options: Setting) -> Answer:
        """All rows in their order from a mapped file, each equal part by a writer opened for it, which bounds what it holds."""
        vectors = np.load(base, mmap_mode="r")
        gc.collect()
        before = measure.memory()["now"]
        measure.reset_peak()
        answers = []
        for ids in np.array_split(np.arange(len(vectors)), commits):
            phases = Phases()
            part = np.array(vectors[ids[0] : ids[-1] + 1])
            phases.mark("read")
            writer = self.sapwood.Writer(path, vectors.shape[1], self.metric, threads=threads, **options)
            phases.mark("open")
            _change(writer, part, ids, phases)
            writer.close()
            phases.mark("close")
            answers.append(phases.seconds)
        return {"commits": answers, "peak_growth": measure.memory()["peak"] - before}

    def whole(self, path: str, rows: int) -> Answer:
        """Prove that every id is reachable exactly once, and that the ids are those that were added."""
        checkpoint = self.sapwood.load_checkpoint(path)
        checkpoint.validate()
        with checkpoint.reader() as reader:
            ids = np.sort(reader.ids())
        disk = sum(file.stat().st_size for file in Path(path).rglob("*") if file.is_file())
        return {"whole": float(np.array_equal(ids, np.arange(rows))), "rows": len(ids), "bytes_disk": disk}

    def survey(self, path: str) -> Answer:
        """Validate the newest checkpoint, which reads all of it once, and count its bytes."""
        checkpoint = self.sapwood.load_checkpoint(path)
        with checkpoint.reader() as reader:
            reader.validate()
            postings = reader.stats()["bytes_read_postings"]
        disk = sum(file.stat().st_size for file in Path(path).rglob("*") if file.is_file())
        return {"bytes": checkpoint.bytes, "bytes_disk": disk, "bytes_postings": postings}

    def opened(self, path: str, repeats: int) -> Answer:
        """Times of opening a reader: the first of this process, and the median of more."""
        times = []
        for _ in range(repeats + 1):
            start = time.perf_counter()
            reader = self.sapwood.Reader(path)
            times.append(time.perf_counter() - start)
            reader.close()
        return {"first_ms": times[0] * 1e3, "median_ms": measure.median(times[1:]) * 1e3}

    def searched(self, path: str, queries: str, k: int, settings: list[Setting], enough: float, threads: int) -> Answer:
        """The first setting that reaches a recall, and its recall; else the last one's."""
        answer: Answer = {}
        with self.sapwood.Reader(path, threads=threads) as reader:
            for setting in settings:
                found = reader.search(self.queries[queries], k, **setting).ids
                answer = {"recall": measure.recall(found, self.truth[queries]), "setting": setting}
                if answer["recall"] >= enough:
                    break
        return answer

    def singles(self, path: str, queries: str, count: int, k: int, setting: Setting) -> Answer:
        """One query a call, one thread: all with the caches cleared before each, then all again from the cache."""
        rows = one_by_one(self.queries[queries][:count])
        with self.sapwood.Reader(path, threads=1) as reader:
            # The table of rows is read with the first searches and stays; it is no part of a query.
            for row in rows:
                reader.search(row, k, **setting)
            before = reader.stats()
            cold = self._timed(reader, rows, k, setting, queries, clear=True)
            after = reader.stats()
            for row in rows:
                reader.search(row, k, **setting)
            warm = self._timed(reader, rows, k, setting, queries, clear=False)
            dim = reader.dim
        for name in ("bytes_read_postings", "bytes_read_vectors", "reads"):
            cold[name] = (after[name] - before[name]) / len(rows)
        code = -(-dim // 64) * 8
        cold["bytes_least"] = cold["scanned"] * code + cold["reranked"] * PAGE
        return {"cold": cold, "warm": warm}

    def _timed(self, reader: Any, rows: list[Matrix], k: int, setting: Setting, queries: str, clear: bool) -> Answer:
        times, raw = [], []
        gc.collect()
        for row in rows:
            if clear:
                reader.clear_cache()
            start = time.perf_counter()
            result = reader.search(row, k, **setting)
            times.append(time.perf_counter() - start)
            raw.append(result)
        found = np.concatenate([result.ids for result in raw])
        return {
            "p50_ms": measure.percentile(times, 50) * 1e3,
            "p99_ms": measure.percentile(times, 99) * 1e3,
            "recall": measure.recall(found, self.truth[queries][: len(rows)]),
            "scanned": sum(result.scanned for result in raw) / len(rows),
            "reranked": sum(result.reranked for result in raw) / len(rows),
        }

    def resident(self, path: str, cache_bytes: int, rounds: int, k: int, setting: Setting, threads: int) -> Answer:
        """Peak growth of resident memory over all queries of all sets, a hundred a call."""
        gc.collect()
        before = measure.memory()["now"]
        measure.reset_peak()
        with self.sapwood.Reader(path, cache_bytes=cache_bytes, threads=threads) as reader:
            searched = 0
            for _ in range(rounds):
                for rows in self.queries.values():
                    for first in range(0, len(rows), 100):
                        reader.search(rows[first : first + 100], k, **setting)
                    searched += len(rows)
            stats = reader.stats()
        tables = stats["bytes_tree"] + stats["bytes_postings"] + ROW_TABLE_BYTES * stats["rows"]
        grown = measure.memory()["peak"] - before
        return {"growth": grown, "allowed": cache_bytes + tables, "tables": tables, "queries": searched, "read": stats["bytes_read"]}


def _held_back(rows: int, count: int, scattered: bool) -> NDArray[np.int64]:
    """The rows added after the first commit: the last ones, or as many over all the way."""
    if scattered:
        return np.linspace(0, rows - 1, count).astype(np.int64)
    return np.arange(rows - count, rows)


def _change(writer: Any, vectors: Matrix, ids: NDArray[np.int64], phases: Phases) -> Answer:
    """Add, balance and commit; `bytes_written` is what the kernel was given to write."""
    written = measure.bytes_written()
    writer.add(vectors, ids)
    phases.mark("add")
    writer.balance()
    phases.mark("balance")
    info = writer.commit()
    phases.mark("commit")
    return {
        "phases": phases.seconds,
        "clusterings": writer.stats()["clusterings"],
        "bytes_stated": info.bytes_written,
        "bytes_written": measure.bytes_written() - written,
    }
