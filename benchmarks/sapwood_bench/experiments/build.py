"""Build time by phase and memory of it: each repeat in a fresh process, sides in turn."""

from __future__ import annotations

from ..bench import Bench, show
from ..engine import Answer
from ..measure import median
from ..record import Figure


def run(bench: Bench) -> None:
    k = bench.parameters["k"]
    queries = bench.parameters["queries"]
    truth = bench.truth(k)[0]
    runs: dict[str, list[Answer]] = {side: [] for side in bench.sides}
    for _ in range(bench.parameters["repeats"]):
        for side in bench.sides:
            with bench.child(side, truth) as child:
                built = child.call(
                    "build",
                    threads=bench.definition.threads,
                    options=bench.options(side),
                )
                searched = child.call(
                    "batch",
                    queries=queries,
                    k=k,
                    setting=bench.setting(side),
                    threads=bench.definition.threads,
                )
            runs[side].append(built | {"recall": searched["recall"]})
    _times(bench, runs)
    _memory(bench, runs)


def _times(bench: Bench, runs: dict[str, list[Answer]]) -> None:
    recalls = {s: median([run["recall"] for run in r]) for s, r in runs.items()}
    settings = {side: show(bench.setting(side)) for side in runs}
    totals = {s: median([run["total"] for run in r]) for s, r in runs.items()}
    bench.record.both("build", "total", "s", totals, recalls, settings)
    for side, answers in runs.items():
        middle = sorted(answers, key=lambda run: run["total"])[len(answers) // 2]
        for phase, seconds in middle["phases"].items():
            bench.record.add(Figure("build", side, phase, seconds, "s", recall=recalls[side]))


def _memory(bench: Bench, runs: dict[str, list[Answer]]) -> None:
    for metric, key in (("peak growth", "peak_growth"), ("final growth", "growth")):
        grown = {s: median([run[key] for run in r]) for s, r in runs.items()}
        bench.record.both("build", metric, "MB", {s: value / 1e6 for s, value in grown.items()})
        shares = {s: grown[s] / runs[s][0]["raw_bytes"] for s in grown}
        bench.record.both("build", f"{metric} of raw", "x", shares)
