"""Rows from files: every writer, every type, any range, ids, flaws, and the plain formats."""

import pickle
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sapwood as sw

DIM = 6
# Eighths below 128: exact in float16 too.
VECTORS = (np.random.default_rng(0).integers(-800, 800, (500, DIM)) / 8).astype(np.float32)
WHOLE = np.random.default_rng(1).integers(0, 100, (500, DIM)).astype(np.float32)
KINDS = ["list", "large_list", "fixed", "list_view", "large_list_view"]
FLOATS = [pa.float16(), pa.float32(), pa.float64()]
INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]


def lists(vectors, kind="list", value=None):
    """An Arrow array of rows."""
    value = value or pa.float32()
    flat = pa.array(np.ascontiguousarray(vectors, value.to_pandas_dtype()).ravel())
    count, dim = vectors.shape
    places = np.arange(count + 1) * dim
    if kind == "fixed":
        return pa.FixedSizeListArray.from_arrays(flat, dim)
    if kind == "list":
        return pa.ListArray.from_arrays(pa.array(places, pa.int32()), flat)
    if kind == "large_list":
        return pa.LargeListArray.from_arrays(pa.array(places, pa.int64()), flat)
    wide = pa.int64() if kind.startswith("large") else pa.int32()
    view = pa.LargeListViewArray if kind.startswith("large") else pa.ListViewArray
    return view.from_arrays(pa.array(places[:-1], wide), pa.array([dim] * count, wide), flat)


def write(path, vectors=VECTORS, ids=None, **options):
    """A Parquet file with a column of vectors, one of text, and one of ids if there are any."""
    rows = vectors if isinstance(vectors, pa.Array) else lists(vectors)
    columns = {"note": ["x"] * len(rows), "vector": rows}
    if ids is not None:
        columns["id"] = ids
    pq.write_table(pa.table(columns), path, **options)
    return path


def check(rows, vectors, ids=None):
    ids = np.arange(len(vectors)) if ids is None else ids
    assert rows.vectors.dtype == np.float32 and rows.vectors.flags.c_contiguous and rows.ids.dtype == np.int64
    np.testing.assert_array_equal(rows.vectors, vectors)
    np.testing.assert_array_equal(rows.ids, ids)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", FLOATS + INTEGERS, ids=str)
def test_every_kind_of_list_of_every_type(tmp_path, kind, value):
    vectors = VECTORS if value in FLOATS else WHOLE
    try:
        write(tmp_path / "a.parquet", lists(vectors, kind, value), row_group_size=130)
    except pa.ArrowNotImplementedError:
        assert "view" in kind
        pytest.skip("this pyarrow writes no list views")
    check(sw.read_vectors(tmp_path / "a.parquet"), vectors)


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "lz4", "zstd"])
@pytest.mark.parametrize("page", ["1.0", "2.0"])
@pytest.mark.parametrize("dictionary", [True, False])
def test_every_codec_page_and_encoding(tmp_path, compression, page, dictionary):
    options = {"compression": compression, "data_page_version": page, "use_dictionary": dictionary}
    # Pages of a few rows, so that rows go on after the end of a page.
    path = write(tmp_path / "a.parquet", row_group_size=200, data_page_size=500, write_batch_size=10, **options)
    encodings = pq.ParquetFile(path).metadata.row_group(0).column(1).encodings
    assert dictionary == ("RLE_DICTIONARY" in encodings)
    check(sw.read_vectors(path), VECTORS)
    check(sw.read_vectors(path, start=333, count=100), VECTORS[333:433], np.arange(333, 433))


def test_values_in_split_bytes(tmp_path):
    options = {"use_dictionary": False, "column_encoding": {"vector.list.element": "BYTE_STREAM_SPLIT"}}
    check(sw.read_vectors(write(tmp_path / "a.parquet", **options)), VECTORS)


def test_a_file_by_pandas(tmp_path):
    pd = pytest.importorskip("pandas")
    # Not a range, which pandas keeps as a note only where it is the index.
    ids = np.arange(500) ** 2
    frame = pd.DataFrame({"key": ids, "vector": list(VECTORS)})
    frame.to_parquet(tmp_path / "a.parquet")
    check(sw.read_vectors(tmp_path / "a.parquet", id_column="key"), VECTORS, ids)
    frame.set_index("key").to_parquet(tmp_path / "b.parquet", compression="gzip")
    check(sw.read_vectors(tmp_path / "b.parquet", "vector", "key"), VECTORS, ids)


