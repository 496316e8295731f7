"""Rows from files: batches, bounded memory, damage, interrupts, progress and other threads."""

import itertools
import threading
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sapwood as sw
from conftest import run_child
from test_read_vectors import DIM, VECTORS, check, plain, write

# The most memory that a process of its own ever had. (getrusage tells that of the parent where it was more.)
PEAK = """
    import sys
    import numpy as np, sapwood as sw

    def peak():
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) / 1024
"""


def batches(*arguments, **options):
    return list(sw.iter_vectors(*arguments, **options))


@pytest.mark.parametrize("batch", [1, 7, 64, 250, 500, 10_000])
@pytest.mark.parametrize("threads", [1, 3])
def test_batches_are_the_rows(tmp_path, batch, threads):
    write(tmp_path / "a.parquet", VECTORS[:180], row_group_size=100)
    write(tmp_path / "b.parquet", VECTORS[180:], row_group_size=90)
    for start, count in [(0, None), (95, 333)]:
        found = batches(tmp_path, start=start, count=count, batch=batch, threads=threads)
        whole = sw.read_vectors(tmp_path, start=start, count=count)
        assert all(isinstance(rows, sw.Rows) for rows in found)
        assert [len(rows.ids) for rows in found[:-1]] == [batch] * (len(found) - 1) and 0 < len(found[-1].ids) <= batch
        check(sw.Rows(*(np.concatenate(parts) for parts in zip(*found, strict=True))), whole.vectors, whole.ids)


def test_batches_of_plain_files_and_of_ids(tmp_path):
    np.save(tmp_path / "a.npy", np.asfortranarray(VECTORS))
    plain(tmp_path / "b.fvecs", VECTORS, "<f4")
    found = batches([tmp_path / "a.npy", tmp_path / "b.fvecs"], batch=300)
    check(sw.Rows(*(np.concatenate(parts) for parts in zip(*found, strict=True))), np.vstack([VECTORS] * 2))
    path = write(tmp_path / "c.parquet", ids=np.arange(500)[::-1])
    found = batches(path, id_column="id", batch=300)
    assert np.concatenate([rows.ids for rows in found]).tolist() == list(range(500))[::-1]


def test_batches_count_what_is_left_out_and_end_with_an_error(tmp_path):
    rows = VECTORS[:90].tolist()
    rows[35] = None
    path = write(tmp_path / "a.parquet", pa.array(rows, pa.list_(pa.float32())), row_group_size=50)
    found = batches(path, batch=30, nulls="skip")
    assert [(len(rows.ids), rows.skipped) for rows in found] == [(30, 0), (29, 1), (30, 0)]
    assert 35 not in found[1].ids and found[1].ids[-1] == 59
    iterator = sw.iter_vectors(path, batch=30)
    assert iter(iterator) is iterator
    assert repr(iterator) == "RowBatches(90 rows, dim=6, batch=30)"
    assert len(next(iterator).ids) == 30
    with pytest.raises(ValueError, match=r"a\.parquet: row 35 is null"):
        next(iterator)
    with pytest.raises(StopIteration):
        next(iterator)


def test_files_are_looked_at_at_once_and_may_not_change(tmp_path):
    with pytest.raises(FileNotFoundError):
        sw.iter_vectors(tmp_path / "a.parquet")
    path = plain(tmp_path / "a.fvecs", VECTORS, "<f4")
    iterator = sw.iter_vectors(path, batch=100)
    path.write_bytes(path.read_bytes()[: -(4 + 4 * DIM)])
    with pytest.raises(ValueError, match=r"a\.fvecs: changed while it was read"):
        list(iterator)


