"""FAISS inverted lists with fast-scan codes (product quantisation, RaBitQ) and exact refinement."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sapwood_bench.engine import Answer, Engine, Matrix, Setting
from sapwood_bench.measure import Ids, Phases


class FaissIvf(Engine):
    """Any factory string around an IVF; options are `factory`, `metric`, `k_factor`.

    In the factory string {nlist} stands for 4 sqrt(rows), {dim} for the dimensions and
    {half} for half of them. The metric "ip" ranks unit rows as cosine does.
    """

    def __init__(self) -> None:
        super().__init__()
        import faiss

        self.faiss = faiss
        self.index: Any = None
        self.lists: Any = None
        self.k_factor = 1

    def versions(self) -> dict[str, str]:
        return {"faiss": f"{self.faiss.__version__} {_instructions(self.faiss)}"}

    def load(self, base: str, queries: dict[str, str], truth: dict[str, str], metric: str) -> Answer:
        """As every engine, but cosine is the inner product of rows made unit here."""
        answer = super().load(base, queries, truth, metric)
        if self.metric == "cosine":
            for rows in (self.vectors, *self.queries.values()):
                self.faiss.normalize_L2(rows)
        return answer

    def construct(self, phases: Phases, threads: int, options: Setting) -> None:
        rows, dim = self.vectors.shape
        lists = round(4 * math.sqrt(rows))
        factory = options["factory"].format(nlist=lists, dim=dim, half=dim // 2)
        metric = {
            "ip": self.faiss.METRIC_INNER_PRODUCT,
            "l2": self.faiss.METRIC_L2,
        }[options["metric"]]
        self.faiss.omp_set_num_threads(threads)
        self.index = self.faiss.index_factory(dim, factory, metric)
        self.index.train(self.vectors)
        phases.mark("train")
        self.index.add(self.vectors)
        phases.mark("add")
        self.lists = self.faiss.extract_index_ivf(self.index)
        if "k_factor" in options:
            self.k_factor = self.index.k_factor = options["k_factor"]

    def prepare(self, setting: Setting, threads: int) -> None:
        # OpenMP keeps the count a thread: each searching thread sets its own.
        self.faiss.omp_set_num_threads(threads)
        self.lists.nprobe = setting["nprobe"]

    def search(self, queries: Matrix, k: int) -> Any:
        return self.index.search(queries, k)

    def results(self, raw: list[Any]) -> tuple[Ids, dict[str, int]]:
        ids = np.concatenate([found for _, found in raw])
        return ids, {"reranked": ids.size * self.k_factor}

    def singles(self, queries: str, k: int, setting: Setting) -> Answer:
        """As every engine, and the codes scanned, which FAISS counts by itself."""
        counts: Any = self.faiss.cvar
        counts = counts.indexIVF_stats
        counts.reset()
        answer = super().singles(queries, k, setting)
        answer["scanned"] = counts.ndis / counts.nq
        return answer


def _instructions(faiss: Any) -> str:
    """The instruction set that this FAISS chose, as it names it."""
    words = faiss.get_compile_options().split()
    return words[-1] if words else ""
