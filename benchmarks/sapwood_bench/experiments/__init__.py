"""The experiments by the name that a definition gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..bench import Bench
from . import build, checkpoint, exact, ingest, memory, parquet, search, single_adds, time_order

EXPERIMENTS: Mapping[str, Callable[[Bench], None]] = {
    "build": build.run,
    "checkpoint": checkpoint.run,
    "exact": exact.run,
    "ingest": ingest.run,
    "memory": memory.run,
    "parquet": parquet.run,
    "search": search.run,
    "single-adds": single_adds.run,
    "time-order": time_order.run,
}
# These say nothing without our index: there is no peer side to them.
NEEDS_OURS = {"checkpoint", "ingest", "single-adds", "time-order"}
