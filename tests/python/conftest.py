"""What the tests share: data with a shape, formulas in numpy, and children that run a script."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import sapwood as sw

STRESS = os.environ.get("SAPWOOD_STRESS") == "1"
METRICS = ["l2", "cosine", "ip"]
EVERYTHING = 10**9
"""A beam that visits every leaf."""
EXACT = {"beam": EVERYTHING, "rerank": 1 << 20}
"""Options of a search that compares every row: the codes' bounds, which hold for nearly all rows, leave nothing out."""


def clustered(count, dim, seed=0, centres=50):
    """Rows around centres of unequal weight, as embeddings are. The centres are the same for every seed."""
    middle = np.random.default_rng(12345).standard_normal((centres, dim))
    rng = np.random.default_rng(seed)
    weight = 1 / np.arange(1, centres + 1)
    which = rng.choice(centres, count, p=weight / weight.sum())
    return (middle[which] + 0.5 * rng.standard_normal((count, dim))).astype(np.float32)


def distances(metric, queries, rows):
    """The formulas of `help(sapwood.Index)`, in float64."""
    queries, rows = np.asarray(queries, np.float64), np.asarray(rows, np.float64)
    if metric == "l2":
        return ((queries[:, None, :] - rows[None, :, :]) ** 2).sum(-1)
    if metric == "ip":
        return -(queries @ rows.T)
    norms = np.linalg.norm(queries, axis=1)[:, None] * np.linalg.norm(rows, axis=1)[None, :]
    return 1 - np.divide(queries @ rows.T, norms, out=np.zeros_like(norms), where=norms > 0)


def truth(metric, queries, rows, ids, k):
    """The k nearest by the formulas: (ids, distances), padded with -1 and +inf."""
    table = distances(metric, queries, rows)
    found = np.full((len(queries), k), -1), np.full((len(queries), k), np.inf)
    for q, row in enumerate(table):
        best = np.lexsort((ids, row))[:k]
        found[0][q, : len(best)], found[1][q, : len(best)] = np.asarray(ids)[best], row[best]
    return found


def assert_same_up_to_ties(found, wanted, rtol=1e-5, atol=1e-5):
    """Equal distances at every place, and equal ids wherever the distance is not shared with a neighbour."""
    ids, values = (np.atleast_2d(part) for part in found)
    wanted_ids, wanted_values = (np.atleast_2d(part) for part in wanted)
    assert ids.shape == wanted_ids.shape
    np.testing.assert_allclose(values, wanted_values, rtol=rtol, atol=atol)
    for place in zip(*np.nonzero(ids != wanted_ids), strict=True):
        near = np.isclose(wanted_values[place[0]], wanted_values[place], rtol=4 * rtol, atol=4 * atol)
        # What shares the last place's distance may be just outside the list.
        assert near.sum() > 1 or near[-1], f"{ids[place]} instead of {wanted_ids[place]} at {place}"


def recall(ids, wanted):
    """The share of the true neighbours that were found."""
    hits = [len(set(row[row >= 0]) & set(true[true >= 0])) for row, true in zip(ids, wanted, strict=True)]
    return sum(hits) / max(1, (wanted >= 0).sum())


def run_child(script, *arguments, timeout=100):
    """Runs a script in a process of its own; its failure is the test's."""
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@contextlib.contextmanager
def start_child(script, *arguments):
    """A script that runs in a process of its own, and is killed at the end; its output comes through pipes, as bytes."""
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(script), *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        try:
            yield child
        finally:
            child.kill()


@pytest.fixture
def index():
    """An index of 200 rows of 8 values, ids 0 to 199, under l2."""
    with sw.Index(8, "l2") as made:
        made.add(clustered(200, 8))
        yield made
