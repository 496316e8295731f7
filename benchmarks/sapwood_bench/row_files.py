"""Reading rows from a file under measurement, each pass in a process of its own."""

from __future__ import annotations

import gc
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np

from . import measure
from .engine import Answer, Matrix
from .ours import our_versions


class RowFile(ABC):
    """One column of vectors, read whole or in batches."""

    @abstractmethod
    def versions(self) -> dict[str, str]:
        """Names and versions of what is measured."""

    @abstractmethod
    def prepare(self, threads: int) -> None:
        """Take the number of threads, off the clock."""

    @abstractmethod
    def read(self, path: str) -> Matrix:
        """All rows of the file as one float32 array in C order."""

    @abstractmethod
    def batches(self, path: str, rows: int) -> Iterator[Matrix]:
        """The rows of the file, so many at a time."""

    def whole(self, path: str, base: str, threads: int) -> Answer:
        """Read all rows once; then, off the clock, hold them against what was written."""
        self.prepare(threads)
        with _Clock() as clock:
            vectors = self.read(path)
        return clock.answer | {"same": float(np.array_equal(vectors, np.load(base, mmap_mode="r")))}

    def in_batches(self, path: str, base: str, threads: int, rows: int) -> Answer:
        """Go through all batches once; then once more to hold them against what was written."""
        self.prepare(threads)
        with _Clock() as clock:
            for batch in self.batches(path, rows):
                del batch
        written = np.load(base, mmap_mode="r")
        first, same = 0, True
        for batch in self.batches(path, rows):
            same = same and np.array_equal(batch, written[first : first + len(batch)])
            first += len(batch)
        return clock.answer | {"same": float(same and first == len(written))}


class _Clock:
    """Seconds and the peak of resident memory of a block."""

    def __init__(self) -> None:
        self.answer: Answer = {}

    def __enter__(self) -> _Clock:
        gc.collect()
        self._before = measure.memory()["now"]
        measure.reset_peak()
        self._start = time.perf_counter()
        return self

    def __exit__(self, *error: object) -> None:
        seconds = time.perf_counter() - self._start
        peak = measure.memory()["peak"]
        self.answer = {"seconds": seconds, "peak": peak, "growth": peak - self._before}


class OurRowFile(RowFile):
    """`sapwood.read_vectors` and `sapwood.iter_vectors`."""

    def __init__(self) -> None:
        import sapwood

        self.sapwood = sapwood
        self.threads = 1

    def versions(self) -> dict[str, str]:
        return our_versions()

    def prepare(self, threads: int) -> None:
        self.threads = threads

    def read(self, path: str) -> Matrix:
        vectors: Matrix = self.sapwood.read_vectors(path, threads=self.threads).vectors
        return vectors

    def batches(self, path: str, rows: int) -> Iterator[Matrix]:
        for part in self.sapwood.iter_vectors(path, batch=rows, threads=self.threads):
            yield part.vectors