def test_batches_go_into_an_index_as_they_are(tmp_path):
    path = write(tmp_path / "a.parquet", ids=np.arange(500) * 3)
    with sw.Writer(tmp_path / "index", dim=DIM, metric="l2") as writer:
        for ids, vectors in sw.iter_vectors(path, id_column="id", batch=64):
            # What `add` reads in place.
            assert vectors.flags.c_contiguous and vectors.flags.aligned and vectors.dtype == np.float32 and ids.flags.c_contiguous
            writer.add(vectors, ids)
    with sw.Reader(tmp_path / "index") as reader:
        assert len(reader) == 500
        np.testing.assert_array_equal(reader.get(np.arange(500) * 3), VECTORS)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"paths": 5}, TypeError, "paths: expected a path"),
        ({"paths": b"a.npy"}, TypeError, "paths: expected a path"),
        ({"paths": ["a.npy", 5]}, TypeError, "paths: expected a path"),
        ({"paths": []}, ValueError, "paths: expected a file, or several, got none"),
        ({"paths": __file__}, ValueError, "paths: expected files that end in .parquet, .npy, .fvecs, .bvecs or .ivecs, got .*py"),
        ({"start": -1}, ValueError, "start"),
        ({"start": 0.5}, TypeError, "start"),
        ({"count": -1}, ValueError, "count"),
        ({"nulls": "drop"}, ValueError, 'nulls: expected "raise" or "skip"'),
        ({"nulls": None, "column": 5}, TypeError, "column: expected the name of a column"),
        ({"threads": 0}, ValueError, "threads"),
        ({"progress": 5}, TypeError, "progress"),
    ],
)
def test_wrong_arguments_are_named(tmp_path, arguments, error, message):
    write(tmp_path / "a.parquet")
    for function in (sw.read_vectors, sw.iter_vectors):
        with pytest.raises(error, match=message):
            function(**{"paths": tmp_path / "a.parquet", **arguments})


def test_wrong_batches_are_named(tmp_path):
    write(tmp_path / "a.parquet")
    for batch, error in [(0, ValueError), (-1, ValueError), (1.5, TypeError)]:
        with pytest.raises(error, match="batch"):
            sw.iter_vectors(tmp_path / "a.parquet", batch=batch)


@pytest.mark.parametrize("name", ["a.parquet", "a.npy", "a.fvecs", "a.txt", "folder"])
def test_files_that_are_not_there(tmp_path, name):
    with pytest.raises(FileNotFoundError) as caught:
        sw.read_vectors(tmp_path / name)
    assert caught.value.errno == 2 and name in str(caught.value)


@pytest.mark.parametrize("suffix", ["parquet", "npy"])
def test_files_of_another_format(tmp_path, suffix):
    for content in (b"", b"\x00", b"PAR1", b"x" * 5000):
        path = tmp_path / f"a.{suffix}"
        path.write_bytes(content)
        with pytest.raises(ValueError, match=rf"a\.{suffix}: "):
            sw.read_vectors(path)


def samples(folder):
    """Small files whose pages have checksums: what passes them is what was written."""
    for number, (compression, page, dictionary) in enumerate([("none", "1.0", False), ("zstd", "2.0", False), ("snappy", "1.0", True)]):
        options = {"compression": compression, "data_page_version": page, "use_dictionary": dictionary, "row_group_size": 50}
        yield write(folder / f"{number}.parquet", VECTORS[:100], ids=np.arange(100), write_page_checksum=True, **options)


def pages(path):
    """The bytes of a file that hold its columns of vectors and ids."""
    about = pq.ParquetFile(path).metadata
    for group, column in itertools.product(range(about.num_row_groups), (1, 2)):
        chunk = about.row_group(group).column(column)
        begin = chunk.dictionary_page_offset or chunk.data_page_offset
        yield from range(begin, begin + chunk.total_compressed_size)


def test_files_that_are_cut_off_are_errors(tmp_path):
    for path in samples(tmp_path):
        whole = path.read_bytes()
        for cut in [*range(0, len(whole), 37), len(whole) - 1]:
            path.write_bytes(whole[:cut])
            with pytest.raises(ValueError, match=path.name):
                sw.read_vectors(path)


def test_flipped_bits_are_errors_or_change_nothing(tmp_path, capfd):
    rng = np.random.default_rng(5)
    seen = 0
    for path in samples(tmp_path):
        whole = path.read_bytes()
        for place in rng.permutation(list(pages(path)))[:300]:
            damaged = bytearray(whole)
            damaged[place] ^= 1 << rng.integers(8)
            path.write_bytes(damaged)
            try:
                rows = sw.read_vectors(path, "vector", "id")
            except ValueError as error:
                assert path.name in str(error)
                seen += 1
            else:
                check(rows, VECTORS[:100])
    assert seen > 600
    # A panic that was caught would have told of itself.
    assert capfd.readouterr() == ("", "")


def test_damage_takes_little_memory(tmp_path):
    script = f"""{PEAK}
    folder = sys.argv[1]
    rng = np.random.default_rng(6)
    before = peak()
    for number in range(3):
        whole = open(f"{{folder}}/{{number}}.parquet", "rb").read()
        for _ in range(1000):
            damaged = bytearray(whole)
            for place in len(whole) - 1 - rng.integers(len(whole) - 9, size=rng.integers(1, 4)) // rng.choice([1, 4]):
                damaged[place] = rng.integers(256)
            with open(f"{{folder}}/bad.parquet", "wb") as file:
                file.write(damaged)
            try:
                sw.read_vectors(f"{{folder}}/bad.parquet", "vector", "id")
            except (ValueError, TypeError):
                pass
    print(peak() - before)
    """
    assert len(list(samples(tmp_path))) == 3
    assert float(run_child(script, tmp_path)) < 64


