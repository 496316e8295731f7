"""pyarrow: reads a Parquet column into NumPy, and writes the files that are read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from sapwood_bench.engine import Answer, Matrix
from sapwood_bench.row_files import RowFile

COLUMN = "vector"


class PyarrowParquet(RowFile):
    """`pyarrow.parquet.read_table` and `ParquetFile.iter_batches`, no copy where none is needed."""

    def __init__(self) -> None:
        import pyarrow
        import pyarrow.dataset  # the first read would import it, on the clock
        import pyarrow.parquet

        self.arrow: Any = pyarrow
        self.parquet: Any = pyarrow.parquet

    def versions(self) -> dict[str, str]:
        return {"pyarrow": str(self.arrow.__version__)}

    def prepare(self, threads: int) -> None:
        self.arrow.set_cpu_count(threads)
        self.arrow.set_io_thread_count(threads)

    def read(self, path: str) -> Matrix:
        column = self.parquet.read_table(path, columns=[COLUMN]).column(COLUMN)
        # Several chunks become one array by copying; a single one is taken as it is.
        return _rows(column.chunk(0) if column.num_chunks == 1 else column.combine_chunks())

    def batches(self, path: str, rows: int) -> Iterator[Matrix]:
        with self.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(rows, columns=[COLUMN]):
                yield _rows(batch.column(COLUMN))

    def write(self, base: str, path: str, fixed: bool, compression: str, groups: int) -> Answer:
        """One column of lists, of fixed length or not, in so many row groups; all else as pyarrow has it."""
        vectors = np.load(base)
        rows, dim = vectors.shape
        values = self.arrow.array(vectors.reshape(-1))
        if fixed:
            lists = self.arrow.FixedSizeListArray.from_arrays(values, dim)
        else:
            lists = self.arrow.ListArray.from_arrays(np.arange(0, rows * dim + 1, dim, dtype=np.int32), values)
        table = self.arrow.table({COLUMN: lists})
        self.parquet.write_table(table, path, compression=compression, row_group_size=-(-rows // groups))
        return {"groups": self.parquet.ParquetFile(path).num_row_groups}


def _rows(lists: Any) -> Matrix:
    """The values of an array of lists of equal length, in place."""
    rows: Matrix = lists.flatten().to_numpy(zero_copy_only=False).reshape(len(lists), -1)
    return rows
