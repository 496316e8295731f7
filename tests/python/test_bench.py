"""``python -m sapwood bench``: what it measures, of rows and of a checkpoint, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sapwood as sw
from conftest import clustered
from sapwood import bench as module
from sapwood.__main__ import main
from sapwood.bench import CHECKPOINT_PHASES, PARTS, PHASES, Benched, BenchedCheckpoint, Data, DiskRow, bench, bench_checkpoint, ladder
from sapwood.evaluate import Row

DIM = 16
ROWS = 3000
VECTORS = clustered(ROWS, DIM, seed=1)
QUERIES = clustered(40, DIM, seed=3)
COMMAND = [sys.executable, "-W", "error", "-m", "sapwood", "bench"]
QUICK = ("--seconds", "0.01", "--query-rows", "40", "--threads", "1")


@pytest.fixture
def base(tmp_path: Path) -> Path:
    np.save(tmp_path / "base.npy", VECTORS)
    return tmp_path / "base.npy"


@pytest.fixture
def queries(tmp_path: Path) -> Path:
    np.save(tmp_path / "queries.npy", QUERIES)
    return tmp_path / "queries.npy"


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    with sw.Index(DIM, "l2", storage="f16") as index:
        # Ids are not the numbers of the rows.
        index.add(VECTORS, np.arange(ROWS)[::-1] * 7)
        index.balance()
        index.save(tmp_path / "index")
    return tmp_path / "index"


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=60)


def names(kind: Any) -> list[str]:
    return [each.name for each in fields(kind)]


def test_json_has_all_fields_and_the_phases_sum_to_the_total(base: Path) -> None:
    done = command("--base", base, "--metric", "l2", "--json", "--quiet", *QUICK)
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert list(told) == names(Benched) and list(told["seconds"]) == list(PHASES)
    assert (told["rows"], told["queries"], told["dim"], told["held_out"], told["metric"]) == (ROWS - 40, 40, DIM, True, "l2")
    assert all(list(row) == names(Row) for row in told["table"])
    assert told["table"][0]["setting"] == {} and all(list(row["setting"]) == ["beam"] for row in told["table"][1:])
    assert all(seconds > 0 for seconds in told["seconds"].values())
    assert sum(told["seconds"].values()) == pytest.approx(told["total_seconds"])
    assert list(told["reached"]) == ["0.9", "0.95", "0.99"]
    parts = told["bytes_a_row"]
    assert sum(parts[part] for part in PARTS) == pytest.approx(parts["total"]) and parts["vectors"] == 4 * DIM


def test_every_moment_is_in_one_phase(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that only runs in the exact search."""
    now, real = [100.0], module.exact_search

    def exact(*given: Any, **options: Any) -> Any:
        now[0] += 2.0
        return real(*given, **options)

    monkeypatch.setattr(module, "exact_search", exact)
    # Searches are timed by the same clock, which has to move for them to end.
    monkeypatch.setattr(module, "evaluate", lambda *given, **options: [Row({"beam": 1}, 10, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1, 1)])
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    done = bench(Data(base, query_rows=40), "l2", threads=1)
    assert done.seconds == {**dict.fromkeys(PHASES, 0.0), "truth": 2.0} and done.total_seconds == 2.0


def test_the_sweep_ends_at_the_highest_target_or_with_all_leaves(base: Path, queries: Path) -> None:
    done = bench(Data(base, queries), "l2", targets=(0.5, 1.0), seconds=0.01, threads=1)
    recalls = [row["recall"] for row in done.table[1:]]
    assert (done.rows, done.queries, done.held_out) == (ROWS, len(QUERIES), False)
    assert all(share < 1.0 for share in recalls[:-1]) and (recalls[-1] == 1.0 or done.table[-1]["setting"] == {"beam": done.leaves})
    for target, setting in done.reached.items():
        first = next((row["setting"] for row in done.table[1:] if row["recall"] >= float(target)), None)
        assert setting == first
    few = bench(Data(base, queries), "l2", targets=(0.01,), seconds=0.01, threads=1)
    assert len(few.table) == 2


def test_efforts_ascend_to_all_leaves() -> None:
    for leaves in (1, 2, 4, 5, 17, 1000, 10**6):
        beams = [setting["beam"] for setting in ladder(leaves)]
        assert beams == sorted(set(beams)) and beams[-1] == leaves and beams[0] >= 1


@pytest.mark.parametrize("count", [1, 7, 300])
def test_held_out_rows_are_not_in_the_index(count: int) -> None:
    rest, queries = module.hold_out(VECTORS.copy(), count)
    assert len(queries) == count and len(rest) == ROWS - count
    everything = np.concatenate([rest, queries])
    assert sorted(map(bytes, everything)) == sorted(map(bytes, VECTORS))
    fixed = VECTORS.copy()
    fixed.flags.writeable = False
    again = module.hold_out(fixed, count)
    assert np.array_equal(again[0], rest) and np.array_equal(again[1], queries) and np.array_equal(fixed, VECTORS)


def test_rows_queries_and_columns_are_the_ones_asked_for(tmp_path: Path) -> None:
    table = {name: pa.array(list(rows), pa.list_(pa.float32())) for name, rows in (("a", VECTORS), ("b", VECTORS[:, :8]))}
    pq.write_table(pa.table(table), tmp_path / "rows.parquet")
    file = tmp_path / "rows.parquet"
    done = bench(Data(file, column="b", rows=500, query_rows=20), "cosine", k=3, storage="int8", seconds=0.01, threads=1)
    assert (done.rows, done.queries, done.dim, done.k, done.storage) == (500, 20, 8, 3, "int8")
    assert done.bytes_a_row["vectors"] < 4 * 8
    done = bench(Data(file, file, column="a", query_column="a", query_rows=30), "l2", seconds=0.01, threads=1)
    assert (done.rows, done.queries, done.dim, done.held_out) == (ROWS, 30, DIM, False)
    with pytest.raises(ValueError, match="queries: expected 16 values a row as in the index, got 8"):
        bench(Data(file, file, column="a", query_column="b"), "l2", seconds=0.01)


