"""Random operations against a dict and exact search; the index proves its invariants after each step."""

import os
import threading

import numpy as np
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import sapwood as sw
from conftest import EXACT, METRICS, STRESS, assert_same_up_to_ties

DIM = 6
# Few ids, so that additions replace and removals hit; and the largest one, after which the counter has no more to give.
IDS = st.one_of(st.integers(0, 60), st.integers(0, 60), st.integers(0, 2**62))
SEEDS = st.integers(0, 2**32 - 1)


def rows_of(seed, count):
    """Rows that are often alike: copies, near-copies, zeros and far ones, as real data has them."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((count, DIM)).astype(np.float32)
    kind = rng.integers(6)
    if kind == 0:
        rows[:] = rows[:1] if count else 0
    elif kind == 1:
        rows = (rows[:1] + 1e-6 * rows).astype(np.float32)
    elif kind == 2:
        rows[rng.random(count) < 0.3] = 0
    elif kind == 3:
        rows *= 10.0 ** rng.integers(-3, 4)
    elif kind == 4:
        rows = np.round(rows).astype(np.float32)
    return rows


def balance(index):
    """Balances, and fails where that has no end; an index as small as these takes some thousandths of a second."""
    thread = threading.Thread(target=index.balance, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive(), f"balance() has no end: {index.stats()}"


class Machine(RuleBasedStateMachine):
    """An index of tiny leaves beside the plainest model of it."""

    @initialize(
        metric=st.sampled_from(METRICS),
        spill=st.integers(0, 1),
        split=st.sampled_from([8, 16, 40]),
        wait=st.booleans(),
        storage=st.sampled_from(["f32", "f32", "rabitq3", "rabitq4", "rabitq8"]),
    )
    def make(self, metric, spill, split, wait, storage):
        self.metric, self.model, self.next = metric, {}, 0
        self.coded = storage != "f32"
        # Balanced after each step, or whenever the background threads come to it.
        self.wait = wait
        self.index = sw.Index(DIM, metric, spill=spill, split_threshold=split, branching=4, threads=2, storage=storage)

    def store(self, ids, rows):
        ids = list(ids)
        if self.coded and ids:
            # From here on these are the rows, to the last bit.
            rows = self.index.get(ids)
        for id, row in zip(ids, rows, strict=True):
            self.model[id] = row
            self.next = max(self.next, id + 1)

    @rule(ids=st.lists(IDS, max_size=40), seed=SEEDS)
    def add(self, ids, seed):
        rows = rows_of(seed, len(ids))
        known = len(set(ids) & set(self.model))
        assert self.index.add(rows, ids) == (len(set(ids)) - known, known)
        self.store(ids, rows)

    @rule(count=st.integers(0, 200), seed=SEEDS)
    def add_by_the_counter(self, count, seed):
        rows = rows_of(seed, count)
        first = self.next
        assert self.index.add(rows) == (count, 0)
        self.store(range(first, first + count), rows)

    @rule(ids=st.lists(IDS, max_size=30))
    def remove(self, ids):
        assert self.index.remove(ids) == len({id for id in ids if self.model.pop(id, None) is not None})

    @precondition(lambda self: len(self.model) > 20)
    @rule(share=st.floats(0, 1), seed=SEEDS)
    def remove_many(self, share, seed):
        ids = np.array(sorted(self.model))
        ids = ids[np.random.default_rng(seed).random(len(ids)) < share]
        assert self.index.remove(ids) == len(ids)
        for id in ids.tolist():
            del self.model[id]

    @rule(seed=SEEDS, bad=st.sampled_from([np.nan, np.inf, -np.inf]))
    def refuse(self, seed, bad):
        rows = rows_of(seed, 12)
        rows[7, 2] = bad
        for ids in (None, np.arange(12)):
            try:
                self.index.add(rows, ids)
            except ValueError as error:
                assert "row 7" in str(error)
            else:
                raise AssertionError("a bad row was accepted")

    @rule()
    def balance(self):
        balance(self.index)
        assert self.index.stats()["queue"] == 0

    @rule(seed=SEEDS, k=st.sampled_from([1, 3, 10, 300]), listed=st.one_of(st.none(), st.lists(IDS, max_size=80)), allow=st.booleans())
    def search(self, seed, k, listed, allow):
        queries = rows_of(seed, 5)
        filter, ids = None, np.array(sorted(self.model), np.int64)
        if listed is not None:
            filter = sw.Filter.allow(listed) if allow else sw.Filter.deny(listed)
            ids = ids[np.isin(ids, np.array(listed, np.int64)) == allow]
        rows = np.array([self.model[id] for id in ids.tolist()], np.float32).reshape(-1, DIM)
        truth = sw.exact_search(rows, queries, k, self.metric)
        wanted = np.where(truth.ids >= 0, ids[truth.ids] if len(ids) else -1, -1)
        found = self.index.search(queries, k, filter=filter, **EXACT)
        if self.coded:
            # Distances to codes are computed another way, and rounded by a share of the squared lengths.
            longest = 1 + np.square(queries).sum(1).max() + np.square(rows).sum(1).max(initial=0)
            assert_same_up_to_ties(found, (wanted, truth.distances), rtol=0, atol=4e-6 * longest)
        else:
            # Distances come from the same stored rows, so they are equal to the last bit, and ties are ordered by id.
            np.testing.assert_array_equal(found.distances, truth.distances)
            np.testing.assert_array_equal(found.ids, wanted)
        # With the usual settings nothing dead, nothing twice and nothing that the filter forbids.
        for row, values in zip(*self.index.search(queries, k, filter=filter), strict=True):
            real = row[row >= 0]
            assert len(set(real)) == len(real) and set(real) <= set(ids.tolist())
            assert (np.diff(values[: len(real)]) >= 0).all() and np.isposinf(values[len(real) :]).all()

    @precondition(lambda self: self.model)
    @rule(seed=SEEDS)
    def get(self, seed):
        ids = np.random.default_rng(seed).choice(sorted(self.model), 10)
        rows = np.array([self.model[id] for id in ids.tolist()])
        if self.metric == "cosine" and not self.coded:
            norms = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
            np.testing.assert_allclose(self.index.get(ids), rows / np.where(norms > 0, norms, 1), atol=1e-6)
        else:
            np.testing.assert_array_equal(self.index.get(ids), rows)

    @rule(id=IDS)
    def contains(self, id):
        assert (id in self.index) == (id in self.model)

    @invariant()
    def whole(self):
        if not hasattr(self, "index"):
            return
        if self.wait:
            balance(self.index)
        self.index.validate()
        assert len(self.index) == len(self.model)
        assert self.index.ids().tolist() == sorted(self.model)

    def teardown(self):
        if hasattr(self, "index"):
            self.index.close()


def test_random_operations():
    from hypothesis.stateful import run_state_machine_as_test

    profile = settings(
        max_examples=5000 if STRESS else 300,
        stateful_step_count=50 if STRESS else 25,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        # In CI the same cases each time; a failure must not come and go.
        derandomize=os.environ.get("CI") == "true",
        phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
        print_blob=True,
    )
    run_state_machine_as_test(Machine, settings=profile)
