"""Options out of range, closed handles, time limits, faults: an ordinary exception that says what to do, and nothing changed."""

import inspect
import threading

import numpy as np
import pytest

import sapwood as sw
from conftest import clustered, run_child

HUGE = 2**40


@pytest.mark.parametrize("k", [0, -1, HUGE, 2**70, (1 << 20) + 1])
def test_k_out_of_range(k, index):
    for call in (lambda: index.search(np.ones(8), k), lambda: sw.exact_search(np.ones((2, 8)), np.ones(8), k)):
        with pytest.raises(ValueError, match=rf"^k: expected a whole number from 1 to 1048576, got {k}$"):
            call()


@pytest.mark.parametrize("k", [True, 10.0, "10", [10], np.float64(3), np.True_])
def test_k_of_another_type(k, index):
    for call in (lambda: index.search(np.ones(8), k), lambda: sw.exact_search(np.ones((2, 8)), np.ones(8), k)):
        with pytest.raises(TypeError, match=r"^k: expected a whole number"):
            call()


def test_k_as_a_numpy_integer_and_at_its_largest(index):
    assert index.search(np.ones(8), np.int32(3)).ids.shape == (3,)
    assert int(index.search(np.ones(8), 1 << 20, beam=10**9).counts) == 200


def test_results_that_no_memory_holds(index):
    queries = np.broadcast_to(np.zeros(8, np.float32), (1 << 26, 8))
    with pytest.raises(MemoryError, match="lower k"):
        index.search(queries, 1 << 20)


OPTIONS = {
    "dim": [0, -1, 65_536, 2**70],
    "spill": [2, -1],
    "split_threshold": [0, 7, 2**40],
    "merge_threshold": [-1, 49, 2**40],
    "branching": [0, 3, 2**40],
    "seed": [-1, 2**64],
    "threads": [0, -1, 1025, 2**70],
    "metric": ["euclid", "", "L2"],
    "profile": ["gpu", ""],
    "storage": ["f64", "", "rabitq", "rabitq2", "rabitq9", "RABITQ4"],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in OPTIONS.items() for value in values])
def test_options_of_an_index_out_of_range(name, value):
    with pytest.raises(ValueError, match=f"^{name}: expected "):
        sw.Index(**{"dim": 8, name: value})


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("value", [1.5, b"l2", [], True])
def test_options_of_an_index_of_another_type(name, value):
    with pytest.raises(TypeError, match=f"^{name}: expected "):
        sw.Index(**{"dim": 8, name: value})


def test_options_are_what_was_asked_for():
    assert sw.Index(8).config == sw.Index(8, profile="memory").config
    signature = inspect.signature(sw.Index)
    for name in ("spill", "branching", "storage", "seed"):
        assert sw.Index(8).config[name] == signature.parameters[name].default
    memory, disk = sw.Index(8).config, sw.Index(8, profile="disk").config
    assert (memory["split_threshold"], memory["merge_threshold"]) == (192, 24)
    assert (disk["split_threshold"], disk["merge_threshold"]) == (2048, 512)
    given = {"spill": 0, "split_threshold": 64, "merge_threshold": 3, "branching": 100, "storage": "f16", "seed": 7, "threads": 1}
    assert sw.Index(8, **given).config == given
    assert sw.Index(8, split_threshold=64).config["merge_threshold"] == 8
    assert sw.Index(8, profile="disk", split_threshold=400).config["merge_threshold"] == 100
    assert sw.Index(8, profile="disk", merge_threshold=0).config["split_threshold"] == 2048


SEARCH_OPTIONS = {
    "tau": ([0.99, -1, 0, float("nan"), float("inf"), 1e300], ["1", True, [2], 1j]),
    "beam": ([0, -1, (0, 5), (5, 4), (1,), (1, 2, 3), ()], [1.5, "8", True, (1, 2.0), [1, 2]]),
    "rerank": ([0, -3, "all", "", 2**70], [1.5, True, [1]]),
    "epsilon": ([-0.1, 17, float("nan"), float("inf")], ["1", True, [2]]),
    "threads": ([0, -1, 2000], [1.5, "1", True]),
    "timeout": ([0, -1, float("nan")], ["1", True]),
    "levels": (
        [[{"beam": 3}], [{"tau": 0.5}], [{"least": 0}], [{"least_percent": 101}], [{1: 2}]],
        [5, "x", {"tau": 2}, [5], [{"most": 1.5}]],
    ),
    "filter": ([[-1], [[1]]], [["a"], [1.5], 1.5, True]),
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, (values, _) in SEARCH_OPTIONS.items() for value in values])
def test_options_of_a_search_out_of_range(name, value, index):
    # A rule of one level is named as the option it replaces.
    with pytest.raises(ValueError, match=rf"^({name}|tau|beam): "):
        index.search(np.ones(8), **{name: value})


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, (_, values) in SEARCH_OPTIONS.items() for value in values])
def test_options_of_a_search_of_another_type(name, value, index):
    with pytest.raises(TypeError, match=f"^{name}: "):
        index.search(np.ones(8), **{name: value})


def test_epsilon_is_for_bounds_alone(index):
    for rerank in (5, None):
        with pytest.raises(ValueError, match=r'^epsilon: expected None, unless rerank="bound"'):
            index.search(np.ones(8), rerank=rerank, epsilon=1.0)


@pytest.mark.parametrize("value", [5, "yes", [print], 0.5])
def test_progress_of_another_type(value, index):
    for call in (
        lambda: index.add(np.ones((1, 8)), progress=value),
        lambda: index.search(np.ones(8), progress=value),
        lambda: index.balance(progress=value),
        lambda: sw.exact_search(np.ones((1, 8)), np.ones(8), progress=value),
    ):
        with pytest.raises(TypeError, match=r"^progress: expected a callable"):
            call()
    assert len(index) == 200


