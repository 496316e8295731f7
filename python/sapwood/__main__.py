"""The command line: ``python -m sapwood demo``, ``python -m sapwood build`` and ``python -m sapwood bench``."""

from __future__ import annotations

import argparse
import sys
from importlib.metadata import version

from . import bench, build
from .data import ROWS
from .demo import LEAST_ROWS, run

STORAGE = ("f32", "f16", "bf16", "int8", *(f"rabitq{bits}" for bits in range(3, 9)))

HELP = """\
Sapwood is a vector index that stays good while it changes.

To use it in a program:

    import sapwood as sw
    index = sw.Index(384, metric="cosine")
    index.add(vectors)                      # float32, shape (rows, 384)
    found = index.search(queries, k=10)
    found.ids, found.distances              # nearest first

help(sapwood.Index) tells the rest. To build one from files, and to go on with it another day:

    python -m sapwood build DIR --parquet FILE...

To see what recall, speed and memory it has on your rows:

    python -m sapwood bench --base FILE..."""

DEMO_HELP = """\
Build an index on real text embeddings that ship with the package (glosses of WordNet), print some queries with their nearest
glosses, measure recall and speed, then remove a third of the rows and add as many new ones while searching, and check that recall
holds and that no removed row comes back. Takes some seconds and needs no network.

Results go to stdout, progress to stderr. Exit code 0: all that is promised held; 1: something did not; 2: wrong arguments."""

EXAMPLES = """\
examples:
  python -m sapwood demo                 all 24,000 glosses
  python -m sapwood demo --rows 4000     a quick look
  python -m sapwood demo --json --quiet  figures for a program"""


BUILD_HELP = """\
Build an index in a directory from files of rows: Parquet, .npy, .fvecs, .bvecs or .ivecs. In memory are the rows since the last
checkpoint with what they change, a cache of at most 1 GiB, and some tens of bytes for each row that is committed.

A checkpoint is made every --commit-every rows. Stopped by Ctrl-C, a crash or a full disk, the same command goes on after the last one.
Given again later with further files after the first ones, it adds those; with nothing new it changes nothing. Files of which rows are
in the index have to stay what they are. Without --id-column ids are the numbers of the rows over all files, from 0; with it, the later
row of an id replaces the former.

Results go to stdout, progress to stderr. Exit code 0: built; 1: it failed, and the message says why; 2: wrong arguments; 130: Ctrl-C."""

BUILD_EXAMPLES = """\
examples:
  python -m sapwood build index --parquet rows.parquet --column embedding --metric cosine
  python -m sapwood build index --parquet part-*.parquet --column embedding --id-column id --commit-every 1000000
  python -m sapwood build index --parquet vectors.npy --metric l2 --storage f16 --validate --json

then, in Python:
  sapwood.Reader("index").search(queries, k=10)"""


BENCH_HELP = """\
Measure recall, speed and memory on your own rows: Parquet, .npy, .fvecs, .bvecs or .ivecs.

With --base an index of the rows is built in memory, the true neighbours are computed by exact search, and the effort of a search, `beam`
(leaves that are read), is raised until the highest of --targets is reached. Each line of the table has a setting, its recall, the
queries a second of one thread with one query a call, the median and the 99th percentile of a call, and the rows that were estimated
(scanned) and compared by full vector (reranked). Without --queries rows spread over the base are held out and serve as queries: rows of
the index would find themselves and flatter it.

With --index nothing is built: a checkpoint that `build`, `Writer` or `Index.save` made is searched on disk, with a cold cache (emptied
before each query) and a warm one, and the table has the bytes that a query reads. The truth is computed from its own vectors.

Wall time is told by phase, and the phases sum to the total. Run it on an idle machine: other work spoils timings, not recall. Results go
to stdout, progress to stderr. Exit code 0: measured; 1: it failed, and the message says why; 2: wrong arguments; 130: Ctrl-C."""

BENCH_EXAMPLES = """\
examples:
  python -m sapwood bench --base rows.parquet --column embedding --metric cosine
  python -m sapwood bench --base vectors.npy --queries queries.npy --k 100 --targets 0.9,0.95 --storage f16
  python -m sapwood bench --base base.fvecs --rows 100000 --metric l2 --json --quiet
  python -m sapwood bench --index index --queries queries.npy"""

ONLY_BASE = ("column", "rows", "metric", "storage")
"""Options of ``bench`` that a checkpoint has decided already."""


def main(arguments: list[str] | None = None) -> int:
    """Run a command.

    Parameters
    ----------
    arguments : list of str, optional
        By default those of the process.

    Returns
    -------
    int
        The exit code.
    """
    parser = _parser()
    chosen = parser.parse_args(arguments)
    if chosen.command is None:
        parser.print_help(sys.stderr)
        return 2
    if chosen.command == "build":
        return _build(chosen)
    if chosen.command == "bench":
        return _bench(parser, chosen)
    return run(chosen.rows, as_json=chosen.json, quiet=chosen.quiet)


def _build(chosen: argparse.Namespace) -> int:
    options = {name: value for name in ("storage", "threads", "keep") if (value := getattr(chosen, name)) is not None}
    return build.run(
        chosen.directory,
        build.Source(chosen.parquet, chosen.column, chosen.id_column, chosen.nulls),
        chosen.metric,
        as_json=chosen.json,
        quiet=chosen.quiet,
        commit_rows=chosen.commit_every,
        validate=chosen.validate,
        **options,
    )


