"""After fork a child gets an error that tells it what to do, and never hangs; the parent goes on."""

import os
import sys

import pytest

from conftest import run_child

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason=f"{sys.platform} has no fork")

# What the child prints counts; `alarm` turns a hang into a failure.
COMMON = """
    import os, signal, sys
    import numpy as np, sapwood as sw

    rows = np.random.default_rng(0).standard_normal((5000, 16), dtype=np.float32)
    index = sw.Index(16)
    index.add(rows)

    def in_child(work):
        pid = os.fork()
        if pid == 0:
            signal.alarm(60)
            try:
                work()
            except BaseException as error:
                print("child:", type(error).__name__, error, file=sys.stderr)
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        assert status == 0, status
"""


def test_every_method_of_an_inherited_index_tells_to_make_a_new_one():
    script = """
    def work():
        calls = [
            lambda: index.add(rows[:5]),
            lambda: index.add(rows),
            lambda: index.add(rows.tolist()),
            lambda: index.remove([1]),
            lambda: index.search(rows[0]),
            lambda: index.search(rows, 3, progress=print),
            lambda: index.get(1),
            lambda: index.ids(),
            lambda: 1 in index,
            lambda: index.balance(),
            lambda: index.stats(),
            lambda: index.validate(),
        ]
        for number, call in enumerate(calls):
            try:
                call()
            except sw.Error as error:
                assert "forked child" in str(error) and str(os.getpid()) in str(error), error
            else:
                raise AssertionError(f"call {number} did not raise")
        assert "forked" in repr(index)
        assert (index.dim, index.metric) == (16, "cosine")

    in_child(work)
    assert index.search(rows[7], 1).ids.tolist() == [7]
    index.add(rows[:3])
    index.validate()
    """
    run_child(COMMON + script)


def test_a_child_can_close_or_drop_what_it_inherited():
    script = """
    def close():
        index.close()

    def drop():
        global index
        del index

    in_child(close)
    in_child(drop)
    in_child(lambda: None)
    assert index.search(rows[7], 1).ids.tolist() == [7]
    """
    run_child(COMMON + script)


def test_a_child_can_make_its_own():
    script = """
    sw.exact_search(rows, rows[:200], 3)

    def work():
        own = sw.Index(16)
        own.add(rows)
        own.balance()
        assert own.search(rows[7], 1).ids.tolist() == [7]
        assert (sw.exact_search(rows, rows[:200], 1).ids[:, 0] == np.arange(200)).all()
        own.close()

    in_child(work)
    in_child(work)
    """
    run_child(COMMON + script)


def test_forking_while_other_threads_work():
    script = """
    import threading
    stop = threading.Event()

    def busy():
        while not stop.is_set():
            index.add(rows[:500], np.arange(500))
            index.search(rows[:100], 5)

    threads = [threading.Thread(target=busy) for _ in range(3)]
    for thread in threads:
        thread.start()

    def work():
        for call in (lambda: index.search(rows[0]), lambda: index.add(rows), lambda: index.stats()):
            try:
                call()
            except sw.Error:
                pass
            else:
                raise AssertionError("did not raise")
        own = sw.Index(16)
        own.add(rows)
        assert own.search(rows[7], 1).ids.tolist() == [7]

    for _ in range(10):
        in_child(work)
    stop.set()
    for thread in threads:
        thread.join()
    index.validate()
    """
    run_child(COMMON + script)


def test_multiprocessing_by_fork_with_data_and_results():
    script = """
    import multiprocessing

    def search(seed):
        own = sw.Index(16)
        own.add(rows)
        return own.search(rows[seed], 3)

    with multiprocessing.get_context("fork").Pool(2) as pool:
        found = pool.map(search, [5, 6])
    assert [result.ids[0] for result in found] == [5, 6]
    assert isinstance(found[0], sw.SearchResult)
    """
    run_child(COMMON + script)
