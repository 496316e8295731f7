"""Exact search: the ground truth of every recall, and an engine to be measured itself."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .engine import Answer, Matrix
from .measure import Ids

Distances = NDArray[np.float32]


class Exact(ABC):
    """Brute force over the raw rows, in a child process of its own."""

    def __init__(self) -> None:
        self.vectors: Matrix = np.empty((0, 0), np.float32)
        self.metric = "cosine"

    @abstractmethod
    def versions(self) -> dict[str, str]:
        """Names and versions of what is measured."""

    @abstractmethod
    def hold(self, rows: int, threads: int) -> None:
        """Get ready to search the first `rows` rows, off the clock."""

    @abstractmethod
    def nearest(self, queries: Matrix, k: int) -> tuple[Any, Any]:
        """Distances and ids of the k nearest rows, as the engine gives them."""

    def load(self, base: str, metric: str) -> Answer:
        """Read the raw rows."""
        self.metric = metric
        self.vectors = np.load(base)
        return {"rows": len(self.vectors)}

    def exact(self, queries: str, k: int, rows: int, threads: int, out: str) -> Answer:
        """Search a batch once; the ids and distances are written to `out`-*.npy."""
        wanted = np.load(queries)
        self.hold(rows, threads)
        start = time.perf_counter()
        distances, ids = self.nearest(wanted, k)
        seconds = time.perf_counter() - start
        np.save(f"{out}-ids.npy", np.asarray(ids, dtype=np.int64))
        np.save(f"{out}-distances.npy", self.smaller_is_nearer(distances))
        return {"seconds": seconds}

    def smaller_is_nearer(self, distances: Any) -> Distances:
        """The engine's distances in our contract's units."""
        return np.asarray(distances, dtype=np.float32)


class NumpyExact(Exact):
    """The plainest reference there is, in double precision; for a few queries."""

    def versions(self) -> dict[str, str]:
        return {}

    def hold(self, rows: int, threads: int) -> None:
        self.rows = self.vectors[:rows].astype(np.float64)
        if self.metric == "cosine":
            self.rows /= np.linalg.norm(self.rows, axis=1, keepdims=True)

    def nearest(self, queries: Matrix, k: int) -> tuple[Any, Any]:
        wanted = queries.astype(np.float64)
        if self.metric == "cosine":
            wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
        products = wanted @ self.rows.T
        if self.metric == "cosine":
            distances = 1.0 - products
        elif self.metric == "ip":
            distances = -products
        else:
            distances = (self.rows**2).sum(axis=1) - 2 * products
            distances += (wanted**2).sum(axis=1)[:, None]
        ids = np.argsort(distances, axis=1, kind="stable")[:, :k]
        return np.take_along_axis(distances, ids, axis=1), ids


def agreement(ids: Ids, distances: Distances, other_ids: Ids, other_distances: Distances) -> tuple[float, float]:
    """How far two exact answers agree: share of equal ids, largest distance apart.

    Ids may differ among rows at one distance; the sorted distances may not.
    """
    same = (ids[:, :, None] == other_ids[:, None, :]).any(axis=2).mean()
    apart = np.abs(distances.astype(np.float64) - other_distances).max()
    return float(same), float(apart)
