"""Ids: every integer type, exact round trips, and refusals before anything changes."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import sapwood as sw
from conftest import EXACT, clustered, run_child

LARGEST = 2**63 - 1


class Indexable:
    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value


FORMS = {
    "list": [5, 3, 9],
    "tuple": (5, 3, 9),
    "list of numpy": [np.int64(5), np.uint8(3), 9],
    "int8": np.array([5, 3, 9], np.int8),
    "int32": np.array([5, 3, 9], np.int32),
    "uint32": np.array([5, 3, 9], np.uint32),
    "uint64": np.array([5, 3, 9], np.uint64),
    "int64": np.array([5, 3, 9]),
    "big-endian": np.array([5, 3, 9], ">i8"),
    "strided": np.array([5, 0, 3, 0, 9, 0])[::2],
    "reversed": np.array([9, 3, 5])[::-1],
    "read-only": np.frombuffer(np.array([5, 3, 9]).tobytes(), np.int64),
    "objects": np.array([5, 3, 9], dtype=object),
    "arrow": pa.array([5, 3, 9]),
    "arrow chunks": pa.chunked_array([[5], [3, 9]]),
    "polars": pl.Series([5, 3, 9]),
    "pandas": pd.Series([5, 3, 9]),
    "pandas nullable": pd.Series([5, 3, 9], dtype="Int64"),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_ids(form):
    index = sw.Index(2, "l2")
    assert index.add([[1, 0], [2, 0], [3, 0]], FORMS[form]) == (3, 0)
    assert index.ids().tolist() == [3, 5, 9] and index.ids().dtype == np.int64
    assert index.get(FORMS[form]).tolist() == [[1, 0], [2, 0], [3, 0]]
    assert index.search([0, 0], 3, filter=FORMS[form]).ids.tolist() == [5, 3, 9]
    assert index.remove(FORMS[form]) == 3


def test_ranges():
    index = sw.Index(1, "l2")
    assert index.add([[1], [2], [3]], range(30, 0, -10)) == (3, 0)
    assert index.get(range(10, 31, 10)).ravel().tolist() == [3, 2, 1]
    assert index.add([[1], [2]], range(LARGEST - 1, LARGEST + 1)) == (2, 0)
    assert index.ids().tolist() == [10, 20, 30, LARGEST - 1, LARGEST]
    assert index.remove(range(0)) == 0
    assert index.remove(range(5, 25, 5)) == 2


EDGES = [0, 1, 2**31 - 1, 2**31, 2**32, 2**53, 2**53 + 1, LARGEST - 1, LARGEST]


@pytest.mark.parametrize("kind", [list, np.int64, np.uint64])
def test_round_trip_over_the_whole_range(kind):
    ids = EDGES if kind is list else np.array(EDGES, kind)
    index = sw.Index(2, "l2")
    rows = np.arange(18, dtype=np.float32).reshape(9, 2)
    assert index.add(rows, ids) == (9, 0)
    assert index.ids().tolist() == EDGES
    for id, row in zip(EDGES, rows, strict=True):
        assert id in index
        assert index.get(id).tolist() == row.tolist()
        found = index.search(row, 1, **EXACT)
        assert found.ids.tolist() == [id]
    assert index.remove(LARGEST) == 1 and LARGEST not in index


REFUSED = {
    "float": (np.array([1.0, 2.0]), TypeError, "float64"),
    "whole floats in a list": ([1, 2.0], TypeError, "2.0 at position 1"),
    "bool array": (np.array([True, False]), TypeError, "bool"),
    "bool in a list": ([1, True], TypeError, "True at position 1"),
    "numpy bool in a list": ([1, np.True_], TypeError, "position 1"),
    "strings": (["a", "b"], TypeError, "'a' at position 0"),
    "string array": (np.array(["1", "2"]), TypeError, "<U1"),
    "str": ("ab", TypeError, "str"),
    "None in a list": ([1, None], TypeError, "None at position 1"),
    "dates": (np.array([1, 2], "M8[s]"), TypeError, "datetime64"),
    "set": ({1, 2}, TypeError, "set"),
    "dict": ({1: 2}, TypeError, "dict"),
    "generator": ((i for i in range(2)), TypeError, "generator"),
    "complex": (np.array([1j, 2]), TypeError, "complex"),
    "objects": (np.array([1, "a"], dtype=object), TypeError, "'a' at position 1"),
    "arrow nulls": (pa.array([1, None]), ValueError, "nulls"),
    "polars nulls": (pl.Series([1, None]), ValueError, "nulls"),
    "pandas nulls": (pd.Series([1, None], dtype="Int64"), TypeError, "float64"),
    "masked": (np.ma.masked_equal([1, 2], 2), ValueError, "masked value at position 1"),
    "negative": ([0, -1], ValueError, "-1 at position 1"),
    "negative int8": (np.array([0, -5], np.int8), ValueError, "-5 at position 1"),
    "negative int64": (np.array([0, -5]), ValueError, "-5 at position 1"),
    "2**63": ([0, 2**63], ValueError, "9223372036854775808 at position 1"),
    "2**63 uint64": (np.array([0, 2**63], np.uint64), ValueError, "9223372036854775808 at position 1"),
    "2**64 - 1": (np.array([0, 2**64 - 1], np.uint64), ValueError, "18446744073709551615 at position 1"),
    "2**64": ([0, 2**64], ValueError, "18446744073709551616 at position 1"),
    "negative and huge": ([2**63, -1], ValueError, "at position 0"),
    "negative range": (range(0, -2, -1), ValueError, "-1 at position 1"),
    "range beyond": (range(LARGEST, LARGEST + 2), ValueError, "at position 1"),
    "2-D": (np.array([[1], [2]]), ValueError, r"\(2, 1\) int64"),
    "2-D list": ([[1], [2]], ValueError, "list at position 0"),
}


@pytest.mark.parametrize("form", REFUSED)
def test_what_is_no_id_changes_nothing(form, index):
    value, error, message = REFUSED[form]
    before = index.get(index.ids()).tobytes()
    calls = [lambda: index.add(clustered(2, 8), value)]
    if form != "generator":
        calls += [lambda: index.remove(value), lambda: index.get(value), lambda: sw.Filter.deny(value)]
        calls += [lambda: index.search(clustered(2, 8), filter=value)]
    for call in calls:
        with pytest.raises(error, match=rf"^(ids|filter): expected .*{message}"):
            call()
    assert index.get(index.ids()).tobytes() == before and len(index) == 200


@pytest.mark.parametrize("ids", [[1], [1, 2, 3], [], np.arange(3), 7])
def test_one_id_a_row(ids, index):
    with pytest.raises(ValueError, match=r"^ids: expected \(2,\), one a row of vectors, got"):
        index.add(clustered(2, 8), ids)
    assert len(index) == 200


def test_scalars():
    index = sw.Index(2, "l2")
    for id in (4, np.int32(5), np.array(6), Indexable(7)):
        if isinstance(id, Indexable):
            with pytest.raises(TypeError):
                index.add([1, 2], id)
            continue
        assert index.add([1, 2], id) == (1, 0)
        assert index.get(id).shape == (2,)
    assert index.remove(4) == 1
    assert index.ids().tolist() == [5, 6]
    with pytest.raises(ValueError, match="from 0 to"):
        index.remove(-1)
    with pytest.raises(ValueError, match="from 0 to"):
        index.remove(2**63)
    with pytest.raises(TypeError):
        index.remove(True)


def test_contains(index):
    assert 0 in index and 199 in index and np.int64(5) in index and np.uint8(5) in index
    assert 200 not in index and -1 not in index and 2**63 not in index and -(2**70) not in index
    for value in ("5", 5.0, True, None, [5], np.True_):
        with pytest.raises(TypeError, match=r"^id: expected an int"):
            value in index  # noqa: B015


def test_the_counter_gives_no_id_twice():
    index = sw.Index(2, "l2")
    assert index.add(np.zeros((100, 2))) == (100, 0)
    assert index.remove([95, 96, 97, 98, 99]) == 5
    index.add(np.zeros((5, 2)))
    assert index.ids().tolist() == [*range(95), *range(100, 105)]
    index.add(np.zeros((1, 2)), [1000])
    index.add(np.zeros((1, 2)))
    assert 1001 in index
    index.add(np.zeros((1, 2)), [50])
    index.add(np.zeros((1, 2)))
    assert 1002 in index and len(index) == 103


def test_the_counter_has_an_end():
    index = sw.Index(2, "l2")
    index.add([[1, 2]], [LARGEST - 1])
    assert index.add([[1, 2]]) == (1, 0)
    assert LARGEST in index
    with pytest.raises(ValueError, match=r"^ids: "):
        index.add([[1, 2]])
    assert len(index) == 2
    index.validate()


def test_replacing_moves_the_row():
    rows = clustered(500, 8)
    index = sw.Index(8, "l2")
    index.add(rows)
    far = rows[7] + 1000
    assert index.add(far[None], [7]) == (0, 1)
    assert len(index) == 500
    assert 7 not in index.search(rows[7], 100, **EXACT).ids
    assert index.search(far, 1, **EXACT).ids.tolist() == [7]
    index.validate()


def test_an_id_repeated_in_a_batch_means_its_last_row():
    index = sw.Index(2, "l2")
    assert index.add([[1, 1], [2, 2], [3, 3], [4, 4]], [8, 9, 8, 8]) == (2, 0)
    assert index.get([8, 9]).tolist() == [[4, 4], [2, 2]]
    assert index.add([[5, 5], [6, 6]], [8, 8]) == (0, 1)
    assert index.get(8).tolist() == [6, 6] and len(index) == 2
    index.validate()


def test_removing_what_is_not_there(index):
    assert index.remove([500, 501]) == 0
    assert index.remove([5, 5, 5, 600]) == 1
    assert index.remove([5]) == 0
    assert index.remove([]) == 0
    assert len(index) == 199
    with pytest.raises(KeyError, match="id 5 "):
        index.get([1, 5])


def test_large_ids_take_no_more_memory_than_small_ones():
    script = """
        import sys
        import numpy as np, sapwood as sw
        index = sw.Index(4)
        ids = np.arange(1000) if sys.argv[1] == "small" else np.linspace(0, 2**63 - 1024, 1000).astype(np.int64)
        index.add(np.ones((1000, 4), np.float32), ids)
        assert index.ids().tolist() == ids.tolist()
        print(index.stats()["bytes"])
    """
    assert int(run_child(script, "large")) < 1.1 * int(run_child(script, "small")) + 10_000