@pytest.mark.parametrize("kind", ["array", "list"])
def test_a_file_by_polars(tmp_path, kind):
    pl = pytest.importorskip("polars")
    vectors = pl.Series("vector", VECTORS)
    frame = pl.DataFrame({"key": np.arange(500, dtype=np.uint32), "vector": vectors if kind == "array" else vectors.arr.to_list()})
    frame.write_parquet(tmp_path / "a.parquet", row_group_size=100)
    check(sw.read_vectors(tmp_path / "a.parquet", id_column="key"), VECTORS)


@pytest.mark.parametrize("kind", ["FLOAT[]", f"FLOAT[{DIM}]", "DOUBLE[]"])
def test_a_file_by_duckdb(tmp_path, kind):
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        connection.register("source", pa.table({"key": np.arange(500), "vector": lists(VECTORS)}))
        query = f"SELECT key, vector::{kind} AS vector FROM source ORDER BY key"
        connection.execute(f"COPY ({query}) TO '{tmp_path / 'a.parquet'}' (FORMAT parquet)")
    check(sw.read_vectors(tmp_path / "a.parquet", id_column="key"), VECTORS)


@pytest.mark.parametrize(
    ("start", "count"), [(0, None), (0, 0), (99, 2), (100, 100), (149, 3), (150, None), (499, 1), (499, 5), (500, None), (10**12, 7)]
)
@pytest.mark.parametrize("threads", [1, 3])
def test_any_range_over_files_and_row_groups(tmp_path, start, count, threads):
    paths = [tmp_path / "a.parquet", tmp_path / "b.npy", tmp_path / "c.parquet"]
    write(paths[0], VECTORS[:150], row_group_size=50)
    np.save(paths[1], VECTORS[150:151])
    write(paths[2], VECTORS[151:], row_group_size=100)
    rows = sw.read_vectors(paths, start=start, count=count, threads=threads)
    stop = None if count is None else start + count
    check(rows, VECTORS[start:stop], np.arange(500)[start:stop])
    assert rows.vectors.shape[1] == DIM


def test_row_groups_outside_of_the_range_are_not_read(tmp_path):
    path = write(tmp_path / "a.parquet", ids=np.arange(500), row_group_size=100)
    damaged = bytearray(path.read_bytes())
    about = pq.ParquetFile(path).metadata
    for group in (0, 1, 3, 4):
        for column in range(3):
            chunk = about.row_group(group).column(column)
            begin = chunk.dictionary_page_offset or chunk.data_page_offset
            damaged[begin : begin + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    path.write_bytes(damaged)
    check(sw.read_vectors(path, id_column="id", start=205, count=95), VECTORS[205:300], np.arange(205, 300))
    for start in (199, 206):
        with pytest.raises(ValueError, match=r"a\.parquet"):
            sw.read_vectors(path, start=start, count=95)


def test_columns_that_are_not_asked_for_are_not_read(tmp_path):
    path = write(tmp_path / "a.parquet")
    chunk = pq.ParquetFile(path).metadata.row_group(0).column(0)
    damaged = bytearray(path.read_bytes())
    begin = chunk.dictionary_page_offset or chunk.data_page_offset
    damaged[begin : begin + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    path.write_bytes(damaged)
    check(sw.read_vectors(path), VECTORS)


def test_folders_are_read_by_name(tmp_path):
    for name, part in [("b", VECTORS[200:]), ("a", VECTORS[:200])]:
        write(tmp_path / f"{name}.parquet", part)
    (tmp_path / "_SUCCESS").write_text("")
    (tmp_path / "readme.txt").write_text("no rows")
    (tmp_path / ".hidden.npy").write_text("no rows")
    (tmp_path / "inner.parquet").mkdir()
    check(sw.read_vectors(tmp_path), VECTORS)
    check(sw.read_vectors(str(tmp_path)), VECTORS)
    check(sw.read_vectors(file for file in [tmp_path / "b.parquet"]), VECTORS[200:])
    np.save(tmp_path / "c.npy", VECTORS)
    with pytest.raises(ValueError, match=r"folder of files of one kind.*several kinds; name the files"):
        sw.read_vectors(tmp_path)
    with pytest.raises(ValueError, match=r"folder of files of one kind.*without any"):
        sw.read_vectors(tmp_path / "inner.parquet")


@pytest.mark.parametrize("value", INTEGERS, ids=str)
def test_ids_of_every_type_of_integers(tmp_path, value):
    ids = np.random.default_rng(2).permutation(100) + 5
    path = write(tmp_path / "a.parquet", VECTORS[:100], pa.array(ids, value))
    check(sw.read_vectors(path, id_column="id"), VECTORS[:100], ids)
    check(sw.read_vectors(path, id_column="id", start=30, count=20), VECTORS[30:50], ids[30:50])


def test_the_largest_ids(tmp_path):
    for value, most in [(pa.int64(), 2**63 - 1), (pa.uint64(), 2**63 - 1), (pa.uint32(), 2**32 - 1)]:
        path = write(tmp_path / "a.parquet", VECTORS[:2], pa.array([most, 0], value))
        assert sw.read_vectors(path, id_column="id").ids.tolist() == [most, 0]


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (pa.array([1, -5, 3], pa.int64()), r"row 1 has the id -5; ids are from 0 to 2\^63 - 1"),
        (pa.array([1, 2**63, 3], pa.uint64()), "row 1 has the id 9223372036854775808"),
        (pa.array([1, None, 3]), 'row 1 has a null id.*nulls="skip"'),
        (pa.array([7, 3, 7]), 'row 2 has the id 7 in column "id", and so has row 0; ids must differ'),
    ],
    ids=["negative", "too large", "null", "twice"],
)
def test_wrong_ids_are_named(tmp_path, ids, message):
    path = write(tmp_path / "a.parquet", VECTORS[:3], ids)
    with pytest.raises(ValueError, match=rf"a\.parquet: {message}"):
        sw.read_vectors(path, id_column="id")
    if ids.null_count:
        assert sw.read_vectors(path, id_column="id", nulls="skip").ids.tolist() == [1, 3]
    else:
        with pytest.raises(ValueError, match=message):
            sw.read_vectors(path, id_column="id", nulls="skip")


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_ids_that_may_repeat(tmp_path, batch):
    path = write(tmp_path / "a.parquet", VECTORS[:3], pa.array([7, 3, 7]))
    batches = list(sw.iter_vectors(path, id_column="id", batch=batch, unique=False))
    assert np.concatenate([rows.ids for rows in batches]).tolist() == [7, 3, 7]
    np.testing.assert_array_equal(np.concatenate([rows.vectors for rows in batches]), VECTORS[:3])
    for unique in (None, True):
        with pytest.raises(ValueError, match="ids must differ"):
            list(sw.iter_vectors(path, id_column="id", unique=unique))
    with pytest.raises(TypeError, match="unique: expected True or False, got 1"):
        sw.iter_vectors(path, id_column="id", unique=1)


