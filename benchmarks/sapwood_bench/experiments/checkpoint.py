"""The index in a directory: what commits write, what opening and cold searches read, and a reader's memory."""

from __future__ import annotations

import shutil
from pathlib import Path

from ..bench import Bench, show
from ..child import Child
from ..definition import OURS
from ..engine import Answer, Setting
from ..measure import median, touch_memory
from ..record import Figure

# The first commit of a series writes a tree that was made at once; the second is what later ones are held against.
SECOND = 1


def run(bench: Bench) -> None:
    truth = bench.truth(bench.parameters["k"])[0]
    touch_memory(bench.parameters["touch_memory"])
    setting = _build(bench, truth)
    for part in bench.parameters["later"]:
        _incremental(bench, truth, part, setting)
    _series(bench, truth, setting)


def _build(bench: Bench, truth: dict[str, str]) -> Setting:
    """All rows at once, and everything that reads them; the setting that reaches the recall."""
    path = bench.work / "index"
    parameters = bench.parameters
    with bench.directory_child(truth) as child:
        built = child.call("build", **_directory(bench, path), later=0, scattered=False, options=bench.options(OURS))
    with bench.directory_child(truth) as child:
        sizes = child.call("survey", path=str(path))
    with bench.directory_child(truth) as child:
        found = _searched(bench, child, path, [{"beam": beam} for beam in parameters["beams"]])
    setting: Setting = found["setting"]
    _sizes(bench, built, sizes, found["recall"])
    _open(bench, truth, path, found["recall"])
    _cold(bench, truth, path, setting)
    _memory(bench, truth, path, setting)
    shutil.rmtree(path)
    return setting


def _directory(bench: Bench, path: Path) -> dict[str, object]:
    return {"path": str(path), "base": str(bench.files.base), "threads": bench.definition.threads}


def _searched(bench: Bench, child: Child, path: Path, settings: list[Setting]) -> Answer:
    """Of the settings the first that reaches the recall, and its recall."""
    return child.call(
        "searched",
        path=str(path),
        queries=bench.parameters["queries"],
        k=bench.parameters["k"],
        settings=settings,
        enough=bench.parameters["recall"],
        threads=bench.definition.threads,
    )


def _add(bench: Bench, part: str, metric: str, value: float, unit: str, recall: float | None = None, setting: str = "") -> None:
    bench.record.add(Figure(part, OURS, metric, value, unit, None, recall, setting))


def _sizes(bench: Bench, built: Answer, sizes: Answer, recall: float) -> None:
    for phase, seconds in built["phases"].items():
        _add(bench, "build", phase, seconds, "s", recall)
    _add(bench, "build", "total", sum(built["phases"].values()), "s", recall)
    for metric, value in (("written", built["bytes_written"]), ("written as stated", built["bytes_stated"])):
        _add(bench, "build", metric, value / 1e6, "MB")
    _add(bench, "build", "on disk", sizes["bytes_disk"] / 1e6, "MB")
    _add(bench, "build", "postings on disk", sizes["bytes_postings"] / 1e6, "MB")
    _add(bench, "build", "on disk a row", sizes["bytes_disk"] / bench.files.rows, "bytes a row")
    _add(bench, "build", "on disk of raw", sizes["bytes_disk"] / (bench.files.rows * bench.files.dim * 4), "x")


def _open(bench: Bench, truth: dict[str, str], path: Path, recall: float) -> None:
    with bench.directory_child(truth) as child:
        times = child.call("opened", path=str(path), repeats=bench.parameters["opens"])
    _add(bench, "open", "median", times["median_ms"], "ms", recall)
    _add(bench, "open", "first of a process", times["first_ms"], "ms", recall)


def _cold(bench: Bench, truth: dict[str, str], path: Path, setting: Setting) -> None:
    parameters = bench.parameters
    with bench.directory_child(truth) as child:
        answer = child.call(
            "singles",
            path=str(path),
            queries=parameters["queries"],
            count=parameters["cold_queries"],
            k=parameters["k"],
            setting=setting,
        )
    shown = show(setting)
    for state in ("cold", "warm"):
        times = answer[state]
        _add(bench, state, "recall", times["recall"], "", times["recall"], shown)
        for metric in ("p50", "p99"):
            _add(bench, state, metric, times[f"{metric}_ms"], "ms", times["recall"], shown)
    cold = answer["cold"]
    recall = cold["recall"]
    for metric in ("scanned", "reranked"):
        _add(bench, "cold", f"{metric} a query", cold[metric], "codes", recall, shown)
    postings, vectors = cold["bytes_read_postings"], cold["bytes_read_vectors"]
    _add(bench, "cold", "postings read a query", postings / 1e3, "kB", recall, shown)
    _add(bench, "cold", "vectors read a query", vectors / 1e3, "kB", recall, shown)
    _add(bench, "cold", "reads a query", cold["reads"], "", recall, shown)
    _add(bench, "cold", "read of what is needed", (postings + vectors) / cold["bytes_least"], "x", recall, shown)


