"""Recall while the data changes: steady churn, deletions, another distribution, copies, lengths over decades, growth from nothing."""

import numpy as np
import pytest

import sapwood as sw
from conftest import EXACT, STRESS, clustered, recall

SCALE = 5 if STRESS else 1
DIM = 32


def quality(index, rows, ids, queries, k=10, **options):
    """Recall against exact search over the live rows; nothing dead may be returned."""
    found = index.search(queries, k, **options).ids
    assert np.isin(found[found >= 0], ids).all(), "a row that isn't live was returned"
    truth = sw.exact_search(rows, queries, k, index.metric).ids
    return recall(found, np.where(truth >= 0, np.asarray(ids)[truth], -1))


def rebuilt(index, rows, ids):
    """An index made at once of the same rows."""
    fresh = sw.Index(index.dim, index.metric)
    fresh.add(rows, ids)
    fresh.balance()
    return fresh


def assert_in_shape(index):
    """What `stats()` says of a balanced tree."""
    index.balance()
    index.validate()
    stats = index.stats()
    assert stats["queue"] == 0 and stats["given_up"] == 0
    if stats["unsplittable"] == 0:
        assert stats["largest_leaf"] <= index.config["split_threshold"]
    assert stats["empty_leaves"] <= 1
    assert stats["imbalance"] < 2
    return stats


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
def test_twenty_rounds_of_churn(metric):
    size, step = 10_000 * SCALE, 200 * SCALE
    rng = np.random.default_rng(0)
    queries = clustered(200, DIM, seed=77)
    index = sw.Index(DIM, metric)
    model = dict(enumerate(clustered(size, DIM)))
    index.add(np.array(list(model.values())))
    index.balance()
    curve = []
    for round in range(20):
        gone = rng.choice(list(model), step, replace=False)
        assert index.remove(gone) == step
        for id in gone.tolist():
            del model[id]
        rows = clustered(step, DIM, seed=1000 + round)
        assert index.add(rows) == (step, 0)
        model.update(zip(range(size + round * step, size + round * step + step), rows, strict=True))
        index.balance()
        curve.append(quality(index, np.array(list(model.values())), list(model), queries))
    assert len(index) == size
    assert_in_shape(index)
    fresh = rebuilt(index, np.array(list(model.values())), list(model))
    anew = quality(fresh, np.array(list(model.values())), list(model), queries)
    assert curve[-1] >= anew - 0.02, (curve, anew)
    assert np.mean(curve[-5:]) >= np.mean(curve[:5]) - 0.02, curve
    assert min(curve) >= 0.9, curve


def test_deleting_a_whole_region_and_searching_in_it():
    rows = clustered(8000, DIM)
    near = sw.exact_search(rows, rows[0], 1500, "l2").ids
    index = sw.Index(DIM, "l2")
    index.add(rows)
    index.balance()
    assert index.remove(near) == 1500
    left = np.setdiff1d(np.arange(8000), near)
    queries = rows[near[:100]]
    # Leaves that lost all rows, and are merged a moment later, take no places in the beam.
    assert quality(index, rows[left], left, queries) >= 0.95
    assert quality(index, rows[left], left, queries, **EXACT) == 1
    assert_in_shape(index)
    anew = quality(rebuilt(index, rows[left], left), rows[left], left, queries)
    assert quality(index, rows[left], left, queries) >= anew - 0.02
    assert quality(index, rows[left], left, queries, **EXACT) == 1


def test_deleting_down_to_a_tenth():
    rows, queries = clustered(10_000, DIM), clustered(200, DIM, seed=77)
    index = sw.Index(DIM, "l2")
    index.add(rows)
    index.balance()
    order = np.random.default_rng(0).permutation(10_000)
    for start in range(0, 9000, 1000):
        assert index.remove(order[start : start + 1000]) == 1000
        left = np.sort(order[start + 1000 :])
        assert quality(index, rows[left], left, queries) >= 0.9
    assert_in_shape(index)
    fresh = rebuilt(index, rows[left], left)
    assert quality(index, rows[left], left, queries) >= quality(fresh, rows[left], left, queries) - 0.02
    assert index.stats()["leaves"] <= 3 * fresh.stats()["leaves"]
    assert index.remove(left) == 1000
    index.balance()
    index.validate()
    assert (index.search(queries, 3).ids == -1).all()


