"""SVS: Intel's Vamana graph that takes additions and deletions, over full vectors."""

from __future__ import annotations

from typing import Any

import numpy as np

from sapwood_bench.engine import Matrix, Setting
from sapwood_bench.measure import Phases

from .unit_rows import UnitRows

# What they recommend for a metric that is minimised, and for one that is maximised.
ALPHA_L2 = 1.2
ALPHA_IP = 0.95


class SvsVamana(UnitRows):
    """Options are `degree` and `construction` (its window while building); a setting is `window`."""

    package = "scalable-vs"

    def __init__(self) -> None:
        super().__init__()
        import svs

        self.svs = svs
        self.index: Any = None

    def construct(self, phases: Phases, threads: int, options: Setting) -> None:
        svs = self.svs
        parameters = svs.VamanaBuildParameters(
            alpha=ALPHA_IP if self.inner_product else ALPHA_L2,
            graph_max_degree=options["degree"],
            window_size=options["construction"],
        )
        distance = svs.DistanceType.MIP if self.inner_product else svs.DistanceType.L2
        ids = np.arange(len(self.vectors), dtype=np.uint64)
        self.index = svs.DynamicVamana.build(parameters, self.vectors, ids, distance, threads)
        phases.mark("build")

    def prepare(self, setting: Setting, threads: int) -> None:
        self.index.search_window_size = setting["window"]
        self.index.num_threads = threads

    def search(self, queries: Matrix, k: int) -> Any:
        return self.index.search(queries, k)
