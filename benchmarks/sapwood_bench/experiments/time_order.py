"""Rows inserted in time order against an index built at once of the same rows."""

from __future__ import annotations

from ..bench import Bench, show
from ..definition import OURS
from ..engine import Answer
from ..measure import slope
from ..record import Figure


def run(bench: Bench) -> None:
    steps = bench.parameters["steps"]
    prefixes = [bench.files.rows * (i + 1) // steps for i in range(steps)]
    k = bench.parameters["k"]
    truths = bench.truth(k, prefixes)
    answers: list[Answer] = []
    with bench.child(OURS) as child:
        for upto, truth in zip(prefixes, truths, strict=True):
            answer = child.call(
                "time_order",
                upto=upto,
                batch=bench.parameters["batch"],
                k=k,
                setting=bench.setting(OURS),
                truth=truth,
                threads=bench.definition.threads,
                options=bench.options(OURS),
            )
            answers.append(answer)
            _step(bench, upto, answer)
    _whole(bench, answers)


def _step(bench: Bench, upto: int, answer: Answer) -> None:
    """One tenth of the way: recall, work and shape of both indexes."""
    setting = show(bench.setting(OURS))
    part = f"{upto:,} rows"
    for kind in ("grown", "at_once"):
        how = kind.replace("_", " ")
        for name, searched in answer[kind]["sets"].items():
            recall = searched["recall"]
            for metric, value, unit in (
                (f"{name} {how} recall@10", recall, ""),
                (f"{name} {how} scanned a query", searched["scanned"], "codes"),
            ):
                figure = Figure(part, OURS, metric, value, unit, None, recall, setting)
                bench.record.add(figure)
        sizes = answer[kind]["sizes"]
        for key in ("leaves", "largest_leaf", "imbalance"):
            if key in sizes:
                metric = f"{how} {key}"
                bench.record.add(Figure(part, OURS, metric, sizes[key], ""))
    recall = next(iter(answer["grown"]["sets"].values()))["recall"]
    for metric in ("add_seconds", "balance_seconds"):
        name = metric.replace("_seconds", "")
        value = answer[metric]
        bench.record.add(Figure(part, OURS, name, value, "s", recall=recall))


def _whole(bench: Bench, answers: list[Answer]) -> None:
    """The difference at the end, its slope over the way, and the largest leaf."""
    for name in bench.files.queries:
        grown = [answer["grown"]["sets"][name]["recall"] for answer in answers]
        at_once = [answer["at_once"]["sets"][name]["recall"] for answer in answers]
        apart = [a - b for a, b in zip(grown, at_once, strict=True)]
        for metric, value in (
            ("recall@10 grown", grown[-1]),
            ("recall@10 at once", at_once[-1]),
            ("grown less at once", apart[-1]),
            ("worst grown less at once", min(apart)),
            ("slope of grown less at once", slope(apart)),
        ):
            bench.record.add(Figure(name, OURS, metric, value, "", recall=grown[-1]))
    threshold = bench.options(OURS).get("split_threshold")
    ratios = []
    for answer in answers:
        sizes = answer["grown"]["sizes"]
        limit = sizes.get("split_threshold", threshold)
        if limit:
            ratios.append(sizes["largest_leaf"] / limit)
    if len(ratios) == len(answers):
        worst = max(ratios)
        metric = "largest leaf of split threshold"
        bench.record.add(Figure("way", OURS, metric, worst, "x"))