def test_a_checkpoint_is_searched_cold_and_warm(saved: Path, queries: Path) -> None:
    done = command("--index", saved, "--queries", queries, "--json", "--quiet", *QUICK)
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert list(told) == names(BenchedCheckpoint) and list(told["seconds"]) == list(CHECKPOINT_PHASES)
    assert (told["path"], told["version"], told["rows"], told["dim"]) == (str(saved.resolve()), 1, ROWS, DIM)
    assert (told["metric"], told["storage"], told["queries"]) == ("l2", "f16", len(QUERIES))
    assert sum(told["seconds"].values()) == pytest.approx(told["total_seconds"])
    assert all(list(row) == names(DiskRow) for row in told["table"])
    assert [row["cache"] for row in told["table"]] == ["cold", "warm"] * (len(told["table"]) // 2)
    for cold, warm in zip(told["table"][::2], told["table"][1::2], strict=True):
        assert cold["setting"] == warm["setting"] and cold["recall"] == pytest.approx(warm["recall"])
        assert cold["bytes_read"] > 0 == warm["bytes_read"] and cold["scanned"] == pytest.approx(warm["scanned"])
    settings = [json.dumps(row["setting"]) for row in told["table"][::2]]
    assert settings[0] == "{}" and len(set(settings)) == len(settings)
    assert all(json.dumps(setting) in settings for setting in told["reached"].values() if setting is not None)


def test_the_truth_of_a_checkpoint_is_that_of_its_vectors(saved: Path, queries: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK_ROWS", 700)
    with sw.Reader(saved) as reader:
        truth = module._truth(reader, QUERIES, 10, 1, False)
        ids = np.sort(reader.ids())
        assert np.array_equal(truth, ids[sw.exact_search(reader.get(ids), QUERIES, 10, "l2").ids])
    done = bench_checkpoint(saved, queries, targets=(1.0,), seconds=0.01, threads=1)
    assert done.reached["1"] is None or done.table[-1]["recall"] == 1.0


def test_text_for_people_and_progress_apart(base: Path, saved: Path, queries: Path) -> None:
    done = command("--base", base, "--metric", "l2", *QUICK)
    assert done.returncode == 0 and "reading" in done.stderr and "Traceback" not in done.stderr
    lines = done.stdout.splitlines()
    assert "2,960 rows of 16 values, l2, f32; 40 queries, held out of the base" in lines[0]
    assert any(line.startswith("setting ") and "recall@10" in line and "p99 ms" in line for line in lines)
    assert any(line.startswith("recall@10 0.95: ") for line in lines)
    assert any(line.startswith("bytes a row: ") for line in lines) and "truth" in lines[-1]
    done = command("--index", saved, "--queries", queries, "--quiet", *QUICK)
    assert (done.returncode, done.stderr) == (0, "")
    assert "checkpoint 1 with 3,000 rows" in done.stdout and "kB read" in done.stdout and max(map(len, done.stdout.splitlines())) <= 160


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "--base",
        "--base a.npy --index b",
        "--index b",
        "--index b --queries q.npy --metric l2",
        "--index b --queries q.npy --rows 5",
        "--base a.npy --k 0",
        "--base a.npy --rows x",
        "--base a.npy --targets 0.9,1.1",
        "--base a.npy --targets nine",
        "--base a.npy --seconds 0",
        "--base a.npy --metric euclid",
        "--base a.npy more --storage f8",
    ],
)
def test_wrong_usage_ends_with_2(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["bench", *wrong.split()])
    told = capsys.readouterr()
    assert ended.value.code == 2 and told.out == "" and "usage:" in told.err


def test_failures_end_with_1_and_one_line(tmp_path: Path, base: Path, saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "narrow.npy", QUERIES[:, :8])
    np.save(tmp_path / "few.npy", VECTORS[:5])
    for arguments, told in (
        (["--base", tmp_path / "none.npy"], "none.npy"),
        (["--base", tmp_path / "few.npy"], "queries: expected at least one, got none"),
        (["--base", base, "--queries", tmp_path / "narrow.npy"], "queries: expected 16 values a row as in the index, got 8"),
        (["--base", base, "--rows", "50", "--k", "60"], "k: expected at most the 50 rows of the index, got 60"),
        (["--index", tmp_path / "none", "--queries", base], "none"),
        (["--index", saved, "--queries", tmp_path / "narrow.npy"], "queries: expected 16 values a row as in the index, got 8"),
    ):
        assert main(["bench", *map(str, arguments), "--quiet"]) == 1
        printed = capsys.readouterr()
        assert printed.out == "" and printed.err.startswith("error: ") and printed.err.count("\n") == 1 and told in printed.err


def test_interrupted(base: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def stop(*given: Any, **options: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "exact_search", stop)
    assert main(["bench", "--base", str(base), "--quiet"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_help_teaches() -> None:
    told = command("--help").stdout
    for word in ("--base", "--index", "--queries", "--targets", "--storage", "--json", "held out", "cold", "examples:"):
        assert word in told
    assert max(map(len, told.splitlines())) <= 140