def test_options_that_exist_are_taken(index):
    query = np.ones(8)
    everything = index.search(query, beam=10**9)
    for options in (
        {"tau": 1, "beam": (1, 10**9)},
        {"tau": np.float32(4), "beam": np.int64(2**40)},
        {"rerank": np.int8(3)},
        {"rerank": None},
        {"epsilon": 0},
        {"epsilon": np.float32(1.5), "rerank": "bound"},
        {"levels": [None, {}, {"tau": 2, "least": 1, "most": 8, "least_percent": 0.5}]},
        {"levels": ()},
        {"threads": 1},
        {"threads": 64},
        {"timeout": 100},
        {"filter": None},
        {"progress": False},
    ):
        assert index.search(query, **options).ids.shape == everything.ids.shape


def test_unknown_arguments_are_named(index):
    with pytest.raises(TypeError, match="nprobe"):
        index.search(np.ones(8), nprobe=3)
    with pytest.raises(TypeError, match="ef_construction"):
        sw.Index(8, ef_construction=3)
    with pytest.raises(TypeError, match="dim"):
        sw.Index()


def test_a_closed_index(index):
    filter = sw.Filter.allow([1])
    assert not index.closed
    index.close()
    index.close()
    assert index.closed
    for call in (
        lambda: index.add(np.ones((1, 8))),
        lambda: index.add(np.empty((0, 8))),
        lambda: index.remove([1]),
        lambda: index.search(np.ones(8)),
        lambda: index.search(np.ones((100, 8)), filter=filter),
        lambda: index.get(1),
        lambda: index.ids(),
        lambda: index.balance(),
        lambda: index.stats(),
        lambda: index.validate(),
        lambda: len(index),
        lambda: 1 in index,
    ):
        with pytest.raises(ValueError, match="closed"):
            call()
    assert repr(index) == "Index(dim=8, metric='l2', closed)"
    assert (index.dim, index.metric) == (8, "l2")


def test_a_context_manager_closes_also_after_an_exception():
    with sw.Index(4) as index:
        assert isinstance(index, sw.Index)
    assert index.closed
    with pytest.raises(ZeroDivisionError), sw.Index(4) as index:
        1 / 0  # noqa: B018
    assert index.closed


def test_closing_while_others_work():
    index = sw.Index(16)
    rows = clustered(20_000, 16)
    errors = []

    def work(call):
        try:
            while True:
                call()
        except ValueError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=work, args=[call]) for call in (lambda: index.add(rows), lambda: index.search(rows[:50]))]
    for thread in threads:
        thread.start()
    threading.Event().wait(0.3)
    index.close()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert len(errors) == 2 and all("closed" in error for error in errors)


def test_a_time_limit_ends_the_call():
    rows = clustered(20_000, 64)
    index = sw.Index(64)
    index.add(rows)
    for call in (
        lambda: index.search(rows, 100, beam=10**9, timeout=0.01),
        lambda: index.search(rows.astype(np.float64), 100, beam=10**9, timeout=0.01),
        lambda: sw.exact_search(rows, rows, 100, timeout=0.01),
        lambda: sw.exact_search(rows.astype(np.float64), rows, 100, timeout=0.01),
    ):
        with pytest.raises(TimeoutError, match=r"within 0\.01 s"):
            call()
    assert index.search(rows[0], 1, timeout=60).ids.tolist() == [0]


def test_error_is_an_exception_of_its_own():
    assert issubclass(sw.Error, Exception)
    assert sw.Error.__module__ == "sapwood" and sw.Error.__doc__
    for builtin in (ValueError, TypeError, KeyError, OSError):
        assert not issubclass(sw.Error, builtin)


def test_an_unknown_instruction_set_is_an_error():
    script = """
        import os
        os.environ["SAPWOOD_ISA"] = "vax"
        import sapwood as sw
        try:
            sw.Index(4)
        except sw.Error as error:
            assert "SAPWOOD_ISA=vax" in str(error), error
        else:
            raise SystemExit("no error")
    """
    run_child(script)


def test_the_scalar_kernels_can_be_forced():
    script = """
        import os
        os.environ["SAPWOOD_ISA"] = "scalar"
        import numpy as np, sapwood as sw
        rows = np.random.default_rng(0).standard_normal((500, 33), dtype=np.float32)
        index = sw.Index(33, "l2")
        index.add(rows)
        assert index.search(rows, 1, beam=10**9).ids.ravel().tolist() == list(range(500))
        assert sw.exact_search(rows, rows, 1, "l2").ids.ravel().tolist() == list(range(500))
    """
    run_child(script)


def test_repr_tells_what_it_is(index):
    text = repr(index)
    assert text.startswith("Index(dim=8, metric='l2', rows=200, leaves=")
    assert text.endswith("B)")
    index.add(clustered(1000, 8))
    assert "rows=1,200, " in repr(index)


def test_stats_are_plain_numbers_and_documented(index):
    stats = index.stats()
    assert stats["rows"] == 200 and stats["leaves"] >= 1
    assert stats["bytes"] == sum(stats[f"bytes_{part}"] for part in ("vectors", "postings", "tree", "ids"))
    assert stats["bytes_vectors"] >= 200 * 8 * 4
    for key, value in stats.items():
        assert type(value) in (int, float), key
        assert f"``{key}``" in sw.Index.stats.__doc__