def test_columns_that_can_t_be_chosen(tmp_path):
    table = {"a": lists(VECTORS), "b": lists(VECTORS), "text": ["x"] * 500, "deep": pa.array([[[1.0]]] * 500), "real": [0.5] * 500}
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    for arguments, error, message in [
        ({}, ValueError, r'column: expected the name of one of the columns.*"a" \(list of float32\), "b".*got None'),
        ({"column": "c"}, ValueError, 'column: expected a column of .*a.parquet, which has "a".*got "c"'),
        ({"column": "text"}, ValueError, r'lists of numbers.*got "text" \(string\)'),
        ({"column": "deep"}, ValueError, 'lists of numbers.*got "deep"'),
        ({"column": "a", "id_column": "c"}, ValueError, 'id_column: .*got "c"'),
        ({"column": "a", "id_column": "text"}, TypeError, r'id_column: expected a column of integers.*"text" \(string\)'),
        ({"column": "a", "id_column": "real"}, TypeError, "id_column: expected a column of integers"),
        ({"column": "a", "id_column": "b"}, TypeError, "id_column: expected a column of integers"),
    ]:
        with pytest.raises(error, match=message):
            sw.read_vectors(tmp_path / "a.parquet", **arguments)
    check(sw.read_vectors(tmp_path / "a.parquet", "b"), VECTORS)
    pq.write_table(pa.table({"text": ["x"]}), tmp_path / "b.parquet")
    with pytest.raises(ValueError, match=r"a file with a column of lists of numbers, got .*b\.parquet"):
        sw.read_vectors(tmp_path / "b.parquet")


FLAWS = [
    ("null", None, "is null"),
    ("a null value", [1.0, None], "has a null among its values"),
    ("NaN", [np.nan, 1.0], "holds NaN"),
    ("infinite", [1.0, -np.inf], "holds -inf"),
    ("too large for float32", [1e300, 1.0], "holds inf"),
    ("empty", [], "is an empty list"),
]


