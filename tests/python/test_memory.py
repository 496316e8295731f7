"""Memory stays flat under searches, changes and refused calls, and `stats()` agrees with the process. Each case has its own process."""

import pytest

from conftest import STRESS, run_child

COMMON = """
    import gc, os, sys
    import numpy as np, sapwood as sw

    ROUNDS = int(sys.argv[1])

    def resident():
        gc.collect()
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def flat(work, rounds, slack=0.05):
        # After a warm-up of half the rounds the other half may not add more than the slack; an allocator's own coming and going is
        # averaged out by taking the least of several looks.
        for round in range(rounds // 2):
            work(round)
        before = max(resident() for _ in range(3))
        for round in range(rounds // 2, rounds):
            work(round)
        after = min(resident() for _ in range(3))
        grown = after - before
        assert grown < slack * before + 4_000_000, f"{before / 1e6:.1f} MB, {grown / 1e6:+.1f} MB"

    rng = np.random.default_rng(0)
    rows = rng.standard_normal((10_000, 64), dtype=np.float32)
    index = sw.Index(64)
    index.add(rows)
    index.balance()
"""

pytestmark = pytest.mark.skipif(not __import__("os").path.exists("/proc/self/statm"), reason="needs /proc/self/statm")


@pytest.mark.parametrize(
    ("name", "rounds", "work"),
    [
        ("searches", 20_000, "index.search(rows[round % 10_000], 10, beam=4)"),
        ("batches", 60, "index.search(rows[:500], 10, beam=4)"),
        ("filtered searches", 2000, "index.search(rows[round % 10_000], 10, filter=np.arange(2000))"),
        ("converted queries", 2000, "index.search(rows[:4].tolist(), 10, beam=4)"),
        ("exact searches", 200, "sw.exact_search(rows, rows[:20], 10)"),
        (
            "refused calls",
            2000,
            "refused(lambda: index.add(np.full((10, 64), np.nan)), lambda: index.search([1, 2]), lambda: index.get(-1))",
        ),
        ("progress", 200, "sw.exact_search(rows, rows[:20], 10, progress=lambda done, total: None)"),
        ("replacing", 200, "index.add(rows[:1000], np.arange(1000))"),
    ],
)
def test_memory_is_flat_under(name, rounds, work):
    script = f"""
    def refused(*calls):
        for call in calls:
            try:
                call()
            except ValueError:
                pass
            else:
                raise AssertionError

    flat(lambda round: {work}, ROUNDS)
    """
    run_child(COMMON + script, rounds * 10 if STRESS else rounds, timeout=1000 if STRESS else 100)


def test_memory_is_flat_under_churn():
    script = """
    def work(round):
        start = round * 500 % 10_000
        ids = np.arange(start, start + 500)
        index.remove(ids)
        index.add(rng.standard_normal((500, 64), dtype=np.float32), ids)
        index.balance()

    flat(work, ROUNDS, slack=0.08)
    assert len(index) == 10_000
    index.validate()
    """
    run_child(COMMON + script, 400 if STRESS else 120, timeout=1000 if STRESS else 100)


def test_memory_is_flat_when_indexes_come_and_go():
    script = """
    def work(round):
        other = sw.Index(64)
        other.add(rows[:3000])
        other.search(rows[:3], 5)
        if round % 2:
            other.close()

    flat(work, ROUNDS)
    """
    run_child(COMMON + script, 400 if STRESS else 60, timeout=1000 if STRESS else 100)


def test_small_additions_do_not_pile_up():
    script = """
    index.close()
    index = sw.Index(64)
    before = resident()
    for row in rows[:ROUNDS]:
        index.add(row, len(index))
    index.balance()
    assert len(index) == ROUNDS
    # Vectors, postings and slack: a few times what the rows alone take.
    assert resident() - before < 6 * ROUNDS * 64 * 4 + 20_000_000
    """
    run_child(COMMON + script, 10_000 if STRESS else 1000)


def test_stats_agree_with_the_process():
    script = """
    index.close()
    big = rng.standard_normal((150_000, 128), dtype=np.float32)
    before = resident()
    index = sw.Index(128)
    index.add(big)
    index.balance()
    taken, told = resident() - before, index.stats()["bytes"]
    raw = big.nbytes
    # What the allocator and the threads keep is not the index's, but it has to be small.
    assert told <= 1.1 * taken + 10_000_000 and taken <= 1.35 * told + 40_000_000, (taken / 1e6, told / 1e6)
    assert told < 1.5 * raw, (told / raw)
    index.close()
    assert resident() - before < 0.4 * taken + 20_000_000
    """
    run_child(COMMON + script, 0)
