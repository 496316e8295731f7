"""Whether searches with a recall target find it: held-out queries, several numbers of neighbours, before and after the index has grown."""

from __future__ import annotations

from ..bench import Bench
from ..definition import OURS
from ..record import Figure

# A target counts as met from so much below it.
NEAR = 0.01


def run(bench: Bench) -> None:
    parameters = bench.parameters
    sizes = [size for size in parameters["sizes"] if size <= bench.files.rows]
    apart: list[float] = []
    with bench.child(OURS) as child:
        for upto, truth in zip(sizes, bench.truth(max(parameters["k"]), sizes), strict=True):
            child.call(
                "grow",
                upto=upto,
                batch=parameters["batch"],
                truth=truth,
                threads=bench.definition.threads,
                options=bench.options(OURS),
            )
            for name in bench.files.queries:
                for k in parameters["k"]:
                    for target in parameters["targets"]:
                        setting = {"recall": target}
                        answer = child.call("batch", queries=name, k=k, setting=setting, threads=bench.definition.threads)
                        apart.append(answer["recall"] - target)
                        part = f"{upto:,} rows, {name}, k = {k}"
                        for metric, value, unit in (
                            ("recall less target", apart[-1], ""),
                            ("scanned a query", answer["scanned"], "codes"),
                            ("leaves a query", answer["leaves"], ""),
                        ):
                            bench.record.add(Figure(part, OURS, metric, value, unit, None, answer["recall"], f"recall={target}"))
    met = sum(each >= -NEAR for each in apart) / len(apart)
    bench.record.add(Figure("targets", OURS, "met within 0.01", met, ""))
    bench.record.add(Figure("targets", OURS, "worst recall less target", min(apart), ""))
