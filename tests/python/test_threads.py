"""Threads: the interpreter stays free, readers and writers overlap, nothing is lost and nothing comes twice."""

import gc
import threading
import time
import weakref

import numpy as np
import pytest

import sapwood as sw
from conftest import EXACT, STRESS, clustered, truth

DIM = 16
ROUNDS = 20 if STRESS else 4


def together(*works, timeout=100):
    """Runs all at once and raises what any of them raised."""
    errors = []

    def guarded(work):
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=[work]) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout)
        assert not thread.is_alive(), "hangs"
    if errors:
        raise errors[0]


class Counter(threading.Thread):
    """Counts as fast as the interpreter lets it."""

    def __init__(self):
        super().__init__(daemon=True)
        self.count, self.stop = 0, False

    def run(self):
        while not self.stop:
            self.count += 1


def rate(counter, call):
    """What it counts a second while the call runs."""
    began, before = time.perf_counter(), counter.count
    call()
    return (counter.count - before) / (time.perf_counter() - began)


ROWS = clustered(40_000, 64)
INDEX = sw.Index(64)
CALLS = {
    "add": lambda: sw.Index(64).add(ROWS),
    "search": lambda: INDEX.search(ROWS[:4000], 10, beam=64),
    "single searches": lambda: [INDEX.search(row, 10, beam=64) for row in ROWS[:2000]],
    "exact": lambda: sw.exact_search(ROWS, ROWS[:4000], 10),
    "balance": lambda: INDEX.balance(),
    "get": lambda: INDEX.get(np.tile(np.arange(40_000), 4)),
}


@pytest.fixture(scope="module", autouse=True)
def filled():
    INDEX.add(ROWS)
    INDEX.balance()
    yield
    INDEX.close()


@pytest.mark.parametrize("name", ["search", "exact", "add", "get"])
def test_the_interpreter_is_free_during_a_call(name):
    # If the call held the interpreter, the counter would stand still while it runs. How much of its rate it keeps beside threads that
    # compute depends on the machine, and is for the benchmarks.
    call = CALLS[name]
    counter = Counter()
    counter.start()
    try:
        free = rate(counter, lambda: time.sleep(0.2))
        rates = []
        while len(rates) < 5 and (not rates or max(rates) < 0.1 * free):
            rates.append(rate(counter, call))
    finally:
        counter.stop = True
        counter.join()
    assert max(rates) > 0.1 * free, (rates, free)


def test_a_call_ends_though_another_thread_never_rests():
    counter = Counter()
    counter.start()
    try:
        assert INDEX.search(ROWS[:500], 5).ids.shape == (500, 5)
        assert sum(int(INDEX.search(row, 1).counts) for row in ROWS[:50]) == 50
    finally:
        counter.stop = True
        counter.join()


def test_searching_while_adding_and_removing_never_fails_and_loses_nothing():
    index = sw.Index(DIM, "l2")
    rows = clustered(12_000, DIM)
    index.add(rows[:2000])
    done = threading.Event()

    def add(first):
        for start in range(first, first + 5000, 250):
            index.add(rows[start : start + 250], np.arange(start, start + 250))

    def change():
        add(2000)
        add(7000)
        done.set()

    def search():
        while not done.is_set():
            found = index.search(rows[:50], 3, **EXACT)
            # Rows that were there before and stay are never missed.
            assert (found.ids[:, 0] == np.arange(50)).all()
            assert (np.sort(found.ids, axis=1)[:, 1:] != np.sort(found.ids, axis=1)[:, :-1]).all()

    def churn():
        for _ in range(ROUNDS * 3):
            ids = np.arange(1000, 2000)
            index.remove(ids[::2])
            index.add(rows[1000:2000], ids)

    def look():
        while not done.is_set():
            assert 2000 - 500 <= len(index) <= 12_000
            assert 7 in index and index.get(7).tobytes() == rows[7].tobytes()
            assert index.stats()["rows"] <= 12_000
            repr(index)

    together(change, search, search, churn, look)
    index.balance()
    index.validate()
    assert index.ids().tolist() == list(range(12_000))
    assert index.get(index.ids()).tobytes() == rows.tobytes()
    assert (index.search(rows[::10], 1, **EXACT).ids[:, 0] == np.arange(0, 12_000, 10)).all()


