"""``python -m sapwood build``: what it builds, how it goes on after whatever stopped it, and what it refuses."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

import sapwood as sw
from conftest import clustered
from sapwood import build as module
from sapwood.__main__ import main
from sapwood.build import PHASES, Built, Source, build

DIM = 16
ROWS = 3000
VECTORS = clustered(ROWS, DIM, seed=1)
IDS = np.random.default_rng(2).permutation(10 * ROWS)[:ROWS]
QUERIES = clustered(20, DIM, seed=3)
COMMAND = [sys.executable, "-W", "error", "-m", "sapwood", "build"]
LIMIT = 60
"""Seconds until a child that hangs is a failure."""


def write(path: Path, vectors: NDArray[np.float32], ids: Any = None, name: str = "embedding", empty: tuple[int, ...] = ()) -> Path:
    """A Parquet file with a text, vectors, and ids if there are any; rows `empty` are null."""
    rows = [None if row in empty else vector for row, vector in enumerate(vectors.tolist())]
    columns: dict[str, Any] = {"text": ["x"] * len(rows), name: pa.array(rows, pa.list_(pa.float32()))}
    if ids is not None:
        columns["key"] = pa.array(ids, pa.int64())
    pq.write_table(pa.table(columns), path, row_group_size=700)
    return path


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    """The rows in three Parquet files without ids."""
    bounds = [0, 1000, 1800, ROWS]
    return [write(tmp_path / f"part-{n}.parquet", VECTORS[a:b]) for n, (a, b) in enumerate(pairwise(bounds))]


def check(path: Path, vectors: NDArray[np.float32], ids: Any, metric: str = "l2") -> None:
    """The index holds exactly these rows, once each, and finds what an exact search finds."""
    order = np.argsort(ids)
    ids, vectors = np.asarray(ids)[order], vectors[order]
    with sw.Reader(path) as reader:
        assert reader.ids().tolist() == ids.tolist()
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True) if metric == "cosine" else 1
        np.testing.assert_allclose(reader.get(ids), vectors / lengths, rtol=1e-6, atol=1e-7)
        reader.validate()
        found = reader.search(QUERIES, 10, beam=10**9, rerank=1 << 20)
        places, distances = sw.exact_search(vectors, QUERIES, 10, metric)  # type: ignore[arg-type]
        assert reader.metric == metric
        assert found.ids.tolist() == ids[places].tolist()
        np.testing.assert_allclose(found.distances, distances, rtol=1e-5, atol=1e-5)


def note(path: Path) -> dict[str, Any]:
    """What a build keeps with its newest checkpoint."""
    told: dict[str, Any] = json.loads(sw.load_checkpoint(path).note)["build"]
    return told


def contents(path: Path) -> dict[str, bytes]:
    """All files but the one that says who wrote last, and when."""
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file() and file.name != "LOCK"}


def command(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=LIMIT, **options)


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
def test_the_index_is_the_one_that_a_writer_makes(tmp_path: Path, metric: str) -> None:
    file = write(tmp_path / "rows.parquet", VECTORS, IDS)
    built = build(tmp_path / "built", Source(file, "embedding", "key"), metric, commit_rows=1000)  # type: ignore[arg-type]
    assert (built.rows, built.read, built.resumed, built.skipped, built.replaced) == (ROWS, ROWS, 0, 0, 0)
    with sw.Writer(tmp_path / "by-hand", DIM, metric) as writer:  # type: ignore[arg-type]
        writer.add(VECTORS, IDS)
    with sw.Reader(tmp_path / "built") as one, sw.Reader(tmp_path / "by-hand") as other:
        assert one.ids().tolist() == other.ids().tolist() and one.get(IDS).tobytes() == other.get(IDS).tobytes()
        assert one.search(QUERIES, 10, beam=10**9, rerank=1 << 20) == other.search(QUERIES, 10, beam=10**9, rerank=1 << 20)
    check(tmp_path / "built", VECTORS, IDS, metric)


def test_ids_are_row_numbers_over_all_files_and_folders(tmp_path: Path, parts: list[Path]) -> None:
    build(tmp_path / "files", Source(parts), "l2", commit_rows=700, batch_rows=300)
    check(tmp_path / "files", VECTORS, np.arange(ROWS))
    # A folder stands for its files; those of other names or hidden are left out, as by read_vectors.
    (folder := tmp_path / "folder").mkdir()
    for part in reversed(parts):
        shutil.copy(part, folder)
    write(folder / ".half-written.parquet", VECTORS[:10])
    write(folder / "_half-written.parquet", VECTORS[:10])
    (folder / "README").write_text("rows")
    build(tmp_path / "of-folder", Source(folder), "l2")
    check(tmp_path / "of-folder", VECTORS, np.arange(ROWS))
    # Either way the files are the same, so one goes on where the other ended.
    assert build(tmp_path / "of-folder", Source(parts), "l2").resumed == ROWS


@pytest.mark.parametrize("suffix", ["npy", "fvecs"])
def test_files_of_plain_rows(tmp_path: Path, suffix: str) -> None:
    files = [tmp_path / f"{n}.{suffix}" for n in range(2)]
    for file, rows in zip(files, (VECTORS[:1100], VECTORS[1100:]), strict=True):
        if suffix == "npy":
            np.save(file, rows)
        else:
            np.hstack([np.full((len(rows), 1), DIM, "<i4").view("<f4"), rows]).tofile(file)
    built = build(tmp_path / "index", Source(files), "l2", commit_rows=800)
    assert built.version == 4
    check(tmp_path / "index", VECTORS, np.arange(ROWS))


def test_options_reach_the_writer(tmp_path: Path, parts: list[Path]) -> None:
    options = ["--storage", "f16", "--keep", "2", "--threads", "1", "--commit-every", "1000", "--validate", "--quiet", "--json"]
    assert main(["build", str(tmp_path / "index"), "--parquet", *map(str, parts), *options]) == 0
    checkpoint = sw.load_checkpoint(tmp_path / "index")
    assert checkpoint.versions == [2, 3] and checkpoint.config["storage"] == "f16" and checkpoint.metric == "cosine"
    with sw.Reader(tmp_path / "index") as reader:
        assert reader.ids().tolist() == list(range(ROWS))
        np.testing.assert_allclose(np.linalg.norm(reader.get(range(ROWS)), axis=1), 1, atol=1e-3)


def test_a_commit_lets_the_vectors_before_it_go_from_memory(tmp_path: Path, parts: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    held, real = [], sw.Writer.commit

    def commit(self: sw.Writer, note: str) -> Any:
        held.append(self.stats()["bytes_vectors"])
        return real(self, note)

    monkeypatch.setattr(sw.Writer, "commit", commit)
    build(tmp_path / "index", Source(parts), "l2", commit_rows=300)
    assert len(held) == 10 and max(held) < 4 * DIM * ROWS / 2, held


@pytest.mark.parametrize("commit_rows", [500, ROWS])
def test_the_later_row_of_an_id_stays(tmp_path: Path, commit_rows: int) -> None:
    """Whether both are in one batch or not."""
    ids = np.arange(ROWS)
    ids[2000:] -= 1500
    ids[7] = 6
    file = write(tmp_path / "rows.parquet", VECTORS, ids)
    built = build(tmp_path / "index", Source(file, None, "key"), "l2", commit_rows=commit_rows)
    last = {int(id): row for row, id in enumerate(ids)}
    assert (built.rows, built.read, built.replaced) == (len(last), ROWS, ROWS - len(last))
    check(tmp_path / "index", VECTORS[list(last.values())], list(last))


def start(*arguments: object) -> subprocess.Popen[str]:
    """A build that commits after each row: it would take thousands of commits to end. Returns when it has made one."""
    call = [*COMMAND, *map(str, arguments), "--commit-every", "1"]
    child = subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    path, end = Path(str(arguments[0])), time.monotonic() + LIMIT
    while not (path / "CURRENT").exists():
        if child.poll() is not None or time.monotonic() > end:
            child.kill()
            pytest.fail(f"no checkpoint: {child.communicate()}")
        time.sleep(0.002)
    return child


@pytest.mark.parametrize("key", [None, "key"])
def test_after_sigkill_every_row_is_there_once(tmp_path: Path, key: str | None) -> None:
    ids = np.arange(ROWS) if key is None else IDS
    files = [write(tmp_path / f"{n}.parquet", VECTORS[n::2], ids[n::2]) for n in range(2)]
    order = np.concatenate([np.arange(ROWS)[0::2], np.arange(ROWS)[1::2]])
    arguments = [tmp_path / "index", "--parquet", *files, "--column", "embedding", "--metric", "l2", *(["--id-column", key] if key else [])]
    with start(*arguments) as child:
        child.kill()
    assert child.returncode == -signal.SIGKILL
    before = note(tmp_path / "index")["rows_read"]
    assert 0 < before < ROWS and sw.load_checkpoint(tmp_path / "index").rows == before
    done = command(*arguments, "--json", "--quiet")
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert (told["resumed"], told["read"], told["rows"], told["replaced"]) == (before, ROWS - before, ROWS, 0)
    check(tmp_path / "index", VECTORS[order], ids[order] if key else ids)


def test_rows_that_were_added_but_not_committed_are_read_again(tmp_path: Path, parts: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever call fails: the checkpoint never tells of rows that aren't in it."""
    for name in ("add", "balance", "commit", "validate", "close"):
        for nth in (1, 2, 3):
            path = tmp_path / f"{name}-{nth}"
            real, calls = getattr(sw.Writer, name), iter(range(1, 100))

            def failing(self: sw.Writer, *given: Any, real: Any = real, calls: Any = calls, nth: int = nth) -> Any:
                if next(calls) == nth:
                    raise OSError(28, "No space left on device")
                return real(self, *given)

            with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
                patch.setattr(sw.Writer, name, failing)
                build(path, Source(parts), "l2", commit_rows=1000, batch_rows=500, validate=True)
            read = note(path)["rows_read"] if (path / "CURRENT").exists() else 0
            if read:
                check(path, VECTORS[:read], np.arange(read))
            assert build(path, Source(parts), "l2").resumed == read
            check(path, VECTORS, np.arange(ROWS))


