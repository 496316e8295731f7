"""Rows in: every form either means exactly the same as its float32 copy or is refused with a message that helps."""

import array
import threading
import tracemalloc

import ml_dtypes
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import sapwood as sw
from conftest import EXACT, clustered, run_child

DIM = 8
ROWS = clustered(64, DIM)
# Small whole numbers are exact in every type, also in float8.
WHOLE = np.random.default_rng(0).integers(0, 8, (64, DIM)).astype(np.float32)


class Device:
    def __init__(self, kind):
        self.type = kind

    def __str__(self):
        return self.type if self.type == "cpu" else f"{self.type}:0"


class Tensor:
    """Behaves like a torch tensor where that matters: gradients and bfloat16 can't be read by numpy, other devices not at all."""

    def __init__(self, values, dtype="torch.float32", device="cpu", gradient=False):
        self.values, self.dtype, self.device, self.gradient = np.asarray(values), dtype, Device(device), gradient
        self.shape = self.values.shape

    def detach(self):
        return Tensor(self.values, self.dtype, str(self.device.type))

    def float(self):
        return Tensor(self.values.astype(np.float32), "torch.float32", self.device.type)

    def reshape(self, *shape):
        return Tensor(self.values.reshape(*shape), self.dtype, self.device.type)

    def cpu(self):
        return Tensor(self.values, self.dtype)

    def numpy(self):
        if self.gradient:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad")
        if self.device.type != "cpu":
            raise TypeError("can't convert cuda:0 device type tensor to numpy")
        if self.dtype == "torch.bfloat16":
            raise TypeError("Got unsupported ScalarType BFloat16")
        return self.values

    def __getitem__(self, key):
        return Tensor(self.values[key], self.dtype, self.device.type, self.gradient)

    def __len__(self):
        return len(self.values)

    def __array__(self, dtype=None, copy=None):
        return self.numpy()


class ArrowOnly:
    """Hands its data over by the Arrow interface and by nothing else."""

    def __init__(self, column):
        self._column = column

    def __arrow_c_array__(self, schema=None):
        return self._column.__arrow_c_array__(schema)


class Subclass(np.ndarray):
    pass


def unaligned(rows):
    raw = np.zeros(rows.nbytes + 4, np.uint8)
    view = raw[1 : rows.nbytes + 1].view(np.float32).reshape(rows.shape)
    view[:] = rows
    return view


def frozen(rows):
    rows = rows.copy()
    rows.flags.writeable = False
    return rows


def fixed(rows):
    return pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), DIM)


