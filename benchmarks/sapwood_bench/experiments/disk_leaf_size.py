"""What leaves of different sizes cost a search that reads them from disk: one directory for each, at one recall, cold and warm."""

from __future__ import annotations

import shutil
from pathlib import Path

from ..bench import Bench, show
from ..definition import OURS
from ..record import Figure


def run(bench: Bench) -> None:
    truth = bench.truth(bench.parameters["k"])[0]
    for spill in bench.parameters["spills"]:
        for threshold in bench.parameters["split_thresholds"]:
            path = bench.work / f"leaves-{threshold}-{spill}"
            _measure(bench, truth, path, {"profile": "disk", "split_threshold": threshold, "spill": spill})
            shutil.rmtree(path)


def _measure(bench: Bench, truth: dict[str, str], path: Path, options: dict[str, object]) -> None:
    """Build, find the narrowest beam that reaches the recall, and search with it."""
    parameters = bench.parameters
    with bench.directory_child(truth) as child:
        child.call("series", path=str(path), base=str(bench.files.base), commits=1, threads=bench.definition.threads, options=options)
    settings = [{"beam": beam} for beam in parameters["beams"]]
    asked = {"path": str(path), "queries": parameters["queries"], "k": parameters["k"]}
    with bench.directory_child(truth) as child:
        found = child.call("searched", **asked, settings=settings, enough=parameters["recall"], threads=bench.definition.threads)
    setting = found["setting"]
    with bench.directory_child(truth) as child:
        answer = child.call("singles", **asked, count=parameters["cold_queries"], setting=setting)
    cold, warm = answer["cold"], answer["warm"]
    part = f"split_threshold {options['split_threshold']}, spill {options['spill']}"
    for metric, value, unit in (
        ("cold p50", cold["p50_ms"], "ms"),
        ("warm p50", warm["p50_ms"], "ms"),
        ("reads a query", cold["reads"], ""),
        ("postings read a query", cold["bytes_read_postings"] / 1e3, "kB"),
        ("vectors read a query", cold["bytes_read_vectors"] / 1e3, "kB"),
        ("scanned a query", cold["scanned"], "codes"),
    ):
        bench.record.add(Figure(part, OURS, metric, value, unit, None, cold["recall"], show(setting)))
