"""What additions, searches and files return: tuples with names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import disjoint_base
else:

    def disjoint_base(cls: type) -> type:
        """For type checkers: a tuple with attributes of its own can't be a base together with another such class."""
        return cls


class AddResult(NamedTuple):
    """What an addition did; unpacks as ``added, replaced``.

    Examples
    --------
    >>> import sapwood as sw
    >>> added, replaced = sw.Index(2).add([[1.0, 2.0], [3.0, 4.0]])
    >>> added, replaced
    (2, 0)
    """

    added: int
    """Ids that were not live before."""
    replaced: int
    """Ids that were."""


class CheckpointInfo(NamedTuple):
    """What a commit made; unpacks as ``version, rows, bytes_written``."""

    version: int
    """The checkpoint's number, counted from 1."""
    rows: int
    """Live rows in it."""
    bytes_written: int
    """Bytes that the commit wrote; 0 where nothing had changed."""


class _Pair(NamedTuple):
    ids: NDArray[np.int64]
    """int64, (nq, k) or (k,); -1 where there was no further row."""
    distances: NDArray[np.float32]
    """float32, of the same shape, ascending; +inf where there was no further row."""


@disjoint_base
class SearchResult(_Pair):
    """What a search found; unpacks as ``ids, distances``.

    Attributes
    ----------
    ids : numpy.ndarray of int64, shape (nq, k), or (k,) for a 1-D query
        The nearest first; -1 where fewer than k rows were live and allowed.
    distances : numpy.ndarray of float32, of the same shape
        Ascending, ties by id; +inf beside an id of -1.
    counts : numpy.ndarray of int64, shape (nq,) or ()
        How many hits of each query are real.
    scanned, reranked, leaves : int
        Codes scanned, stored vectors compared and leaves visited, over all queries.

    Examples
    --------
    >>> import sapwood as sw
    >>> result = sw.exact_search([[0.0], [2.0]], [[0.5], [2.0]], k=3, metric="l2")
    >>> ids, distances = result
    >>> ids
    array([[ 0,  1, -1],
           [ 1,  0, -1]])
    >>> result.counts
    array([2, 2])
    """

    scanned: int
    reranked: int
    leaves: int

    def __new__(
        cls,
        ids: NDArray[np.int64],
        distances: NDArray[np.float32],
        scanned: int = 0,
        reranked: int = 0,
        leaves: int = 0,
    ) -> SearchResult:
        self = super().__new__(cls, ids, distances)
        # A tuple subclass keeps further attributes in its __dict__, past the __setattr__ below.
        self.__dict__.update(scanned=scanned, reranked=reranked, leaves=leaves)
        return self

    @property
    def counts(self) -> NDArray[np.int64]:
        """How many hits of each query are real: int64, (nq,), or () for a 1-D query."""
        return np.asarray(np.count_nonzero(self.ids >= 0, axis=-1), dtype=np.int64)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a SearchResult can't be changed, so {name!r} can't be set")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SearchResult):
            return NotImplemented
        return np.array_equal(self.ids, other.ids) and np.array_equal(self.distances, other.distances)

    def __ne__(self, other: object) -> bool:
        return not self == other

    # Arrays have no hash.
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"SearchResult(ids={self.ids!r}, distances={self.distances!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return SearchResult, (self.ids, self.distances, self.scanned, self.reranked, self.leaves)


class _IdsAndVectors(NamedTuple):
    ids: NDArray[np.int64]
    """int64, (n,)."""
    vectors: NDArray[np.float32]
    """float32 in C order, (n, dim)."""


@disjoint_base
class Rows(_IdsAndVectors):
    """Rows that were read from files; unpacks as ``ids, vectors``.

    Attributes
    ----------
    ids : numpy.ndarray of int64, shape (n,)
        From the id column, or the number of each row over all files.
    vectors : numpy.ndarray of float32, shape (n, dim)
        In C order.
    skipped : int
        Rows that were left out, as ``nulls="skip"`` asks for.

    Examples
    --------
    >>> import numpy as np, sapwood as sw, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "vectors.npy"
    >>> np.save(path, np.array([[1.0, 2.0], [np.nan, 3.0], [4.0, 5.0]]))
    >>> rows = sw.read_vectors(path, nulls="skip")
    >>> rows
    Rows(2 rows, dim=2, ids=0..2, skipped=1)
    >>> rows.ids
    array([0, 2])
    """

    skipped: int

    def __new__(cls, ids: NDArray[np.int64], vectors: NDArray[np.float32], skipped: int = 0) -> Rows:
        self = super().__new__(cls, ids, vectors)
        self.__dict__.update(skipped=skipped)
        return self

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"Rows can't be changed, so {name!r} can't be set")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Rows):
            # NotImplemented would have tuples compare their arrays.
            return False
        same = np.array_equal(self.ids, other.ids) and np.array_equal(self.vectors, other.vectors)
        return same and self.skipped == other.skipped

    def __ne__(self, other: object) -> bool:
        return not self == other

    # Arrays have no hash.
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        count, dim = self.vectors.shape
        ids = f", ids={self.ids.min()}..{self.ids.max()}" if count else ""
        skipped = f", skipped={self.skipped:,}" if self.skipped else ""
        return f"Rows({count:,} rows, dim={dim}{ids}{skipped})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Rows, (self.ids, self.vectors, self.skipped)
