"""rabitqlib: the authors' own library of RaBitQ codes, in a graph (SymphonyQG) and in inverted lists."""

from __future__ import annotations

import math
from typing import Any

from sapwood_bench.engine import Matrix, Setting
from sapwood_bench.measure import Phases

from .unit_rows import UnitRows


class RabitqPeer(UnitRows):
    """Their rotation takes multiples of 64 dimensions only, so rows of other widths end in zeros here."""

    package = "rabitqlib"
    multiple = 64

    def __init__(self) -> None:
        super().__init__()
        import rabitqlib

        self.rabitqlib = rabitqlib
        self.index: Any = None
        self.threads = 1

    @property
    def metric_name(self) -> str:
        return "ip" if self.inner_product else "l2"


class SymphonyQg(RabitqPeer):
    """A static graph with one-bit codes beside each node's edges.

    Options are `degree` (a multiple of 32) and `construction`; a setting is `ef`.
    """

    def construct(self, phases: Phases, threads: int, options: Setting) -> None:
        self.index = self.rabitqlib.SymqgIndex(self.vectors.shape[1], options["degree"], metric=self.metric_name)
        self.index.build(self.vectors, options["construction"], num_threads=threads)
        phases.mark("build")

    def prepare(self, setting: Setting, threads: int) -> None:
        self.effort, self.threads = setting["ef"], threads

    def search(self, queries: Matrix, k: int) -> Any:
        # It refuses an effort of less than k.
        return self.index.search(queries, k, max(self.effort, k), num_threads=self.threads)


class RabitqIvf(RabitqPeer):
    """Inverted lists of codes without the vectors.

    Options are `bits`, 1 to 9, and `lists_factor`, times the square root of the rows; a setting is `nprobe`.
    """

    def construct(self, phases: Phases, threads: int, options: Setting) -> None:
        rows, dim = self.vectors.shape
        lists = round(options["lists_factor"] * math.sqrt(rows))
        clusters = self.rabitqlib.RaBitQKMeans(dim, lists, num_threads=threads, spherical=self.metric == "cosine", seed=1)
        clusters.train(self.vectors)
        phases.mark("train")
        self.index = self.rabitqlib.IvfIndex(dim, rows, lists, options["bits"], self.metric_name)
        self.index.build(self.vectors, clusters.centroids, clusters.assignments, num_threads=threads)
        phases.mark("add")

    def prepare(self, setting: Setting, threads: int) -> None:
        self.effort, self.threads = min(setting["nprobe"], self.index.num_clusters), threads

    def search(self, queries: Matrix, k: int) -> Any:
        return self.index.search(queries, k, self.effort, num_threads=self.threads)
