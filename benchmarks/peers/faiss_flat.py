"""FAISS brute force."""

from __future__ import annotations

from typing import Any

import numpy as np

from sapwood_bench.engine import Answer, Matrix
from sapwood_bench.exact import Distances, Exact


class FaissFlat(Exact):
    """IndexFlatIP for "ip" and "cosine" (of rows made unit here), IndexFlatL2 for "l2"."""

    def __init__(self) -> None:
        super().__init__()
        import faiss

        self.faiss = faiss
        self.index: Any = None

    def versions(self) -> dict[str, str]:
        return {"faiss": str(self.faiss.__version__)}

    def load(self, base: str, metric: str) -> Answer:
        answer = super().load(base, metric)
        if self.metric == "cosine":
            self.faiss.normalize_L2(self.vectors)
        return answer

    def hold(self, rows: int, threads: int) -> None:
        self.faiss.omp_set_num_threads(threads)
        if self.index is not None and self.index.ntotal == rows:
            return
        kind = self.faiss.IndexFlatL2 if self.metric == "l2" else self.faiss.IndexFlatIP
        self.index = kind(self.vectors.shape[1])
        self.index.add(self.vectors[:rows])

    def nearest(self, queries: Matrix, k: int) -> tuple[Any, Any]:
        if self.metric == "cosine":
            queries = queries / np.linalg.norm(queries, axis=1, keepdims=True)
        distances, ids = self.index.search(queries, k)
        return distances, ids

    def smaller_is_nearer(self, distances: Any) -> Distances:
        if self.metric == "l2":
            return np.asarray(distances, dtype=np.float32)
        return np.asarray((1.0 if self.metric == "cosine" else 0.0) - distances)
