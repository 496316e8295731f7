"""Recall and evaluate: the figures against a plain reckoning, every refusal, and how a table reads."""

import doctest
import importlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import sapwood as sw
from sapwood.evaluate import Row, Table, evaluate, recall


def plain_recall(ids: NDArray[np.int64], truth: NDArray[np.int64], k: int) -> float:
    """The definition, word for word."""
    shares = []
    for found, wanted in zip(ids[:, :k].tolist(), truth[:, :k].tolist(), strict=True):
        real = set(wanted) - {-1}
        if real:
            shares.append(len(real & set(found)) / len(real))
    return sum(shares) / len(shares) if shares else 1.0


def test_recall_is_the_share_of_the_true_neighbours() -> None:
    assert recall([[1, 2, 3]], [[3, 2, 1]]) == 1.0
    assert recall([[1, 2, 3]], [[4, 5, 6]]) == 0.0
    assert recall([[1, 2, 3, 4], [1, 2, 3, 4]], [[1, 2, 8, 9], [1, 2, 3, 9]]) == pytest.approx((0.5 + 0.75) / 2)


def test_recall_of_one_query() -> None:
    assert recall([5, 6], [6, 7]) == 0.5
    assert recall(np.array([5, 6], np.uint8), np.array([6, 5], np.int16)) == 1.0


def test_the_truth_may_be_wider_than_k() -> None:
    truth = [[1, 2, 3, 4, 5]]
    assert recall([[3, 4]], truth) == 0.0
    assert recall([[1, 2, 9, 9]], truth, k=2) == 1.0
    assert recall([[9, 9, 1, 2]], truth, k=2) == 0.0, "only the first k of the ids count too"


def test_fillers_never_count() -> None:
    assert recall([[1, -1, -1]], [[1, 2, 3]]) == pytest.approx(1 / 3)
    assert recall([[1, 2, -1]], [[1, 2, -1]]) == 1.0, "two rows were there, two were found"
    assert recall([[9, 8, -1]], [[1, 2, -1]]) == 0.0
    assert recall([[-1, -1], [7, -1]], [[-1, -1], [7, 8]]) == 0.5, "a query without neighbours is left out"
    assert recall([[-1, -1]], [[-1, -1]]) == 1.0, "nothing to find, nothing missed"
    assert recall(np.empty((0, 3), np.int64), np.empty((0, 3), np.int64)) == 1.0


def test_a_repeated_id_counts_once() -> None:
    assert recall([[1, 1, 1]], [[1, 2, 3]]) == pytest.approx(1 / 3)


def test_recall_agrees_with_its_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module("sapwood.evaluate"), "BLOCK", 200)
    rng = np.random.default_rng(3)
    for k in (1, 3, 10):
        truth = np.array([rng.permutation(30)[:12] for _ in range(57)])
        truth[rng.random(57) < 0.2, rng.integers(0, 12) :] = -1
        ids = rng.integers(-1, 30, (57, 10))
        assert recall(ids, truth, k) == pytest.approx(plain_recall(ids, truth, k), abs=1e-12)


