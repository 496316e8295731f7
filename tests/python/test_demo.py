"""The command line as a person runs it, and the demonstration's own checks against an index that breaks its promises."""

import json
import subprocess
import sys
from importlib import resources
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

import sapwood as sw
from sapwood import demo
from sapwood.data import load_wordnet


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "sapwood", *arguments], capture_output=True, text=True, timeout=120, check=False)


def test_the_demo_tells_its_figures_as_json() -> None:
    done = run("demo", "--rows", "3000", "--json", "--quiet")
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert report["built"]["rows"] == 2250 and report["built"]["dim"] == 384 and report["built"]["bytes_a_row"] >= 4 * 384
    assert 0.95 <= report["speed"]["recall"] <= 1 and report["speed"]["one_thread_qps"] > 0 and report["speed"]["all_cores_qps"] > 0
    changed = report["changed"]
    assert [each["rows"] for each in changed["rounds"]] == [2250] * 6 and sum(each["added"] for each in changed["rounds"]) == 750
    assert changed["recall"] >= changed["fresh_recall"] - 0.02
    assert (changed["removed_found"], changed["found_twice"]) == (0, 0) and changed["searches"] > 0
    assert report["promises"] and all(report["promises"].values())


def test_the_demo_reads_well() -> None:
    done = run("demo", "--rows", "400")
    assert done.returncode == 0, done.stderr
    for told in ("linguine", "recall@10", "queries a second", "bytes a row", "What must hold"):
        assert told in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 120
    assert "building an index of 300 rows" in done.stderr and "\r" not in done.stderr


@pytest.mark.parametrize("arguments", [(), ("demo", "--rows", "0"), ("demo", "--rows", "24001"), ("demo", "--rows", "x"), ("else",)])
def test_wrong_usage_ends_with_2(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert done.returncode == 2 and done.stdout == "" and "usage:" in done.stderr


def test_help_and_version() -> None:
    assert "24,000 glosses" in run("demo", "--help").stdout
    assert run("--version").stdout.startswith("sapwood ")


class Proxy:
    """An index that the classes below make break one promise."""

    def __init__(self, dim: int, metric: Literal["cosine"]) -> None:
        self.index = sw.Index(dim, metric)
        self.removed = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.index, name)

    def __len__(self) -> int:
        return len(self.index)

    def __enter__(self) -> "Proxy":
        return self

    def __exit__(self, *raised: object) -> None:
        self.index.close()

    def remove(self, ids: NDArray[np.int64]) -> int:
        self.removed += len(ids)
        return self.index.remove(ids)

    def search(self, *arguments: Any, **options: Any) -> SimpleNamespace:
        found = self.index.search(*arguments, **options)
        names = ("distances", "scanned", "reranked", "leaves")
        return SimpleNamespace(ids=self.change(found.ids.copy()), **{name: getattr(found, name) for name in names})

    def change(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        return ids


class KeepsRemoved(Proxy):
    def remove(self, ids: NDArray[np.int64]) -> int:
        return len(ids)


class FindsTwice(Proxy):
    def change(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        ids[..., 1] = ids[..., 0]
        return ids


class GetsWorse(Proxy):
    def change(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        if self.removed:
            ids[..., 4:] = -1
        return ids


class IsBroken(Proxy):
    def validate(self) -> None:
        raise sw.Error("row 7 is in two leaves")


@pytest.mark.parametrize(
    ("kind", "broken"),
    [
        (Proxy, []),
        (KeepsRemoved, ["no search found a row that had been removed", "the index holds exactly"]),
        (FindsTwice, ["no search found an id twice"]),
        (GetsWorse, ["recall@10 after the change"]),
        (IsBroken, ["the index is whole"]),
    ],
)
def test_a_broken_promise_ends_with_1(
    kind: type[Proxy], broken: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "Index", kind)
    monkeypatch.setattr(demo, "SECONDS", 0.02)
    assert demo.run(400, quiet=True) == (1 if broken else 0)
    told = capsys.readouterr()
    for promise in broken:
        assert f"did not hold: {promise}" in told.err and f"NO   {promise}" in told.out
    assert told.err.count("did not hold") >= len(broken)


def test_the_texts_ship_with_their_licence() -> None:
    notice = resources.files("sapwood.data").joinpath("WORDNET-LICENSE.txt").read_text()
    assert "WordNet 3.0 Copyright 2006 by Princeton University" in notice and 'PROVIDED "AS IS"' in notice


def test_the_data() -> None:
    entries, queries = load_wordnet()
    assert (len(entries), len(queries)) == (24_000, 400)
    assert entries.vectors.dtype == np.float32 and np.allclose(np.linalg.norm(entries.vectors, axis=1), 1, atol=1e-5)
    assert np.all(np.diff(entries.ids) > 0) and not np.isin(queries.ids, entries.ids).any()
    assert entries.words[0] == "entity" and len(entries.glosses) == len(entries.words) == 24_000 and all(entries.glosses)
    assert len(load_wordnet(rows=7)[0]) == 7
    with pytest.raises(ValueError, match="rows: expected 1 to 24,000, got 0"):
        load_wordnet(rows=0)
