"""What callers pass as rows and ids, understood and made ready for the core.

`rows` and `ids` are called for everything but the commonest input. What has no exact meaning as rows or ids is refused before anything
is changed, with the argument's name, what was expected and what came. Rows are converted block by block: `rows` gives an array that is
right as it is, or an object whose ``block(start, stop)`` converts a part.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

_LARGEST_ID = 2**63 - 1


class Blocks(Protocol):
    """Rows that are converted a part at a time."""

    def block(self, start: int, stop: int) -> NDArray[np.float32]:
        """Rows start .. stop as float32 in C order."""
        ...


class Matrix(NamedTuple):
    """An argument that was understood as rows."""

    source: NDArray[np.float32] | Blocks
    rows: int
    dim: int
    flat: bool
    """A single row, given as a 1-D array."""


class Wanted:
    """What an argument of rows has to be, for the checks and their messages."""

    def __init__(self, argument: str, dim: int | None) -> None:
        self.argument = argument
        self.dim = dim

    @property
    def text(self) -> str:
        """What was expected."""
        count = "nq" if self.argument == "queries" else "n"
        return f"{self.argument}: expected ({count}, {self.dim or 'dim'}) float32-compatible"

    def refuse(self, given: str) -> NoReturn:
        """Right type, wrong shape or value."""
        raise ValueError(f"{self.text}, got {given}")

    def refuse_type(self, given: str) -> NoReturn:
        """Not numbers."""
        raise TypeError(f"{self.text}, got {given}")

    def check_dtype(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        """Refuse what is no real number."""
        # Extension types (bfloat16, float8) are of kind V, and so are structures; only the former can be widened.
        if dtype.kind not in "fiu" and not (dtype.kind == "V" and dtype.names is None and np.can_cast(dtype, np.float32)):
            remedy = "; convert with .astype(numpy.float32) if that is meant" if dtype.kind == "b" else ""
            self.refuse_type(f"{shape} {dtype}{remedy}")

    def check_shape(self, shape: tuple[int, ...], of: object) -> tuple[int, int, bool]:
        """Rows, width and whether the shape is 1-D."""
        if shape == (0,):
            # What numpy makes of an empty list of rows.
            return 0, self.dim or 1, False
        if len(shape) not in (1, 2) or shape[-1] == 0 or (self.dim is not None and shape[-1] != self.dim):
            self.refuse(f"{shape} {of}")
        flat = len(shape) == 1
        return (1 if flat else shape[0]), shape[-1], flat

    def check_width(self, row: int, width: int) -> None:
        """Refuse a row of another length."""
        if width == 0 or (self.dim is not None and width != self.dim):
            self.refuse(f"row {row} of length {width}")

    def narrow(self, part: NDArray[Any], start: int) -> NDArray[np.float32]:
        """A part as float32. A finite value that would become infinite is refused, naming its row."""
        if _is_ready(part):
            return part
        if part.dtype.itemsize < 8:
            return part.astype(np.float32, order="C")
        with np.errstate(over="ignore", invalid="ignore"):
            narrowed = part.astype(np.float32, order="C")
        infinite = np.isinf(narrowed)
        if infinite.any():
            overflow = np.argwhere(infinite & np.isfinite(part))
            if len(overflow):
                row, column = overflow[0]
                self.refuse(f"{part[row, column]} in row {start + row}, beyond the range of float32")
        return narrowed


def rows(argument: str, value: Any, dim: int | None) -> Matrix:
    """The argument as rows of `dim` values, or of the width it has."""
    wanted = Wanted(argument, dim)
    if isinstance(value, np.ndarray):
        return _array(wanted, value)
    if isinstance(value, (list, tuple)):
        return _sequence(wanted, value)
    if value is None or isinstance(value, (str, bytes, bytearray, dict, set, frozenset)):
        wanted.refuse_type(type(value).__name__)
    # Imported when needed: most callers have plain numpy arrays.
    from sapwood import _foreign

    converted = _foreign.rows(wanted, value)
    return converted if isinstance(converted, Matrix) else _array(wanted, converted)


def _array(wanted: Wanted, array: NDArray[Any]) -> Matrix:
    if isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
        row = np.argwhere(np.ma.getmaskarray(array))[0][0]
        wanted.refuse(f"a masked value in row {row}; fill or drop it first")
    array = np.asarray(array)
    if array.dtype == object and array.ndim == 1:
        # A column of lists, or numbers that are objects.
        return _sequence(wanted, array)
    if array.dtype == object and array.ndim == 2:
        count, width, flat = wanted.check_shape(array.shape, array.dtype)
        return Matrix(_SequenceRows(wanted, array, width), count, width, flat)
    wanted.check_dtype(array.dtype, array.shape)
    count, width, flat = wanted.check_shape(array.shape, array.dtype)
    array = array.reshape(count, width) if array.ndim == 1 else array
    return Matrix(array if _is_ready(array) else _ArrayRows(wanted, array), count, width, flat)


def _is_ready(array: NDArray[Any]) -> bool:
    """Right as it is: what the core reads in place."""
    return array.dtype == np.float32 and array.dtype.isnative and array.flags.c_contiguous and array.flags.aligned


class _ArrayRows:
    """A two-dimensional array of other numbers, or in another order."""

    def __init__(self, wanted: Wanted, array: NDArray[Any]) -> None:
        self._wanted = wanted
        self._array = array

    def block(self, start: int, stop: int) -> NDArray[np.float32]:
        return self._wanted.narrow(self._array[start:stop], start)


def _sequence(wanted: Wanted, value: Sequence[Any] | NDArray[Any]) -> Matrix:
    """A list of rows, or a list of numbers as one row."""
    if len(value) == 0:
        return Matrix(np.empty((0, wanted.dim or 1), np.float32), 0, wanted.dim or 1, False)
    first = _plain(value[0])
    if first is None or isinstance(first, (str, bytes)):
        wanted.refuse_type(f"{type(first).__name__} as row 0")
    if isinstance(first, (Real, np.generic)):
        _, width, _ = wanted.check_shape((len(value),), "list")
        return Matrix(_SequenceRows(wanted, [value], width), 1, width, True)
    try:
        width = len(first)
    except TypeError:
        wanted.refuse_type(f"{type(value).__name__} of {type(first).__name__}")
    if getattr(first, "ndim", 1) != 1:
        wanted.refuse(f"{(len(value), *first.shape)} {first.dtype}")
    wanted.check_width(0, width)
    return Matrix(_SequenceRows(wanted, value, width), len(value), width, False)


class _SequenceRows:
    """Rows that are lists, arrays or tensors."""

    def __init__(self, wanted: Wanted, value: Sequence[Any] | NDArray[Any], width: int) -> None:
        self._wanted = wanted
        self._value = value
        self._width = width

    def block(self, start: int, stop: int) -> NDArray[np.float32]:
        part = [_plain(row) for row in self._value[start:stop]]
        if len(part) != stop - start:
            self._wanted.refuse(f"{len(part)} rows where {stop - start} were announced; the input must not change during the call")
        try:
            array = np.asarray(part)
        except (TypeError, ValueError, OverflowError):
            array = np.empty(0)
        plain = array.dtype.kind in "fiu" and array.shape == (stop - start, self._width)
        if plain and not any(_has_bool(row) for row in part):
            return self._wanted.narrow(array, start)
        rows = np.empty((stop - start, self._width), np.float32)
        for i, row in enumerate(part):
            rows[i] = self._row(row, start + i)
        return rows

    def _row(self, row: Any, number: int) -> NDArray[np.float32]:
        """One row, slowly: numbers of mixed types, or the exact reason why it is refused."""
        if row is None or isinstance(row, str) or not hasattr(row, "__len__"):
            self._wanted.refuse_type(f"{type(row).__name__} as row {number}")
        if len(row) != self._width:
            self._wanted.refuse(f"row {number} of length {len(row)} where row 0 has {self._width}")
        for item in row:
            if hasattr(item, "__len__") and not isinstance(item, (str, bytes)):
                self._wanted.refuse(f"a row of rows in row {number}")
            if not isinstance(item, (Real, np.number)) or isinstance(item, (bool, np.complexfloating)):
                self._wanted.refuse_type(f"{item!r} in row {number}")
        try:
            exact = np.array([[float(item) for item in row]])
        except OverflowError:
            self._wanted.refuse(f"a value in row {number} beyond the range of float32")
        narrowed: NDArray[np.float32] = self._wanted.narrow(exact, number)[0]
        return narrowed


def _has_bool(row: Any) -> bool:
    # numpy reads [True, 2.0] as numbers; of arrays the type is known.
    return isinstance(row, (list, tuple)) and bool in set(map(type, row))


def _plain(row: Any) -> Any:
    # A tensor that tracks gradients can't be read as it is.
    return row.detach() if hasattr(row, "detach") else row


def ids(argument: str, value: Any) -> tuple[NDArray[np.int64], bool]:
    """The ids as int64, and whether it is a single one given as a scalar. Negative ones are the caller's to refuse."""
    if isinstance(value, (Integral, np.integer)) and not isinstance(value, bool):
        return _whole_numbers(argument, [value]), True
    if isinstance(value, range):
        return _range(argument, value), False
    if isinstance(value, (list, tuple)):
        return _whole_numbers(argument, value), False
    if value is None or isinstance(value, (bool, str, bytes, bytearray, dict, set, frozenset)):
        _refuse_ids(argument, type(value).__name__)
    if not isinstance(value, np.ndarray):
        from sapwood import _foreign

        value = _foreign.ids(argument, value)
    return _id_array(argument, value)


