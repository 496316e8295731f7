"""Reads data sets, picks rows by seed and makes the data of `--test`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .definition import DataSpec

Matrix = NDArray[np.float32]


class DataError(Exception):
    """A data file that is absent or isn't what a definition needs."""


@dataclass(frozen=True)
class Files:
    """The picked rows and queries, as .npy files that every engine loads whole."""

    base: Path
    queries: dict[str, Path]
    rows: int
    dim: int


def read_matrix(path: Path) -> Matrix:
    """The vectors of a .npy or Parquet file, as float32; .npy is mapped, not read."""
    if not path.is_file():
        raise DataError(f"no {path.name} in the data folder")
    if path.suffix == ".npy":
        array = np.load(path, mmap_mode="r")
    elif path.suffix == ".parquet":
        array = _read_parquet(path)
    else:
        raise DataError(f"{path.name}: expected a .npy or .parquet file")
    if array.ndim != 2:
        raise DataError(f"{path.name}: expected 2 dimensions, got shape {array.shape}")
    vectors: Matrix = array if array.dtype == np.float32 else array.astype(np.float32)
    return vectors


def _read_parquet(path: Path) -> Matrix:
    """The only list column of a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    lists = [field.name for field in table.schema if pa.types.is_fixed_size_list(field.type) or pa.types.is_list(field.type)]
    if len(lists) != 1:
        raise DataError(f"{path.name}: expected one list column, found {lists}")
    column = table.column(lists[0]).combine_chunks()
    flat = column.flatten().to_numpy(zero_copy_only=False)
    return np.asarray(flat, dtype=np.float32).reshape(table.num_rows, -1)


def prepare(spec: DataSpec, folder: Path | None, work: Path, seed: int) -> Files:
    """Write the rows and queries that a definition names into the work folder."""
    if folder is None:
        raise DataError(f"{spec.base}: give its folder as --data DIR")
    rng = np.random.default_rng(seed)
    base = read_matrix(folder / spec.base)
    if spec.rows > len(base):
        raise DataError(f"{spec.base}: {spec.rows} rows wanted, it has {len(base)}")
    if spec.pick == "random":
        picked = base[rng.choice(len(base), spec.rows, replace=False)]
    else:
        picked = base[: spec.rows]
    base_path = work / "base.npy"
    np.save(base_path, picked)
    queries = {}
    for name, file in spec.queries.items():
        rows = read_matrix(folder / file)
        take = min(spec.query_rows, len(rows))
        order = rng.choice(len(rows), take, replace=False)
        queries[name] = work / f"queries-{name}.npy"
        np.save(queries[name], rows[order])
    return Files(base_path, queries, spec.rows, base.shape[1])


def make_test_data(folder: Path, rows: int = 6000, dim: int = 32) -> None:
    """Clustered unit rows that drift as they go, in the files the definitions name."""
    rng = np.random.default_rng(5)
    centres = rng.standard_normal((60, dim))
    drift = rng.standard_normal((60, dim))

    def draw(count: int, spread: float) -> Matrix:
        cluster = rng.integers(0, len(centres), count)
        time = np.linspace(0, 0.5, count)[:, None]
        noise = spread * rng.standard_normal((count, dim))
        drawn = centres[cluster] + time * drift[cluster] + noise
        drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
        return drawn.astype(np.float32)

    np.save(folder / "base.npy", draw(rows, 0.5))
    np.save(folder / "q_same.npy", draw(200, 0.5))
    np.save(folder / "q_other.npy", draw(200, 1.0))
    np.save(folder / "glove-50.npy", np.hstack([draw(rows, 0.5), draw(rows, 0.5)])[:, :50])
    descriptors = np.hstack([draw(rows, 0.5) for _ in range(4)])
    bytes_ = np.clip(descriptors * 128 + 128, 0, 255).astype(np.uint8)
    np.save(folder / "sift-like-128.npy", bytes_[200:])
    np.save(folder / "sift-like-128-queries.npy", bytes_[:200])
