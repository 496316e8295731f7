"""The command line: ``python -m sapwood demo``."""

from __future__ import annotations

import argparse
import sys
from importlib.metadata import version

from .data import ROWS
from .demo import LEAST_ROWS, run

HELP = """\
Sapwood is a vector index that stays good while it changes.

To use it in a program:

    import sapwood as sw
    index = sw.Index(384, metric="cosine")
    index.add(vectors)                      # float32, shape (rows, 384)
    found = index.search(queries, k=10)
    found.ids, found.distances              # nearest first

help(sapwood.Index) tells the rest."""

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
    return run(chosen.rows, as_json=chosen.json, quiet=chosen.quiet)


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
    return parser


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
