"""What a search returns: shapes, fillers, order, sign, normalisation, ties."""

import pickle

import faiss
import numpy as np
import pytest

import sapwood as sw
from conftest import EVERYTHING, EXACT, METRICS, assert_same_up_to_ties, clustered, distances, recall, truth


@pytest.mark.parametrize("metric", METRICS)
def test_distances_and_order_are_those_of_the_formulas(metric):
    rows, queries = clustered(500, 24, seed=1) * 3, clustered(20, 24, seed=2)
    wanted = truth(metric, queries, rows, np.arange(500), 10)
    index = sw.Index(24, metric)
    index.add(rows)
    for result in (index.search(queries, 10, **EXACT), sw.exact_search(rows, queries, 10, metric)):
        assert result.ids.dtype == np.int64
        assert result.distances.dtype == np.float32
        assert_same_up_to_ties(result, wanted, rtol=1e-4, atol=1e-4)
        assert (np.diff(result.distances) >= 0).all()


@pytest.mark.parametrize(
    ("metric", "ids", "wanted"),
    [
        ("l2", [0, 3, 1, 2], [1, 8, 9, 9]),
        ("cosine", [0, 2, 3, 1], [0, 0, 1, 2]),
        ("ip", [2, 0, 3, 1], [-10, -2, 0, 2]),
    ],
)
def test_sign_of_identical_opposite_and_long_vectors(metric, ids, wanted):
    index = sw.Index(2, metric)
    index.add([[1, 0], [-1, 0], [5, 0], [0, 2]])
    found = index.search([2, 0], 4)
    assert found.ids.tolist() == ids
    np.testing.assert_allclose(found.distances, wanted, atol=1e-6)


