"""Sapwood: a vector index that stays good while it changes.

`Index` holds vectors in memory and answers which are nearest to a query, while rows are added, replaced and removed. `Writer` and
`Reader` do so in a directory, with checkpoints that survive a crash. `exact_search` compares a query with everything: the ground truth.
`read_vectors` and `iter_vectors` read rows from Parquet and other files.

Examples
--------
>>> import numpy as np, sapwood as sw
>>> vectors = np.random.default_rng(0).standard_normal((1000, 32), dtype=np.float32)
>>> index = sw.Index(dim=32, metric="l2")
>>> index.add(vectors)
AddResult(added=1000, replaced=0)
>>> index.remove([3, 4])
2
>>> ids, distances = index.search(vectors[0], k=10)
>>> ids[0], distances[0]
(np.int64(0), np.float32(0.0))
"""

from sapwood._core import (
    CorruptCheckpoint,
    Error,
    Filter,
    FormatError,
    Index,
    LockedError,
    __version__,
    exact_search,
    iter_vectors,
    load,
    read_vectors,
)
from sapwood._results import AddResult, CheckpointInfo, Rows, SearchResult
from sapwood.durable import Checkpoint, Reader, Writer, load_checkpoint
from sapwood.evaluate import evaluate, recall

__all__ = [
    "AddResult",
    "Checkpoint",
    "CheckpointInfo",
    "CorruptCheckpoint",
    "Error",
    "Filter",
    "FormatError",
    "Index",
    "LockedError",
    "Reader",
    "Rows",
    "SearchResult",
    "Writer",
    "__version__",
    "evaluate",
    "exact_search",
    "iter_vectors",
    "load",
    "load_checkpoint",
    "read_vectors",
    "recall",
]
