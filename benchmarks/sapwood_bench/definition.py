"""Reads a benchmark definition: what is measured is data, never code.

A definition is a TOML file. `[test]` holds dotted overrides that make the same
experiment tiny; `[[floor]]` a bound that fails the run when it is missed, `[[aim]]` one
that is only reported (timings depend on the machine).
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DEFINITIONS = Path(__file__).resolve().parent.parent / "definitions"
OURS = "sapwood"


class DefinitionError(Exception):
    """A definition that can't be run, with the file and the key at fault."""


@dataclass(frozen=True)
class Bound:
    """What one figure of the run must satisfy."""

    part: str
    metric: str
    side: str
    field: str
    at_least: float | None
    at_most: float | None

    def holds(self, value: float) -> bool:
        low = self.at_least is None or value >= self.at_least
        return low and (self.at_most is None or value <= self.at_most)

    def __str__(self) -> str:
        limits = [f"{word} {limit}" for word, limit in (("at least", self.at_least), ("at most", self.at_most)) if limit is not None]
        what = self.metric if self.field == "value" else f"{self.field} of {self.metric}"
        return f"{self.side} {self.part}: {what} {' and '.join(limits)}"


@dataclass(frozen=True)
class DataSpec:
    """Which rows and queries an experiment uses: of files in a data folder, or of a kind in `data_sets.py`."""

    kind: str
    base: str
    queries: Mapping[str, str]
    rows: int
    query_rows: int
    pick: str
    metric: str


@dataclass(frozen=True)
class Definition:
    """One experiment with all its parameters."""

    name: str
    experiment: str
    seed: int
    threads: int
    data: DataSpec
    parameters: Mapping[str, Any]
    sides: Mapping[str, Mapping[str, Any]]
    floors: tuple[Bound, ...]
    aims: tuple[Bound, ...]


def find(name: str) -> Path:
    """The file of a definition named by its path or by its stem."""
    path = Path(name)
    if path.suffix != ".toml":
        path = DEFINITIONS / f"{name}.toml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in DEFINITIONS.glob("*.toml")))
        raise DefinitionError(f"no definition {name!r}; there are: {known}")
    return path


def read(path: Path, overrides: Mapping[str, Any], test: bool) -> Definition:
    """Read a definition; the overrides come after those of its test table."""
    with path.open("rb") as file:
        table = tomllib.load(file)
    tiny = table.pop("test", {})
    for key, value in {**(tiny if test else {}), **overrides}.items():
        _override(table, key, value, path)
    try:
        return _definition(path.stem, table)
    except (KeyError, TypeError, ValueError) as error:
        raise DefinitionError(f"{path.name}: {error!r}") from error


def parse_override(text: str) -> tuple[str, Any]:
    """`data.rows=20000` as a dotted key and a TOML value (a bare word is a string)."""
    key, equals, value = text.partition("=")
    if not equals:
        raise DefinitionError(f"--set {text!r}: expected KEY=VALUE")
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key, value


def _override(table: dict[str, Any], dotted: str, value: Any, path: Path) -> None:
    """Replace one existing value; peers a definition doesn't use are left out."""
    *parents, last = dotted.split(".")
    at: Any = table
    for key in parents:
        at = at.get(key) if isinstance(at, dict) else None
    if not isinstance(at, dict) or last not in at:
        raise DefinitionError(f"{path.name}: no {dotted!r} to override")
    at[last] = value


def _bound(table: Mapping[str, Any]) -> Bound:
    known = {"part", "metric", "side", "field", "at_least", "at_most"}
    if unknown := set(table) - known:
        raise ValueError(f"unknown keys in a bound: {sorted(unknown)}")
    field = table.get("field", "value")
    if field not in ("value", "ratio", "recall"):
        raise ValueError(f"field {field!r}: expected value, ratio or recall")
    return Bound(
        part=table["part"],
        metric=table["metric"],
        side=table.get("side", OURS),
        field=field,
        at_least=table.get("at_least"),
        at_most=table.get("at_most"),
    )


def _definition(name: str, table: dict[str, Any]) -> Definition:
    data = table["data"]
    if data["pick"] not in ("random", "first"):
        raise ValueError(f"data.pick {data['pick']!r}: expected random or first")
    kind = data.get("kind", "files")
    spec = DataSpec(
        kind=kind,
        base=data["base"] if kind == "files" else data.get("base", ""),
        queries=data["queries"] if kind == "files" else data.get("queries", {}),
        rows=int(data["rows"]),
        query_rows=int(data["query_rows"]),
        pick=data["pick"],
        metric=data["metric"],
    )
    return Definition(
        name=name,
        experiment=table["experiment"],
        seed=int(table["seed"]),
        threads=int(table["threads"]),
        data=spec,
        parameters=table["parameters"],
        sides=table["sides"],
        floors=tuple(_bound(bound) for bound in table.get("floor", [])),
        aims=tuple(_bound(bound) for bound in table.get("aim", [])),
    )
