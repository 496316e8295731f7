"""Write the data that ships with the package, ``python/sapwood/data/wordnet.npz``, from a Parquet file of WordNet embeddings.

    python benchmarks/make_demo_data.py WORDNET.parquet [--out FILE]

The Parquet file has the columns ``id`` (int64), ``words``, ``gloss`` (strings), ``scale`` (float32) and ``code`` (fixed-size binary:
int8 codes, the embedding divided by the scale). Entries are taken evenly over the whole, and every 61st of those becomes a query that is
never indexed. The same input gives the same bytes. Needs pyarrow.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

ROWS = 24_000
QUERIES = 400
LIMIT_BYTES = 12_000_000
"""What a clone may cost for this file."""

DEFAULT_OUT = Path(__file__).resolve().parent.parent / "python" / "sapwood" / "data" / "wordnet.npz"


def choose(available: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Places of the entries to keep, and which of those are queries."""
    total = ROWS + QUERIES
    if available < total:
        raise SystemExit(f"expected at least {total:,} rows in the Parquet file, got {available:,}")
    period = total // QUERIES
    places = np.arange(total, dtype=np.int64) * available // total
    return places, np.arange(total) % period == period // 2


def codes_of(column: pa.ChunkedArray) -> NDArray[np.int8]:
    """The int8 codes of a fixed-size binary column."""
    chunk = column.combine_chunks()
    width = chunk.type.byte_width
    return np.frombuffer(chunk.buffers()[1], np.int8, len(chunk) * width, chunk.offset * width).reshape(-1, width)


def joined(texts: list[str]) -> tuple[NDArray[np.uint8], NDArray[np.uint32]]:
    """The UTF-8 bytes of all texts in a row, and the place where each ends."""
    encoded = [text.encode() for text in texts]
    ends = np.cumsum([len(text) for text in encoded], dtype=np.uint32)
    return np.frombuffer(b"".join(encoded), np.uint8), ends


def select(table: pa.Table) -> dict[str, NDArray[Any]]:
    """The arrays of the file, in the order of the ids."""
    table = table.sort_by("id").combine_chunks()
    places, held_out = choose(table.num_rows)
    table = table.take(pa.array(places)).combine_chunks()
    words, word_ends = joined(table["words"].to_pylist())
    glosses, gloss_ends = joined(table["gloss"].to_pylist())
    return {
        "ids": table["id"].to_numpy().astype(np.int64),
        "codes": codes_of(table["code"]),
        "scales": table["scale"].to_numpy().astype(np.float32),
        "held_out": held_out,
        "words": words,
        "word_ends": word_ends,
        "glosses": glosses,
        "gloss_ends": gloss_ends,
    }


def main() -> None:
    """Read the arguments, write the file, tell its size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parquet", type=Path, help="the embeddings")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="where to write (default: the package's own data folder)")
    arguments = parser.parse_args()
    arrays = select(pq.read_table(arguments.parquet))
    np.savez_compressed(arguments.out, **arrays)
    size = arguments.out.stat().st_size
    if size > LIMIT_BYTES:
        raise SystemExit(f"{arguments.out}: expected at most {LIMIT_BYTES:,} bytes, got {size:,}; lower ROWS")
    print(f"{arguments.out}: {size:,} bytes, {int((~arrays['held_out']).sum()):,} rows, {int(arrays['held_out'].sum()):,} queries")


if __name__ == "__main__":
    main()
