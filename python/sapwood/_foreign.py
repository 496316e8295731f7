"""Rows and ids in the arrays of other libraries.

None of them is needed, and none is imported before the caller has used it: `import_module` instead of a statement keeps type checkers
from asking for libraries that aren't installed.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sapwood._arrays import Matrix, Wanted


def rows(wanted: Wanted, value: Any) -> Matrix | NDArray[Any]:
    """Rows that are converted by parts, or an array that means the same."""
    module = type(value).__module__.partition(".")[0]
    if not hasattr(value, "__array__") and (hasattr(value, "__arrow_c_array__") or hasattr(value, "__arrow_c_stream__")):
        value, module = _through_pyarrow(wanted, value), "pyarrow"
    if module == "pyarrow":
        return _arrow(wanted, value)
    if module == "polars" and type(value).__name__ == "Series":
        return _polars(wanted, value)
    _refuse_device(wanted.text, value, wanted.argument)
    if _is_tensor(value):
        value = value.detach()
        if str(value.dtype).endswith("bfloat16"):
            count, width, flat = wanted.check_shape(tuple(value.shape), value.dtype)
            return Matrix(_TensorRows(wanted, value.reshape(count, width)), count, width, flat)
    return _read(wanted.text, value)


def ids(argument: str, value: Any) -> NDArray[Any]:
    """Ids as an array of the type they have."""
    text = f"{argument}: expected (n,) integers"
    nulls = getattr(value, "null_count", 0)
    if nulls() if callable(nulls) else nulls:
        raise ValueError(f"{text}, got nulls; drop them first")
    _refuse_device(text, value, argument)
    return _read(text, value)


def _read(text: str, value: Any) -> NDArray[Any]:
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{text}, got {type(value).__name__} ({error})") from error
    if array.dtype == object and array.ndim == 0:
        raise TypeError(f"{text}, got {type(value).__name__}")
    return array


def _refuse_device(text: str, value: Any, argument: str) -> None:
    """To copy from another device takes time and memory: the caller decides."""
    device = getattr(getattr(value, "device", None), "type", None)
    if (isinstance(device, str) and device != "cpu") or hasattr(value, "__cuda_array_interface__"):
        remedy = next((f"{argument}.{method}()" for method in ("cpu", "get") if hasattr(value, method)), f"numpy.asarray({argument})")
        raise TypeError(f"{text}, got {type(value).__name__} on {getattr(value, 'device', 'a GPU')}; pass {remedy}")


# -- tensors -----------------------------------------------------------------------------------------------------------------------------


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "detach") and hasattr(value, "numpy") and hasattr(value, "dtype")


class _TensorRows:
    """A bfloat16 tensor: numpy has no such type, so it is widened first."""

    def __init__(self, wanted: Wanted, tensor: Any) -> None:
        self._wanted = wanted
        self._tensor = tensor

    def block(self, start: int, stop: int) -> NDArray[np.float32]:
        return self._wanted.narrow(np.asarray(self._tensor[start:stop].float()), start)


# -- Arrow -------------------------------------------------------------------------------------------------------------------------------


def _through_pyarrow(wanted: Wanted, value: Any) -> Any:
    try:
        pyarrow: Any = import_module("pyarrow")
    except ImportError:
        wanted.refuse_type(f"{type(value).__name__}; install pyarrow to read it")
    return pyarrow.array(value) if hasattr(value, "__arrow_c_array__") else pyarrow.chunked_array(value)


def _arrow(wanted: Wanted, value: Any) -> Matrix | NDArray[Any]:
    pa: Any = import_module("pyarrow")
    if not isinstance(value, (pa.Array, pa.ChunkedArray)):
        wanted.refuse_type(f"{type(value).__name__}; pass one column of it")
    if isinstance(value.type, pa.BaseExtensionType):
        chunks = value.chunks if isinstance(value, pa.ChunkedArray) else [value]
        value = pa.chunked_array([chunk.storage for chunk in chunks], value.type.storage_type)
    kind = value.type
    if not (pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        if value.null_count:
            wanted.refuse("nulls")
        return _read(wanted.text, value)
    if not (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)):
        wanted.refuse_type(str(kind))
    whole = isinstance(value, pa.Array) or value.num_chunks == 1
    return _column(_ArrowRows(wanted, value), len(value), whole and kind.value_type == pa.float32())


class _Column:
    """A column of lists. `_part` tells what a part of it holds."""

    def __init__(self, wanted: Wanted, column: Any) -> None:
        self._wanted = wanted
        self._column = column
        self.width = wanted.dim

    def _part(self, start: int, stop: int) -> tuple[NDArray[np.bool_], NDArray[Any], Any]:
        """Which rows are null, the lengths of all, and the values of the others in a row."""
        raise NotImplementedError

    def _values(self, flat: Any) -> tuple[NDArray[np.bool_], NDArray[Any]]:
        """Which values are null, and all of them."""
        raise NotImplementedError

    def block(self, start: int, stop: int) -> NDArray[np.float32]:
        null, lengths, flat = self._part(start, stop)
        if null.any():
            self._wanted.refuse(f"null as row {start + int(null.argmax())}")
        if self.width is None:
            self.width = int(lengths[0])
        other = lengths != self.width
        if other.any() or self.width == 0:
            row = int(other.argmax())
            self._wanted.refuse(f"row {start + row} of length {lengths[row]}")
        null, values = self._values(flat)
        if null.any():
            self._wanted.refuse(f"a null value in row {start + int(null.argmax()) // self.width}")
        return self._wanted.narrow(values.reshape(-1, self.width), start)


class _ArrowRows(_Column):
    def _part(self, start: int, stop: int) -> tuple[NDArray[np.bool_], NDArray[Any], Any]:
        pa: Any = import_module("pyarrow")
        pc: Any = import_module("pyarrow.compute")
        part = self._column.slice(start, stop - start)
        if isinstance(part, pa.ChunkedArray):
            part = part.combine_chunks()
        lengths = pc.list_value_length(part).fill_null(0).to_numpy(zero_copy_only=False)
        return _arrow_nulls(part), lengths, part.flatten()

    def _values(self, flat: Any) -> tuple[NDArray[np.bool_], NDArray[Any]]:
        return _arrow_nulls(flat), flat.to_numpy(zero_copy_only=False)


def _arrow_nulls(array: Any) -> NDArray[np.bool_]:
    if array.null_count == 0:
        return np.zeros(1, np.bool_)
    nulls: NDArray[np.bool_] = array.is_null().to_numpy(zero_copy_only=False)
    return nulls


# -- polars ------------------------------------------------------------------------------------------------------------------------------


def _polars(wanted: Wanted, value: Any) -> Matrix | NDArray[Any]:
    pl: Any = import_module("polars")
    kind = value.dtype
    if not isinstance(kind, (pl.List, pl.Array)):
        if value.null_count():
            wanted.refuse("nulls")
        return _read(wanted.text, value)
    if not (kind.inner.is_float() or kind.inner.is_integer()):
        wanted.refuse_type(str(kind))
    return _column(_PolarsRows(wanted, value), len(value), value.n_chunks() == 1 and kind.inner == pl.Float32)


class _PolarsRows(_Column):
    def _part(self, start: int, stop: int) -> tuple[NDArray[np.bool_], NDArray[Any], Any]:
        pl: Any = import_module("polars")
        part = self._column.slice(start, stop - start)
        lists = part.arr.to_list() if isinstance(part.dtype, pl.Array) else part
        return part.is_null().to_numpy(), lists.list.len().fill_null(0).to_numpy(), lists.list.explode()

    def _values(self, flat: Any) -> tuple[NDArray[np.bool_], NDArray[Any]]:
        return flat.is_null().to_numpy(), flat.to_numpy()


def _column(column: _Column, count: int, in_place: bool) -> Matrix:
    """A column as rows; float32 values that lie one after the other are right where they are."""
    if count == 0:
        width = column.width or 1
        return Matrix(np.empty((0, width), np.float32), 0, width, False)
    # The first row tells the width.
    source = column.block(0, count if in_place else 1)
    return Matrix(source if in_place else column, count, source.shape[1], False)
