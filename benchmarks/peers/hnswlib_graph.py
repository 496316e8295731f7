"""hnswlib: the graph that most vector databases began with."""

from __future__ import annotations

from typing import Any

from sapwood_bench.engine import Matrix, Setting
from sapwood_bench.measure import Phases

from .unit_rows import UnitRows


class Hnswlib(UnitRows):
    """Options are `degree` (hnswlib's M) and `construction`; a setting is `ef`."""

    package = "hnswlib"

    def __init__(self) -> None:
        super().__init__()
        import hnswlib

        self.hnswlib = hnswlib
        self.index: Any = None

    def construct(self, phases: Phases, threads: int, options: Setting) -> None:
        rows, dim = self.vectors.shape
        self.index = self.hnswlib.Index(space="ip" if self.inner_product else "l2", dim=dim)
        self.index.init_index(rows, M=options["degree"], ef_construction=options["construction"], random_seed=1)
        self.index.add_items(self.vectors, num_threads=threads)
        phases.mark("add")

    def prepare(self, setting: Setting, threads: int) -> None:
        self.index.set_ef(setting["ef"])
        self.index.set_num_threads(threads)

    def search(self, queries: Matrix, k: int) -> Any:
        return self.index.knn_query(queries, k=k)
