"""The demonstration behind ``python -m sapwood demo``: build on real text embeddings, search, change a third, check what was promised."""

from __future__ import annotations

import json
import os
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from . import Error, Index, SearchResult, exact_search
from .data import Glosses, load_wordnet
from .evaluate import evaluate, recall

__all__ = ["LEAST_ROWS", "run"]

K = 10
ROUNDS = 6
LEAST_ROWS = 400
"""Below this a round would change next to nothing."""

RECALL_FLOOR = 0.95
"""What the default settings must reach on this data."""

RECALL_SLACK = 0.02
"""How far the changed index may stay behind a fresh one on the same rows: two to three standard errors of 400 queries."""

SECONDS = 1.0
"""How long each speed is timed."""

SHOWN = (1009555236, 1007700539, 1003667829)
"""Held-out glosses that are printed with their neighbours: Ares, linguine, light microscope."""

PARTS = {1: "noun", 2: "verb", 3: "adjective", 4: "adverb"}
"""Parts of speech by the first digit of a WordNet id."""


@dataclass(frozen=True)
class Built:
    """The index as it was built."""

    rows: int
    dim: int
    metric: str
    seconds: float
    leaves: int
    bytes_a_row: float


@dataclass(frozen=True)
class Neighbour:
    """One row of a result."""

    words: str
    gloss: str
    part: str
    distance: float


@dataclass(frozen=True)
class Example:
    """A held-out gloss and what was found for it."""

    words: str
    gloss: str
    neighbours: list[Neighbour]


@dataclass(frozen=True)
class Speed:
    """How good and how fast the search is, with the default settings."""

    queries: int
    recall: float
    one_thread_qps: float
    one_thread_p50_ms: float
    one_thread_p99_ms: float
    cores: int
    all_cores_qps: float
    scanned: float
    reranked: float
    leaves: float


@dataclass(frozen=True)
class Round:
    """After one round of removing and adding."""

    removed: int
    added: int
    rows: int
    recall: float
    seconds: float


@dataclass(frozen=True)
class Changed:
    """After all rounds and the balancing."""

    rounds: list[Round]
    searches: int
    search_p99_ms: float
    balance_seconds: float
    recall: float
    fresh_recall: float
    removed_found: int
    found_twice: int


@dataclass
class Report:
    """All that the demonstration found out."""

    version: str
    built: Built
    examples: list[Example]
    speed: Speed
    changed: Changed
    promises: dict[str, bool] = field(default_factory=dict)


class Window:
    """Which entries are live: those from `first` up to `last`, in the order of their ids.

    The entries are in WordNet's order, nouns first. Rows leave at the front and come at the back, so the index loses nouns and gets
    verbs, adjectives and adverbs, of which it had few: a real drift.
    """

    def __init__(self, entries: Glosses) -> None:
        self.entries = entries
        self.moves = len(entries) // 4
        self.first = 0
        self.last = len(entries) - self.moves

    @property
    def live(self) -> slice:
        """Places of the live entries."""
        return slice(self.first, self.last)

    @property
    def oldest_id(self) -> int:
        """The smallest live id; all below it have been removed."""
        return int(self.entries.ids[self.first])

    def truth(self, queries: Glosses) -> NDArray[np.int64]:
        """Ids of the true neighbours among the live entries."""
        places = exact_search(self.entries.vectors[self.live], queries.vectors, K, "cosine").ids
        return self.entries.ids[self.live][places]