def _bench(parser: argparse.ArgumentParser, chosen: argparse.Namespace) -> int:
    options = {name: getattr(chosen, name) for name in ("k", "targets", "threads", "seconds")}
    if chosen.base is not None:
        data = bench.Data(chosen.base, chosen.queries, chosen.column, chosen.query_column, chosen.rows, chosen.query_rows)
        options |= {"metric": chosen.metric or "cosine", "storage": chosen.storage or "f32"}
        return bench.run(data, None, as_json=chosen.json, quiet=chosen.quiet, **options)
    if chosen.queries is None:
        parser.error("bench --index: expected --queries FILE, got none; rows of the index would find themselves")
    if given := [f"--{name}" for name in ONLY_BASE if getattr(chosen, name) is not None]:
        parser.error(f"bench --index: expected no options for building, got {', '.join(given)}")
    options |= {"queries": chosen.queries, "query_column": chosen.query_column, "query_rows": chosen.query_rows}
    return bench.run(None, chosen.index, as_json=chosen.json, quiet=chosen.quiet, **options)


def _parser() -> argparse.ArgumentParser:
    """What the command line understands."""
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m sapwood", description=HELP, formatter_class=layout)
    parser.add_argument("--version", action="version", version=f"sapwood {version('sapwood')}")
    commands = parser.add_subparsers(dest="command", metavar="command", title="commands")
    demo = commands.add_parser(
        "demo", help="see it work on real data, in seconds", description=DEMO_HELP, epilog=EXAMPLES, formatter_class=layout
    )
    demo.add_argument("--rows", type=_rows, metavar="N", help=f"how many glosses to use, {LEAST_ROWS:,} to {ROWS:,} (default: all)")
    demo.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    demo.add_argument("--quiet", action="store_true", help="show no progress")
    _build_parser(commands)
    _bench_parser(commands)
    return parser


def _build_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """What ``build`` understands."""
    parser = commands.add_parser(
        "build",
        help="build an index in a directory from Parquet or other files",
        description=BUILD_HELP,
        epilog=BUILD_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("directory", metavar="DIR", help="where the index is, or will be")
    add("--parquet", nargs="+", required=True, metavar="FILE", help="files or folders of rows, in this order; .npy and .fvecs too")
    add("--column", metavar="NAME", help="the column of vectors (default: the only one of lists of numbers)")
    add("--id-column", metavar="NAME", help="the column of ids (default: rows are numbered)")
    add("--nulls", choices=("raise", "skip"), default="raise", help="what happens to rows without a vector (default: raise)")
    add("--metric", choices=("cosine", "l2", "ip"), help="what is near (default: cosine, or that of the index)")
    add("--storage", choices=STORAGE, help="how vectors are kept (default: f32, or that of the index)")
    add("--commit-every", type=_count, default=build.COMMIT_ROWS, metavar="N", help="rows between two checkpoints (default: %(default)s)")
    add("--keep", type=_count, metavar="N", help="checkpoints to keep (default: 1)")
    add("--threads", type=_count, metavar="N", help="threads (default: all cores)")
    add("--validate", action="store_true", help="prove before each commit and at the end that every row can be reached")
    add("--json", action="store_true", help="print one JSON object instead of text")
    add("--quiet", action="store_true", help="show no progress")


def _bench_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """What ``bench`` understands."""
    parser = commands.add_parser(
        "bench",
        help="measure recall, speed and memory on your own rows",
        description=BENCH_HELP,
        epilog=BENCH_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--base", nargs="+", metavar="FILE", help="files or folders of rows")
    what.add_argument("--index", metavar="DIR", help="a directory with a checkpoint, to search only; needs --queries")
    add = parser.add_argument
    add("--column", metavar="NAME", help="the column of vectors (default: the only one of lists of numbers)")
    add("--queries", metavar="FILE", help="a file of queries (default: rows of the base that are held out)")
    add("--query-column", metavar="NAME", help="the column of queries (default: as --column)")
    add("--query-rows", type=_count, default=bench.QUERY_ROWS, metavar="N", help="queries at most (default: %(default)s)")
    add("--rows", type=_count, metavar="N", help="rows of the index, the first ones (default: all)")
    add("--k", type=_count, default=10, metavar="N", help="neighbours a query (default: %(default)s)")
    add("--metric", choices=("cosine", "l2", "ip"), help="what is near (default: cosine)")
    add("--targets", type=_targets, default=bench.TARGETS, metavar="R,R", help="recalls to reach (default: 0.9,0.95,0.99)")
    add("--storage", choices=STORAGE, help="how vectors are kept (default: f32)")
    add("--threads", type=_count, metavar="N", help="threads that build, and compute the truth (default: all cores)")
    add("--seconds", type=_seconds, default=bench.SECONDS, metavar="S", help="how long each setting is timed (default: %(default)s)")
    add("--json", action="store_true", help="print one JSON object instead of text")
    add("--quiet", action="store_true", help="show no progress")


def _targets(text: str) -> tuple[float, ...]:
    """Recalls, ascending."""
    try:
        targets = tuple(sorted(float(part) for part in text.split(",")))
    except ValueError:
        targets = ()
    if not targets or not all(0 < target <= 1 for target in targets):
        raise argparse.ArgumentTypeError(f"expected recalls above 0 and up to 1, with commas, such as 0.9,0.95, got {text}")
    return targets


def _seconds(text: str) -> float:
    """A time above 0."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"expected seconds above 0, got {text}")
    return seconds


def _count(text: str) -> int:
    """A whole number from 1 on."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 on, got {text}")
    return int(text)


def _rows(text: str) -> int:
    """How many rows to use."""
    if not text.isdecimal() or not LEAST_ROWS <= int(text) <= ROWS:
        raise argparse.ArgumentTypeError(f"expected a number from {LEAST_ROWS:,} to {ROWS:,}, got {text}")
    return int(text)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