@pytest.mark.parametrize(
    ("ids", "truth", "k", "error", "message"),
    [
        ([[1, 2]], [[1]], None, ValueError, r"truth: expected at least k = 2 columns, got 1"),
        ([[1, 2]], [[1, 2, 3]], 3, ValueError, r"ids: expected at least k = 3 columns, got 2"),
        ([[1], [2]], [[1]], None, ValueError, r"truth: expected 2 rows as in ids, got 1"),
        ([[1]], [1], None, ValueError, r"truth: expected 2 dimensions as in ids, got 1"),
        ([[[1]]], [[1]], None, ValueError, r"ids: expected shape \(queries, k\) or \(k,\), got \(1, 1, 1\)"),
        ([[1]], 1, None, ValueError, r"truth: expected shape .* got \(\)"),
        ([[0.5]], [[1]], None, TypeError, r"ids: expected integers, got float64 of shape \(1, 1\)"),
        ([[1]], [["a"]], None, TypeError, r"truth: expected integers, got <U1"),
        ([[1]], [[1]], 0, ValueError, r"k: expected at least 1, got 0"),
        ([[1]], [[1]], 1.0, TypeError, r"k: expected an integer of at least 1, got 1.0"),
        ([[1]], [[1]], True, TypeError, r"k: expected an integer of at least 1, got True"),
    ],
)
def test_recall_refuses(ids: Any, truth: Any, k: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        recall(ids, truth, k)


@dataclass(frozen=True)
class Result:
    """What `Half` returns."""

    ids: NDArray[np.int64]
    scanned: int
    reranked: int
    leaves: int


class Half:
    """Finds 0 .. k-1 for each query, of which the truth below holds half; notes its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[tuple[int, ...], int, dict[str, Any]]] = []

    def search(self, queries: NDArray[np.float32], k: int, **options: Any) -> Result:
        self.calls.append((queries.shape, k, options))
        count = len(queries) if queries.ndim == 2 else 1
        ids = np.tile(np.arange(k), (count, 1))
        return Result(ids if queries.ndim == 2 else ids[0], 100 * count, 20 * count, 3 * count)


QUERIES = np.zeros((6, 4), np.float32)
TRUTH = np.tile(np.arange(2, 8), (6, 1))


def test_evaluate_measures_each_setting() -> None:
    index = Half()
    table = evaluate(index, QUERIES, TRUTH, k=4, settings=[{}, {"beam": 7}], seconds=0.02)
    assert [row.setting for row in table] == [{}, {"beam": 7}]
    for row in table.rows:
        assert (row.recall, row.scanned, row.reranked, row.leaves, row.k, row.threads) == (0.5, 100, 20, 3, 4, 1)
        assert row.calls >= 1 and 0 < row.p50_ms <= row.p99_ms and 0 < row.qps <= row.calls / 0.02
    whole = [call for call in index.calls if len(call[0]) == 2]
    single = [call for call in index.calls if len(call[0]) == 1]
    assert whole == [((6, 4), 4, {}), ((6, 4), 4, {"beam": 7})]
    assert {(shape, k) for shape, k, _ in single} == {((4,), 4)} and all(options["threads"] == 1 for _, _, options in single)
    assert len(single) == sum(row.calls for row in table)


def test_evaluate_calls_from_several_threads() -> None:
    row = evaluate(Half(), QUERIES, TRUTH, k=4, seconds=0.02, threads=3)[0]
    assert row.threads == 3 and row.calls >= 3


def test_evaluate_on_an_index() -> None:
    rows = np.random.default_rng(5).standard_normal((2_000, 24), dtype=np.float32)
    with sw.Index(24, "cosine") as index:
        index.add(rows[50:])
        truth = sw.exact_search(rows[50:], rows[:50], 20, "cosine").ids
        everything, narrow = evaluate(index, rows[:50], truth, settings=[{"beam": 100_000}, {"beam": 1}], seconds=0.05)
    assert everything.recall >= 0.99 and narrow.recall <= everything.recall
    assert 0 < narrow.scanned <= everything.scanned and narrow.leaves <= everything.leaves


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"queries": QUERIES[0]}, r"queries: expected shape \(queries, dim\) with at least one query, got \(4,\)"),
        ({"queries": QUERIES[:0]}, r"queries: expected .* got \(0, 4\)"),
        ({"truth": TRUTH[:5]}, r"truth: expected shape \(6, at least 4\), got \(5, 6\)"),
        ({"truth": TRUTH[:, :3]}, r"truth: expected shape \(6, at least 4\), got \(6, 3\)"),
        ({"settings": []}, r"settings: expected at least one"),
        ({"settings": [{"threads": 2}]}, r"settings: .* got \['threads'\]"),
        ({"seconds": 0}, r"seconds: expected more than 0, got 0"),
        ({"seconds": math.nan}, r"seconds: expected more than 0, got nan"),
        ({"threads": 0}, r"threads: expected at least 1, got 0"),
        ({"k": 0}, r"k: expected at least 1, got 0"),
    ],
)
def test_evaluate_refuses_before_it_searches(change: dict[str, Any], message: str) -> None:
    index = Half()
    arguments: dict[str, Any] = {"queries": QUERIES, "truth": TRUTH, "k": 4, "seconds": 0.01} | change
    with pytest.raises(ValueError, match=message):
        evaluate(index, **arguments)
    assert index.calls == []


def a_table() -> Table:
    fast = Row({}, 10, 0.9, 12_345.6, 0.08, 0.2, 1_500.25, 60.0, 12.0, 100, 1)
    good = Row({"tau": 1.2, "beam": 64}, 10, 0.99, 5_000.0, 0.2, 0.5, 9_000.0, 99.0, 64.0, 50, 1)
    return Table((fast, good))


def test_a_table_prints_aligned_columns() -> None:
    lines = repr(a_table()).splitlines()
    assert lines[0].split("  ")[0] == "setting" and "recall@10" in lines[0] and "queries/s" in lines[0]
    assert lines[1].startswith("default ") and lines[2].startswith("tau=1.2 beam=64 ")
    assert "12,346" in lines[1] and "0.9900" in lines[2] and len({len(line) for line in lines}) == 1
    assert repr(Table(())).startswith("setting")


def test_a_table_is_a_sequence_and_gives_dictionaries() -> None:
    table = a_table()
    assert len(table) == 2 and table[1].setting["beam"] == 64 and table[:1].rows == table.rows[:1] and table == a_table()
    first, second = table.as_dicts()
    assert "tau" not in first and (second["tau"], second["beam"], second["recall"]) == (1.2, 64, 0.99)


def test_a_table_shows_itself_in_a_notebook() -> None:
    shown = Table((Row({"filter": "<b>"}, 10, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1, 1),))._repr_html_()
    assert shown.count("<tr>") == 2 and "&lt;b&gt;" in shown and "<b>" not in shown


@pytest.mark.parametrize("module", ["sapwood.evaluate", "sapwood.data"])
def test_the_examples_in_the_help_run(module: str) -> None:
    outcome = doctest.testmod(importlib.import_module(module), raise_on_error=False)
    assert outcome.attempted > 0 and outcome.failed == 0
