"""Bytes a row: what the index says of itself, held against resident memory."""

from __future__ import annotations

from ..bench import Bench, show
from ..definition import OURS
from ..record import Figure


def run(bench: Bench) -> None:
    rows = bench.files.rows
    k = bench.parameters["k"]
    truth = bench.truth(k)[0]
    grown: dict[str, float] = {}
    recalls: dict[str, float] = {}
    settings = {side: show(bench.setting(side)) for side in bench.sides}
    for side in bench.sides:
        with bench.child(side, truth) as child:
            built = child.call(
                "build",
                threads=bench.definition.threads,
                options=bench.options(side),
            )
            for queries in bench.files.queries:
                searched = child.call("singles", queries=queries, k=k, setting=bench.setting(side))
                recalls.setdefault(side, searched["recall"])
            after = child.call("growth")
        grown[side] = after["growth"]
        if side == OURS:
            _own(bench, after["sizes"], after["growth"])
    raw = built["raw_bytes"]
    per_row = {side: value / rows for side, value in grown.items()}
    bench.record.both("resident", "a row", "bytes", per_row, recalls, settings)
    shares = {side: value / raw for side, value in grown.items()}
    bench.record.both("resident", "of raw", "x", shares, recalls, settings)


def _own(bench: Bench, sizes: dict[str, float], growth: float) -> None:
    """Each part of our index a row, their sum, and what they leave unexplained."""
    rows = bench.files.rows
    parts = {k: v for k, v in sizes.items() if k.startswith("bytes")}
    totals = {k: parts.pop(k) for k in ("bytes", "bytes_total") if k in parts}
    total = next(iter(totals.values())) if totals else sum(parts.values())
    for name, value in parts.items():
        bench.record.add(Figure("stats", OURS, name, value / rows, "bytes a row"))
    for metric, value in (
        ("sum", total / rows),
        ("resident less sum", (growth - total) / rows),
    ):
        bench.record.add(Figure("stats", OURS, metric, value, "bytes a row"))
    for name in ("leaves", "nodes", "levels", "largest_leaf", "imbalance"):
        if name in sizes:
            bench.record.add(Figure("stats", OURS, name, sizes[name], ""))