def test_signs_against_faiss():
    rows, queries = clustered(300, 16, seed=3), clustered(10, 16, seed=4)
    l2, ip = faiss.IndexFlatL2(16), faiss.IndexFlatIP(16)
    l2.add(rows)
    ip.add(rows)
    squared, ids = l2.search(queries, 5)
    assert_same_up_to_ties(sw.exact_search(rows, queries, 5, "l2"), (ids, squared), rtol=1e-4, atol=1e-4)
    products, ids = ip.search(queries, 5)
    assert_same_up_to_ties(sw.exact_search(rows, queries, 5, "ip"), (ids, -products), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("count", [0, 1, 5, 10])
def test_fewer_rows_than_asked_for(metric, count):
    rows, queries = clustered(count, 8), clustered(3, 8, seed=9)
    index = sw.Index(8, metric)
    index.add(rows)
    for result in (index.search(queries, 10), sw.exact_search(rows, queries, 10, metric)):
        assert result.ids.shape == result.distances.shape == (3, 10)
        assert (result.counts == count).all()
        assert (result.ids[:, count:] == -1).all()
        assert np.isposinf(result.distances[:, count:]).all()
        assert all(sorted(row[:count]) == list(range(count)) for row in result.ids)


def test_few_survivors_of_many_all_come_back():
    index = sw.Index(16, "l2")
    index.add(clustered(8000, 16))
    survivors = [17, 801, 4000, 4001, 7999]
    assert index.remove(np.setdiff1d(np.arange(8000), survivors)) == 7995
    ids, _ = index.search(clustered(100, 16, seed=5), 10, **EXACT)
    assert ids.shape == (100, 10)
    assert all(sorted(row[:5]) == survivors for row in ids)
    assert (ids[:, 5:] == -1).all()
    assert len(index) == 5


def test_a_filter_that_matches_three(index):
    result = index.search(clustered(100, 8, seed=6), 10, filter=[3, 77, 150, 10**12], **EXACT)
    assert (result.counts == 3).all()
    assert all(sorted(row[:3]) == [3, 77, 150] for row in result.ids)


def test_filters(index):
    query = index.get(5)
    everything = index.search(query, 200, **EXACT).ids.tolist()
    assert sorted(everything) == list(range(200))
    even = np.arange(0, 200, 2)
    allowed = index.search(query, 200, filter=even, **EXACT)
    assert allowed.ids[:100].tolist() == [id for id in everything if id % 2 == 0]
    assert int(allowed.counts) == 100
    denied = index.search(query, 200, filter=sw.Filter.deny(even), **EXACT)
    assert denied.ids[:100].tolist() == [id for id in everything if id % 2 == 1]
    kept = sw.Filter.allow(even)
    assert index.search(query, 200, filter=kept, **EXACT) == allowed
    assert index.search(query, 5, filter=[]).ids.tolist() == [-1] * 5
    assert index.search(query, 200, filter=sw.Filter.deny([]), **EXACT).ids.tolist() == everything
    assert repr(kept) == "Filter.allow(100 ids)"
    even[:] = 1
    assert index.search(query, 200, filter=kept, **EXACT) == allowed


def test_empty_filled_and_emptied_again():
    index = sw.Index(4, "cosine")
    query = np.ones(4)
    assert (index.search(query, 3).ids == -1).all()
    for id in (0, 1):
        assert index.add([[1, 2, 3, 4]]) == (1, 0)
        assert index.search(query, 1).ids.tolist() == [id]
        assert len(index) == 1
        assert index.remove(id) == 1
        assert index.search(query, 1).ids.tolist() == [-1]
        assert len(index) == 0
        index.balance()
        index.validate()


def test_one_dimensional_query_gives_one_dimensional_results(index):
    query = clustered(1, 8, seed=7)
    flat, batch = index.search(query[0], 4), index.search(query, 4)
    assert flat.ids.shape == flat.distances.shape == (4,)
    assert batch.ids.shape == (1, 4)
    assert flat.ids.tolist() == batch.ids[0].tolist()
    assert flat.counts.shape == () and batch.counts.shape == (1,)
    exact = sw.exact_search(index.get(index.ids()), query[0], 4, "l2")
    assert exact.ids.tolist() == index.search(query[0], 4, **EXACT).ids.tolist()


def test_no_queries(index):
    for queries in (np.empty((0, 8)), np.empty((0, 8), np.float32), []):
        result = index.search(queries, 7)
        assert result.ids.shape == result.distances.shape == (0, 7)
        assert sw.exact_search(np.ones((3, 8)), queries, 7).ids.shape == (0, 7)


@pytest.mark.parametrize("metric", METRICS)
def test_ties_are_ordered_by_id(metric):
    rows = np.tile(np.array([[1, 2, 3]], np.float32), (50, 1))
    ids = np.random.default_rng(0).permutation(50) * 7
    index = sw.Index(3, metric)
    index.add(rows, ids)
    for k in (1, 10, 49):
        assert index.search([3, 2, 1], k, **EXACT).ids.tolist() == sorted(ids)[:k]
        assert sw.exact_search(rows, [3, 2, 1], k, metric).ids.tolist() == list(range(k))
        assert sw.exact_search(rows.astype(float), [3, 2, 1], k, metric).ids.tolist() == list(range(k))


def test_no_id_comes_twice(index):
    index.add(clustered(3000, 8, seed=8), np.arange(3000))
    index.balance()
    for row in index.search(clustered(50, 8, seed=9), 100, **EXACT).ids:
        assert len(set(row)) == 100


def test_a_zero_vector_under_cosine_has_distance_one_to_everything():
    index = sw.Index(3, "cosine")
    index.add([[0, 0, 0], [1, 0, 0], [-2, 0, 0]])
    ids, found = index.search([[1, 0, 0], [0, 0, 0]], 3)
    assert ids.tolist() == [[1, 0, 2], [0, 1, 2]]
    np.testing.assert_allclose(found, [[0, 1, 2], [1, 1, 1]], atol=1e-6)
    assert index.get(0).tolist() == [0, 0, 0]


def test_cosine_is_blind_to_length():
    rows, queries = clustered(400, 12, seed=10), clustered(15, 12, seed=11)
    lengths = 10.0 ** np.random.default_rng(0).uniform(-15, 15, (400, 1))
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    results = []
    for variant in (rows, unit, rows * lengths):
        index = sw.Index(12)
        index.add(variant)
        results.append(index.search(queries, 10, **EXACT))
        np.testing.assert_allclose(index.get(np.arange(400)), unit, atol=1e-6)
    for result in results[1:]:
        assert_same_up_to_ties(result, results[0])


def test_what_is_read_back_is_what_was_stored():
    rows = clustered(100, 8) * 1000
    for metric in ("l2", "ip"):
        index = sw.Index(8, metric)
        index.add(rows, np.arange(100) * 3)
        back = index.get(np.arange(100)[::-1] * 3)
        assert back.dtype == np.float32 and back.shape == (100, 8)
        assert back.tobytes() == rows[::-1].tobytes()
        assert index.get(9).shape == (8,)
        assert index.get([]).shape == (0, 8)
        back[:] = 0
        assert index.get(9).tobytes() == rows[3].tobytes()


def test_results_own_their_memory(index):
    result = index.search(clustered(20, 8), 5)
    before = result.ids.copy(), result.distances.copy()
    index.add(clustered(500, 8, seed=1), np.arange(500))
    index.close()
    assert (result.ids == before[0]).all() and (result.distances == before[1]).all()
    result.ids[:] = 0


def test_result_types_behave_like_tuples(index):
    added = index.add(clustered(3, 8), [0, 1, 500])
    assert added == (1, 2) and (added.added, added.replaced) == (1, 2)
    assert repr(added) == "AddResult(added=1, replaced=2)"
    assert hash(added) == hash((1, 2))
    with pytest.raises(AttributeError):
        added.added = 5
    result = index.search(clustered(3, 8), 2)
    ids, found = result
    assert ids is result.ids and found is result.distances and len(result) == 2
    assert result == index.search(clustered(3, 8), 2)
    assert result != index.search(clustered(3, 8), 3)
    assert result != 5
    with pytest.raises(AttributeError, match="ids"):
        result.ids = ids
    with pytest.raises(AttributeError, match="scanned"):
        result.scanned = 1
    copy = pickle.loads(pickle.dumps(result))
    assert copy == result and copy.scanned == result.scanned
    assert repr(result).startswith("SearchResult(ids=array(")
    assert result.scanned >= 3 and result.leaves >= 3


def test_a_factor_reranks_and_none_estimates(index):
    index.add(clustered(3000, 8, seed=12), np.arange(3000))
    queries = clustered(30, 8, seed=13)
    exact = sw.exact_search(index.get(index.ids()), queries, 10, "l2")
    assert index.search(queries, 10, beam=EVERYTHING, rerank=300) == exact
    assert recall(index.search(queries, 10, beam=EVERYTHING, rerank=5).ids, exact.ids) > 0.9
    assert recall(index.search(queries, 10, beam=EVERYTHING).ids, exact.ids) > 0.99
    estimates = index.search(queries, 10, beam=EVERYTHING, rerank=None)
    rows = index.get(estimates.ids.ravel()).reshape(30, 10, 8)
    true = ((queries[:, None, :] - rows) ** 2).sum(-1)
    # Estimates of 1-bit codes err much, but they are of the right size.
    assert 0.3 < np.median(estimates.distances / true) < 3


def test_a_narrower_bound_compares_fewer_and_misses_more():
    index = sw.Index(64, "cosine")
    rows = clustered(5000, 64, seed=14)
    index.add(rows)
    truth = sw.exact_search(rows, rows[:200], 10, "cosine").ids
    found = [index.search(rows[:200], 10, beam=EVERYTHING, epsilon=epsilon) for epsilon in (0, 1.2, 2.4, 8)]
    compared, recalls = [result.reranked for result in found], [sw.recall(result.ids, truth) for result in found]
    assert compared == sorted(compared) and compared[0] < 0.7 * compared[1] < 0.7 * compared[3]
    assert recalls[0] < recalls[1] < recalls[2] and recalls[3] == 1


def test_beams(index):
    index.add(clustered(5000, 8, seed=14), np.arange(5000))
    index.balance()
    queries = clustered(20, 8, seed=15)

    def leaves(**options):
        # A search goes beyond its beam where the leaves in it hold too few rows; so only sums of many queries are compared.
        return index.search(queries, 1, **options).leaves

    assert 20 <= leaves(beam=1) < leaves(beam=8) < leaves(beam=64)
    assert leaves(beam=64) >= 20 * 64
    assert leaves(beam=(1, 64), tau=1.0) < leaves(beam=(1, 64), tau=1.5) < leaves(beam=(64, 64))
    assert leaves(beam=64, tau=1.0) == leaves(beam=(1, 64), tau=1.0)
    total = index.stats()["leaves"]
    assert leaves(beam=EVERYTHING) == 20 * total
    levels = [{"most": EVERYTHING, "least": EVERYTHING}] * index.stats()["levels"]
    assert leaves(beam=1, levels=levels) == 20 * total
    assert leaves(beam=1, levels=[None, *levels]) <= 20 * total
    assert leaves(beam=1, levels=[{"least_percent": 100.0, "most": EVERYTHING}] * len(levels)) == 20 * total
    everything = index.search(queries, **EXACT)
    assert index.search(queries, **EXACT, threads=1) == everything
    assert int(index.search(queries[0], 500, beam=1).counts) == 500


def test_formulas_hold_for_whole_tables():
    rows, queries = clustered(50, 5), clustered(7, 5, seed=1)
    for metric in METRICS:
        result = sw.exact_search(rows, queries, 50, metric)
        table = np.take_along_axis(distances(metric, queries, rows), result.ids, 1)
        np.testing.assert_allclose(result.distances, table, rtol=1e-4, atol=1e-5)
