"""Runs benchmark definitions; see README.md beside this file.

python benchmarks/run.py DEFINITION... --data DIR [--out benchmarks/record]
python benchmarks/run.py --test
"""

from __future__ import annotations

import argparse
import functools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from sapwood_bench import data, data_sets, definition
from sapwood_bench.bench import Bench, TruthError, engine_of
from sapwood_bench.child import Child, EngineError, EngineMissing
from sapwood_bench.data import DataError
from sapwood_bench.definition import OURS, Definition, DefinitionError
from sapwood_bench.experiments import EXPERIMENTS, NEEDS_OURS
from sapwood_bench.record import Figure, Record, Verdict, judge

REQUIREMENTS = "benchmarks/peers/requirements.txt"
# A load average above it before a run means that something else is running.
BUSY = 0.7


def main() -> int:
    options = _arguments()
    options.load = _load()
    try:
        overrides = dict(map(definition.parse_override, options.set))
        names = options.definitions or sorted(path.stem for path in definition.DEFINITIONS.glob("*.toml"))
        definitions = [definition.read(definition.find(name), overrides, options.test) for name in names]
        _check_without(definitions, options.without)
        with tempfile.TemporaryDirectory(prefix="sapwood-bench-") as folder:
            if options.test:
                options.data = Path(folder)
                data.make_test_data(options.data)
            missed = [each.name for each in definitions if not _run(each, options)]
    except (DefinitionError, DataError, EngineMissing, EngineError, TruthError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if missed:
        print(f"missed: {', '.join(missed)}", file=sys.stderr)
    return 1 if missed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure Sapwood beside its peers.")
    parser.add_argument("definitions", nargs="*", help="names in benchmarks/definitions, or TOML files")
    parser.add_argument("--data", type=Path, help="folder of the files they name")
    parser.add_argument("--out", type=Path, help="record folder; default: print only")
    parser.add_argument("--test", action="store_true", help="everything tiny, on made-up data")
    parser.add_argument("--only", choices=("ours", "peers"), help="measure one side of each definition")
    parser.add_argument("--without", action="append", default=[], metavar="SIDE", help="leave a peer out, as in scann; may be given again")
    parser.add_argument("--strict", action="store_true", help="a missed aim fails the run too")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="replace a value of the definitions, as in data.rows=20000",
    )
    parser.add_argument("--work", type=Path, help="folder for picked and made rows; default: a temporary one")
    options = parser.parse_args()
    if not options.test and not options.definitions:
        parser.error("name definitions, or give --test")
    return options


def _check_without(definitions: Sequence[Definition], without: Sequence[str]) -> None:
    """Refuse to leave out what isn't there."""
    peers = {side for each in definitions for side in each.sides if side != OURS}
    for side in without:
        if side not in peers:
            raise DefinitionError(f"--without {side!r}: expected one of {', '.join(sorted(peers))}")


def _run(chosen: Definition, options: argparse.Namespace) -> bool:
    """Run one definition; whether it met its floors (and, if strict, its aims)."""
    print(f"== {chosen.name}", flush=True)
    sides = _sides(chosen, options)
    if OURS not in sides and chosen.experiment in NEEDS_OURS:
        print("left out: it measures our index only\n")
        return True
    start = time.perf_counter()
    record = Record(chosen, _command(chosen, options))
    record.versions.update(_checkout())
    record.add(Figure("machine", "", "load before the run", options.load, ""))
    with tempfile.TemporaryDirectory(prefix="rows-", dir=options.work) as folder:
        work = Path(folder)
        if chosen.data.kind == "files":
            files = data.prepare(chosen.data, options.data, work, chosen.seed)
        else:
            files = data_sets.prepare(chosen.data, options.data, options.work or work, chosen.seed)
        try:
            EXPERIMENTS[chosen.experiment](Bench(chosen, files, work, record, sides))
        except EngineMissing as error:
            if not options.test:
                raise EngineMissing(f"it needs {error}, whichever side is measured: install it (-r {REQUIREMENTS})") from error
            print(f"left out: it needs {error}, which is not installed\n")
            return True
    print(record.show())
    floors = judge(chosen.floors, record.figures)
    aims = judge(chosen.aims, record.figures)
    met = _verdicts(chosen, sides, floors, aims, options)
    if options.out is not None:
        record.write(options.out)
    print(f"{time.perf_counter() - start:.1f} s\n", flush=True)
    return met


def _load() -> float:
    """How busy the machine is before the run; warns where that spoils it."""
    load = os.getloadavg()[0]
    if load > BUSY:
        print(f"warning: load average {load:.1f}: other work on this machine spoils timings and ratios", file=sys.stderr)
    return load


@functools.cache
def _checkout() -> dict[str, str]:
    """The commit these files are at, where they are a checkout; the package may be older."""
    command = ["git", "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return {}
    return {"checkout": done.stdout.strip()}


def _sides(chosen: Definition, options: argparse.Namespace) -> list[str]:
    """The sides to measure. A peer that isn't installed is only left out of a test."""
    wanted = [side for side in chosen.sides if options.only is None or (side == OURS) == (options.only == "ours")]
    sides = []
    for side in (side for side in wanted if side not in options.without):
        try:
            _installed(engine_of(chosen, side))
            sides.append(side)
        except EngineMissing as error:
            if not options.test or side == OURS:
                hint = "pip install ." if side == OURS else f"-r {REQUIREMENTS}"
                raise EngineMissing(f"{side} needs {error}: install it ({hint}) or use --only") from error
            print(f"{side} left out: {error} is not installed")
    return sides


@functools.cache
def _installed(engine: str) -> None:
    """Raise EngineMissing unless the engine starts; only a process of its own can tell."""
    Child(engine).close()


def _verdicts(
    chosen: Definition,
    sides: Sequence[str],
    floors: Sequence[Verdict],
    aims: Sequence[Verdict],
    options: argparse.Namespace,
) -> bool:
    """Print every bound. Those on a side or ratio that wasn't measured don't count."""
    complete = len(sides) == len(chosen.sides)
    met = True
    for verdicts, fails in ((floors, True), (aims, options.strict)):
        for verdict in verdicts:
            bound = verdict.bound
            absent = bound.side not in sides or (bound.field == "ratio" and not complete)
            if not verdict.values and absent:
                continue
            print(f"{'floor' if verdicts is floors else 'aim  '}  {verdict}")
            # A bound that names no figure is a mistake in the definition.
            wrong = not verdict.values and options.test
            if (fails and not verdict.met) or wrong:
                met = False
    return met


def _command(chosen: Definition, options: argparse.Namespace) -> str:
    """The command that repeats this run; the data folder is the reader's own."""
    words: list[str] = ["python benchmarks/run.py", chosen.name]
    words += ["--test"] if options.test else ["--data DIR"]
    words += [f"--only {options.only}"] if options.only else []
    words += [f"--without {side}" for side in options.without]
    words += [f"--set {text}" for text in options.set]
    return " ".join(words)


if __name__ == "__main__":
    sys.exit(main())
