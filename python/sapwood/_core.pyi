from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Literal, TypeAlias, TypedDict, final, type_check_only

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sapwood._results import AddResult, SearchResult

__all__ = ["Error", "Filter", "Index", "__version__", "exact_search"]

__version__: str

_Metric: TypeAlias = Literal["cosine", "l2", "ip"]
# Tensors, Arrow and polars columns are accepted as well, and none of them is an ArrayLike for every type checker.
_Rows: TypeAlias = ArrayLike | Any
_Ids: TypeAlias = ArrayLike | Any
_Progress: TypeAlias = Callable[[int, int], object] | bool | None

@type_check_only
class _LevelRule(TypedDict, total=False):
    tau: float
    least: int
    most: int
    least_percent: float

class Error(Exception): ...

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
        spill: int = 1,
        split_threshold: int | None = None,
        merge_threshold: int | None = None,
        branching: int = 8192,
        profile: Literal["memory", "disk"] = "memory",
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
        rerank: Literal["bound"] | int | None = "bound",
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
    def close(self) -> None: ...
    @property
    def dim(self) -> int: ...
    @property
    def metric(self) -> Literal["cosine", "l2", "ip"]: ...
    @property
    def config(self) -> dict[str, int]: ...
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