@pytest.mark.parametrize("first", [0, 1, 10, 1000])
def test_another_distribution_than_the_first(first):
    rng = np.random.default_rng(0)
    middles = 8 * rng.standard_normal((11, DIM))
    start = (middles[0] + rng.standard_normal((first, DIM))).astype(np.float32)
    count = 10_000 * SCALE
    which = np.sort(rng.integers(1, 11, count))
    rows = (middles[which] + rng.standard_normal((count, DIM))).astype(np.float32)
    index = sw.Index(DIM, "l2")
    index.add(start)
    index.balance()
    for batch in np.array_split(np.arange(count), 20):
        index.add(rows[batch], first + batch)
    every = np.concatenate([start, rows])
    ids = np.arange(len(every))
    # Rows of the same ten clouds, and rows between them that nobody has seen.
    queries = (middles[rng.integers(1, 11, 200)] + rng.standard_normal((200, DIM))).astype(np.float32)
    stats = assert_in_shape(index)
    fresh = rebuilt(index, every, ids)
    assert quality(index, every, ids, queries) >= quality(fresh, every, ids, queries) - 0.02
    assert stats["leaves"] <= 2 * fresh.stats()["leaves"]
    scanned, anew = (each.search(queries).scanned for each in (index, fresh))
    assert scanned <= 1.5 * anew
    if first:
        assert index.search(start[0], 1, **EXACT).ids.tolist() == [0]


@pytest.mark.parametrize("order", ["shuffled", "copies first"])
@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_many_copies_of_some_rows(metric, order):
    rng = np.random.default_rng(0)
    others, queries = clustered(10_000, DIM), clustered(200, DIM, seed=77)
    same = np.tile(clustered(1, DIM, seed=5), (500, 1))
    groups = np.repeat(clustered(20, DIM, seed=6), 40, axis=0)
    groups = (groups + 1e-6 * rng.standard_normal(groups.shape)).astype(np.float32)
    rows = np.concatenate([same, groups, others])
    copies = 500 + 800
    ids = rng.permutation(len(rows)) if order == "shuffled" else np.arange(len(rows))
    index, without = sw.Index(DIM, metric), sw.Index(DIM, metric)
    for batch in np.array_split(np.argsort(ids), 10):
        index.add(rows[batch], ids[batch])
    without.add(others)
    without.balance()
    index.balance()
    index.validate()
    stats = index.stats()
    assert stats["queue"] == 0
    # Every copy can be had, and searches that have nothing to do with them are as good as without them.
    found = index.search(same[0], 500, **EXACT)
    assert sorted(found.ids) == sorted(ids[:500])
    # Near-copies are a rounding error away from each other, so any of the group counts.
    group = index.search(groups[0], 40, **EXACT).ids
    assert set(group) <= set(ids[500:copies])
    truth = sw.exact_search(rows, queries, 10, metric).ids
    clean = ~(truth < copies).any(axis=1)
    assert clean.sum() > 100
    ours = recall(index.search(queries[clean], 10).ids, ids[truth[clean]])
    assert ours >= quality(without, others, np.arange(10_000), queries[clean]) - 0.02


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
@pytest.mark.parametrize("row", ["ones", "zeros"])
def test_all_rows_alike(metric, row):
    rows = np.full((5000, 8), 1.0 if row == "ones" else 0.0, np.float32)
    index = sw.Index(8, metric)
    for batch in np.array_split(np.arange(5000), 7):
        index.add(rows[batch])
    index.balance()
    index.validate()
    assert index.stats()["queue"] == 0
    assert index.search(rows[0], 5000, **EXACT).ids.tolist() == list(range(5000))
    assert index.remove(np.arange(0, 5000, 2)) == 2500
    index.add(clustered(2000, 8), np.arange(10_000, 12_000))
    index.balance()
    index.validate()
    assert len(index) == 4500


@pytest.mark.parametrize("k", [10, 1000])
@pytest.mark.parametrize("metric", ["ip", "l2", "cosine"])
def test_lengths_over_three_decades(metric, k):
    rng = np.random.default_rng(0)
    rows = clustered(10_000, DIM)
    rows *= (10.0 ** rng.normal(0, 0.75, (10_000, 1))).astype(np.float32)
    queries = clustered(100, DIM, seed=77)
    index = sw.Index(DIM, metric)
    index.add(rows)
    index.balance()
    index.validate()
    ids = np.arange(10_000)
    options = {} if k == 10 else {"beam": 200}
    assert quality(index, rows, ids, queries, k, **options) >= 0.9
    assert quality(index, rows, ids, queries, k, **EXACT) == 1


@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_growth_from_nothing(batch):
    count = 2000 if batch == 1 else 7000
    rows, queries = clustered(count, DIM), clustered(100, DIM, seed=77)
    index = sw.Index(DIM, "l2")
    for start in range(0, count, batch):
        index.add(rows[start : start + batch])
        if start % 500 < batch:
            assert index.search(rows[start], 1, **EXACT).ids.tolist() == [start]
    assert_in_shape(index)
    assert quality(index, rows, np.arange(count), queries) >= 0.9
    assert quality(index, rows, np.arange(count), queries, **EXACT) == 1
