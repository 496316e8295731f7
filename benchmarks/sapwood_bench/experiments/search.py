"""Queries a second at a recall: sweep, pick the fastest setting, repeat in turn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from typing import Any

from ..bench import Bench, show
from ..child import Child
from ..definition import OURS
from ..engine import Answer, Setting
from ..measure import median
from ..record import Figure

# A step of effort that gains less recall than this has met another limit.
NO_GAIN = 0.0003


@dataclass(frozen=True)
class Point:
    """One setting and what a pass with it gave."""

    setting: Setting
    answer: Answer


def run(bench: Bench) -> None:
    truth = bench.truth(max(bench.parameters["k"], 100))[0]
    with ExitStack() as stack:
        children = {side: stack.enter_context(bench.child(side, truth)) for side in bench.sides}
        built: dict[str, Answer] = {}
        for side, child in children.items():
            built[side] = child.call(
                "build",
                threads=bench.definition.threads,
                options=bench.options(side),
            )
        bench.record.both("build", "seconds", "s", {side: answer["total"] for side, answer in built.items()}, free_of_recall=True)
        bench.record.both("build", "growth", "MB", {side: answer["growth"] / 1e6 for side, answer in built.items()})
        notes = {side: answer["notes"] for side, answer in built.items()}
        for queries in bench.files.queries:
            _query_set(bench, children, notes, queries)


def _query_set(bench: Bench, children: Mapping[str, Child], notes: Mapping[str, Setting], queries: str) -> None:
    targets: list[float] = bench.parameters["targets"]
    curves = {side: list(_sweep(bench, side, child, notes[side], queries, max(targets))) for side, child in children.items()}
    for side, curve in curves.items():
        best = max(curve, key=lambda point: point.answer["recall"])
        recall = best.answer["recall"]
        setting = show(best.setting)
        bench.record.add(Figure(queries, side, "best recall", recall, "", None, recall, setting))
    for target in targets:
        _target(bench, children, curves, queries, target)


def _sweep(bench: Bench, side: str, child: Child, notes: Setting, queries: str, enough: float) -> Iterator[Point]:
    """One timed pass for every setting, the last axis being the effort, ascending.

    More effort only costs once the highest target is reached or recall stands still.
    """
    sweep: Mapping[str, list[Any]] = bench.definition.sides[side]["sweep"]
    fixed: Setting = bench.definition.sides[side].get("search", {}) | notes
    *others, effort = sweep
    for values in product(*(sweep[name] for name in others)):
        last = -1.0
        for amount in sweep[effort]:
            chosen = dict(zip(others, values, strict=True)) | {effort: amount}
            setting = fixed | chosen
            answer = child.call("singles", queries=queries, k=bench.parameters["k"], setting=setting)
            yield Point(setting, answer)
            if answer["recall"] >= enough or answer["recall"] < last + NO_GAIN:
                break
            last = answer["recall"]


def fastest(curve: list[Point], target: float) -> Point | None:
    """The setting of most queries a second among those that reach the target."""
    reached = [point for point in curve if point.answer["recall"] >= target]
    return max(reached, key=lambda point: point.answer["qps"], default=None)


def _target(
    bench: Bench,
    children: Mapping[str, Child],
    curves: Mapping[str, list[Point]],
    queries: str,
    target: float,
) -> None:
    """Measure every side that reaches the target at its fastest setting, in turn."""
    part = f"{queries}@{target:.2f}"
    chosen: dict[str, Setting] = {}
    for side, curve in curves.items():
        point = fastest(curve, target)
        reached = float(point is not None)
        bench.record.add(Figure(part, side, "reached", reached, ""))
        if point is not None:
            chosen[side] = point.setting
    k = bench.parameters["k"]
    runs: dict[str, list[Answer]] = {side: [] for side in chosen}
    for _ in range(bench.parameters["repeats"]):
        for side, setting in chosen.items():
            answer = children[side].call("singles", queries=queries, k=k, setting=setting)
            runs[side].append(answer)
    _one_thread(bench, part, runs, chosen)
    if OURS in curves and OURS in chosen:
        _fewest(bench, part, curves[OURS], target)
    _many_threads(bench, children, part, queries, chosen)
    _recall_at_100(bench, children, part, queries, chosen)


def _one_thread(
    bench: Bench,
    part: str,
    runs: Mapping[str, list[Answer]],
    chosen: Mapping[str, Setting],
) -> None:
    recalls = {s: median([run["recall"] for run in r]) for s, r in runs.items()}
    settings = {side: show(setting) for side, setting in chosen.items()}
    bench.record.both(part, "recall@10", "", recalls, recalls, settings)
    for metric, key, unit in (
        ("one-thread QPS", "qps", "1/s"),
        ("p50", "p50_ms", "ms"),
        ("p99", "p99_ms", "ms"),
        ("scanned a query", "scanned", "codes"),
        ("reranked a query", "reranked", "codes"),
        ("leaves a query", "leaves", "codes"),
    ):
        values = {s: median([run[key] for run in r]) for s, r in runs.items() if key in r[0]}
        bench.record.both(part, metric, unit, values, recalls, settings)


def _fewest(bench: Bench, part: str, curve: list[Point], target: float) -> None:
    """The fewest codes scanned for the target, which may not be the fastest way."""
    reached = [point for point in curve if point.answer["recall"] >= target]
    point = min(reached, key=lambda point: point.answer["scanned"])
    bench.record.add(
        Figure(
            part,
            OURS,
            "fewest scanned",
            point.answer["scanned"],
            "codes",
            recall=point.answer["recall"],
            setting=show(point.setting),
        )
    )


def _many_threads(
    bench: Bench,
    children: Mapping[str, Child],
    part: str,
    queries: str,
    chosen: Mapping[str, Setting],
) -> None:
    """All cores: the set in one call, and one query a call from many threads."""
    threads = bench.definition.threads
    k = bench.parameters["k"]
    for metric, method in (("batch QPS", "batch"), ("crowd QPS", "crowd")):
        runs: dict[str, list[Answer]] = {side: [] for side in chosen}
        for _ in range(bench.parameters["repeats"]):
            for side, setting in chosen.items():
                answer = children[side].call(method, queries=queries, k=k, setting=setting, threads=threads)
                runs[side].append(answer)
        bench.record.both(
            part,
            metric,
            "1/s",
            {s: median([run["qps"] for run in r]) for s, r in runs.items()},
            {s: median([run["recall"] for run in r]) for s, r in runs.items()},
            {side: show(setting) for side, setting in chosen.items()},
        )


def _recall_at_100(
    bench: Bench,
    children: Mapping[str, Child],
    part: str,
    queries: str,
    chosen: Mapping[str, Setting],
) -> None:
    """What the same setting gives of the true hundred."""
    recalls = {
        side: children[side].call(
            "batch",
            queries=queries,
            k=100,
            setting=setting,
            threads=bench.definition.threads,
        )["recall"]
        for side, setting in chosen.items()
    }
    settings = {side: show(setting) for side, setting in chosen.items()}
    bench.record.both(part, "recall@100", "", recalls, recalls, settings)
