"""Rows added one a call to a large index: the slowest call is the figure."""

from __future__ import annotations

from ..bench import Bench, show
from ..definition import OURS
from ..record import Figure


def run(bench: Bench) -> None:
    parameters = bench.parameters
    (queries,) = bench.files.queries
    truth = bench.truth(parameters["k"])[0]
    with bench.child(OURS, truth) as child:
        child.call(
            "start_with",
            rows=bench.files.rows - parameters["adds"],
            threads=bench.definition.threads,
            options=bench.options(OURS),
        )
        added = child.call(
            "single_adds",
            count=parameters["adds"],
            jitter_seconds=parameters["jitter_seconds"],
        )
        searched = child.call(
            "batch",
            queries=queries,
            k=parameters["k"],
            setting=bench.setting(OURS),
            threads=bench.definition.threads,
        )
    for metric in ("worst", "p99.9", "p50"):
        bench.record.add(
            Figure(
                "single adds",
                OURS,
                metric,
                added[f"{metric}_ms"],
                "ms",
                recall=searched["recall"],
                setting=show(bench.setting(OURS)),
            )
        )
    jitter = added["jitter_ms"]
    bench.record.add(Figure("machine", OURS, "worst pause", jitter, "ms", free_of_recall=True))
