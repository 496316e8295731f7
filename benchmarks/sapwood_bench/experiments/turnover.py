"""A window over rows in time order that slides until none of its first rows is left, against an index built at once of the same rows."""

from __future__ import annotations

from dataclasses import dataclass

from ..bench import Bench, show
from ..child import Child
from ..definition import OURS
from ..engine import Setting
from ..measure import between
from ..record import Figure

KINDS = ("changed", "at_once")


@dataclass(frozen=True)
class Work:
    """Codes that a query scans for a recall, and the recall that was reached."""

    scanned: float
    recall: float
    setting: str


def run(bench: Bench) -> None:
    window = bench.parameters["window"]
    ratios: list[float] = []
    recalls: list[float] = []
    with bench.child(OURS) as child:
        for upto in range(window, bench.files.rows + 1, window):
            slid = child.call(
                "slide",
                window=window,
                upto=upto,
                batch=bench.parameters["batch"],
                k=bench.parameters["k"],
                threads=bench.definition.threads,
                options=bench.options(OURS),
            )
            part = f"turnover {upto // window - 1}"
            found: list[float] = []
            for name in bench.files.queries:
                for target in bench.parameters["targets"]:
                    changed, at_once = (_work(bench, child, kind, name, target) for kind in KINDS)
                    ratios.append(changed.scanned / at_once.scanned)
                    found.append(changed.recall)
                    _step(bench, f"{part} {name}@{target:.2f}", changed, at_once)
            for metric, unit in (("change_seconds", "s"), ("balance_seconds", "s"), ("leaves", ""), ("leaves_at_once", "")):
                name = metric.removesuffix("_seconds").replace("_", " ")
                bench.record.add(Figure(part, OURS, name, slid[metric], unit, recall=min(found)))
            recalls += found
    bench.record.add(Figure("turnover", OURS, "scanned of at once, mean", sum(ratios) / len(ratios), "x"))
    bench.record.add(Figure("turnover", OURS, "scanned of at once, most", max(ratios), "x"))
    bench.record.add(Figure("turnover", OURS, "lowest recall", min(recalls), ""))


def _work(bench: Bench, child: Child, kind: str, name: str, target: float) -> Work:
    """Between the efforts just below and above the target."""
    points: list[tuple[float, float, Setting]] = []
    for beam in bench.parameters["beams"]:
        setting: Setting = {"beam": beam}
        answer = child.call("batch_of", kind=kind, queries=name, k=bench.parameters["k"], setting=setting, threads=bench.definition.threads)
        points = [*points[-1:], (answer["recall"], answer["scanned"], setting)]
        if answer["recall"] >= target:
            break
    recalls, scanned, settings = zip(*points, strict=True)
    reached = target if recalls[-1] >= target else recalls[-1]
    return Work(between(recalls, scanned, target), reached, " to ".join(map(show, settings)))


def _step(bench: Bench, part: str, changed: Work, at_once: Work) -> None:
    for how, work in (("changed", changed), ("at once", at_once)):
        bench.record.add(Figure(part, OURS, f"scanned {how}", work.scanned, "codes", None, work.recall, work.setting))
    bench.record.add(Figure(part, OURS, "scanned of at once", changed.scanned / at_once.scanned, "x", recall=changed.recall))
