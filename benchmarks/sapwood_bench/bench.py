"""What an experiment works with: its definition, files, engines, truth and record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .child import Child, EngineMissing
from .data import Files
from .definition import OURS, Definition
from .exact import NumpyExact, agreement
from .record import Record

OUR_ENGINE = "sapwood_bench.ours:Ours"
OUR_EXACT = "sapwood_bench.ours:OurExact"
OUR_DIRECTORY = "sapwood_bench.directory:OurDirectory"
OUR_ROW_FILE = "sapwood_bench.row_files:OurRowFile"
FAISS_EXACT = "peers.faiss_flat:FaissFlat"

# Queries of a computed truth that are held against another implementation.
CHECKED_QUERIES = 50
# Two float32 sums of unit rows may differ by so much.
CHECKED_DISTANCE = 2e-5


class TruthError(Exception):
    """Exact search disagrees with another implementation."""


@dataclass
class Bench:
    """One run of one definition."""

    definition: Definition
    files: Files
    work: Path
    record: Record
    sides: list[str]
    _truths: int = field(default=0)

    @property
    def parameters(self) -> Mapping[str, Any]:
        return self.definition.parameters

    @property
    def has_ours(self) -> bool:
        return OURS in self.sides

    def options(self, side: str) -> dict[str, Any]:
        """How a side builds its index."""
        options: dict[str, Any] = self.definition.sides[side].get("index", {})
        return options

    def setting(self, side: str) -> dict[str, Any]:
        """The fixed search setting of a side, where an experiment needs one."""
        setting: dict[str, Any] = self.definition.sides[side]["setting"]
        return setting

    def child(self, side: str, truth: Mapping[str, str] | None = None) -> Child:
        """A fresh process of a side with the raw rows loaded and nothing built."""
        child = self.process(engine_of(self.definition, side))
        child.call(
            "load",
            base=str(self.files.base),
            queries={name: str(path) for name, path in self.files.queries.items()},
            truth=dict(truth or {}),
            metric=self.definition.data.metric,
        )
        return child

    def process(self, engine: str) -> Child:
        """A fresh process of any class, with nothing loaded."""
        child = Child(engine)
        self.record.versions.update(child.versions)
        return child

    def directory_child(self, truth: Mapping[str, str]) -> Child:
        """A fresh process of our index in a directory with the queries and the truth."""
        child = self.process(OUR_DIRECTORY)
        queries = {name: str(path) for name, path in self.files.queries.items()}
        child.call("load", queries=queries, truth=dict(truth), metric=self.definition.data.metric)
        return child

    def exact(self, engine: str) -> Child:
        """A fresh process for exact search with the raw rows loaded."""
        child = self.process(engine)
        metric = self.definition.data.metric
        child.call("load", base=str(self.files.base), metric=metric)
        return child

    def truth(self, k: int, prefixes: Iterable[int] = ()) -> list[dict[str, str]]:
        """The k true neighbours of every query set, as files, for each prefix of rows.

        Ours computes them where it is measured, else FAISS; a few queries are held
        against the other or against NumPy.
        """
        wanted = list(prefixes) or [self.files.rows]
        found: list[dict[str, str]] = []
        with self.exact(OUR_EXACT if self.has_ours else FAISS_EXACT) as child:
            for rows in wanted:
                found.append({})
                for name, queries in self.files.queries.items():
                    self._truths += 1
                    out = str(self.work / f"truth-{self._truths}")
                    child.call(
                        "exact",
                        queries=str(queries),
                        k=k,
                        rows=rows,
                        threads=self.definition.threads,
                        out=out,
                    )
                    found[-1][name] = f"{out}-ids.npy"
        self._check(found[-1], k, wanted[-1])
        return found

    def _check(self, truth: Mapping[str, str], k: int, rows: int) -> None:
        """Hold a sample of every query set against an independent exact search."""
        for name, queries in self.files.queries.items():
            sample = np.load(queries)[:CHECKED_QUERIES]
            ids = np.load(truth[name])[:CHECKED_QUERIES]
            distances = np.load(truth[name].replace("-ids.npy", "-distances.npy"))
            other = self._reference(sample, k, rows)
            same, apart = agreement(ids, distances[:CHECKED_QUERIES], *other)
            if apart > CHECKED_DISTANCE * max(1.0, float(np.abs(other[1]).max())):
                raise TruthError(f"{name}: exact distances differ by {apart:g}, {same:.2%} of ids agree with the reference")

    def _reference(self, sample: Any, k: int, rows: int) -> tuple[Any, Any]:
        out = str(self.work / "reference")
        path = f"{out}-queries.npy"
        np.save(path, sample)
        call: dict[str, Any] = {
            "queries": path,
            "k": k,
            "rows": rows,
            "threads": 1,
            "out": out,
        }
        try:
            if not self.has_ours:
                raise EngineMissing("it made the truth itself")
            with self.exact(FAISS_EXACT) as child:
                child.call("exact", **call)
        except EngineMissing:
            plain = NumpyExact()
            plain.load(str(self.files.base), self.definition.data.metric)
            plain.exact(**call)
        return np.load(f"{out}-ids.npy"), np.load(f"{out}-distances.npy")


def engine_of(definition: Definition, side: str) -> str:
    """The class that measures a side."""
    if side == OURS:
        return OUR_ENGINE
    engine: str = definition.sides[side]["engine"]
    return engine


def show(setting: Mapping[str, Any]) -> str:
    """A setting for people and for the record."""
    return " ".join(f"{name}={value}" for name, value in setting.items())
