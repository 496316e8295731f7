"""What the peers without a cosine metric share: rows made unit, and dimensions they refuse filled with zeros."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import numpy as np

from sapwood_bench.engine import Answer, Engine, Matrix
from sapwood_bench.measure import Ids


class UnitRows(Engine):
    """Ranks cosine by the inner product of unit rows and queries; every answer is a pair, ids first.

    A class that sets `package` names what it measures; one that sets `multiple` takes only such dimensions.
    """

    package = ""
    multiple = 1

    def versions(self) -> dict[str, str]:
        return {self.package: version(self.package)}

    @property
    def inner_product(self) -> bool:
        """Whether rows are ranked by inner product, else by squared distance."""
        return self.metric != "l2"

    def load(self, base: str, queries: dict[str, str], truth: dict[str, str], metric: str) -> Answer:
        """As every engine; rows are made unit for cosine, and widened to what the peer takes."""
        answer = super().load(base, queries, truth, metric)
        if self.metric == "cosine":
            for rows in (self.vectors, *self.queries.values()):
                make_unit(rows)
        dim = self.vectors.shape[1]
        if dim % self.multiple:
            width = -(-dim // self.multiple) * self.multiple
            self.vectors = widened(self.vectors, width)
            self.queries = {name: widened(rows, width) for name, rows in self.queries.items()}
            # Zeros change no distance; the setting in the record says that they are there.
            self.notes["padded_to"] = width
        return answer

    def results(self, raw: list[Any]) -> tuple[Ids, dict[str, int]]:
        return np.concatenate([np.atleast_2d(found[0]) for found in raw]).astype(np.int64), {}


def make_unit(rows: Matrix) -> None:
    """Divide every row by its length, in place; rows of zeros stay what they are."""
    for first in range(0, len(rows), 65_536):
        part = rows[first : first + 65_536]
        lengths = np.linalg.norm(part, axis=1, keepdims=True)
        part /= np.where(lengths > 0, lengths, 1)


def widened(rows: Matrix, width: int) -> Matrix:
    """The rows with zeros after their values."""
    wide = np.zeros((len(rows), width), np.float32)
    wide[:, : rows.shape[1]] = rows
    return wide