def _id_array(argument: str, array: NDArray[Any]) -> tuple[NDArray[np.int64], bool]:
    if isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
        raise ValueError(f"{argument}: expected integers, got a masked value at position {np.argwhere(np.ma.getmaskarray(array))[0][0]}")
    array = np.asarray(array)
    if array.ndim > 1:
        raise ValueError(f"{argument}: expected (n,) integers, got {array.shape} {array.dtype}")
    if array.shape == (0,):
        # numpy makes float64 of an empty list.
        return np.empty(0, np.int64), False
    if array.dtype == object:
        return _whole_numbers(argument, array.reshape(-1).tolist()), array.ndim == 0
    if array.dtype.kind not in "iu":
        remedy = "; convert with .astype(numpy.int64) if they are whole" if array.dtype.kind == "f" else ""
        _refuse_ids(argument, f"{array.shape} {array.dtype}{remedy}")
    flat = array.reshape(-1)
    if flat.dtype.kind == "u" and flat.max() > _LARGEST_ID:
        position = int(np.argmax(flat > _LARGEST_ID))
        _refuse_id(argument, flat[position], position)
    return np.ascontiguousarray(flat, dtype=np.int64), array.ndim == 0


def _range(argument: str, value: range) -> NDArray[np.int64]:
    if len(value) == 0:
        return np.empty(0, np.int64)
    for position in (0, len(value) - 1):
        if not 0 <= value[position] <= _LARGEST_ID:
            _refuse_id(argument, value[position], position)
    # The stop of a range may lie beyond int64 where its last number does not.
    return np.arange(len(value), dtype=np.int64) * value.step + value.start


def _whole_numbers(argument: str, value: Sequence[Any]) -> NDArray[np.int64]:
    """Python numbers; one type at a time is looked at, so that a million ids are quick."""
    for kind in set(map(type, value)):
        if not issubclass(kind, (Integral, np.integer)) or issubclass(kind, bool):
            position = next(i for i, item in enumerate(value) if type(item) is kind)
            if issubclass(kind, (list, tuple, np.ndarray)):
                raise ValueError(f"{argument}: expected (n,) integers, got {kind.__name__} at position {position}")
            _refuse_ids(argument, f"{value[position]!r} at position {position}")
    if value and not (0 <= min(value) and max(value) <= _LARGEST_ID):
        position = next(i for i, item in enumerate(value) if not 0 <= item <= _LARGEST_ID)
        _refuse_id(argument, value[position], position)
    return np.array(value, dtype=np.int64)


def _refuse_ids(argument: str, given: str) -> NoReturn:
    raise TypeError(f"{argument}: expected (n,) integers, got {given}")


def _refuse_id(argument: str, given: Any, position: int) -> NoReturn:
    raise ValueError(f"{argument}: expected ids from 0 to 2^63 - 1, got {given} at position {position}")
