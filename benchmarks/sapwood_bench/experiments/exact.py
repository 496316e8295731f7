"""Exact search of one batch over all rows, held against FAISS brute force."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import numpy as np

from ..bench import OUR_EXACT, Bench
from ..definition import OURS
from ..exact import agreement
from ..measure import median, recall
from ..record import Figure


def run(bench: Bench) -> None:
    engines = {side: OUR_EXACT if side == OURS else bench.definition.sides[side]["engine"] for side in bench.sides}
    truth = bench.truth(bench.parameters["k"])[0]
    for name, path in bench.files.queries.items():
        seconds: dict[str, list[float]] = {side: [] for side in engines}
        out = {side: str(bench.work / f"exact-{side}") for side in engines}
        with ExitStack() as stack:
            children = {side: stack.enter_context(bench.exact(engine)) for side, engine in engines.items()}
            for turn in range(bench.parameters["repeats"] + 1):
                for side, child in children.items():
                    answer = child.call(
                        "exact",
                        queries=str(path),
                        k=bench.parameters["k"],
                        rows=bench.files.rows,
                        threads=bench.definition.threads,
                        out=out[side],
                    )
                    if turn > 0:  # the first pass only warms up
                        seconds[side].append(answer["seconds"])
        recalls = {side: recall(_answers(file)[0], np.load(truth[name])) for side, file in out.items()}
        _figures(bench, name, seconds, out, recalls)


def _figures(
    bench: Bench,
    name: str,
    seconds: dict[str, list[float]],
    out: dict[str, str],
    recalls: dict[str, float],
) -> None:
    """Times, and how far the answers agree: ids may differ at equal distances."""
    for side in seconds:
        if side == OURS or OURS not in seconds:
            continue
        same, apart = agreement(*_answers(out[OURS]), *_answers(out[side]))
        bench.record.add(Figure(name, side, "same ids as ours", same, ""))
        bench.record.add(Figure(name, side, "distances apart", apart, ""))
    times = {side: median(values) for side, values in seconds.items()}
    bench.record.both(name, "exact batch", "s", times, recalls)


def _answers(out: str) -> tuple[Any, Any]:
    return np.load(f"{out}-ids.npy"), np.load(f"{out}-distances.npy")
