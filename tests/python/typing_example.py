"""A program as a user writes it. `mypy --strict` accepts it, and it runs."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import sapwood as sw


def build(vectors: NDArray[np.float32]) -> sw.Index:
    index = sw.Index(vectors.shape[1], "l2", spill=1, split_threshold=100, threads=2)
    added, replaced = index.add(vectors)
    total: int = added + replaced
    assert total == len(index) == len(vectors)
    return index


def report(done: int, total: int) -> None:
    assert done <= total


def read(vectors: NDArray[np.float32]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vectors.npy"
        np.save(path, vectors)
        rows: sw.Rows = sw.read_vectors([path, str(path)], start=10, count=20, nulls="skip", threads=1, progress=report)
        numbers: NDArray[np.int64] = rows.ids
        assert numbers.tolist() == list(range(10, 30)) and rows.skipped == 0
        for ids, batch in sw.iter_vectors(path, batch=200, unique=False):
            part: NDArray[np.float32] = batch
            assert len(part) == len(ids) <= 200


def main() -> None:
    vectors = np.random.default_rng(0).standard_normal((500, 16), dtype=np.float32)
    read(vectors)
    with build(vectors) as index:
        result: sw.SearchResult = index.search(vectors[:3], k=5, beam=(1, 8), tau=1.5, rerank="bound", progress=report)
        ids, distances = result
        nearest: np.int64 = ids[0, 0]
        least: np.float32 = distances[0, 0]
        assert nearest == 0 and least == 0
        counts: NDArray[np.int64] = result.counts
        assert counts.shape == (3,)
        scanned: int = result.scanned
        assert scanned > 0
        result = index.search([0.5] * 16, 3, filter=sw.Filter.deny([1, 2]), rerank=None, levels=[{"least": 2}, None], timeout=10.0)
        result = index.search(vectors, filter=range(10), rerank=4, beam=8, threads=1)
        outcome: sw.AddResult = index.add([[1.0] * 16], ids=[7], progress=True if scanned < 0 else None)
        changed: int = outcome.replaced
        removed: int = index.remove(np.array([1, 2]))
        assert (changed, removed) == (1, 2) and 7 in index
        row: NDArray[np.float32] = index.get(7)
        live: NDArray[np.int64] = index.ids()
        assert row.shape == (16,) and live.shape == (498,)
        index.balance(progress=report)
        index.validate()
        rows: int | float = index.stats()["rows"]
        assert rows == 498 and index.dim == 16 and index.metric == "l2" and not index.closed
        truth, _ = sw.exact_search(vectors, vectors[:3], 5, "l2", threads=1, timeout=60)
        found: float = sw.recall(ids, truth)
        assert 0 <= found <= 1
    try:
        index.search(vectors[0])
    except (ValueError, sw.Error):
        pass
    print(sw.__version__)


if __name__ == "__main__":
    main()