def test_ctrl_c_ends_with_130_and_the_same_command_goes_on(tmp_path: Path, parts: list[Path]) -> None:
    arguments = [tmp_path / "index", "--parquet", *parts, "--metric", "l2"]
    with start(*arguments) as child:
        child.send_signal(signal.SIGINT)
        out, errors = child.communicate(timeout=LIMIT)
    assert child.returncode == 130 and out == ""
    assert errors.split("\n")[-2:] == ["interrupted; the same command goes on after the last checkpoint", ""] and "Traceback" not in errors
    before = note(tmp_path / "index")["rows_read"]
    assert 0 < before < ROWS
    assert f"({before:,} were there)" in command(*arguments).stdout
    check(tmp_path / "index", VECTORS, np.arange(ROWS))


def test_further_files_are_added(tmp_path: Path, parts: list[Path]) -> None:
    path = tmp_path / "index"
    for count, rows in ((1, 1000), (2, 1800), (3, ROWS)):
        before = sw.load_checkpoint(path).rows if count > 1 else 0
        built = build(path, Source(parts[:count]), "l2")
        assert (built.resumed, built.read, built.rows) == (before, rows - before, rows)
        check(path, VECTORS[:rows], np.arange(rows))


def test_the_same_again_writes_nothing(tmp_path: Path, parts: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "index"
    # The last commit is due exactly at the end.
    first = build(path, Source(parts), "l2", commit_rows=1000)
    assert first.version == 3
    before = contents(path)
    looks: list[int] = []
    monkeypatch.setattr(sw.Checkpoint, "validate", lambda checkpoint: looks.append(checkpoint.version))
    again = build(path, Source(parts), validate=True)
    assert looks == [3] and (again.version, again.read, again.resumed, again.rows, again.bytes_written) == (3, 0, ROWS, ROWS, 0)
    assert contents(path) == before
    # Nor is a row of an earlier run brought back that was removed since.
    with sw.Writer(path) as writer:
        writer.remove(5)
    assert build(path, Source(parts)).rows == ROWS - 1


def test_a_file_of_which_nothing_is_committed_may_be_mended(tmp_path: Path, parts: list[Path]) -> None:
    broken = VECTORS[1800:].copy()
    broken[10, 3] = np.nan
    write(parts[2], broken)
    with pytest.raises(ValueError, match=r"part-2\.parquet: row 10 .*NaN"):
        build(tmp_path / "index", Source(parts), "l2", commit_rows=900)
    assert note(tmp_path / "index")["rows_read"] == 1800
    write(parts[2], VECTORS[1800:], np.arange(1200))
    assert build(tmp_path / "index", Source(parts), "l2").resumed == 1800
    check(tmp_path / "index", VECTORS, np.arange(ROWS))


def test_empty_rows_raise_or_are_left_out_and_a_build_goes_on_across_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, empty = tmp_path / "index", (0, 500, 999, 1000, 2999)
    file = write(tmp_path / "rows.parquet", VECTORS, empty=empty)
    with pytest.raises(ValueError, match=r"rows\.parquet: row 0 .*null"):
        build(path, Source(file), "l2", commit_rows=500)
    assert not (path / "CURRENT").exists()
    kept = np.setdiff1d(np.arange(ROWS), empty)
    real, calls = sw.Writer.commit, []

    def commit(self: sw.Writer, note: str) -> Any:
        calls.append(note)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(self, note)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(sw.Writer, "commit", commit)
        build(path, Source(file, nulls="skip"), "l2", commit_rows=500)
    # The skipped rows at both sides of the last commit count as read.
    assert note(path)["rows_read"] == 1000 and sw.load_checkpoint(path).rows == 997
    built = build(path, Source(file, nulls="skip"), "l2", commit_rows=500)
    assert (built.resumed, built.read, built.skipped, built.rows) == (1000, 2000, 2, ROWS - 5)
    check(path, VECTORS[kept], kept)


def test_files_of_empty_rows_only(tmp_path: Path) -> None:
    nothing = write(tmp_path / "nothing.parquet", VECTORS[:20], empty=tuple(range(20)))
    some = write(tmp_path / "some.parquet", VECTORS)
    path = tmp_path / "index"
    with pytest.raises(ValueError, match=r"paths: expected rows with vectors, got nothing\.parquet with empty rows only"):
        build(path, Source(nothing, nulls="skip"))
    build(path, Source(some, nulls="skip"), "l2")
    built = build(path, Source([some, nothing], nulls="skip"), "l2")
    assert (built.read, built.skipped, built.rows, built.resumed) == (20, 20, ROWS, ROWS)
    before = contents(path)
    assert main(["build", str(path), "--parquet", str(some), str(nothing), "--nulls", "skip", "--quiet"]) == 0
    assert contents(path) == before
    none = write(tmp_path / "none.parquet", VECTORS[:0])
    with pytest.raises(ValueError, match=r"paths: expected files with rows, got none\.parquet without any"):
        build(tmp_path / "other", Source(none))


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The message of a build that fails and leaves the directory as it was."""
    path = Path(str(arguments[0]))
    before = contents(path)
    assert main(["build", *map(str, arguments), "--quiet"]) == 1
    told = capsys.readouterr()
    assert told.out == "" and told.err.startswith("error: ") and told.err.count("\n") == 1
    assert contents(path) == before
    return told.err


def test_other_files_are_refused(tmp_path: Path, parts: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "index"
    build(path, Source(parts), "l2")
    a, b, c = parts
    sizes = [f"{part.stat().st_size:,}" for part in parts]
    wanted = f"error: paths: expected the 3 files of which rows are in {path}, first, in the same order and unchanged, got "
    remedy = "; give these files, or build into another directory\n"
    told = refused(capsys, path, "--parquet", a, b)
    assert told == f"{wanted}nothing as file 3, which was part-2.parquet of {sizes[2]} bytes{remedy}"
    told = refused(capsys, path, "--parquet", b, a, c)
    assert told == f"{wanted}part-1.parquet of {sizes[1]} bytes as file 1, which was part-0.parquet of {sizes[0]} bytes{remedy}"
    write(c, VECTORS[1800:2900])
    assert "as file 3, which was part-2.parquet of" in refused(capsys, path, "--parquet", a, b, c)
    c.unlink()
    assert "No such file" in refused(capsys, path, "--parquet", a, b, c)


def test_other_rows_in_files_of_the_same_length_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, file = tmp_path / "index", tmp_path / "rows.npy"
    np.save(file, VECTORS)
    build(path, Source(file), "l2")
    np.save(file, VECTORS[::-1])
    size = f"{file.stat().st_size:,}"
    assert f"got other bytes as file 1, which was rows.npy of {size} bytes" in refused(capsys, path, "--parquet", file)


def test_a_note_names_only_the_first_of_many_files(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LISTED", 3)
    path, files = tmp_path / "index", [tmp_path / f"{n}.npy" for n in range(6)]
    for n, file in enumerate(files):
        np.save(file, VECTORS[100 * n : 100 * n + 100])
    build(path, Source(files[:5]), "l2")
    assert [mark[0] for mark in note(path)["files"]] == ["0.npy", "1.npy", "2.npy"] and note(path)["file_count"] == 5
    told = refused(capsys, path, "--parquet", *files[:4], files[5])
    assert "expected the 5 files of which rows are in" in told and "got 5 files that differ after the first 3" in told
    assert "got nothing as file 2" in refused(capsys, path, "--parquet", files[0])
    assert build(path, Source(files), "l2").read == 100
    check(path, VECTORS[:600], np.arange(600))


@pytest.mark.parametrize("text", [None, "", "5", "{}", '{"build": 3}', '{"build": {"rows_read": 5}}'])
def test_another_index_is_refused_and_left_as_it_is(tmp_path: Path, parts: list[Path], capsys: Any, text: str | None) -> None:
    path = tmp_path / "index"
    with sw.Writer(path, DIM, "l2") as writer:
        writer.add(VECTORS[:50])
        writer.commit(text)
    told = refused(capsys, path, "--parquet", *parts)
    assert told == f"error: path: expected an empty directory or one that a build made, got {path}, which holds another index\n"


def test_other_columns_and_options_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, file = tmp_path / "index", write(tmp_path / "rows.parquet", VECTORS, IDS)
    build(path, Source(file, "embedding", "key"), "l2", storage="f16")
    columns = ("--column", "embedding", "--id-column", "key")
    begun = f"as the build in {path} was begun with"
    assert f"column: expected 'embedding', {begun}, got None" in refused(capsys, path, "--parquet", file, *columns[2:])
    assert f"id_column: expected 'key', {begun}, got None" in refused(capsys, path, "--parquet", file, *columns[:2])
    told = refused(capsys, path, "--parquet", file, *columns, "--metric", "ip")
    assert told == "error: metric: expected 'l2', as in the checkpoint, got 'ip'\n"
    told = refused(capsys, path, "--parquet", file, *columns, "--storage", "f32")
    assert told == "error: storage: expected 'f16', as in the checkpoint, got 'f32'\n"
    narrow = write(tmp_path / "narrow.parquet", VECTORS[:, :8], IDS)
    told = refused(capsys, path, "--parquet", file, narrow, *columns)
    assert told == "error: dim: expected 16, as in the checkpoint, got 8\n"
    assert build(path, Source(file, "embedding", "key"), storage="f16").read == 0


def test_wrong_columns_name_those_that_are_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "rows.parquet", VECTORS, IDS)
    told = refused(capsys, tmp_path / "index", "--parquet", file, "--column", "vector")
    assert "'vector'" in told.replace('"', "'") and "embedding" in told
    told = refused(capsys, tmp_path / "index", "--parquet", file, "--id-column", "id")
    assert "'id'" in told.replace('"', "'") and "key" in told
    assert not (tmp_path / "index").exists()


def test_another_writer_before_or_meanwhile(tmp_path: Path, parts: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "index"
    build(path, Source(parts[:1]), "l2")
    with sw.Writer(path) as writer:
        writer.add(VECTORS[:1], [10**6])
        with pytest.raises(sw.LockedError):
            build(path, Source(parts), "l2")
        writer.remove(10**6)
    real = module.iter_vectors

    def late(*arguments: Any, **options: Any) -> Any:
        # Between the look at the directory and the opening of it another run does the work.
        monkeypatch.setattr(module, "iter_vectors", real)
        build(path, Source(parts), "l2")
        return real(*arguments, **options)

    monkeypatch.setattr(module, "iter_vectors", late)
    with pytest.raises(sw.Error, match="somebody else has committed to it meanwhile; build again"):
        build(path, Source(parts), "l2")
    check(path, VECTORS, np.arange(ROWS))


@pytest.mark.parametrize("kind", ["file", "closed"])
def test_a_directory_that_cannot_be_made(tmp_path: Path, parts: list[Path], capsys: pytest.CaptureFixture[str], kind: str) -> None:
    parent = tmp_path / kind
    if kind == "file":
        parent.write_text("not a directory")
    else:
        parent.mkdir(0o500)
        if os.access(parent, os.W_OK):
            pytest.skip("this user may write everywhere")
    assert main(["build", str(parent / "index"), "--parquet", str(parts[0]), "--quiet"]) == 1
    told = capsys.readouterr()
    reason = "Not a directory" if kind == "file" else "Permission denied"
    assert told.out == "" and told.err.startswith("error: ") and reason in told.err and str(parent) in told.err
    assert kind == "closed" or parent.read_text() == "not a directory"


def test_json_has_all_fields_and_the_phases_sum_to_the_total(tmp_path: Path, parts: list[Path]) -> None:
    done = command(tmp_path / "index", "--parquet", *parts, "--commit-every", "1000", "--validate", "--json", "--quiet")
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert list(told) == list(Built.__dataclass_fields__) and list(told["seconds"]) == list(PHASES)
    assert told["path"] == str((tmp_path / "index").resolve())
    assert (told["version"], told["rows"], told["read"], told["resumed"]) == (3, ROWS, ROWS, 0)
    assert told["bytes_written"] > 4 * DIM * ROWS
    assert all(seconds > 0 for seconds in told["seconds"].values())
    assert sum(told["seconds"].values()) == pytest.approx(told["total_seconds"])


def test_every_moment_is_in_one_phase(tmp_path: Path, parts: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that only runs while rows are added."""
    now, real = [100.0], sw.Writer.add

    def add(self: sw.Writer, *given: Any) -> Any:
        now[0] += 2.0
        return real(self, *given)

    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(sw.Writer, "add", add)
    built = build(tmp_path / "index", Source(parts), "l2", commit_rows=1000)
    assert built.seconds == {**dict.fromkeys(PHASES, 0.0), "add": 6.0} and built.total_seconds == 6.0


def test_progress_is_on_stderr_and_only_there(tmp_path: Path, parts: list[Path]) -> None:
    done = command(tmp_path / "index", "--parquet", *parts)
    assert done.returncode == 0 and "rows" in done.stderr and "Traceback" not in done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"{(tmp_path / 'index').resolve()}: checkpoint 1 with 3,000 rows"
    assert re.fullmatch(r"read 3,000 rows, wrote [\d.]+ MB", lines[1])
    assert re.fullmatch(r"[\d.]+ s, [\d,]+ rows/s(: (\w+ [\d.]+(, )?)+)?", lines[2]) and len(lines) == 3
    done = command(tmp_path / "other", "--parquet", *parts, "--quiet")
    assert (done.returncode, done.stderr) == (0, "")


def test_progress_counts_the_rows_of_all_runs(tmp_path: Path, parts: list[Path]) -> None:
    build(tmp_path / "index", Source(parts[:1]), "l2")
    reports: list[tuple[int, int]] = []
    build(tmp_path / "index", Source(parts), "l2", progress=lambda done, total: reports.append((done, total)))
    assert reports[-1] == (ROWS, ROWS) and all(1000 <= done <= total == ROWS for done, total in reports)


@pytest.mark.parametrize("wrong", ["", "--metric euclid", "--commit-every 0", "--commit-every x", "--nulls drop", "--keep 0", "more"])
def test_wrong_usage_ends_with_2(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["build", "--parquet", "rows.parquet", *(["--json", "index", *wrong.split()] if wrong else [])])
    told = capsys.readouterr()
    assert ended.value.code == 2 and told.out == "" and "usage:" in told.err


def test_wrong_arguments_of_the_function(tmp_path: Path, parts: list[Path]) -> None:
    with pytest.raises(ValueError, match="commit_rows: expected a whole number from 1 on, got 0"):
        build(tmp_path / "index", Source(parts), commit_rows=0)
    with pytest.raises(ValueError, match="nulls: expected"):
        build(tmp_path / "index", Source(parts, nulls="drop"))  # type: ignore[arg-type]


def test_help_names_the_command_and_its_options() -> None:
    told = subprocess.run([sys.executable, "-m", "sapwood", "--help"], capture_output=True, text=True, timeout=LIMIT).stdout
    assert "build an index in a directory from Parquet or other files" in told
    told = command("--help").stdout
    for option in ("DIR", "--parquet", "--column", "--id-column", "--nulls", "--metric", "--storage", "--commit-every", "--keep", "--json"):
        assert option in told
    assert "goes on after the last" in told and max(map(len, told.splitlines())) <= 140