@pytest.mark.parametrize("kind", ["list", "large_list", "fixed"])
@pytest.mark.parametrize(("flaw", "message"), [flaw[1:] for flaw in FLAWS], ids=[flaw[0] for flaw in FLAWS])
def test_flaws_are_named_or_left_out(tmp_path, kind, flaw, message):
    if kind == "fixed" and flaw == []:
        pytest.skip("lists of a fixed size are never empty")
    whole, damaged = tmp_path / "a.parquet", tmp_path / "b.parquet"
    types = {"list": pa.list_(pa.float64()), "large_list": pa.large_list(pa.float64()), "fixed": pa.list_(pa.float64(), 2)}
    good = [[float(i), 1.0] for i in range(20)]
    bad = [*good[:13], flaw, *good[14:19], flaw]
    write(whole, pa.array(good, types[kind]), row_group_size=7)
    write(damaged, pa.array(bad, types[kind]), row_group_size=7)
    with pytest.raises(ValueError, match=rf'b\.parquet: row 13 \(row 33 of all files\) {message}.*nulls="skip"'):
        sw.read_vectors([whole, damaged])
    rows = sw.read_vectors([whole, damaged], nulls="skip")
    kept = [i for i in range(40) if i not in (33, 39)]
    check(rows, [good[i % 20] for i in kept], kept)
    assert rows.skipped == 2 and "skipped=2" in repr(rows)
    # Nothing is wrong with the rows before.
    assert len(sw.read_vectors([whole, damaged], count=33).ids) == 33


@pytest.mark.parametrize(("first", "message"), [(None, "is null"), ([], "is an empty list")], ids=["null", "empty"])
def test_a_first_row_without_values_leaves_the_width_to_the_others(tmp_path, first, message):
    path = write(tmp_path / "a.parquet", pa.array([first, first, *VECTORS[2:].tolist()], pa.list_(pa.float32())), row_group_size=2)
    with pytest.raises(ValueError, match=rf"a\.parquet: row 0 {message}"):
        sw.read_vectors(path)
    rows = sw.read_vectors(path, nulls="skip")
    check(rows, VECTORS[2:], np.arange(2, 500))
    assert rows.skipped == 2


@pytest.mark.parametrize("nulls", ["raise", "skip"])
@pytest.mark.parametrize("length", [1, 3])
def test_other_lengths_are_errors_always(tmp_path, nulls, length):
    path = write(tmp_path / "a.parquet", pa.array([[1.0, 2.0], [3.0, 4.0], [1.0] * length, [5.0, 6.0]]))
    with pytest.raises(ValueError, match=rf"a\.parquet: row 2 has {length} values, the rows before it have 2"):
        sw.read_vectors(path, nulls=nulls)


def test_files_of_another_width_are_named(tmp_path):
    write(tmp_path / "a.parquet")
    write(tmp_path / "b.parquet", VECTORS[:, :5])
    np.save(tmp_path / "c.npy", VECTORS[:, :4])
    with pytest.raises(ValueError, match=r"b\.parquet: row 0 \(row 500 of all files\) has 5 values, the rows before it have 6"):
        sw.read_vectors([tmp_path / "a.parquet", tmp_path / "b.parquet"])
    with pytest.raises(ValueError, match=r"c\.npy: rows of 4 values, the rows before it have 6"):
        sw.read_vectors([tmp_path / "a.parquet", tmp_path / "c.npy"])


NUMBERS = ["<f2", "<f4", "<f8", ">f2", ">f4", ">f8", "|i1", "<i2", "<i4", "<i8", ">i4", ">i8", "|u1", "<u2", "<u4", "<u8", ">u2"]


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_of_numpy_s_format(tmp_path, dtype, order):
    vectors = VECTORS if "f" in dtype else WHOLE
    np.save(tmp_path / "a.npy", vectors.astype(dtype, order=order))
    check(sw.read_vectors(tmp_path / "a.npy"), vectors)
    check(sw.read_vectors(tmp_path / "a.npy", start=123, count=45), vectors[123:168], np.arange(123, 168))


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_versions_of_numpy_s_format(tmp_path, version):
    with open(tmp_path / "a.npy", "wb") as file:
        np.lib.format.write_array(file, VECTORS, version=version)
    check(sw.read_vectors(tmp_path / "a.npy"), VECTORS)


@pytest.mark.filterwarnings("ignore:Stored array in format")
@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.arange(5.0), "expected two dimensions"),
        (np.zeros((2, 3, 4)), "expected two dimensions"),
        (np.float32(1), "expected two dimensions"),
        (np.zeros((3, 0)), "rows of 1 to 65535 values"),
        (np.array([[None, 1]]), 'dtype "|O"'),
        (np.array([["a"]]), "dtype"),
        (np.ones((2, 2), bool), 'dtype "|b1"'),
        (np.ones((2, 2), complex), 'dtype "<c16"'),
        (np.zeros((2, 2), [("x", "f4")]), "structures"),
    ],
    ids=["1-d", "3-d", "0-d", "no values", "pickled", "text", "bool", "complex", "structures"],
)
def test_arrays_that_are_no_rows(tmp_path, array, message):
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    with pytest.raises(ValueError, match=rf"a\.npy: .*{re.escape(message)}"):
        sw.read_vectors(tmp_path / "a.npy")