class Progress:
    """Tells on a stream what is being done; nothing where there is no stream."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    @contextmanager
    def step(self, what: str) -> Iterator[Callable[[int, int], None]]:
        """Name a step; what is yielded takes (done, total) and shows a share on a terminal."""
        stream = self._stream
        if stream is None:
            yield lambda done, total: None
            return
        terminal = stream.isatty()

        def show(done: int, total: int) -> None:
            if terminal and total:
                print(f"\r{what} {100 * done // total:3d} %", end="", file=stream, flush=True)

        print(what, end="" if terminal else "\n", file=stream, flush=True)
        yield show
        if terminal:
            print(f"\r{what}, done ", file=stream, flush=True)


class Watcher:
    """Searches in a thread of its own while the index changes, and counts results that must not be.

    Parameters
    ----------
    index : Index
        What is searched.
    queries : Glosses
        Searched in turn, one a call.
    oldest_id : int
        No smaller id may be found by a search that begins later. Raise it when a removal has returned.
    """

    def __init__(self, index: Index, queries: Glosses, oldest_id: int) -> None:
        self.oldest_id = oldest_id
        self.times: list[float] = []
        self.removed_found = 0
        self.found_twice = 0
        self._index = index
        self._queries = queries
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._watch, name="watcher", daemon=True)

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._failure is not None and raised[0] is None:
            raise self._failure

    def _watch(self) -> None:
        try:
            while not self._stop.is_set():
                for query in self._queries.vectors:
                    oldest_id = self.oldest_id
                    before = time.perf_counter()
                    found = self._index.search(query, K, threads=1)
                    self.times.append(time.perf_counter() - before)
                    self.check(found, oldest_id)
                    if self._stop.is_set():
                        break
        except BaseException as failure:
            self._failure = failure

    def check(self, found: SearchResult, oldest_id: int) -> None:
        """Count removed ids in a result, and ids that are twice in a row of it."""
        rows = np.sort(np.atleast_2d(found.ids), axis=1)
        self.removed_found += int(np.count_nonzero((rows >= 0) & (rows < oldest_id)))
        self.found_twice += int(np.count_nonzero((rows[:, 1:] == rows[:, :-1]) & (rows[:, 1:] >= 0)))


def run(rows: int | None = None, *, as_json: bool = False, quiet: bool = False) -> int:
    """Run the demonstration and print what it finds.

    Parameters
    ----------
    rows : int, optional
        How many glosses to use, 400 to 24,000; all by default.
    as_json : bool, default False
        Print one JSON object instead of text.
    quiet : bool, default False
        Show no progress on stderr.

    Returns
    -------
    int
        0 when all that is promised held, else 1.
    """
    progress = Progress(None if quiet else sys.stderr)
    entries, queries = load_wordnet(rows)
    report = _demonstrate(entries, queries, progress, say=(lambda lines: None) if as_json else _print)
    if as_json:
        print(json.dumps(asdict(report), indent=2))
    broken = [promise for promise, held in report.promises.items() if not held]
    for promise in broken:
        print(f"did not hold: {promise}", file=sys.stderr)
    return 1 if broken else 0


def _print(lines: Iterable[str]) -> None:
    """Print lines and a blank one, at once."""
    print("\n".join(lines), end="\n\n", flush=True)


def _demonstrate(entries: Glosses, queries: Glosses, progress: Progress, say: Callable[[Iterable[str]], None]) -> Report:
    """All steps in order; each is told as soon as it is done."""
    window = Window(entries)
    index, built = _build(entries, window, progress)
    with index:
        say(_tell_built(built, queries))
        examples = _examples(index, entries, queries)
        say(_tell_examples(examples))
        speed = _measure(index, queries, window, progress)
        say(_tell_speed(speed, built))
        changed = _change(index, queries, window, progress)
        say(_tell_change(changed, speed))
        report = Report(version("sapwood"), built, examples, speed, changed, _promises(index, window, speed, changed))
        say(_tell_promises(report.promises))
    return report


def _build(entries: Glosses, window: Window, progress: Progress) -> tuple[Index, Built]:
    """An index of the entries that are live at first, balanced."""
    dim = entries.vectors.shape[1]
    index = Index(dim, "cosine")
    with progress.step(f"building an index of {window.last:,} rows") as show:
        started = time.perf_counter()
        index.add(entries.vectors[window.live], entries.ids[window.live], progress=show)
        index.balance()
        seconds = time.perf_counter() - started
    stats = index.stats()
    return index, Built(len(index), dim, "cosine", seconds, int(stats["leaves"]), float(stats["bytes"]) / len(index))


def _examples(index: Index, entries: Glosses, queries: Glosses) -> list[Example]:
    """Some held-out glosses with their three nearest."""
    places = np.flatnonzero(np.isin(queries.ids, SHOWN))
    found = index.search(queries.vectors[places], 3)
    return [
        Example(queries.words[place], queries.glosses[place], _neighbours(entries, ids, distances))
        for place, ids, distances in zip(places, found.ids, found.distances, strict=True)
    ]


def _neighbours(entries: Glosses, ids: NDArray[np.int64], distances: NDArray[np.float32]) -> list[Neighbour]:
    """Ids of a result as entries."""
    places = np.searchsorted(entries.ids, ids)
    return [
        Neighbour(entries.words[place], entries.glosses[place], PARTS[int(entries.ids[place]) // 10**9], float(distance))
        for place, distance in zip(places, distances, strict=True)
    ]


def _measure(index: Index, queries: Glosses, window: Window, progress: Progress) -> Speed:
    """Recall and speed with the default settings."""
    with progress.step("measuring recall and speed"):
        row = evaluate(index, queries.vectors, window.truth(queries), k=K, seconds=SECONDS)[0]
        batch_qps = _batch_qps(index, queries)
    return Speed(
        queries=len(queries),
        recall=row.recall,
        one_thread_qps=row.qps,
        one_thread_p50_ms=row.p50_ms,
        one_thread_p99_ms=row.p99_ms,
        cores=_cores(),
        all_cores_qps=batch_qps,
        scanned=row.scanned,
        reranked=row.reranked,
        leaves=row.leaves,
    )


def _batch_qps(index: Index, queries: Glosses) -> float:
    """Queries a second when all queries come in one call, on all cores."""
    calls = 0
    started = time.perf_counter()
    while (seconds := time.perf_counter() - started) < SECONDS or not calls:
        index.search(queries.vectors, K)
        calls += 1
    return calls * len(queries) / seconds


def _cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _change(index: Index, queries: Glosses, window: Window, progress: Progress) -> Changed:
    """Remove a third of the rows and add as many new ones, in rounds, while another thread searches."""
    rounds = []
    with Watcher(index, queries, window.oldest_id) as watcher, progress.step(f"changing {window.moves:,} rows while searching") as show:
        for number in range(ROUNDS):
            rounds.append(_one_round(index, queries, window, watcher, number))
            show(number + 1, ROUNDS)
        started = time.perf_counter()
        index.balance()
        balance_seconds = time.perf_counter() - started
    with progress.step("comparing with a fresh index on the same rows"):
        truth = window.truth(queries)
        watcher.check(index.search(window.entries.vectors[: window.first], K), window.oldest_id)
        return Changed(
            rounds=rounds,
            searches=len(watcher.times),
            search_p99_ms=float(np.percentile(watcher.times, 99)) * 1e3,
            balance_seconds=balance_seconds,
            recall=recall(index.search(queries.vectors, K).ids, truth),
            fresh_recall=_fresh_recall(queries, window, truth),
            removed_found=watcher.removed_found,
            found_twice=watcher.found_twice,
        )


def _one_round(index: Index, queries: Glosses, window: Window, watcher: Watcher, number: int) -> Round:
    """Remove the oldest rows, add new ones, and look how recall is before anything has been waited for."""
    entries = window.entries
    share = window.moves * (number + 1) // ROUNDS - window.moves * number // ROUNDS
    leaving = entries.ids[window.first : window.first + share]
    coming = slice(window.last, window.last + share)
    started = time.perf_counter()
    removed = index.remove(leaving)
    window.first += share
    watcher.oldest_id = window.oldest_id
    added = index.add(entries.vectors[coming], entries.ids[coming]).added
    window.last += share
    seconds = time.perf_counter() - started
    now = recall(index.search(queries.vectors, K).ids, window.truth(queries))
    return Round(removed, added, len(index), now, seconds)


def _fresh_recall(queries: Glosses, window: Window, truth: NDArray[np.int64]) -> float:
    """Recall of an index that is built at once from the rows that are live now."""
    with Index(window.entries.vectors.shape[1], "cosine") as fresh:
        fresh.add(window.entries.vectors[window.live], window.entries.ids[window.live])
        fresh.balance()
        return recall(fresh.search(queries.vectors, K).ids, truth)


def _promises(index: Index, window: Window, speed: Speed, changed: Changed) -> dict[str, bool]:
    """What must be true, and whether it is."""
    moved = all(each.removed == each.added for each in changed.rounds) and sum(each.added for each in changed.rounds) == window.moves
    return {
        f"recall@{K} is at least {RECALL_FLOOR:.2f} with the default settings": speed.recall >= RECALL_FLOOR,
        f"recall@{K} after the change is within {RECALL_SLACK} of a fresh index": changed.recall >= changed.fresh_recall - RECALL_SLACK,
        "no search found a row that had been removed before it began": changed.removed_found == 0,
        "no search found an id twice": changed.found_twice == 0,
        "the index holds exactly the rows it should": moved and _holds_exactly(index, window.entries.ids[window.live]),
        "the index is whole: each live row is where it should be, once": _is_whole(index),
    }


def _holds_exactly(index: Index, ids: NDArray[np.int64]) -> bool:
    """Whether these ids are live and no others."""
    return len(index) == len(ids) and bool(np.array_equal(np.sort(index.ids()), ids))


def _is_whole(index: Index) -> bool:
    """Whether the index passes its own check."""
    try:
        index.validate()
    except Error as error:
        print(error, file=sys.stderr)
        return False
    return True


def _tell_built(built: Built, queries: Glosses) -> list[str]:
    return [
        f"Sapwood {version('sapwood')} on WordNet: {built.rows:,} glosses, {built.dim}-dimensional embeddings, {built.metric} distance",
        "",
        f"built       {built.seconds:.2f} s, {built.rows / built.seconds:,.0f} rows a second; {built.leaves:,} leaves",
        f"memory      {built.bytes_a_row:,.0f} bytes a row, of which the float32 vector is {4 * built.dim:,}",
        f"queries     {len(queries):,} glosses that are not in the index",
    ]


def _tell_examples(examples: list[Example]) -> list[str]:
    lines = ["Nearest glosses (distance: 1 - cosine, smaller is nearer)"]
    for example in examples:
        lines += ["", f"  {_short(f'{example.words}: {example.gloss}', 108)}"]
        lines += [f"    {near.distance:.3f}  {_short(f'{near.words} ({near.part}): {near.gloss}', 100)}" for near in example.neighbours]
    return lines


def _tell_speed(speed: Speed, built: Built) -> list[str]:
    share = speed.scanned / built.rows
    return [
        f"Search with the default settings, {speed.queries} queries",
        "",
        f"recall@{K}   {speed.recall:.4f} against exact search",
        f"one thread  {speed.one_thread_qps:,.0f} queries a second, one a call; "
        f"median {speed.one_thread_p50_ms:.2f} ms, 99th percentile {speed.one_thread_p99_ms:.2f} ms",
        f"all cores   {speed.all_cores_qps:,.0f} queries a second, in one batch on {speed.cores} cores",
        f"work        {speed.scanned:,.0f} rows ({share:.1%}) in {speed.leaves:,.0f} leaves, {speed.reranked:,.0f} compared by full vector",
    ]


def _tell_change(changed: Changed, speed: Speed) -> list[str]:
    moved = sum(each.added for each in changed.rounds)
    lines = [f"A third leaves and as much comes ({moved:,} nouns out; verbs, adjectives and adverbs in), searched all the while", ""]
    lines += [f"{'round':>7}  {'removed':>8}  {'added':>8}  {'rows':>8}  {'seconds':>8}  recall@{K}"]
    lines += [
        f"{number:>7}  {each.removed:>8,}  {each.added:>8,}  {each.rows:>8,}  {each.seconds:>8.2f}  {each.recall:>9.4f}"
        for number, each in enumerate(changed.rounds, 1)
    ]
    return [
        *lines,
        "",
        f"meanwhile   {changed.searches:,} searches, 99th percentile {changed.search_p99_ms:.2f} ms",
        f"balanced    {changed.balance_seconds:.2f} s after the last round",
        f"recall@{K}   {speed.recall:.4f} before, {changed.recall:.4f} after; a fresh index on the same rows: {changed.fresh_recall:.4f}",
    ]


def _tell_promises(promises: dict[str, bool]) -> list[str]:
    return ["What must hold", "", *(f"  {'yes' if held else 'NO':<5}{promise}" for promise, held in promises.items())]


def _short(text: str, width: int) -> str:
    """The first words of a text, at most `width` characters."""
    return textwrap.shorten(text, width, placeholder=" ...")
