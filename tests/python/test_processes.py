"""Several processes on one directory: who may write, what readers see meanwhile, and that nothing stays behind."""

import contextlib
import os
import pickle
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

import sapwood as sw
from conftest import EXACT, STRESS, clustered, run_child, start_child

SECONDS = 60 if STRESS else 4
POSIX = pytest.mark.skipif(os.name != "posix", reason="needs descriptors, signals and links as POSIX has them")

WRITE = """
    import os, sys, threading, time
    import numpy as np, sapwood as sw

    path, rows, dim = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
    ids = np.arange(rows)
    state = np.zeros((rows, dim), np.float32)
    state[:, 1] = ids
    with sw.Writer(path, dim, "l2", keep=1, split_threshold=32, merge_threshold=4, branching=8) as writer:
        for number in range(1, 1 << 30):
            state[:, 0] = number
            # In parts, so that a state in between would show.
            for part in np.array_split(np.random.default_rng(number).permutation(ids), 5):
                writer.add(state[part], part)
            gone = ids[number % 7 :: 7]
            writer.remove(gone)
            if number % 5 == 0:
                writer.balance()
            writer.add(state[gone], gone)
            assert writer.commit().version == number
            if number == 1:
                os.write(1, b"ready\\n")
            if stop.is_set():
                break
    print(number)
"""

READ = """
    import os, sys, time
    import numpy as np, sapwood as sw

    path, rows, dim, seconds, which = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5])
    everything = np.arange(rows)
    end = time.monotonic() + seconds

    def look(index, number):
        assert len(index) == rows and index.ids().tolist() == everything.tolist()
        stored = index.get(everything)
        assert (stored[:, 0] == number).all(), (number, np.unique(stored[:, 0]))
        assert (stored[:, 1] == everything).all()
        queries = np.zeros((4, dim), np.float32)
        queries[:, 0], queries[:, 1] = number, np.arange(4) * 50
        found = index.search(queries, 3, beam=10**9, rerank=1 << 20)
        assert found.ids.tolist() == [[0, 1, 2], [50, 49, 51], [100, 99, 101], [150, 149, 151]], found
        assert (found.distances == [[0, 1, 4]] + [[0, 1, 1]] * 3).all(), found

    reader = sw.Reader(path, cache_bytes=[0, 1 << 14, 1 << 24][which])
    last, refreshed, looks = reader.version, 0, 0
    while time.monotonic() < end:
        for _ in range(2):
            look(reader, reader.version)
        before, moved = reader.version, reader.refresh()
        assert (reader.version > before) == moved and reader.version >= before, (before, reader.version)
        refreshed += moved
        looks += 1
        if looks % 4 == which:
            checkpoint = sw.load_checkpoint(path)
            assert checkpoint.version in checkpoint.versions and checkpoint.version >= reader.version and checkpoint.rows == rows
            with sw.Reader(path) as newest:
                assert newest.version >= checkpoint.version
                look(newest, newest.version)
                newest.validate()
        if looks % 16 == which:
            with sw.load(path) as index:
                look(index, int(index.get(0)[0]))
    assert refreshed > 2, (refreshed, looks)
"""


def finish(child, timeout=60):
    """Its output; its failure is the test's."""
    out, errors = child.communicate(timeout=timeout)
    assert child.returncode == 0, f"exit {child.returncode}\n{out.decode()}\n{errors.decode()}"
    return out.decode()


@pytest.mark.timeout(180)
def test_readers_see_one_commit_each_while_a_writer_commits_and_collects(tmp_path):
    rows, dim = 300, 6
    with contextlib.ExitStack() as children:
        writer = children.enter_context(start_child(WRITE, tmp_path, rows, dim))
        assert writer.stdout.readline() == b"ready\n", writer.stderr.read().decode()
        readers = [children.enter_context(start_child(READ, tmp_path, rows, dim, SECONDS, which)) for which in range(3)]
        for reader in readers:
            finish(reader, SECONDS + 60)
        commits = int(finish(writer))
    assert commits > 10
    checkpoint = sw.load_checkpoint(tmp_path)
    # At its end it commits once more if the balancer has changed the tree meanwhile.
    assert commits <= checkpoint.version <= commits + 1
    checkpoint.validate()
    # Nobody reads any more, so the next commit leaves one checkpoint.
    with sw.Writer(tmp_path) as last:
        last.remove(0)
    assert sw.load_checkpoint(tmp_path).versions == [checkpoint.version + 1]