def _memory(bench: Bench, truth: dict[str, str], path: Path, setting: Setting) -> None:
    parameters = bench.parameters
    with bench.directory_child(truth) as child:
        answer = child.call(
            "resident",
            path=str(path),
            cache_bytes=parameters["cache_bytes"],
            rounds=parameters["rounds"],
            k=parameters["k"],
            setting=setting,
            threads=bench.definition.threads,
        )
    shown = show(setting) + f" cache_bytes={parameters['cache_bytes']}"
    _add(bench, "reader memory", "peak growth", answer["growth"] / 1e6, "MB", None, shown)
    _add(bench, "reader memory", "cache, tree and tables", answer["allowed"] / 1e6, "MB", None, shown)
    _add(bench, "reader memory", "tree and tables", answer["tables"] / 1e6, "MB", None, shown)
    _add(bench, "reader memory", "peak growth of cache, tree and tables", answer["growth"] / answer["allowed"], "x", None, shown)
    _add(bench, "reader memory", "read in all", answer["read"] / 1e6, "MB", None, shown)
    _add(bench, "reader memory", "queries", answer["queries"], "", None, shown)


def _incremental(bench: Bench, truth: dict[str, str], part: str, setting: Setting) -> None:
    """A few rows added to a committed index that was opened again."""
    path = bench.work / f"index-{part}"
    rows = {"later": bench.parameters["later_rows"], "scattered": bench.parameters["later"][part]}
    with bench.directory_child(truth) as child:
        child.call("build", **_directory(bench, path), **rows, options=bench.options(OURS))
    with bench.directory_child(truth) as child:
        before = child.call("survey", path=str(path))
    with bench.directory_child(truth) as child:
        answer = child.call("extend", **_directory(bench, path), **rows)
    with bench.directory_child(truth) as child:
        after = child.call("survey", path=str(path))
        recall = _searched(bench, child, path, [setting])["recall"]
    shutil.rmtree(path)
    for phase, seconds in answer["phases"].items():
        _add(bench, part, phase, seconds, "s", recall, show(setting))
    stats = answer["stats"]
    for metric, value in (
        ("written", answer["bytes_written"]),
        ("written as stated", answer["bytes_stated"]),
        ("postings read", stats["bytes_read_postings"]),
        ("vectors read", stats["bytes_read_vectors"]),
        ("on disk before", before["bytes_disk"]),
        ("on disk after", after["bytes_disk"]),
    ):
        _add(bench, part, metric, value / 1e6, "MB")
    _add(bench, part, "written of index", answer["bytes_written"] / before["bytes"], "x")
    _add(bench, part, "postings read of all", stats["bytes_read_postings"] / before["bytes_postings"], "x")


def _series(bench: Bench, truth: dict[str, str], setting: Setting) -> None:
    """Commits of equal parts in the order of their time, into a fresh directory each repeat."""
    runs: list[list[Answer]] = []
    recalls = []
    for repeat in range(bench.parameters["repeats"]):
        path = bench.work / f"series-{repeat}"
        with bench.directory_child(truth) as child:
            answer = child.call(
                "series",
                **_directory(bench, path),
                commits=bench.parameters["commits"],
                options=bench.options(OURS),
            )
        runs.append(answer["commits"])
        with bench.directory_child(truth) as child:
            recalls.append(_searched(bench, child, path, [setting])["recall"])
        shutil.rmtree(path)
    recall = median(recalls)
    shown = show(setting)
    for i, answers in enumerate(zip(*runs, strict=True)):
        part = f"commit {i + 1}"
        for phase in answers[0]["phases"]:
            _add(bench, part, phase, median([answer["phases"][phase] for answer in answers]), "s", recall, shown)
        _add(bench, part, "clusterings", median([answer["clusterings"] for answer in answers]), "")
        _add(bench, part, "written", median([answer["bytes_written"] for answer in answers]) / 1e6, "MB")
    for what, costs in (
        ("seconds", [[commit["phases"]["commit"] for commit in commits] for commits in runs]),
        ("bytes", [[commit["bytes_written"] for commit in commits] for commits in runs]),
    ):
        last = median([cost[-1] / cost[SECOND] for cost in costs])
        worst = median([max(cost[SECOND:]) / cost[SECOND] for cost in costs])
        _add(bench, "commits", f"{what} of last over second", last, "x", recall, shown)
        _add(bench, "commits", f"{what} of worst over second", worst, "x", recall, shown)
    _add(bench, "commits", "recall after the last", recall, "", recall, shown)
