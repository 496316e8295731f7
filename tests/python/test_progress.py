"""Progress: monotone, seldom, complete; an exception ends the call and changes nothing; without it nothing is printed."""

import itertools
import sys
import time
import types

import numpy as np
import pytest

import sapwood as sw
from conftest import clustered

ROWS = clustered(30_000, 64)


def filled():
    index = sw.Index(64)
    index.add(ROWS)
    index.balance()
    return index


def calls(index):
    """Each long call: (how it is made, its total or None where the work says it)."""
    return {
        "add": (lambda progress: index.add(ROWS, np.arange(len(ROWS)), progress=progress), len(ROWS)),
        "add converted": (lambda progress: index.add(ROWS.astype(float), np.arange(len(ROWS)), progress=progress), len(ROWS)),
        "search": (lambda progress: index.search(ROWS[:8000], 10, beam=8, progress=progress), 8000),
        "search converted": (lambda progress: index.search(ROWS[:4000].astype(float), 10, beam=8, progress=progress), 4000),
        "exact": (lambda progress: sw.exact_search(ROWS, ROWS[:2000], 10, progress=progress), 2000),
        "exact converted": (lambda progress: sw.exact_search(ROWS.astype(float), ROWS[:2000], 10, progress=progress), 2000),
    }


CALLS = list(calls(None))


@pytest.mark.parametrize("name", CALLS)
def test_reports_are_monotone_seldom_and_complete(name):
    call, total = calls(filled())[name]
    reports, times = [], []

    def progress(done, total):
        reports.append((done, total))
        times.append(time.monotonic())

    began = time.monotonic()
    call(progress)
    took = time.monotonic() - began
    assert reports[-1] == (total, total)
    assert all(all(type(number) is int for number in report) for report in reports)
    assert all(0 <= a[0] <= b[0] <= total and b[1] == total for a, b in itertools.pairwise(reports))
    # At most ten a second, and one at the end.
    assert len(reports) <= took * 10 + 2
    assert all(later - earlier > 0.09 for earlier, later in itertools.pairwise(times[:-1]))


def test_balance_reports_to_its_end():
    index = sw.Index(64)
    index.add(ROWS)
    reports = []
    index.balance(progress=lambda done, total: reports.append((done, total)))
    assert [done for done, _ in reports] == sorted(done for done, _ in reports)
    assert all(0 <= done <= total for done, total in reports)
    assert len(reports) > 1 and reports[-1][0] == reports[-1][1] > len(ROWS)
    reports.clear()
    index.balance(progress=lambda done, total: reports.append((done, total)))
    assert not reports, "nothing was left to do"


def test_evaluate_reports_each_setting(index):
    rows = clustered(100, 8)
    index.add(rows)
    truth = sw.exact_search(rows, rows[:5], 3).ids
    reports = []
    settings = [{}, {"beam": 1}]
    sw.evaluate(index, rows[:5], truth, k=3, settings=settings, seconds=0.01, progress=lambda *report: reports.append(report))
    assert reports == [(1, 2), (2, 2)]
    with pytest.raises(ZeroDivisionError):
        sw.evaluate(index, rows[:5], truth, k=3, settings=settings, seconds=0.01, progress=lambda done, total: 1 // 0)
    with pytest.raises(TypeError, match="progress: expected a callable"):
        sw.evaluate(index, rows[:5], truth, k=3, seconds=0.01, progress=3)


def test_short_calls_report_their_end(index):
    reports = []

    def progress(done, total):
        reports.append((done, total))

    index.add(clustered(3, 8), progress=progress)
    index.search(clustered(2, 8), progress=progress)
    sw.exact_search(clustered(3, 8), clustered(1, 8), progress=progress)
    assert reports == [(3, 3), (2, 2), (1, 1)]
    index.add(np.empty((0, 8)), progress=progress)
    index.search(np.empty((0, 8)), progress=progress)
    assert len(reports) == 3


class Stop(Exception):
    pass


@pytest.mark.parametrize("name", CALLS)
def test_an_exception_ends_the_call_and_comes_through(name):
    index = filled()
    before = index.ids().tobytes(), index.get(5).tobytes()
    seen = []

    def progress(done, total):
        seen.append(done)
        raise Stop("enough")

    with pytest.raises(Stop, match="enough"):
        calls(index)[name][0](progress)
    assert len(seen) == 1
    assert (index.ids().tobytes(), index.get(5).tobytes()) == before
    index.validate()
    assert index.search(ROWS[7], 1).ids.tolist() == [7]


def test_an_exception_during_an_addition_applies_nothing():
    index = sw.Index(64)

    def progress(done, total):
        if done < total:
            raise Stop

    for rows in (ROWS, ROWS.astype(float)):
        try:
            index.add(rows, progress=progress)
        except Stop:
            assert len(index) == 0 and index.search(ROWS[0], 3).ids.tolist() == [-1] * 3
            index.validate()
        else:
            # Too quick to be told before its end: then all of it is there.
            assert len(index) == len(ROWS)
            index.remove(index.ids())


def test_a_callback_may_use_the_index(index):
    rows = clustered(20_000, 8)
    found = []
    index.add(rows, np.arange(20_000), progress=lambda done, total: found.append(int(index.search(rows[0], 1).counts)))
    assert found and set(found) == {1}


def test_nothing_is_printed(capfd):
    index = filled()
    for number, (call, _) in enumerate(calls(index).values()):
        call([None, False, lambda done, total: None][number % 3])
    index.balance()
    index.remove(np.arange(20_000))
    index.balance()
    with pytest.raises(ValueError, match="closed"):
        index.close()
        index.search(ROWS[0])
    assert tuple(capfd.readouterr()) == ("", "")


def test_true_shows_a_bar_by_tqdm(monkeypatch):
    bars = []

    class Bar:
        def __init__(self, total, unit, unit_scale):
            self.total, self.unit, self.n, self.closed = total, unit, 0, False
            bars.append(self)

        def update(self, step):
            assert step >= 0
            self.n += step

        def close(self):
            self.closed = True

    module = types.ModuleType("tqdm.auto")
    module.tqdm = Bar
    monkeypatch.setitem(sys.modules, "tqdm", types.ModuleType("tqdm"))
    monkeypatch.setitem(sys.modules, "tqdm.auto", module)
    sw.exact_search(ROWS, ROWS[:2000], 10, progress=True)
    (bar,) = bars
    assert (bar.n, bar.total, bar.unit, bar.closed) == (2000, 2000, " queries", True)
    with pytest.raises(ValueError, match="NaN"):
        sw.exact_search(ROWS, np.full((2000, 64), np.nan), progress=True)
    assert all(bar.closed for bar in bars)


def test_true_without_tqdm_writes_one_line_to_stderr(monkeypatch, capfd):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    sw.exact_search(ROWS, ROWS[:2000], 10, progress=True)
    out, err = capfd.readouterr()
    assert out == "" and err.endswith("\r2,000 of 2,000 queries\n") and err.count("\n") == 1