def plain(path, vectors, dtype):
    """A file of rows that begin with their length."""
    width = np.full((len(vectors), 1), vectors.shape[1], "<i4").view(np.uint8)
    path.write_bytes(np.hstack([width, np.ascontiguousarray(vectors.astype(dtype)).view(np.uint8)]).tobytes())
    return path


@pytest.mark.parametrize(("suffix", "dtype"), [("fvecs", "<f4"), ("bvecs", "u1"), ("ivecs", "<i4")])
def test_rows_that_begin_with_their_length(tmp_path, suffix, dtype):
    vectors = VECTORS if suffix == "fvecs" else WHOLE
    path = plain(tmp_path / f"a.{suffix}", vectors, dtype)
    check(sw.read_vectors(path), vectors)
    check(sw.read_vectors([path, path], start=490, count=20), np.vstack([vectors[490:], vectors[:10]]), np.arange(490, 510))
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(ValueError, match=r"no whole number of rows.*cut off"):
        sw.read_vectors(path)
    stride = len(whole) // 500
    path.write_bytes(whole[: 7 * stride] + b"\5\0\0\0" + whole[7 * stride + 4 :])
    with pytest.raises(ValueError, match="row 7 has 5 values"):
        sw.read_vectors(path)
    path.write_bytes(b"\xff\xff\xff\xff" + whole[4:])
    with pytest.raises(ValueError, match="first row says that it has -1 values"):
        sw.read_vectors(path)


def test_plain_files_have_no_columns(tmp_path):
    np.save(tmp_path / "a.npy", VECTORS)
    for name in ("column", "id_column"):
        with pytest.raises(ValueError, match=f"{name}: expected None, except for Parquet"):
            sw.read_vectors(tmp_path / "a.npy", **{name: "vector"})


def test_flaws_of_plain_files(tmp_path):
    vectors = VECTORS.copy()
    vectors[[3, 77], [0, 5]] = np.nan, np.inf
    np.save(tmp_path / "a.npy", vectors)
    plain(tmp_path / "b.fvecs", vectors, "<f4")
    kept = np.delete(np.arange(500), [3, 77])
    for path in (tmp_path / "a.npy", tmp_path / "b.fvecs"):
        with pytest.raises(ValueError, match=f"{path.name}: row 3 holds NaN"):
            sw.read_vectors(path)
        check(sw.read_vectors(path, nulls="skip"), vectors[kept], kept)


def test_files_without_rows(tmp_path):
    empty = write(tmp_path / "a.parquet", VECTORS[:0], ids=np.arange(0))
    assert sw.read_vectors(empty, id_column="id").vectors.shape == (0, 0)
    np.save(tmp_path / "b.npy", VECTORS[:0])
    assert sw.read_vectors(tmp_path / "b.npy").vectors.shape == (0, DIM)
    (tmp_path / "c.fvecs").write_bytes(b"")
    assert sw.read_vectors(tmp_path / "c.fvecs").vectors.shape == (0, 0)
    full = write(tmp_path / "d.parquet")
    check(sw.read_vectors([empty, full, empty]), VECTORS)
    assert list(sw.iter_vectors(empty)) == []
    assert repr(sw.read_vectors(empty)) == "Rows(0 rows, dim=0)"


def test_rows_are_a_tuple_with_names(tmp_path):
    rows = sw.read_vectors(write(tmp_path / "a.parquet"))
    ids, vectors = rows
    assert isinstance(rows, sw.Rows) and isinstance(rows, tuple) and rows.skipped == 0
    assert ids is rows.ids and vectors is rows.vectors
    assert repr(rows) == "Rows(500 rows, dim=6, ids=0..499)"
    assert repr(sw.Rows(np.arange(2000), np.zeros((2000, 3), np.float32), 1234)) == "Rows(2,000 rows, dim=3, ids=0..1999, skipped=1,234)"
    again = pickle.loads(pickle.dumps(rows))
    assert type(again) is sw.Rows and again == rows and not again != rows
    assert rows != sw.Rows(ids + 1, vectors) and rows != sw.Rows(ids, vectors + 1) and rows != sw.Rows(ids, vectors, 1)
    assert rows != (1, 2)
    with pytest.raises(AttributeError, match="can't be changed"):
        rows.skipped = 5
    with pytest.raises(TypeError, match="unhashable"):
        hash(rows)
