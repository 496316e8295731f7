"""More rows than memory should have to hold, built on disk in several commits: seconds by phase, recall, and whether all rows are there."""

from __future__ import annotations

import shutil

from ..bench import Bench, show
from ..definition import OURS
from ..engine import Answer
from ..record import Figure


def run(bench: Bench) -> None:
    parameters = bench.parameters
    truth = bench.truth(parameters["k"])[0]
    path = bench.work / "index"
    with bench.directory_child({}) as child:
        built = child.call(
            "in_parts",
            path=str(path),
            base=str(bench.files.base),
            commits=parameters["commits"],
            threads=bench.definition.threads,
            options=bench.options(OURS),
        )
    with bench.directory_child({}) as child:
        whole = child.call("whole", path=str(path), rows=bench.files.rows)
    with bench.directory_child(truth) as child:
        searched = child.call(
            "searched",
            path=str(path),
            queries=parameters["queries"],
            k=parameters["k"],
            settings=[bench.setting(OURS)],
            enough=1.0,
            threads=bench.definition.threads,
        )
    shutil.rmtree(path)
    _figures(bench, built, whole, searched["recall"])


def _figures(bench: Bench, built: Answer, whole: Answer, recall: float) -> None:
    setting = show(bench.setting(OURS)) or "default"

    def add(part: str, metric: str, value: float, unit: str) -> None:
        bench.record.add(Figure(part, OURS, metric, value, unit, None, recall, setting))

    for number, phases in enumerate(built["commits"], 1):
        for phase, seconds in phases.items():
            add(f"commit {number}", phase, seconds, "s")
    totals = {phase: sum(commit[phase] for commit in built["commits"]) for phase in built["commits"][0]}
    for phase, seconds in totals.items():
        add("build", phase, seconds, "s")
    # Rows come from a file that is mapped: reading them is the file's time and not the index's.
    seconds = sum(seconds for phase, seconds in totals.items() if phase != "read")
    add("build", "add, balance and commit", seconds, "s")
    add("build", "rows added", bench.files.rows / seconds, "1/s")
    add("build", "peak growth", built["peak_growth"] / 1e6, "MB")
    add("build", "on disk a row", whole["bytes_disk"] / bench.files.rows, "bytes a row")
    add("whole", "rows", whole["rows"], "")
    add("whole", "every id reachable", whole["whole"], "")
    add("search", f"recall@{bench.parameters['k']}", recall, "")
