"""Indexes in directories: they answer as the index did that was committed, say what they did, and stay whole whatever interrupts them."""

import contextlib
import os
import pathlib
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import sapwood as sw
from conftest import METRICS, clustered, run_child

SMALL = {"split_threshold": 32, "merge_threshold": 4, "branching": 8}
"""Options that make a deep tree of few rows."""


def same(found, wanted):
    """Bit for bit: equal ids, and distances of equal bytes."""
    assert found.ids.tobytes() == wanted.ids.tobytes()
    assert found.distances.tobytes() == wanted.distances.tobytes()
    assert (found.scanned, found.reranked, found.leaves) == (wanted.scanned, wanted.reranked, wanted.leaves)


def questions(rows, ids):
    """Calls of `search` of all kinds, as positional and keyword arguments."""
    yield (rows[3], 5), {}
    yield (rows[:20] + 0.1, 7), {"beam": 4}
    yield (rows[20:30], 10), {"beam": (2, 8), "rerank": 50}
    yield (rows[5], 3), {"rerank": None}
    yield (rows[:9], 4), {"filter": ids[::3]}
    yield (rows[11], 6), {"filter": ids[:40], "beam": 3}
    yield (rows[:5], 3), {"tau": 1.5}


@pytest.fixture
def path(tmp_path):
    """A directory with three checkpoints under l2: of 100, 200 and 300 rows of 8 values."""
    with sw.Writer(tmp_path, 8, "l2", keep=3, **SMALL) as writer:
        for start in range(0, 300, 100):
            writer.add(clustered(300, 8)[start : start + 100])
            # What is balanced later would be a change, and another checkpoint.
            writer.balance()
            writer.commit(f"up to {start + 100}")
    return tmp_path


@pytest.mark.parametrize("storage", ["f32", "f16", "bf16", "int8", "rabitq3", "rabitq4", "rabitq8"])
@pytest.mark.parametrize("spill", [0, 1])
@pytest.mark.parametrize("metric", METRICS)
def test_every_handle_answers_as_the_index_that_was_committed(tmp_path, metric, spill, storage):
    rows, ids = clustered(800, 20), np.arange(800) * 3
    options = {"spill": spill, "storage": storage, "threads": 1, **SMALL}
    with sw.Index(20, metric, path=tmp_path, **options) as index:
        index.add(rows, ids)
        index.remove(ids[::10])
        index.balance()
        index.commit()
        live = index.ids()
        wanted = [index.search(*args, **more) for args, more in questions(rows, ids)]
        stored = index.get(live).tobytes()
    openers = [sw.Reader, lambda path, threads: sw.Reader(path, cache_bytes=0, threads=2), sw.load, sw.Writer, sw.Index.open]
    for make in openers:
        with make(tmp_path, threads=1) as handle:
            for (args, more), want in zip(questions(rows, ids), wanted, strict=True):
                same(handle.search(*args, **more), want)
            assert handle.ids().tolist() == live.tolist() and handle.get(live).tobytes() == stored
            assert len(handle) == len(live) and 3 in handle and 0 not in handle and -1 not in handle
            assert (handle.metric, handle.dim, handle.config["storage"], handle.config["spill"]) == (metric, 20, storage, spill)
            handle.validate()
    assert sw.load_checkpoint(tmp_path).versions == [1]


def test_versions_are_kept_and_opened_by_number(path):
    assert sw.load_checkpoint(path).versions == [1, 2, 3]
    for version in (1, 2, 3):
        checkpoint = sw.load_checkpoint(path, version)
        assert (checkpoint.version, checkpoint.rows, checkpoint.note) == (version, 100 * version, f"up to {100 * version}")
        checkpoint.validate()
        with checkpoint.reader(cache_bytes=1 << 16) as reader, checkpoint.index() as index:
            assert reader.version == version and len(reader) == len(index) == 100 * version
            assert reader.stats()["cache_capacity"] == 1 << 16
            same(reader.search(reader.get([0, 50]), 5), index.search(index.get([0, 50]), 5))
    for version in (4, 99):
        for call in (sw.Reader, sw.load, sw.load_checkpoint):
            with pytest.raises(ValueError, match=f"version: expected one of 1, 2, 3, got {version}"):
                call(path, version)
    with sw.Writer(path, keep=2) as writer:
        writer.remove(0)
    assert sw.load_checkpoint(path).versions == [3, 4]
    with pytest.raises(ValueError, match="one of 3, 4"):
        sw.Reader(path, 1)