FORMS = {
    "float32": lambda x: x,
    "float64": lambda x: x.astype(np.float64),
    "longdouble": lambda x: x.astype(np.longdouble),
    "float16": lambda x: x.astype(np.float16),
    "bfloat16": lambda x: x.astype(ml_dtypes.bfloat16),
    "float8": lambda x: x.astype(ml_dtypes.float8_e4m3fn),
    "int8": lambda x: x.astype(np.int8),
    "uint8": lambda x: x.astype(np.uint8),
    "int32": lambda x: x.astype(np.int32),
    "uint64": lambda x: x.astype(np.uint64),
    "big-endian": lambda x: x.astype(">f4"),
    "big-endian float64": lambda x: x.astype(">f8"),
    "Fortran": np.asfortranarray,
    "transposed": lambda x: np.ascontiguousarray(x.T).T,
    "strided columns": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "strided rows": lambda x: np.repeat(x, 3, axis=0)[::3],
    "reversed": lambda x: x[::-1].copy()[::-1],
    "broadcast": lambda x: np.broadcast_to(x[None], (1, *x.shape))[0],
    "read-only": frozen,
    "unaligned": unaligned,
    "subclass": lambda x: x.view(Subclass),
    "masked, nothing masked": lambda x: np.ma.array(x),
    "objects": lambda x: x.astype(object),
    "lists": lambda x: x.tolist(),
    "tuples": lambda x: tuple(map(tuple, x.tolist())),
    "list of arrays": list,
    "list of mixed": lambda x: [row.tolist() if i % 2 else row.astype(np.longdouble) for i, row in enumerate(x)],
    "array of lists": lambda x: pd.Series(x.tolist()).to_numpy(),
    "memoryview": memoryview,
    "array.array rows": lambda x: [array.array("d", row) for row in x],
    "tensor": Tensor,
    "tensor with gradient": lambda x: Tensor(x, gradient=True),
    "tensor float64": lambda x: Tensor(x.astype(np.float64), "torch.float64"),
    "tensor bfloat16": lambda x: Tensor(x, "torch.bfloat16"),
    "list of tensors": lambda x: [Tensor(row, gradient=True) for row in x],
    "arrow fixed-size list": fixed,
    "arrow fixed-size list, sliced": lambda x: fixed(np.vstack([x[:3], x, x[:2]]))[3:-2],
    "arrow list": lambda x: pa.array(x.tolist()),
    "arrow list float32": lambda x: pa.array(x.tolist(), pa.list_(pa.float32())),
    "arrow large list": lambda x: pa.array(x.tolist(), pa.large_list(pa.float64())),
    "arrow list of half": lambda x: pa.array(list(x.astype(np.float16)), pa.list_(pa.float16())),
    "arrow list of int8": lambda x: pa.array(x.astype(np.int8).tolist(), pa.list_(pa.int8())),
    "arrow list, sliced": lambda x: pa.array([[9.0], *x.tolist()])[1:],
    "arrow chunks": lambda x: pa.chunked_array([fixed(x[:5]), fixed(x[5:6]), fixed(x[6:])]),
    "arrow list chunks": lambda x: pa.chunked_array(
        [pa.array(x[:5].tolist()), pa.array([], pa.list_(pa.float64())), pa.array(x[5:].tolist())]
    ),
    "arrow tensor": pa.FixedShapeTensorArray.from_numpy_ndarray,
    "arrow interface": lambda x: ArrowOnly(fixed(x)),
    "arrow table's column": lambda x: pa.table({"vector": fixed(x)})["vector"],
    "polars array": lambda x: pl.Series(x),
    "polars list": lambda x: pl.Series(x.tolist()),
    "polars list float32": lambda x: pl.Series(x.tolist(), dtype=pl.List(pl.Float32)),
    "polars chunks": lambda x: pl.concat([pl.Series(x[:5]), pl.Series(x[5:])], rechunk=False),
    "polars sliced": lambda x: pl.Series(np.vstack([x[:3], x]))[3:],
    "polars frame": pl.DataFrame,
    "pandas lists": lambda x: pd.Series(x.tolist()),
    "pandas arrays": lambda x: pd.Series(list(x)),
    "pandas frame": pd.DataFrame,
    "pandas arrow lists": lambda x: pd.Series(x.tolist(), dtype=pd.ArrowDtype(pa.list_(pa.float64()))),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_means_its_float32_copy(form):
    values = WHOLE if any(name in form for name in ("int", "8", "16", "half")) else ROWS
    given = FORMS[form](values)
    index = sw.Index(DIM, "l2")
    assert index.add(given, np.arange(64)) == (64, 0)
    np.testing.assert_array_equal(index.get(np.arange(64)), values)
    wanted = index.search(values, 5, **EXACT)
    assert index.search(given, 5, **EXACT) == wanted
    exact = sw.exact_search(values, values, 5, "l2")
    assert sw.exact_search(given, values, 5, "l2") == exact
    assert sw.exact_search(values, given, 5, "l2") == exact


ONE_ROW = {
    "float32": lambda x: x,
    "float64": lambda x: x.astype(np.float64),
    "strided": lambda x: np.repeat(x, 2)[::2],
    "list": lambda x: x.tolist(),
    "mixed list": lambda x: [int(v) if v == int(v) else v for v in x.tolist()],
    "objects": lambda x: x.astype(object),
    "tensor": Tensor,
    "bfloat16 tensor": lambda x: Tensor(x, "torch.bfloat16"),
    "arrow": pa.array,
    "polars": lambda x: pl.Series(x),
    "pandas": pd.Series,
}


@pytest.mark.parametrize("form", ONE_ROW)
def test_one_row(form, index):
    given = ONE_ROW[form](WHOLE[0])
    assert index.add(given, 7000) == (1, 0)
    np.testing.assert_array_equal(index.get(7000), WHOLE[0])
    result = index.search(given, 1, **EXACT)
    assert result.ids.tolist() == [7000] and result.distances.tolist() == [0]


EMPTY = {
    "float32": np.empty((0, DIM), np.float32),
    "float64": np.empty((0, DIM)),
    "list": [],
    "tuple": (),
    "from an empty list": np.array([]),
    "arrow": pa.array([], pa.list_(pa.float32())),
    "arrow fixed": pa.array([], pa.list_(pa.float32(), DIM)),
    "arrow no chunks": pa.chunked_array([], pa.list_(pa.float32())),
    "polars": pl.Series([], dtype=pl.List(pl.Float32)),
    "pandas": pd.Series([], dtype=object),
}


@pytest.mark.parametrize("form", EMPTY)
def test_no_rows(form, index):
    assert index.add(EMPTY[form]) == (0, 0)
    assert index.add(EMPTY[form], []) == (0, 0)
    assert index.search(EMPTY[form], 3).ids.shape == (0, 3)
    assert sw.exact_search(EMPTY[form], EMPTY[form], 3).ids.shape == (0, 3)
    assert len(index) == 200


REFUSED = {
    "text": (np.array([["a"] * DIM]), TypeError, r"\(1, 8\) <U1"),
    "bytes": (np.array([[b"a"] * DIM]), TypeError, r"\(1, 8\) \|S1"),
    "complex": (ROWS.astype(complex), TypeError, r"\(64, 8\) complex128"),
    "bool": (ROWS > 0, TypeError, r"\(64, 8\) bool"),
    "dates": (np.zeros((2, DIM), "M8[s]"), TypeError, r"datetime64"),
    "structure": (np.zeros((2, DIM), [("a", "f4")]), TypeError, "'a'"),
    "void": (np.zeros((2, DIM), "V4"), TypeError, "V4"),
    "None": (None, TypeError, "NoneType"),
    "str": ("abc", TypeError, "str"),
    "dict": ({}, TypeError, "dict"),
    "set": ({1.0}, TypeError, "set"),
    "generator": ((row for row in ROWS), TypeError, "generator"),
    "object": (object(), TypeError, "object"),
    "list of str": (["a", "b"], TypeError, "str as row 0"),
    "str in a row": ([[1.0] * 7 + ["8"]], TypeError, "'8' in row 0"),
    "None row": ([[1] * DIM, None], TypeError, "NoneType as row 1"),
    "None in a row": ([[1] * DIM, [1] * 7 + [None]], TypeError, "None in row 1"),
    "bool in a row": ([[1] * DIM, [1] * 7 + [True]], TypeError, "True in row 1"),
    "complex in a row": ([[1] * DIM, [1] * 7 + [1j]], TypeError, "1j in row 1"),
    "number among rows": ([[1] * DIM, 5], TypeError, "int as row 1"),
    "ragged": ([[1] * DIM, [1] * DIM, [1] * 7], ValueError, "row 2 of length 7"),
    "ragged later": ([[1] * DIM] * 70_000 + [[1] * 9], ValueError, "row 70000 of length 9"),
    "3-D list": ([[[1.0]] * DIM], ValueError, "a row of rows in row 0"),
    "text objects": (np.array([["a"] * DIM], dtype=object), TypeError, "'a' in row 0"),
    "3-D": (ROWS[None], ValueError, r"\(1, 64, 8\) float32"),
    "0-d": (np.float32(3), ValueError, r"\(\) float32"),
    "0-d list": (3.0, ValueError, r"\(\) float64"),
    "narrow": (ROWS[:, :7], ValueError, r"\(64, 7\) float32"),
    "narrow float64": (ROWS[:, :7].astype(float), ValueError, r"\(64, 7\) float64"),
    "narrow list": (ROWS[:, :7].tolist(), ValueError, "row 0 of length 7"),
    "wide": (np.hstack([ROWS, ROWS])[:, :9], ValueError, r"\(64, 9\) float32"),
    "no columns": (np.empty((3, 0)), ValueError, r"\(3, 0\) float64"),
    "transposed": (ROWS.T, ValueError, r"\(8, 64\) float32"),
    "masked": (np.ma.masked_greater(ROWS, ROWS[5].min()), ValueError, "a masked value in row 0"),
    "number beyond float64": ([[10**400] * DIM], ValueError, "row 0 beyond the range of float32"),
    "GPU tensor": (Tensor(ROWS, device="cuda"), TypeError, r"Tensor on cuda:0; pass \w+\.cpu\(\)"),
    "arrow null row": (pa.array([[1.0] * DIM, None]), ValueError, "null as row 1"),
    "arrow null in fixed": (pa.array([[1.0] * DIM, None], pa.list_(pa.float32(), DIM)), ValueError, "null as row 1"),
    "arrow null value": (pa.array([[1.0] * DIM, [1.0] * 7 + [None]]), ValueError, "a null value in row 1"),
    "arrow ragged": (pa.array([[1.0] * DIM, [1.0] * 7]), ValueError, "row 1 of length 7"),
    "arrow empty list": (pa.array([[], [1.0] * DIM]), ValueError, "row 0 of length 0"),
    "arrow narrow": (pa.array([[1.0] * 7]), ValueError, "row 0 of length 7"),
    "arrow text": (pa.array(["a"]), TypeError, "str as row 0"),
    "arrow list of text": (pa.array([["a"]]), TypeError, "string"),
    "arrow list of bool": (pa.array([[True] * DIM]), TypeError, "bool"),
    "arrow table": (pa.table({"vector": [[1.0] * DIM]}), TypeError, "Table; pass one column"),
    "polars null row": (pl.Series([[1.0] * DIM, None]), ValueError, "null as row 1"),
    "polars null value": (pl.Series([[1.0] * DIM, [1.0] * 7 + [None]]), ValueError, "a null value in row 1"),
    "polars null array": (pl.Series([[1.0] * DIM, None], dtype=pl.Array(pl.Float32, DIM)), ValueError, "null as row 1"),
    "polars ragged": (pl.Series([[1.0] * DIM, [1.0] * 7]), ValueError, "row 1 of length 7"),
    "polars text": (pl.Series(["a"]), TypeError, "<U1"),
    "polars list of text": (pl.Series([["a"] * DIM]), TypeError, "String"),
    "pandas missing": (pd.Series([[1.0] * DIM, None]), TypeError, "row 1"),
    "pandas text": (pd.DataFrame({str(i): ["a"] for i in range(DIM)}), TypeError, "'a' in row 0"),
}


@pytest.mark.parametrize("form", REFUSED)
def test_what_has_no_exact_meaning_is_refused_by_name(form, index):
    value, error, given = REFUSED[form]
    before = index.search(ROWS, 5)
    value = value if form != "generator" else (row for row in ROWS)
    with pytest.raises(error, match=rf"^vectors: expected \(n, 8\) float32-compatible, got .*{given}"):
        index.add(value)
    with pytest.raises(error, match=rf"^queries: expected \(nq, 8\) float32-compatible, got .*{given}"):
        index.search(value if form != "generator" else (row for row in ROWS))
    with pytest.raises(error, match=rf"^queries: expected \(nq, 8\) float32-compatible, got .*{given}"):
        sw.exact_search(ROWS, value if form != "generator" else (row for row in ROWS))
    assert len(index) == 200 and index.search(ROWS, 5) == before


def test_exact_search_names_its_vectors():
    with pytest.raises(TypeError, match=r"^vectors: expected \(n, dim\) float32-compatible, got \(64, 8\) bool"):
        sw.exact_search(ROWS > 0, ROWS)
    with pytest.raises(ValueError, match=r"^vectors: .*reshape one row: array.reshape\(1, -1\)\), got \(8,\)"):
        sw.exact_search(ROWS[0], ROWS)
    with pytest.raises(ValueError, match=r"^vectors: .*got row 1 of length 3"):
        sw.exact_search([[1, 2], [1, 2, 3]], [[1, 2]])


def test_one_row_without_one_id_is_told_how_to_reshape(index):
    for ids in (None, [5]):
        with pytest.raises(ValueError, match=r"reshape\(1, -1\), or give its id as one int\), got \(8,\)"):
            index.add(ROWS[0], ids)
    with pytest.raises(ValueError, match=r"^ids: expected \(64,\)"):
        index.add(ROWS, 5)
    assert len(index) == 200


BAD_VALUES = {
    "nan": (np.float32(np.nan), "NaN in row 517"),
    "inf": (np.float32(np.inf), "inf in row 517"),
    "-inf": (np.float32(-np.inf), "-inf in row 517"),
    "float64 nan": (np.float64(np.nan), "NaN in row 517"),
    "float64 inf": (np.float64(-np.inf), "-inf in row 517"),
    "float64 beyond float32": (np.float64(1e39), r"1e\+39 in row 517"),
}


@pytest.mark.parametrize("value", BAD_VALUES)
@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
def test_a_bad_value_names_its_row_and_changes_nothing(value, metric):
    bad, message = BAD_VALUES[value]
    clean = clustered(1000, DIM, seed=3)
    rows = clean.astype(bad.dtype)
    rows[517, 3] = bad
    index, fresh = sw.Index(DIM, metric), sw.Index(DIM, metric)
    index.add(clean[:100])
    fresh.add(clean[:100])
    before = index.search(clean, 5, **EXACT)
    for call in (
        lambda: index.add(rows),
        lambda: index.add(rows, np.arange(1000)),
        lambda: index.search(rows),
        lambda: sw.exact_search(rows, clean),
        lambda: sw.exact_search(clean, rows),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    assert len(index) == 100 and index.ids().tolist() == list(range(100))
    assert index.search(clean, 5, **EXACT) == before
    # The counter of ids has not moved, and clean rows behave as if nothing had happened.
    for each in (index, fresh):
        assert each.add(clean[100:]) == (900, 0)
        assert each.ids().tolist() == list(range(1000))
        each.validate()
    wanted = fresh.search(clean[:50], 5, **EXACT)
    np.testing.assert_allclose(index.search(clean[:50], 5, **EXACT).distances, wanted.distances, rtol=1e-5, atol=1e-5)


def test_a_bad_value_in_a_late_block_names_its_row(index):
    rows = np.zeros((140_000, DIM))
    rows[135_001, 2] = np.nan
    with pytest.raises(ValueError, match="NaN in row 135001"):
        index.add(rows)
    rows[135_001, 2] = 1e300
    with pytest.raises(ValueError, match=r"1e\+300 in row 135001"):
        index.add(rows)
    assert len(index) == 200


def test_many_blocks_are_as_good_as_one():
    rows = clustered(150_000, 4).astype(np.float64)
    index, wanted = sw.Index(4, "l2"), rows.astype(np.float32)
    assert index.add(rows) == (150_000, 0)
    assert index.get(index.ids()).tobytes() == wanted.tobytes()
    queries = wanted[::15_000]
    assert sw.exact_search(rows, queries, 7, "l2") == sw.exact_search(wanted, queries, 7, "l2")
    # Ties between blocks go by row number, and what is missing is filled up once.
    coarse, query = np.round(wanted), np.zeros((1, 4), np.float32)
    for k in (1, 1000, 150_003):
        assert sw.exact_search(coarse.astype(float), query, k, "l2") == sw.exact_search(coarse, query, k, "l2")
    many = np.repeat(queries, 7_000, axis=0)
    small = wanted[:20]
    assert sw.exact_search(small, many.astype(np.float64), 2, "l2") == sw.exact_search(small, many, 2, "l2")


def test_the_callers_arrays_are_never_written_to():
    rows, queries, ids = clustered(300, DIM), clustered(20, DIM, seed=1), np.arange(300)[::-1].copy()
    copies = rows.tobytes(), queries.tobytes(), ids.tobytes()
    for form in (lambda x: x, lambda x: x.astype(np.float64), np.asfortranarray):
        given = form(rows), form(queries)
        before = [part.tobytes("A") for part in given]
        index = sw.Index(DIM, "cosine")
        index.add(given[0], ids)
        index.search(given[1])
        sw.exact_search(*given)
        assert [part.tobytes("A") for part in given] == before
    assert (rows.tobytes(), queries.tobytes(), ids.tobytes()) == copies


def test_a_read_only_memory_map(tmp_path):
    np.save(tmp_path / "rows.npy", ROWS)
    rows = np.load(tmp_path / "rows.npy", mmap_mode="r")
    index = sw.Index(DIM, "cosine")
    index.add(rows)
    assert index.search(rows, 1, **EXACT).ids[:, 0].tolist() == list(range(64))
    assert sw.exact_search(rows, rows, 1).ids[:, 0].tolist() == list(range(64))
    index.add(np.asarray(rows)[:, ::-1][:, ::-1])


def test_an_array_that_changes_during_the_call_does_no_harm():
    rows = clustered(20_000, 16)
    lists = rows[:5000].tolist()
    stop = threading.Event()

    def change():
        rng = np.random.default_rng(0)
        while not stop.is_set():
            rows[rng.integers(len(rows), size=1000)] = rng.standard_normal(16)
            lists[rng.integers(len(lists))] = rows[0].tolist()

    thread = threading.Thread(target=change)
    thread.start()
    try:
        index = sw.Index(16, "l2")
        for _ in range(3):
            index.add(rows, np.arange(20_000))
            index.add(rows[:, ::-1], np.arange(20_000))
            index.add(lists, np.arange(5000))
            index.search(rows[:100], 5)
            sw.exact_search(rows[:5000], rows[:100], 5)
    finally:
        stop.set()
        thread.join()
    index.validate()
    assert len(index) == 20_000


def test_a_list_that_shrinks_during_the_call_is_refused(index):
    class Shrinking(list):
        def __getitem__(self, key):
            return super().__getitem__(key if isinstance(key, int) else slice(0, 10))

    with pytest.raises(ValueError, match="10 rows where 64 were announced"):
        index.add(Shrinking(ROWS.tolist()))
    assert len(index) == 200


def test_conversion_takes_the_memory_of_a_block():
    # 100,000 x 512 float64 are 400 MB, their float32 copy 200; the index itself is not the point, so rows are only staged.
    script = """
        import resource, sys
        import numpy as np, sapwood as sw
        count, dim = 100_000, 512
        rows = np.ones((count, dim))
        if sys.argv[1] == "pandas":
            import pandas as pd
            rows = pd.Series(list(rows))
        small = rows[:2000]
        sw.exact_search(small, np.ones((2, dim)), 3, "l2")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        sw.exact_search(rows, np.ones((2, dim)), 3, "l2")
        print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
    """
    for form in ("numpy", "pandas"):
        assert float(run_child(script, form)) < 150


def test_float32_is_read_in_place():
    rows = np.ones((4000, 256), np.float32)
    tracemalloc.start()
    try:
        sw.exact_search(rows, rows[:2], 3)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # numpy reports what it allocates; the input has 4 MB.
    assert peak < 400_000
