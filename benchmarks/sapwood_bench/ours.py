"""Sapwood as an engine under measurement."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import live
from .engine import Answer, Engine, Matrix, Setting
from .exact import Exact
from .measure import Ids, Phases


def our_versions() -> dict[str, str]:
    import sapwood

    return {"sapwood": str(getattr(sapwood, "__version__", "unknown"))}


class Ours(Engine):
    """The index in memory, driven through its Python package."""

    def __init__(self) -> None:
        super().__init__()
        import sapwood

        self.sapwood = sapwood
        self.index: Any = None
        self._keywords: Setting = {}
        self._others: dict[str, Any] = {}
        self._kind = "built"

    def versions(self) -> dict[str, str]:
        return our_versions()

    def new_index(self, threads: int, options: Setting) -> Any:
        dim = self.vectors.shape[1]
        return self.sapwood.Index(dim, self.metric, threads=threads, **options)

    def use(self, kind: str) -> None:
        """Make another of several indexes the one that is measured; there is none of a new kind."""
        self._others[self._kind] = self.index
        self._kind, self.index = kind, self._others.get(kind)

    def batch_of(self, kind: str, **arguments: Any) -> Answer:
        """`batch` of one of several indexes."""
        self.use(kind)
        return self.batch(**arguments)

    def construct(self, phases: Phases, threads: int, options: Setting) -> None:
        self.index = self.new_index(threads, options)
        self.index.add(self.vectors)
        phases.mark("add")
        self.index.balance()
        phases.mark("balance")

    def prepare(self, setting: Setting, threads: int) -> None:
        """`tau` may be "off"; a pair of beams is (least, most)."""
        keywords = {k: v for k, v in setting.items() if v != "off"}
        if isinstance(keywords.get("beam"), list):
            keywords["beam"] = tuple(keywords["beam"])
        self._keywords = keywords | {"threads": threads}

    def search(self, queries: Matrix, k: int) -> Any:
        return self.index.search(queries, k, **self._keywords)

    def results(self, raw: list[Any]) -> tuple[Ids, dict[str, int]]:
        ids = np.concatenate([result.ids for result in raw])
        counts = {
            "scanned": sum(int(result.scanned) for result in raw),
            "reranked": sum(int(result.reranked) for result in raw),
            "leaves": sum(int(result.leaves) for result in raw),
        }
        return ids, counts

    def sizes(self) -> dict[str, float]:
        return numbers(self.index.config) | numbers(self.index.stats())

    def time_order(self, **arguments: Any) -> Answer:
        return live.time_order(self, **arguments)

    def grow(self, **arguments: Any) -> Answer:
        return live.grow(self, **arguments)

    def slide(self, **arguments: Any) -> Answer:
        return live.slide(self, **arguments)

    def start_with(self, **arguments: Any) -> Answer:
        return live.start_with(self, **arguments)

    def rest_then_ingest(self, **arguments: Any) -> Answer:
        return live.rest_then_ingest(self, **arguments)

    def single_adds(self, **arguments: Any) -> Answer:
        return live.single_adds(self, **arguments)


class OurExact(Exact):
    """`sapwood.exact_search`."""

    def __init__(self) -> None:
        super().__init__()
        import sapwood

        self.sapwood = sapwood

    def versions(self) -> dict[str, str]:
        return our_versions()

    def hold(self, rows: int, threads: int) -> None:
        self.rows = self.vectors[:rows]
        self.threads = threads

    def nearest(self, queries: Matrix, k: int) -> tuple[Any, Any]:
        result = self.sapwood.exact_search(self.rows, queries, k, self.metric, threads=self.threads)
        return result.distances, result.ids


def numbers(stats: dict[str, Any]) -> dict[str, float]:
    """The plain numbers among statistics or options."""
    return {name: float(value) for name, value in stats.items() if isinstance(value, (int, float)) and not isinstance(value, bool)}
