"""How the cost of a query and of an added row grows with the index: one index that grows, its costs at fixed recall, and a power law.

The exponent is the slope of log cost over log rows. The projection to 10^9 rows is arithmetic on it, and written out beside the figure:
it says what follows if the law holds so far, which nothing here shows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..bench import Bench, show
from ..child import Child
from ..definition import OURS
from ..engine import Setting
from ..measure import between, median
from ..record import Figure

PROJECTED_ROWS = 10**9


@dataclass(frozen=True)
class Cost:
    """What one query costs at exactly the target recall, between two settings."""

    micros: float
    scanned: float
    recall: float
    setting: str


@dataclass(frozen=True)
class Law:
    """cost = last * (rows / last_rows) ** exponent."""

    exponent: float
    last: float
    last_rows: float

    def at(self, rows: float) -> float:
        return self.last * (rows / self.last_rows) ** self.exponent

    def __str__(self) -> str:
        return f"{self.last:.4g} x ({PROJECTED_ROWS:.0e} / {self.last_rows:,.0f})^{self.exponent:.3f}"


def run(bench: Bench) -> None:
    sizes = [size for size in bench.parameters["sizes"] if size <= bench.files.rows]
    truths = bench.truth(bench.parameters["k"], sizes)
    costs: list[Cost] = []
    adds: list[float] = []
    before = 0
    with bench.child(OURS) as child:
        for upto, truth in zip(sizes, truths, strict=True):
            added = child.call(
                "grow",
                upto=upto,
                batch=bench.parameters["batch"],
                truth=truth,
                threads=bench.definition.threads,
                options=bench.options(OURS),
            )
            costs.append(_cost(bench, child))
            adds.append((added["add_seconds"] + added["balance_seconds"]) * 1e6 / (upto - before))
            _step(bench, upto, costs[-1], adds[-1], added)
            before = upto
    _laws(bench, sizes, costs, adds)


def _cost(bench: Bench, child: Child) -> Cost:
    """The efforts just below and above the target, repeated in turn, and the cost between them."""
    parameters = bench.parameters
    target, queries, k = parameters["recall"], parameters["queries"], parameters["k"]
    below: Setting | None = None
    for beam in parameters["beams"]:
        above: Setting = bench.definition.sides[OURS].get("search", {}) | {"beam": beam}
        if child.call("singles", queries=queries, k=k, setting=above)["recall"] >= target:
            break
        below = above
    pair = [setting for setting in (below, above) if setting is not None]
    runs = [[child.call("singles", queries=queries, k=k, setting=setting) for setting in pair] for _ in range(parameters["repeats"])]
    recalls = [answer["recall"] for answer in runs[0]]
    micros = [median([run[place]["qps"] for run in runs]) for place in range(len(pair))]
    return Cost(
        micros=between(recalls, [1e6 / qps for qps in micros], target),
        scanned=between(recalls, [answer["scanned"] for answer in runs[0]], target),
        recall=target if recalls[-1] >= target else recalls[-1],
        setting=" to ".join(map(show, pair)),
    )


def fit(rows: Sequence[float], costs: Sequence[float]) -> Law:
    """The power law of least squared error in the logarithms, through its own value at the most rows."""
    if len(rows) < 2:
        return Law(0.0, costs[-1], rows[-1])
    slope, base = np.polyfit(np.log(rows), np.log(costs), 1)
    return Law(float(slope), math.exp(float(base + slope * np.log(rows[-1]))), rows[-1])


def _step(bench: Bench, upto: int, cost: Cost, add: float, added: dict[str, float]) -> None:
    part = f"{upto:,} rows"
    for metric, value, unit in (
        ("query", cost.micros, "us"),
        ("scanned a query", cost.scanned, "codes"),
        ("add and balance a row", add, "us"),
        ("leaves", added["leaves"], ""),
        ("recall", cost.recall, ""),
    ):
        bench.record.add(Figure(part, OURS, metric, value, unit, None, cost.recall, cost.setting))


def _laws(bench: Bench, sizes: Sequence[int], costs: Sequence[Cost], adds: Sequence[float]) -> None:
    # The rows of a step were added while the index grew, so their cost is one of the middle of the way.
    middles = [(first + last) / 2 for first, last in zip([0, *sizes], sizes, strict=False)]
    recall = min(cost.recall for cost in costs)
    bench.record.add(Figure("growth", OURS, "lowest recall", recall, ""))
    for metric, unit, law in (
        ("query", "us", fit(sizes, [cost.micros for cost in costs])),
        ("scanned a query", "codes", fit(sizes, [cost.scanned for cost in costs])),
        ("add and balance a row", "us", fit(middles, adds)),
    ):
        bench.record.add(Figure("growth", OURS, f"exponent of {metric}", law.exponent, ""))
        projected = law.at(PROJECTED_ROWS)
        bench.record.add(Figure(f"projected to {PROJECTED_ROWS:.0e} rows", OURS, metric, projected, unit, None, recall, str(law)))