MEBI = 1 << 20


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A folder of files of 120 MiB: 122,880 rows of 256 values."""
    folder = tmp_path_factory.mktemp("large")
    vectors = np.random.default_rng(3).standard_normal((122_880, 256), dtype=np.float32)
    np.save(folder / "a.npy", vectors)
    rows = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 256)
    for name, group in [("groups", 8192), ("one_group", 1 << 20)]:
        write(folder / f"{name}.parquet", rows, row_group_size=group, compression="none")
    return folder


@pytest.mark.parametrize("batch", [1000, 4096])
@pytest.mark.parametrize("name", ["a.npy", "groups.parquet", "one_group.parquet"])
def test_batches_need_the_memory_of_a_batch(large, name, batch):
    script = f"""{PEAK}
    before = peak()
    rows = 0
    for ids, vectors in sw.iter_vectors(sys.argv[1], batch=int(sys.argv[2]), threads=2):
        assert ids[0] == rows
        rows += len(vectors)
    assert rows == 122_880 and "pyarrow" not in sys.modules
    print(peak() - before)
    """
    assert (large / name).stat().st_size > 119 * MEBI
    # A batch has at most 4 MiB; that of the iteration before is still there.
    assert float(run_child(script, large / name, batch)) < 32


@pytest.mark.parametrize("name", ["a.npy", "groups.parquet", "one_group.parquet"])
def test_reading_needs_the_memory_of_the_rows(large, name):
    script = f"""{PEAK}
    before = peak()
    rows = sw.read_vectors(sys.argv[1], threads=2)
    assert rows.vectors.shape == (122_880, 256)
    print(peak() - before)
    """
    assert 100 < float(run_child(script, large / name)) < 120 + 24


def test_there_may_be_more_files_than_can_be_open(tmp_path):
    for number in range(200):
        np.save(tmp_path / f"{number:03}.npy", VECTORS[:2])
    script = """
    import resource, sys
    import numpy as np, sapwood as sw

    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    assert len(sw.read_vectors(sys.argv[1], threads=2).ids) == 400
    assert sum(len(rows.ids) for rows in sw.iter_vectors(sys.argv[1], batch=399, threads=2)) == 400
    """
    run_child(script, tmp_path)


@pytest.mark.parametrize("function", ["read", "iterate"])
def test_progress(large, function):
    reports, times = [], []

    def progress(done, total):
        reports.append((done, total))
        times.append(time.monotonic())

    if function == "read":
        sw.read_vectors(large / "groups.parquet", progress=progress)
    else:
        for _ in sw.iter_vectors(large / "groups.parquet", batch=5000, progress=progress):
            pass
    assert reports[-1] == (122_880, 122_880)
    assert all(total == 122_880 for _, total in reports)
    assert all(one[0] <= other[0] for one, other in itertools.pairwise(reports))
    assert all(later - earlier > 0.09 for earlier, later in itertools.pairwise(times[:-1]))


def test_an_exception_of_progress_ends_the_call(large):
    def progress(done, total):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        sw.read_vectors(large / "groups.parquet", progress=progress)


def test_nothing_is_printed(large, capfd):
    sw.read_vectors(large / "groups.parquet")
    assert capfd.readouterr() == ("", "")


def test_other_threads_go_on(large):
    counted, ends = [0], threading.Event()

    def count():
        while not ends.is_set():
            counted[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    try:
        before = counted[0]
        sw.read_vectors(large / "groups.parquet", threads=1)
        during = counted[0] - before
    finally:
        ends.set()
        thread.join()
    # Without the interpreter it could count only where the call polls for signals.
    assert during > 10_000


def test_ctrl_c_ends_the_call(tmp_path):
    # A hundred times the same million of short rows: some seconds, and memory only for what was read by then.
    path = write(tmp_path / "a.parquet", np.ones((1_000_000, 1), np.float32))
    script = """
    import os, signal, sys, threading, time
    import sapwood as sw

    sent = []

    def interrupt():
        time.sleep(0.3)
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    try:
        sw.read_vectors([sys.argv[1]] * 100)
    except KeyboardInterrupt:
        assert sent and time.monotonic() - sent[0] < 1
        print("interrupted")
    """
    assert run_child(script, path) == "interrupted\n"
