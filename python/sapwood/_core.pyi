import os
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeAlias, TypedDict, final, type_check_only

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sapwood._results import AddResult, CheckpointInfo, Rows, SearchResult

__all__ = [
    "CorruptCheckpoint",
    "Error",
    "Filter",
    "FormatError",
    "Index",
    "LockedError",
    "RowBatches",
    "__version__",
    "exact_search",
    "iter_vectors",
    "load",
    "open_reader",
    "open_writer",
    "read_manifest",
    "read_vectors",
]

__version__: str

_Metric: TypeAlias = Literal["cosine", "l2", "ip"]
# Tensors, Arrow and polars columns are accepted as well, and none of them is an ArrayLike for every type checker.
_Rows: TypeAlias = ArrayLike | Any
_Ids: TypeAlias = ArrayLike | Any
_Progress: TypeAlias = Callable[[int, int], object] | bool | None
_Storage: TypeAlias = Literal["f32", "f16", "bf16", "int8", "rabitq3", "rabitq4", "rabitq5", "rabitq6", "rabitq7", "rabitq8"]
_Path: TypeAlias = str | os.PathLike[str]
_Paths: TypeAlias = _Path | Iterable[_Path]

@type_check_only
class _LevelRule(TypedDict, total=False):
    tau: float
    least: int
    most: int
    least_percent: float

class Error(Exception): ...
class CorruptCheckpoint(Error): ...
class FormatError(Error): ...
class LockedError(Error): ...

@final
class Filter:
    @staticmethod
    def allow(ids: _Ids) -> Filter: ...
    @staticmethod
    def deny(ids: _Ids) -> Filter: ...

@final
class Index:
    def __new__(
        cls,
        dim: int,
        metric: _Metric = "cosine",
        *,
        path: _Path | None = None,
        keep: int = 1,
        spill: int = 1,
        split_threshold: int | None = None,
        merge_threshold: int | None = None,
        branching: int = 65536,
        profile: Literal["memory", "disk"] = "memory",
        storage: _Storage = "f32",
        seed: int = 0,
        threads: int | None = None,
    ) -> Index: ...
    def add(self, vectors: _Rows, ids: _Ids | None = None, *, progress: _Progress = None) -> AddResult: ...
    def remove(self, ids: _Ids) -> int: ...
    def search(
        self,
        queries: _Rows,
        k: int = 10,
        *,
        tau: float | None = None,
        beam: int | tuple[int, int] | None = None,
        recall: float | None = None,
        rerank: Literal["bound"] | int | None = "bound",
        epsilon: float | None = None,
        filter: _Ids | Filter | None = None,
        levels: Iterable[_LevelRule | None] | None = None,
        threads: int | None = None,
        timeout: float | None = None,
        progress: _Progress = None,
    ) -> SearchResult: ...
    def get(self, ids: _Ids) -> NDArray[np.float32]: ...
    def ids(self) -> NDArray[np.int64]: ...
    def balance(self, progress: _Progress = None) -> None: ...
    def stats(self) -> dict[str, int | float]: ...
    def validate(self) -> None: ...
    @staticmethod
    def open(path: _Path, *, keep: int = 1, threads: int | None = None) -> Index: ...
    def commit(self, note: str | None = None, *, progress: _Progress = None) -> CheckpointInfo: ...
    def save(self, path: _Path, progress: _Progress = None) -> CheckpointInfo: ...
    def _clear_cache(self) -> None: ...
    def _is_clean(self) -> bool: ...
    def close(self) -> None: ...
    @property
    def dim(self) -> int: ...
    @property
    def metric(self) -> Literal["cosine", "l2", "ip"]: ...
    @property
    def config(self) -> dict[str, int | str]: ...
    @property
    def closed(self) -> bool: ...
    def __contains__(self, id: int, /) -> bool: ...
    def __len__(self) -> int: ...
    def __enter__(self) -> Index: ...
    def __exit__(
        self,
        exception_type: type[BaseException] | None = None,
        exception: BaseException | None = None,
        traceback: TracebackType | None = None,
        /,
    ) -> None: ...

def load(path: _Path, version: int | None = None, *, threads: int | None = None) -> Index: ...
def open_writer(
    path: _Path,
    dim: int | None,
    metric: _Metric | None,
    keep: int | None,
    cache_bytes: int | None,
    spill: int | None,
    split_threshold: int | None,
    merge_threshold: int | None,
    branching: int | None,
    profile: Literal["memory", "disk"] | None,
    storage: _Storage | None,
    seed: int | None,
    threads: int | None,
) -> Index: ...
def open_reader(path: _Path, version: int | None, cache_bytes: int | None, threads: int | None) -> tuple[Index, int]: ...
def read_manifest(path: _Path, version: int | None) -> tuple[list[int], int, str]: ...
def exact_search(
    vectors: _Rows,
    queries: _Rows,
    k: int = 10,
    metric: _Metric = "cosine",
    *,
    threads: int | None = None,
    progress: _Progress = None,
    timeout: float | None = None,
) -> SearchResult: ...

@final
class RowBatches:
    def __iter__(self) -> RowBatches: ...
    def __next__(self) -> Rows: ...
    def _files(self) -> list[tuple[Path, int]]: ...

def read_vectors(
    paths: _Paths,
    column: str | None = None,
    id_column: str | None = None,
    start: int = 0,
    count: int | None = None,
    *,
    nulls: Literal["raise", "skip"] = "raise",
    threads: int | None = None,
    progress: _Progress = None,
) -> Rows: ...
def iter_vectors(
    paths: _Paths,
    column: str | None = None,
    id_column: str | None = None,
    start: int = 0,
    count: int | None = None,
    *,
    batch: int = 65536,
    nulls: Literal["raise", "skip"] = "raise",
    unique: bool = True,
    threads: int | None = None,
    progress: _Progress = None,
) -> RowBatches: ...
