"""Latency of single searches at rest and while another thread adds rows."""

from __future__ import annotations

from ..bench import Bench, show
from ..definition import OURS
from ..engine import Answer
from ..measure import median
from ..record import Figure

# Wide enough that the true k among the first rows are still in it at the start.
WIDE = 100


def run(bench: Bench) -> None:
    parameters = bench.parameters
    truth = bench.truth(WIDE)[0]
    (queries,) = bench.files.queries
    runs: list[Answer] = []
    for pace in parameters["paces"]:
        runs = []
        with bench.child(OURS) as child:
            child.call(
                "start_with",
                rows=parameters["start_rows"],
                threads=bench.definition.threads,
                options=bench.options(OURS),
            )
            added = bench.files.rows - parameters["start_rows"]
            for _ in range(parameters["repeats"]):
                answer = child.call(
                    "rest_then_ingest",
                    queries=queries,
                    k=parameters["k"],
                    setting=bench.setting(OURS),
                    wide_truth=truth[queries],
                    rest_searches=parameters["rest_searches"],
                    rows=added // parameters["repeats"],
                    batch=parameters["batch"],
                    pace=pace,
                )
                runs.append(answer)
        _figures(bench, f"pace {pace}" if pace else "full pace", runs)


def _figures(bench: Bench, part: str, runs: list[Answer]) -> None:
    setting = show(bench.setting(OURS))
    for state in ("rest", "ingest"):
        recall = median([run[state]["recall"] for run in runs])
        for metric, unit in (("p50", "ms"), ("p99", "ms"), ("worst", "ms")):
            value = median([run[state][f"{metric}_ms"] for run in runs])
            figure = Figure(part, OURS, f"{metric} {state}", value, unit, None, recall, setting)
            bench.record.add(figure)
        searches = sum(run[state]["searches"] for run in runs)
        bench.record.add(Figure(part, OURS, f"searches {state}", searches, ""))
    recall = median([run["ingest"]["recall"] for run in runs])
    for percent in ("p50", "p99"):
        ratios = [run["ingest"][f"{percent}_ms"] / run["rest"][f"{percent}_ms"] for run in runs]
        metric = f"{percent} ingest over rest"
        bench.record.add(Figure(part, OURS, metric, median(ratios), "x", None, recall))
    rate = median([run["rows_per_second"] for run in runs])
    bench.record.add(Figure(part, OURS, "rows added", rate, "1/s", None, recall))
