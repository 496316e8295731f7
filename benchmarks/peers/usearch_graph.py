"""USearch: a compact HNSW."""

from __future__ import annotations

from typing import Any

import numpy as np

from sapwood_bench.engine import Matrix, Setting
from sapwood_bench.measure import Ids, Phases

from .unit_rows import UnitRows


class Usearch(UnitRows):
    """Options are `degree` (its connectivity) and `construction`; a setting is `ef`."""

    package = "usearch"

    def __init__(self) -> None:
        super().__init__()
        import usearch.index

        self.usearch = usearch.index
        self.index: Any = None
        self.threads = 1

    def construct(self, phases: Phases, threads: int, options: Setting) -> None:
        rows, dim = self.vectors.shape
        self.index = self.usearch.Index(
            ndim=dim,
            metric="ip" if self.inner_product else "l2sq",
            dtype="f32",
            connectivity=options["degree"],
            expansion_add=options["construction"],
        )
        self.index.add(np.arange(rows), self.vectors, threads=threads)
        phases.mark("add")

    def prepare(self, setting: Setting, threads: int) -> None:
        self.index.expansion_search = setting["ef"]
        self.threads = threads

    def search(self, queries: Matrix, k: int) -> Any:
        return self.index.search(queries, k, threads=self.threads)

    def results(self, raw: list[Any]) -> tuple[Ids, dict[str, int]]:
        return super().results([(matches.keys,) for matches in raw])
