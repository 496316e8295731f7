"""Data sets that are made or need work before they are measured, by the `kind` that a definition's data table names.

Made data depends on its kind, sizes and seed alone, or on the file it is made from as well, and is written once to a folder that later
runs find again. Blocks are made one after the other, so that a set may be larger than memory.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .data import DataError, Files, Matrix, read_matrix
from .definition import DataSpec

BLOCK_ROWS = 16_384
# The seed of the map to more dimensions: it is fixed, whatever is drawn from the rows.
MAP_SEED = 1024
# Where more rows are wanted than there are, they come again with so much noise, as a share of their length: cosine 0.98 to the first.
REPEAT_NOISE = 0.2
CENTRES = 1_000
CENTRE_SPREAD = 0.5

GLOVE_FILE = "glove-50.npy"
SIFT_FILE = "sift-like-128.npy"
SIFT_QUERIES = "sift-like-128-queries.npy"


@dataclass(frozen=True)
class Made:
    """Rows that are made when they are written, and queries that are none of them."""

    dim: int
    block: Callable[[int, int], Matrix]
    queries: Mapping[str, Matrix]


def minilm_1024(spec: DataSpec, folder: Path, seed: int) -> Made:
    """Embeddings of fewer dimensions turned into 1,024 by an orthonormal map: the same neighbours at the cost of 1,024."""
    source = read_matrix(folder / (spec.base or "base.npy"))
    wide = orthonormal(source.shape[1], 1024)
    order = _order(spec, len(source), seed)

    def block(first: int, last: int) -> Matrix:
        rows = np.asarray(source[order[first:last]], dtype=np.float32)
        again = np.arange(first, last) >= len(source)
        if again.any():
            noise = np.random.default_rng([seed, first]).standard_normal(rows[again].shape, dtype=np.float32)
            lengths = np.linalg.norm(rows[again], axis=1, keepdims=True)
            rows[again] += noise * (REPEAT_NOISE / np.sqrt(rows.shape[1])).astype(np.float32) * lengths
        return rows @ wide

    files = spec.queries or {"same": "q_same.npy", "other": "q_other.npy"}
    queries = {name: drawn(read_matrix(folder / file), spec.query_rows, seed) @ wide for name, file in files.items()}
    return Made(1024, block, queries)


def glove_50(spec: DataSpec, folder: Path, seed: int) -> Made:
    """Word vectors; the queries are words that are held out."""
    words = read_matrix(folder / (spec.base or GLOVE_FILE))
    if spec.rows + spec.query_rows > len(words):
        raise DataError(f"{GLOVE_FILE}: {spec.rows:,} rows and {spec.query_rows:,} held-out queries wanted, it has {len(words):,}")
    order = np.random.default_rng(seed).permutation(len(words))
    queries = np.asarray(words[order[len(words) - spec.query_rows :]])
    return Made(words.shape[1], lambda first, last: words[order[first:last]], {"same": queries})


def sift_like_128(spec: DataSpec, folder: Path, seed: int) -> Made:
    """SIFT descriptors; the queries are of photographs that no row is of."""
    source = read_matrix(folder / (spec.base or SIFT_FILE))
    if spec.rows > len(source):
        raise DataError(f"{SIFT_FILE}: {spec.rows:,} rows wanted, it has {len(source):,}")
    order = _order(spec, len(source), seed)
    queries = drawn(read_matrix(folder / SIFT_QUERIES), spec.query_rows, seed)
    return Made(source.shape[1], lambda first, last: source[order[first:last]], {"same": queries})


def uniform_128(spec: DataSpec, folder: Path, seed: int) -> Made:
    """No structure at all: the hardest rows there are for any index."""
    return _drawn_in_blocks(spec, seed, lambda rng, count: rng.random((count, 128), dtype=np.float32))


def gaussian_mixture_128(spec: DataSpec, folder: Path, seed: int) -> Made:
    """Clusters of unequal weight, as embeddings have them, with nothing between."""
    centres = np.random.default_rng(seed).standard_normal((CENTRES, 128), dtype=np.float32)
    weights = 1 / np.arange(1, CENTRES + 1)
    weights /= weights.sum()

    def draw(rng: np.random.Generator, count: int) -> Matrix:
        rows = CENTRE_SPREAD * rng.standard_normal((count, 128), dtype=np.float32)
        return rows + centres[rng.choice(CENTRES, count, p=weights)]

    return _drawn_in_blocks(spec, seed, draw)


KINDS: Mapping[str, Callable[[DataSpec, Path, int], Made]] = {
    "gaussian-mixture-128": gaussian_mixture_128,
    "glove-50": glove_50,
    "minilm-1024": minilm_1024,
    "sift-like-128": sift_like_128,
    "uniform-128": uniform_128,
}
NEEDS_NO_FILES = {"gaussian-mixture-128", "uniform-128"}


def prepare(spec: DataSpec, folder: Path | None, keep: Path, seed: int) -> Files:
    """The files of a kind, made now unless a former run left them in `keep`."""
    if spec.kind not in KINDS:
        raise DataError(f"data.kind {spec.kind!r}: expected files or one of {', '.join(sorted(KINDS))}")
    if folder is None and spec.kind not in NEEDS_NO_FILES:
        raise DataError(f"{spec.kind}: it is made from files; give their folder as --data DIR")
    source = Path() if folder is None else folder
    made = KINDS[spec.kind](spec, source, seed)
    target = keep / f"{spec.kind}-{spec.rows}-{spec.query_rows}-{spec.pick}-{seed}{_stamp(spec, source)}"
    if not target.exists():
        partial = target.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        _write(made, spec.rows, partial)
        # A run that is stopped before leaves nothing that the next one would take for whole.
        partial.rename(target)
    queries = {name: target / f"queries-{name}.npy" for name in made.queries}
    return Files(target / "base.npy", queries, spec.rows, made.dim)


def orthonormal(narrow: int, wide: int) -> Matrix:
    """A fixed map that keeps all distances and products."""
    drawn = np.random.default_rng(MAP_SEED).standard_normal((wide, narrow))
    columns, _ = np.linalg.qr(drawn)
    turned: Matrix = np.ascontiguousarray(columns.T, dtype=np.float32)
    return turned


def drawn(rows: Matrix, count: int, seed: int) -> Matrix:
    """Some of the rows, or all where there are fewer."""
    order = np.random.default_rng([seed, 1]).choice(len(rows), min(count, len(rows)), replace=False)
    return np.asarray(rows[order], dtype=np.float32)


def _order(spec: DataSpec, there: int, seed: int) -> NDArray[np.int64]:
    """Which row of the source each row is; past the end they come again."""
    picked = np.random.default_rng(seed).permutation(there) if spec.pick == "random" else np.arange(there)
    return picked[np.arange(spec.rows) % there]


def _drawn_in_blocks(spec: DataSpec, seed: int, draw: Callable[[np.random.Generator, int], Matrix]) -> Made:
    """Rows that only the seed and their place decide; the queries have a seed of their own."""
    queries = draw(np.random.default_rng([seed, 1]), spec.query_rows)
    return Made(128, lambda first, last: draw(np.random.default_rng([seed, 2, first]), last - first), {"same": queries})


def _write(made: Made, rows: int, folder: Path) -> None:
    base = np.lib.format.open_memmap(folder / "base.npy", mode="w+", dtype=np.float32, shape=(rows, made.dim))
    for first in range(0, rows, BLOCK_ROWS):
        last = min(first + BLOCK_ROWS, rows)
        base[first:last] = made.block(first, last)
    base.flush()
    for name, queries in made.queries.items():
        np.save(folder / f"queries-{name}.npy", np.ascontiguousarray(queries, dtype=np.float32))


def _stamp(spec: DataSpec, folder: Path) -> str:
    """By what a source file is known again: data made from another one isn't taken for it."""
    names = {"glove-50": GLOVE_FILE, "minilm-1024": "base.npy", "sift-like-128": SIFT_FILE}
    if spec.kind not in names:
        return ""
    status = (folder / (spec.base or names[spec.kind])).stat()
    return f"-{status.st_size}-{status.st_mtime_ns}"