def test_a_commit_says_what_it_did(tmp_path):
    with sw.Writer(tmp_path, 8, "l2") as writer:
        assert writer.commit() == (1, 0, sw.load_checkpoint(tmp_path).bytes)
        writer.add(clustered(2000, 8))
        writer.balance()
        version, rows, written = info = writer.commit()
        assert (version, rows) == (info.version, info.rows) == (2, 2000) and written == info.bytes_written >= 2000 * 8 * 4
        assert repr(info) == f"CheckpointInfo(version=2, rows=2000, bytes_written={written})"
        assert writer.commit() == (2, 2000, 0)
    checkpoint = sw.load_checkpoint(tmp_path)
    assert (checkpoint.version, checkpoint.dim, checkpoint.metric, checkpoint.rows) == (2, 8, "l2", 2000)
    assert abs(checkpoint.created - time.time()) < 60 and checkpoint.library == sw.__version__
    assert checkpoint.bytes >= written and f"{checkpoint.bytes:,} bytes" in repr(checkpoint)


def test_notes_stay_with_their_checkpoints(tmp_path):
    with sw.Writer(tmp_path, 2, keep=9) as writer:
        for ids, note in [(0, None), (1, "erste Fuhre 🌲\n\0"), (2, None), (3, ""), (4, "x" * (1 << 20))]:
            writer.add([[1, ids]], [ids])
            writer.commit(note)
        # A note alone is a change; the same one isn't.
        assert writer.commit("last").bytes_written > 0 and writer.commit("last") == (6, 5, 0) and writer.commit() == (6, 5, 0)
        for note in ("x" * ((1 << 20) + 1), "ü" * (1 << 19) + "x"):
            with pytest.raises(ValueError, match="note: expected at most 1048576 bytes, got 1048577"):
                writer.commit(note)
        for wrong in (b"bytes", 7):
            with pytest.raises(TypeError):
                writer.commit(wrong)
    notes = ["", "erste Fuhre 🌲\n\0", "erste Fuhre 🌲\n\0", "", "x" * (1 << 20), "last"]
    assert [sw.load_checkpoint(tmp_path, version).note for version in range(1, 7)] == notes
    with sw.Writer(tmp_path) as writer:
        writer.remove(0)
        writer.commit()
        assert sw.load_checkpoint(tmp_path).note == "last"