HOLD = """
    import sys
    import sapwood as sw
    writer = sw.Writer(sys.argv[1], 4)
    writer.add([[1, 2, 3, 4]])
    writer.commit()
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """A process that has `tmp_path / "index"` open for writing."""
    with start_child(HOLD, tmp_path / "index") as child:
        assert child.stdout.readline() == b"held\n", child.stderr.read().decode()
        yield child


def test_a_directory_that_another_process_writes_to_is_locked(tmp_path, holder):
    path = tmp_path / "index"
    memory = sw.Index(4)
    attempts = [
        lambda: sw.Writer(path),
        lambda: sw.Writer(path, 4),
        lambda: sw.Index(4, path=path),
        lambda: sw.Index.open(path),
        lambda: memory.save(path),
    ]
    for attempt in attempts:
        with pytest.raises(sw.LockedError, match=rf"process {holder.pid}\b.*Reader"):
            attempt()
    # Reading is free.
    with sw.Reader(path) as reader, sw.load(path) as loaded:
        assert len(reader) == len(loaded) == 1
    holder.stdin.close()
    holder.wait(60)
    sw.Writer(path).close()


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path, holder):
    path = tmp_path / "index"
    holder.kill()
    holder.wait(60)
    with sw.Writer(path) as writer:
        writer.add([[5, 6, 7, 8]])
    with sw.Index.open(path) as index:
        assert index.ids().tolist() == [0, 1]


@POSIX
def test_relative_paths_and_links_lead_to_one_lock(tmp_path, holder, monkeypatch):
    path = tmp_path / "index"
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("index")
    (tmp_path / "folder" / "up").symlink_to("..")
    monkeypatch.chdir(tmp_path / "folder")
    for name in ["../index", "../link", "up/index", "./up/link/../index", b"../index".decode(), str(path) + "/"]:
        with pytest.raises(sw.LockedError, match=str(holder.pid)) as caught:
            sw.Writer(name)
        assert str(path) in str(caught.value)
        with sw.Reader(name) as reader:
            assert reader.path == str(path)
    holder.kill()
    holder.wait(60)
    with sw.Writer("../link") as writer:
        writer.add([[5, 6, 7, 8]])
        with pytest.raises(sw.LockedError, match=r"not committed|aren't committed"):
            sw.Writer(path)


@pytest.mark.parametrize("make", [lambda path: sw.Writer(path, 4), lambda path: sw.Index(4, path=path)], ids=["Writer", "Index"])
def test_a_cell_of_a_notebook_can_be_run_twice(tmp_path, make):
    first = make(tmp_path)
    # Nothing was changed.
    second = make(tmp_path)
    second.add(np.eye(4))
    with pytest.raises(sw.LockedError, match=r"aren't committed.*commit it first"):
        make(tmp_path)
    assert len(second) == 4
    second.commit()
    third = make(tmp_path)
    assert third.ids().tolist() == [0, 1, 2, 3]
    for gone in (first, second):
        with pytest.raises(ValueError, match="closed"):
            gone.add(np.eye(4))
    third.add(np.eye(4))
    del third
    # What nobody has any more is discarded.
    with make(tmp_path) as last:
        assert len(last) == 4


def test_a_handle_gives_way_though_its_tree_was_balanced_after_the_commit(tmp_path):
    options = {"split_threshold": 32, "merge_threshold": 4, "branching": 8}
    rng = np.random.default_rng(0)
    for _ in range(40):
        writer = sw.Writer(tmp_path, 8, "l2", **options)
        writer.add(rng.standard_normal((60, 8)))
        writer.commit()
        time.sleep(0.005)
    assert len(sw.Writer(tmp_path)) == 40 * 60


def test_what_ends_with_an_exception_leaves_no_lock(tmp_path):
    with pytest.raises(ZeroDivisionError), sw.Writer(tmp_path, 4) as writer:
        writer.add(np.eye(4))
        writer.commit()
        writer.add(np.eye(4))
        1 / 0  # noqa: B018
    with pytest.raises(ValueError, match="dim"):
        sw.Writer(tmp_path, 5)
    with sw.Index.open(tmp_path) as index:
        assert len(index) == 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason=f"{sys.platform} has no fork")
def test_a_forked_child_neither_keeps_the_lock_nor_frees_it():
    script = """
        import os, sys, tempfile
        import numpy as np, sapwood as sw

        path = tempfile.mkdtemp()
        writer = sw.Writer(path, 4, keep=1)
        writer.add(np.eye(4))
        writer.commit()
        reader = sw.Reader(path)
        wait, go = os.pipe()
        child = os.fork()
        if child == 0:
            # What it inherited goes; the parent's stays.
            os.close(go)
            writer.close()
            del writer, reader
            os.read(wait, 1)
            os._exit(0)
        second = os.fork()
        if second == 0:
            os.close(go)
            os.read(wait, 1)
            os._exit(0)
        writer.add(np.eye(4))
        other = os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", sys.argv[1], path, str(os.getpid())])
        assert other == 0
        writer.commit()
        writer.close()
        reader.close()
        # Both children live, and have the files open.
        with sw.Writer(path) as again:
            again.add(np.eye(4))
        assert sw.load_checkpoint(path).versions == [3], sw.load_checkpoint(path).versions
        os.close(go)
        assert os.waitpid(child, 0)[1] == os.waitpid(second, 0)[1] == 0
    """
    other = """
        import sys, sapwood as sw
        try:
            sw.Writer(sys.argv[1])
        except sw.LockedError as error:
            assert f"process {sys.argv[2]}" in str(error), error
        else:
            raise SystemExit("not locked")
    """
    run_child(script, textwrap.dedent(other))


@POSIX
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="descriptors can't be counted here")
def test_opening_and_closing_leaves_no_descriptors(tmp_path):
    rows = clustered(500, 8)
    with sw.Writer(tmp_path, 8, keep=3) as writer:
        for start in range(0, 500, 100):
            writer.add(rows[start : start + 100])
            writer.commit()

    def cycle():
        with sw.Reader(tmp_path) as reader:
            reader.search(rows[0])
            reader.refresh()
        with sw.Writer(tmp_path, cache_bytes=0) as writer:
            writer.search(rows[0])
        sw.load(tmp_path)
        sw.Reader(tmp_path, version=4).get(3)
        sw.load_checkpoint(tmp_path).validate()

    cycle()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(200):
        cycle()
    assert len(os.listdir("/proc/self/fd")) == before
    assert threading.active_count() == 1


@POSIX
def test_few_descriptors_are_enough_for_many_checkpoints(tmp_path):
    script = """
        import resource, sys
        import numpy as np, sapwood as sw
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        path, rng = sys.argv[1], np.random.default_rng(0)
        rows = rng.standard_normal((5000, 16)).astype(np.float32)
        with sw.Writer(path, 16, "l2", keep=200, cache_bytes=0, split_threshold=32, merge_threshold=4) as writer:
            for start in range(0, 5000, 50):
                writer.add(rows[start : start + 50])
                writer.commit()
            writer.balance()
        # One checkpoint needs the files of very many commits.
        assert len(sw.load_checkpoint(path).versions) >= 100
        readers = [sw.Reader(path, cache_bytes=0) for _ in range(4)]
        for reader in readers:
            assert (reader.search(rows[::20], 1, beam=10**9).ids[:, 0] == np.arange(0, 5000, 20)).all()
            reader.validate()
            assert reader.get(np.arange(5000)).tobytes() == rows.tobytes()
        for version in (1, 50, 100):
            assert len(sw.Reader(path, version=version).ids()) == 50 * version
        assert len(sw.load(path)) == 5000
        with sw.Index.open(path, keep=2) as index:
            index.remove(7)
            index.commit()
    """
    run_child(script, tmp_path)
    assert len(sw.load_checkpoint(tmp_path).versions) <= 2


def test_a_directory_can_be_removed_after_closing(tmp_path):
    path = tmp_path / "index"
    rows = clustered(300, 8)
    with sw.Writer(path, 8) as writer:
        writer.add(rows)
    reader, writer, index = sw.Reader(path), sw.Writer(path), sw.load(path)
    for handle in (reader, writer):
        handle.search(rows[:3])
        handle.close()
    shutil.rmtree(path)
    assert not path.exists()
    # What is in memory needs no directory.
    assert index.get(np.arange(300)).tobytes() == writer_rows(rows)
    with pytest.raises(FileNotFoundError):
        sw.Reader(path)
    with sw.Writer(path, 4) as writer:
        assert len(writer) == 0


def writer_rows(rows):
    """Rows as an index under cosine keeps them."""
    with sw.Index(rows.shape[1]) as index:
        index.add(rows)
        return index.get(np.arange(len(rows))).tobytes()


def test_a_reader_is_sent_to_another_process(tmp_path):
    rows = clustered(300, 8)
    with sw.Writer(tmp_path, 8, "l2", keep=2) as writer:
        writer.add(rows)
        writer.commit()
        writer.remove(np.arange(100))
    reader = sw.Reader(tmp_path, version=1, cache_bytes=1 << 16, threads=1)
    again = pickle.loads(pickle.dumps(reader))
    assert (again.version, again.path, len(again)) == (1, reader.path, 300)
    assert again.stats()["cache_capacity"] == 1 << 16 and again.config["threads"] == 1
    assert again.search(rows, 3, **EXACT) == reader.search(rows, 3, **EXACT)
    script = "import pickle, sys; print(len(pickle.loads(sys.stdin.buffer.read())))"
    done = subprocess.run([sys.executable, "-c", script], input=pickle.dumps(reader), capture_output=True, timeout=60)
    assert done.stdout == b"300\n" or done.stdout == b"300\r\n", done.stderr
    for other in (sw.Writer(tmp_path), sw.load(tmp_path)):
        with pytest.raises(TypeError):
            pickle.dumps(other)


@POSIX
def test_a_stopped_writer_does_not_hold_readers_up(tmp_path, holder):
    path = tmp_path / "index"
    os.kill(holder.pid, signal.SIGSTOP)
    try:
        with sw.Reader(path) as reader:
            assert reader.get(0).shape == (4,) and not reader.refresh()
        with pytest.raises(sw.LockedError, match=str(holder.pid)):
            sw.Writer(path)
    finally:
        os.kill(holder.pid, signal.SIGCONT)
