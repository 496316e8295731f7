"""Codes of several bits in place of vectors: the bytes they take, what comes back, and how many of the true neighbours they find."""

import re
from pathlib import Path

import numpy as np
import pytest

import sapwood as sw
from conftest import EXACT, METRICS, clustered
from sapwood.__main__ import STORAGE
from sapwood.data import load_wordnet
from sapwood.evaluate import recall

CODES = [f"rabitq{bits}" for bits in range(3, 9)]


@pytest.mark.parametrize("storage", CODES)
@pytest.mark.parametrize(("dim", "padded"), [(1, 128), (128, 128), (200, 256)])
def test_rows_take_the_bytes_that_are_promised(storage, dim, padded):
    with sw.Index(dim, "l2", storage=storage) as index:
        index.add(clustered(300, dim))
        assert index.stats()["bytes_vectors"] == 300 * (8 + int(storage[-1]) * padded // 8)
        assert index.config["storage"] == storage and f"storage='{storage}'" in repr(index)


@pytest.mark.parametrize("storage", CODES)
@pytest.mark.parametrize("metric", METRICS)
def test_what_comes_back_is_what_distances_are_of(metric, storage):
    rows = clustered(500, 40)
    with sw.Index(40, metric, storage=storage) as index:
        index.add(rows)
        stored = index.get(np.arange(500))
        wanted = rows / np.linalg.norm(rows, axis=1, keepdims=True) if metric == "cosine" else rows
        error = np.linalg.norm(stored - wanted, axis=1) / np.linalg.norm(wanted, axis=1)
        assert error.max() < 2 / 2 ** int(storage[-1])
        if metric == "cosine":
            np.testing.assert_allclose(np.linalg.norm(stored, axis=1), 1, atol=1e-6)
        truth = sw.exact_search(stored, rows[:50], 10, metric)
        listed = np.arange(0, 500, 7)
        for options in ({}, {"filter": listed}):
            found = index.search(rows[:50], 10, **EXACT, **options)
            wanted = sw.exact_search(stored[listed], rows[:50], 10, metric) if options else truth
            np.testing.assert_allclose(found.distances, wanted.distances, atol=2e-6 * np.square(rows).sum(1).max())
        # A row that is replaced by what was stored of it is another row, near it.
        index.add(stored, np.arange(500))
        again = index.get(np.arange(500))
        assert (np.linalg.norm(again - stored, axis=1) / np.linalg.norm(stored, axis=1)).max() < 2 / 2 ** int(storage[-1])


@pytest.mark.parametrize("storage", CODES)
def test_rows_of_all_sizes_are_kept(storage):
    # Squares of the largest are still floats.
    sizes = 10.0 ** np.arange(-17, 18, 2)
    rows = np.concatenate([clustered(20, 16, seed=1) * size for size in sizes] + [np.zeros((3, 16))]).astype(np.float32)
    for metric in METRICS:
        with sw.Index(16, metric, storage=storage, split_threshold=32, merge_threshold=4) as index:
            index.add(rows)
            index.balance()
            index.validate()
            stored = index.get(np.arange(len(rows)))
            assert np.isfinite(stored).all() and not stored[-3:].any()
            found = index.search(rows[::7], 5, beam=10**9)
            assert (np.diff(found.distances, axis=1) >= 0).all()


LEAST = {"rabitq3": 0.80, "rabitq4": 0.88, "rabitq5": 0.93, "rabitq6": 0.96, "rabitq7": 0.97, "rabitq8": 0.98}
"""What is found of the ten nearest text embeddings when all leaves are read, a little less than what is measured."""


def test_codes_find_nearly_all_true_neighbours():
    entries, queries = load_wordnet()
    rows, queries = entries.vectors[:12_000], queries.vectors
    truth = sw.exact_search(rows, queries, 10, "cosine").ids
    for storage, least in LEAST.items():
        with sw.Index(rows.shape[1], storage=storage) as index:
            index.add(rows)
            got = recall(index.search(queries, 10, beam=10**9).ids, truth, 10)
            assert got >= least, f"{storage}: {got:.3f}"


def test_the_names_of_storage_are_the_same_everywhere() -> None:
    package = Path(sw.__file__).parent
    wanted = {"f32", "f16", "bf16", "int8", *(f"rabitq{bits}" for bits in range(3, 9))}
    assert set(STORAGE) == wanted
    for name in ("_core.pyi", "bench.py", "durable.py"):
        text = (package / name).read_text()
        assert set(re.findall(r'"(f32|f16|bf16|int8|rabitq\d)"', text)) == wanted, name
    for name in sorted(wanted):
        with sw.Index(8, storage=name) as index:
            assert index.config["storage"] == name
