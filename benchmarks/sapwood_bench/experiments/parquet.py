"""Rows read from Parquet files of several kinds, whole and in batches, against pyarrow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..bench import OUR_ROW_FILE, Bench
from ..definition import OURS
from ..engine import Answer
from ..measure import median, touch_memory
from ..record import Figure

# It writes the files too, whichever side is measured.
WRITER = "peers.pyarrow_parquet:PyarrowParquet"


def run(bench: Bench) -> None:
    path = bench.work / "rows.parquet"
    touch_memory(bench.parameters["touch_memory"])
    for name, kind in bench.parameters["kinds"].items():
        with bench.process(WRITER) as child:
            child.call("write", base=str(bench.files.base), path=str(path), **kind)
        _figures(bench, name, _measure(bench, path, "whole", {}))
        batch = {"rows": bench.parameters["batch"]}
        _figures(bench, f"{name}, batches", _measure(bench, path, "in_batches", batch))
        bench.record.add(Figure(name, "file", "size", path.stat().st_size / 1e6, "MB"))
        path.unlink()


def _measure(bench: Bench, path: Path, method: str, arguments: dict[str, Any]) -> dict[str, list[Answer]]:
    """Every pass in a fresh process, the sides in turn; the file is in the page cache, as it was just written."""
    engines = {side: OUR_ROW_FILE if side == OURS else bench.definition.sides[side]["engine"] for side in bench.sides}
    runs: dict[str, list[Answer]] = {side: [] for side in engines}
    for _ in range(bench.parameters["repeats"]):
        for side, engine in engines.items():
            with bench.process(engine) as child:
                answer = child.call(
                    method,
                    path=str(path),
                    base=str(bench.files.base),
                    threads=bench.definition.threads,
                    **arguments,
                )
            runs[side].append(answer)
    return runs


def _figures(bench: Bench, part: str, runs: dict[str, list[Answer]]) -> None:
    for side, answers in runs.items():
        bench.record.add(Figure(part, side, "as written", min(answer["same"] for answer in answers), ""))
    for metric, key, unit, scale in (("read", "seconds", "s", 1.0), ("peak", "peak", "MB", 1e-6), ("peak growth", "growth", "MB", 1e-6)):
        values = {side: median([answer[key] for answer in answers]) * scale for side, answers in runs.items()}
        bench.record.both(part, metric, unit, values, free_of_recall=True)
