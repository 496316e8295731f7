"""The experiments by the name that a definition gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..bench import Bench
from . import (
    build,
    checkpoint,
    disk_leaf_size,
    exact,
    growth,
    ingest,
    large_build,
    memory,
    parquet,
    search,
    single_adds,
    targets,
    time_order,
    turnover,
)

EXPERIMENTS: Mapping[str, Callable[[Bench], None]] = {
    "build": build.run,
    "checkpoint": checkpoint.run,
    "disk-leaf-size": disk_leaf_size.run,
    "exact": exact.run,
    "growth": growth.run,
    "ingest": ingest.run,
    "large-build": large_build.run,
    "memory": memory.run,
    "parquet": parquet.run,
    "search": search.run,
    "single-adds": single_adds.run,
    "targets": targets.run,
    "time-order": time_order.run,
    "turnover": turnover.run,
}
# These say nothing without our index: there is no peer side to them.
NEEDS_OURS = {"checkpoint", "disk-leaf-size", "growth", "ingest", "large-build", "single-adds", "targets", "time-order", "turnover"}