@pytest.mark.parametrize("open_again", [False, True])
def test_a_small_change_writes_little_and_no_change_nothing(tmp_path, open_again):
    rows = clustered(20_000, 32)
    writer = sw.Writer(tmp_path, 32, "l2")
    writer.add(rows)
    writer.balance()
    whole = writer.commit().bytes_written
    if open_again:
        writer.close()
        writer = sw.Writer(tmp_path)
    before = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.*")}
    assert writer.commit().bytes_written == 0
    assert before == {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.*")}
    some = np.arange(7000, 7200)
    writer.add(rows[some] + 0.01, some)
    assert 0 < writer.commit().bytes_written <= whole / 10
    writer.validate()
    writer.close()


def test_a_reader_moves_on_only_when_asked(path):
    with sw.Reader(path, cache_bytes=1 << 20) as reader, sw.Writer(path) as writer:
        assert reader.refresh() is False
        writer.remove(np.arange(50))
        writer.balance()
        writer.commit()
        assert (reader.version, len(reader), 0 in reader) == (3, 300, True)
        assert reader.refresh() is True and reader.refresh() is False
        assert (reader.version, len(reader), 0 in reader) == (4, 250, False)
        # The reader let go of the third, which was collected, and holds the fourth.
        writer.remove(60)
        writer.balance()
        writer.commit()
        assert sw.load_checkpoint(path).versions == [4, 5]


def test_a_reader_counts_what_it_reads(tmp_path):
    rows = clustered(5000, 32)
    with sw.Writer(tmp_path, 32, "l2") as writer:
        writer.add(rows)
        writer.balance()
    with sw.Reader(tmp_path, cache_bytes=1 << 18) as reader:
        kinds = ["bytes_read_postings", "bytes_read_vectors"]
        first = reader.stats()
        assert first["bytes_read_postings"] == first["bytes_read_vectors"] == 0 and first["cache_capacity"] == 1 << 18
        reader.search(rows[7], 5, beam=2)
        once = reader.stats()
        reader.search(rows[7], 5, beam=2)
        again = reader.stats()
        assert all(once[kind] > 0 for kind in kinds) and [again[kind] for kind in kinds] == [once[kind] for kind in kinds]
        assert again["cache_hits"] > once["cache_hits"] and again["reads"] == once["reads"]
        reader.clear_cache()
        assert reader.stats()["cache_bytes"] == 0
        reader.search(rows[7], 5, beam=2)
        cold = reader.stats()
        assert all(cold[kind] > again[kind] for kind in kinds)
        assert cold["bytes_read"] == cold["bytes_read_postings"] + cold["bytes_read_vectors"]
        for start in range(0, 5000, 500):
            reader.search(rows[start : start + 500], 3, beam=8)
            assert reader.stats()["cache_bytes"] <= 1 << 18
        last = reader.stats()
        times = ["route_seconds", "scan_seconds", "rerank_seconds", "read_seconds_postings", "read_seconds_vectors"]
        assert all(last[name] > cold[name] > 0 for name in times) and last["queries"] == 3 + 5000
        assert last["read_seconds_postings"] <= last["scan_seconds"] and last["read_seconds_vectors"] <= last["rerank_seconds"]


def test_a_writer_that_only_reads_commits_nothing(tmp_path):
    rows = clustered(3000, 32)
    writer = sw.Writer(tmp_path, 32, "l2", split_threshold=16, merge_threshold=2)
    writer.add(rows)
    # Not balanced, so that a background thread would have something to do at once.
    assert writer.commit().version == 1
    writer.close()
    for opener in (sw.Writer, sw.Index.open):
        for _ in range(5):
            with opener(tmp_path) as handle:
                assert handle.search(rows[5], 1, beam=10**6).ids.tolist() == [5]
                assert len(handle.ids()) == 3000
                done = handle.commit()
                assert (done.version, done.rows, done.bytes_written) == (1, 3000, 0)
            assert sw.load_checkpoint(tmp_path).versions == [1]
    with sw.Writer(tmp_path) as writer:
        writer.balance()
    assert sw.load_checkpoint(tmp_path).versions == [2]


def test_a_writer_reads_only_what_it_needs(tmp_path):
    rows = clustered(20_000, 32)
    with sw.Writer(tmp_path, 32, "l2") as writer:
        writer.add(rows)
        writer.balance()
    with sw.Writer(tmp_path) as writer:
        assert writer.stats()["bytes_read"] == 0 and len(writer) == 20_000
        assert writer.search(rows[5], 1, beam=2).ids.tolist() == [5]
        assert 0 < writer.stats()["bytes_read"] < rows.nbytes / 10
        writer.add(rows[:10] + 1)
        writer.commit()
        assert writer.stats()["bytes_read"] < rows.nbytes / 5


def test_a_block_that_ends_well_is_committed_and_another_is_not(tmp_path):
    with sw.Writer(tmp_path, 2) as writer:
        writer.add(np.eye(2))
    for error in (ZeroDivisionError, KeyboardInterrupt, SystemExit):
        with pytest.raises(error), sw.Writer(tmp_path) as writer:
            writer.remove([0, 1])
            assert len(writer) == 0
            raise error
        assert writer.closed and len(sw.load(tmp_path)) == 2
    with sw.Writer(tmp_path) as writer:
        writer.remove(1)
        writer.commit()
        writer.close()
    assert sw.load(tmp_path).ids().tolist() == [0] and sw.load_checkpoint(tmp_path).versions == [2]


def test_closed_handles_say_so(path):
    for handle in (sw.Writer(path), sw.Reader(path)):
        name = type(handle).__name__
        assert repr(handle).startswith(f"{name}({str(path)!r}") and "dim=8, metric='l2', rows=300" in repr(handle)
        handle.close()
        handle.close()
        assert handle.closed and repr(handle) == f"{name}({str(path)!r}, closed)" and handle.path == str(path)
        calls = [("search", np.zeros(8)), ("get", 1), ("ids",), ("stats",), ("validate",), ("__len__",), ("__contains__", 1)]
        calls += [("refresh",), ("clear_cache",)] if name == "Reader" else [("commit",), ("balance",), ("remove", 1)]
        for call, *args in calls:
            with pytest.raises(ValueError, match="closed"):
                getattr(handle, call)(*args)


def test_paths_of_all_kinds_lead_to_the_same_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "Bäume 樹木 🌲" / "a b"
    with sw.Writer(folder, 4) as writer:
        writer.add(np.eye(4))
    for path in (folder, str(folder), pathlib.Path("Bäume 樹木 🌲/a b"), "./Bäume 樹木 🌲/a b/"):
        assert sw.Reader(path).path == sw.load_checkpoint(path).path == os.path.realpath(folder)
        assert len(sw.load(path)) == 4
        assert repr(str(folder)) in repr(sw.Reader(path))
    for wrong in (None, 3, ["a"]):
        with pytest.raises(TypeError):
            sw.Reader(wrong)


def in_threads(*works):
    """Runs works again and again for half a second, each in its thread; the first failure is the test's."""
    end = time.monotonic() + 0.5

    def run(work):
        while time.monotonic() < end:
            work()

    with ThreadPoolExecutor(len(works)) as pool:
        for done in [pool.submit(run, work) for work in works]:
            done.result(60)


def test_threads_search_a_reader_while_it_forgets_and_moves_on(tmp_path):
    rows = clustered(2000, 16)
    with sw.Writer(tmp_path, 16, "l2", **SMALL) as writer, contextlib.ExitStack() as stack:
        writer.add(rows)
        writer.commit()
        reader = stack.enter_context(sw.Reader(tmp_path, cache_bytes=1 << 16))
        wanted = reader.search(rows[:50], 1, beam=10**9, rerank=1 << 20)
        turns = iter(range(10**9))

        def change():
            # Rows far away come and go, and the answers stay.
            far = 10**6 + next(turns) % 100
            writer.add(rows[:1] + 1000, [far])
            writer.commit()

        def search():
            found = reader.search(rows[:50], 1, beam=10**9, rerank=1 << 20)
            assert found.ids.tolist() == wanted.ids.tolist() and found.distances.tobytes() == wanted.distances.tobytes()

        in_threads(change, search, search, reader.clear_cache, reader.refresh, lambda: reader.get([0, 1999]))
        reader.refresh()
        reader.validate()


def test_threads_add_search_and_commit_on_one_writer(tmp_path):
    rows = clustered(1000, 16)
    with sw.Writer(tmp_path, 16, "l2", keep=2, **SMALL) as writer:
        writer.add(rows)
        starts = [iter(range(first, 10**12, 10**6)) for first in (10**5, 2 * 10**5)]

        def adder(mine):
            first = next(mine)
            writer.add(rows[:20], np.arange(first, first + 20))
            writer.remove(np.arange(first, first + 10))

        def commit():
            # Whole batches: twenty come, ten of them go.
            assert writer.commit().rows % 10 == 0 and len(sw.Reader(tmp_path)) >= 1000

        in_threads(lambda: adder(starts[0]), lambda: adder(starts[1]), commit, commit, lambda: writer.search(rows[:10], 3))
        left = writer.ids()
    with sw.Reader(tmp_path) as reader:
        assert reader.ids().tolist() == left.tolist()
        reader.validate()


INTERRUPT = """
    import os, signal, sys, threading, time
    import numpy as np, sapwood as sw

    path, name = sys.argv[1:]
    rows = np.random.default_rng(0).standard_normal((50_000, 256), dtype=np.float32)
    writer = sw.Writer(path, 256, "l2", keep=2, split_threshold=1024)
    writer.add(rows[:1000], np.arange(1000))
    writer.commit()
    writer.add(rows[1000:], np.arange(1000, len(rows)))
    if name == "load":
        writer.commit()
    interrupted = 0
    for wait in (0.002, 0.01, 0.03, 0.08):
        sent = []
        def interrupt():
            time.sleep(wait)
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)
        thread = threading.Thread(target=interrupt)
        try:
            thread.start()
            writer.commit() if name == "commit" else sw.load(path)
            thread.join()
            time.sleep(0.05)
        except KeyboardInterrupt:
            # A second is the promise; the rest is for machines that do other things too.
            assert not sent or time.monotonic() - sent[0] < 3
            interrupted += 1
        thread.join()
        with sw.Reader(path) as reader:
            assert len(reader) in (1000, len(rows)), len(reader)
            reader.validate()
    assert interrupted >= 1
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    writer.remove(5)
    writer.commit()
    with sw.Reader(path) as reader:
        reader.validate()
        assert len(reader) == len(rows) - 1 and 5 not in reader
        assert reader.get(len(rows) - 1).tobytes() == rows[-1].tobytes()
"""


@pytest.mark.skipif(os.name != "posix", reason="needs signals as POSIX has them")
@pytest.mark.parametrize("name", ["commit", "load"])
def test_ctrl_c_leaves_the_last_checkpoint_and_a_usable_writer(tmp_path, name):
    run_child(INTERRUPT, tmp_path, name)


@pytest.mark.skipif(not os.path.exists("/proc/self/clear_refs"), reason="needs the peak of /proc/self/status")
def test_a_reader_keeps_to_its_cache(tmp_path):
    script = """
        import sys, numpy as np, sapwood as sw

        def peak():
            with open("/proc/self/status") as file:
                return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))

        path, count, cache = sys.argv[1], 60_000, 1 << 20
        queries = np.random.default_rng(1).standard_normal((8, 64), dtype=np.float32)
        # What the first search of a process takes is not the reader's.
        with sw.Index(64, "l2") as warm:
            warm.add(queries)
            warm.search(queries, 10)
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
        before = peak()
        with sw.Reader(path, cache_bytes=cache, threads=1) as reader:
            for _ in range(2):
                reader.search(queries, 10, beam=10**9)
            for start in range(0, count, 2000):
                reader.get(np.arange(start, start + 2000))
            stats = reader.stats()
            assert stats["cache_bytes"] <= cache and stats["bytes_read_vectors"] > count * 64 * 4
            # Beside these: a search's list of candidates, 12 bytes each, with the one it grew out of; and what the allocator keeps. All
            # vectors and posting lists would be 18 MB more.
            grown, allowed = peak() - before, cache + stats["bytes"] + 20 * count + 36 * stats["postings"] + 6_000_000
            assert grown <= allowed, (grown / 1e6, allowed / 1e6)
    """
    with sw.Writer(tmp_path, 64, "l2") as writer:
        writer.add(np.random.default_rng(0).standard_normal((60_000, 64), dtype=np.float32))
        writer.balance()
    run_child(script, tmp_path)
