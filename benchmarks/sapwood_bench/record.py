"""Figures, how they are printed, checked against their bounds and kept as CSV."""

from __future__ import annotations

import csv
import datetime
import platform
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .definition import OURS, Bound, Definition

# A figure of a search in one of these units says nothing without its recall.
NEEDS_RECALL = {"s", "1/s", "ms", "us", "codes"}


@dataclass(frozen=True)
class Figure:
    """One measured value. `ratio` is ours over the peer named in `side`."""

    part: str
    side: str
    metric: str
    value: float
    unit: str
    ratio: float | None = None
    recall: float | None = None
    setting: str = ""
    free_of_recall: bool = False

    def __post_init__(self) -> None:
        wanting = self.unit in NEEDS_RECALL and self.recall is None
        if wanting and not self.free_of_recall:
            raise ValueError(f"{self.part}: {self.metric} without its recall")


@dataclass
class Record:
    """The figures of one definition's run."""

    definition: Definition
    command: str
    versions: dict[str, str] = field(default_factory=dict)
    figures: list[Figure] = field(default_factory=list)

    def add(self, figure: Figure) -> None:
        self.figures.append(figure)

    def both(
        self,
        part: str,
        metric: str,
        unit: str,
        values: dict[str, float],
        recalls: dict[str, float] | None = None,
        settings: dict[str, str] | None = None,
        free_of_recall: bool = False,
    ) -> None:
        """One metric of several sides; a peer's line carries ours over its own.

        Shares, which have no unit, are compared by eye.
        """
        ours = values.get(OURS)
        for side, value in values.items():
            peer = side != OURS and ours is not None and value and unit
            self.add(
                Figure(
                    part=part,
                    side=side,
                    metric=metric,
                    value=value,
                    unit=unit,
                    ratio=ours / value if peer and ours is not None else None,
                    recall=recalls.get(side) if recalls else None,
                    setting=settings.get(side, "") if settings else "",
                    free_of_recall=free_of_recall,
                )
            )

    def show(self) -> str:
        """A table for people, one line a figure."""
        lines = [["part", "side", "metric", "value", "unit", "ratio", "recall", ""]]
        for figure in self.figures:
            ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
            recall = "" if figure.recall is None else f"{figure.recall:.4f}"
            value = _number(figure.value)
            lines.append([figure.part, figure.side, figure.metric, value, figure.unit, ratio, recall, figure.setting])
        widths = [max(len(line[i]) for line in lines) for i in range(8)]
        return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines)

    def write(self, folder: Path) -> Path:
        """Append the figures to `<folder>/<processor>/<date>.csv`."""
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        path = folder / processor() / f"{today}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        new = not path.exists()
        versions = "; ".join(f"{k} {v}" for k, v in sorted(self.versions.items()))
        with path.open("a", newline="") as file:
            out = csv.writer(file, lineterminator="\n")
            if new:
                out.writerow(COLUMNS)
            for figure in self.figures:
                out.writerow(self._cells(figure, versions))
        return path

    def _cells(self, figure: Figure, versions: str) -> list[str]:
        return [
            f"{self.definition.name}/{figure.part}",
            figure.side,
            figure.metric,
            f"{figure.value:.6g}",
            figure.unit,
            "" if figure.ratio is None else f"{figure.ratio:.4g}",
            "" if figure.recall is None else f"{figure.recall:.4f}",
            figure.setting,
            versions,
            str(self.definition.threads),
            str(self.definition.seed),
            self.command,
        ]


COLUMNS = [
    *("name", "side", "metric", "value", "unit", "ratio", "recall", "setting"),
    *("versions", "threads", "seed", "command"),
]


@dataclass(frozen=True)
class Verdict:
    """What became of one bound: met, missed or not measured."""

    bound: Bound
    values: tuple[float, ...]

    @property
    def met(self) -> bool:
        return bool(self.values) and all(map(self.bound.holds, self.values))

    def __str__(self) -> str:
        if not self.values:
            return f"NOT MEASURED  {self.bound}"
        found = ", ".join(_number(value) for value in self.values)
        return f"{'met   ' if self.met else 'MISSED'}  {self.bound}: {found}"


def judge(bounds: Iterable[Bound], figures: Sequence[Figure]) -> list[Verdict]:
    """Hold figures against bounds; a bound on a ratio looks at every peer's."""
    return [Verdict(bound, tuple(_values(bound, figures))) for bound in bounds]


def _values(bound: Bound, figures: Sequence[Figure]) -> Iterable[float]:
    for figure in figures:
        if (figure.part, figure.metric) != (bound.part, bound.metric):
            continue
        if bound.field == "ratio":
            if figure.ratio is not None:
                yield figure.ratio
        elif figure.side == bound.side:
            value = figure.value if bound.field == "value" else figure.recall
            if value is not None:
                yield value


def _number(value: float) -> str:
    if value == 0 or abs(value) >= 1e15:
        return f"{value:g}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def processor() -> str:
    """A folder name for this machine's processor: its model and the cores in use."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    found = dict(re.findall(r"^([^\t:]+)\s*:\s*(.*)$", text, re.MULTILINE))
    model = found.get("model name") or platform.processor() or platform.machine()
    family = ""
    if "cpu family" in found:
        family = f"-family-{found['cpu family']}-{found.get('model', '')}"
    vectors = ""
    flags = found.get("flags", "").split()
    for flag, name in (("avx512_vpopcntdq", "-avx512"), ("avx2", "-avx2")):
        if flag in flags:
            vectors = name
            break
    return re.sub(r"[^a-z0-9]+", "-", f"{model}{family}{vectors}".lower()).strip("-")