@pytest.mark.parametrize("round", range(ROUNDS))
def test_eight_threads_add_the_same_fifty_ids(round):
    index = sw.Index(DIM, "l2")
    versions = [clustered(50, DIM, seed=100 + thread) for thread in range(8)]

    def add(thread):
        for _ in range(10):
            index.add(versions[thread], np.arange(50))

    together(*(lambda thread=thread: add(thread) for thread in range(8)))
    index.validate()
    assert len(index) == 50 and index.ids().tolist() == list(range(50))
    # A batch is applied as a whole, so all rows are of one thread.
    stored = index.get(np.arange(50)).tobytes()
    assert stored in [version.tobytes() for version in versions]
    assert sorted(index.search(versions[0][0], 100, **EXACT).ids[:50]) == list(range(50))


@pytest.mark.parametrize("round", range(ROUNDS))
def test_a_first_batch_from_many_threads(round):
    index = sw.Index(DIM, "l2")
    rows = clustered(4000, DIM, seed=round)

    def add(thread):
        for start in range(thread * 500, thread * 500 + 500, 50):
            assert index.add(rows[start : start + 50], np.arange(start, start + 50)) == (50, 0)

    def search():
        for _ in range(20):
            index.search(rows[:20], 5)

    together(*(lambda thread=thread: add(thread) for thread in range(8)), search, search)
    index.balance()
    index.validate()
    assert index.ids().tolist() == list(range(4000))
    wanted = truth("l2", rows[::40], rows, np.arange(4000), 1)[0]
    assert (index.search(rows[::40], 1, **EXACT).ids == wanted).all()


def test_ids_of_the_counter_are_given_once():
    index = sw.Index(DIM)
    together(*(lambda: [index.add(clustered(10, DIM)) for _ in range(20)] for _ in range(6)))
    assert len(index) == 1200 and index.ids().tolist() == list(range(1200))


def test_one_thread_or_many_find_the_same():
    rows = clustered(5000, DIM)
    one, many = sw.Index(DIM, threads=1), sw.Index(DIM, threads=4)
    for index in (one, many):
        index.add(rows)
        index.balance()
    queries = clustered(300, DIM, seed=1)
    for options in ({"beam": 20}, EXACT):
        for index in (one, many):
            found = [index.search(queries, 10, **options, threads=threads) for threads in (1, 2, 7)]
            assert all(other == found[0] for other in found)
    # However the threads made the tree, all of it says the same.
    assert one.search(queries, 10, **EXACT) == many.search(queries, 10, **EXACT) == found[0]
    exact = [sw.exact_search(rows, queries, 10, threads=threads) for threads in (1, 2, 7)]
    assert all(other == found[0] for other in exact)


def test_an_index_is_freed_with_its_last_reference():
    index = sw.Index(DIM)
    index.add(clustered(1000, DIM))
    # Neither results nor filters nor a callback that is done hold it, and it is in no cycle.
    kept = index.search(clustered(5, DIM), 3, progress=lambda done, total: None), sw.Filter.allow([1]), index.get([1, 2])
    gone = weakref.ref(index)
    gc.disable()
    try:
        del index
        assert gone() is None
    finally:
        gc.enable()
    assert kept[0].ids.shape == (5, 3)


def test_indexes_made_and_dropped_leave_no_threads():
    before = threading.active_count()
    for _ in range(20):
        index = sw.Index(DIM)
        index.add(clustered(500, DIM))
        index.search(clustered(3, DIM))
    del index
    assert threading.active_count() == before


def test_a_reader_that_is_closed_while_it_moves_on_stays_closed(tmp_path, monkeypatch):
    with sw.Writer(tmp_path, 4) as writer:
        writer.add(np.eye(4))
        writer.commit()
        reader, opener = sw.Reader(tmp_path), sw.durable._core.open_reader
        writer.remove(0)

    def late(*options):
        opened = opener(*options)
        # As another thread may do at this moment.
        reader.close()
        return opened

    monkeypatch.setattr(sw.durable._core, "open_reader", late)
    with pytest.raises(ValueError, match="closed"):
        reader.refresh()
    assert reader.closed
