"""Real data that ships with the package: WordNet glosses with text embeddings.

The texts are from WordNet 3.0 (Princeton University); their licence is beside them, in ``WORDNET-LICENSE.txt``.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources

import numpy as np
from numpy.typing import NDArray

__all__ = ["ROWS", "Glosses", "load_wordnet"]

ROWS = 24_000
"""How many entries there are, the queries not counted."""


@dataclass(frozen=True)
class Glosses:
    """Dictionary entries with their embeddings; all fields have one entry a gloss.

    Attributes
    ----------
    ids : ndarray of int64, shape (n,)
        WordNet's own numbers: the part of speech (1 noun, 2 verb, 3 adjective, 4 adverb), then nine digits. Ascending.
    vectors : ndarray of float32, shape (n, 384)
        Embeddings of the glosses by the sentence encoder all-MiniLM-L6-v2, of unit length.
    words : list of str
        The words that the gloss explains, separated by commas.
    glosses : list of str
        The explanations.
    """

    ids: NDArray[np.int64]
    vectors: NDArray[np.float32]
    words: list[str]
    glosses: list[str]

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"Glosses({len(self):,} entries, {self.vectors.shape[1]} dimensions)"

    def take(self, places: NDArray[np.int64]) -> Glosses:
        """The entries at the given places, in that order."""
        return Glosses(
            self.ids[places],
            self.vectors[places],
            [self.words[place] for place in places],
            [self.glosses[place] for place in places],
        )


def load_wordnet(rows: int | None = None) -> tuple[Glosses, Glosses]:
    """Load the glosses that ship with the package.

    Parameters
    ----------
    rows : int, optional
        How many entries, taken evenly over the whole; all 24,000 by default.

    Returns
    -------
    entries, queries : Glosses
        What to index, and 400 held-out glosses to search with. No query is among the entries.

    Raises
    ------
    ValueError
        When `rows` is below 1 or above 24,000.

    Examples
    --------
    >>> from sapwood.data import load_wordnet
    >>> entries, queries = load_wordnet(rows=1_000)
    >>> entries
    Glosses(1,000 entries, 384 dimensions)
    >>> entries.words[0]
    'entity'
    >>> len(queries)
    400
    """
    if rows is not None and not 1 <= rows <= ROWS:
        raise ValueError(f"rows: expected 1 to {ROWS:,}, got {rows:,}")
    everything, held_out = _read()
    entries = everything.take(np.flatnonzero(~held_out))
    queries = everything.take(np.flatnonzero(held_out))
    if rows is None:
        return entries, queries
    return entries.take(np.arange(rows) * len(entries) // rows), queries


def _read() -> tuple[Glosses, NDArray[np.bool_]]:
    """All entries of the file in the order of their ids, and which of them are queries."""
    with resources.files(__name__).joinpath("wordnet.npz").open("rb") as file, np.load(file, allow_pickle=False) as stored:
        everything = Glosses(
            stored["ids"],
            _unpack(stored["codes"], stored["scales"]),
            _split(stored["words"], stored["word_ends"]),
            _split(stored["glosses"], stored["gloss_ends"]),
        )
        return everything, stored["held_out"]


def _unpack(codes: NDArray[np.int8], scales: NDArray[np.float32]) -> NDArray[np.float32]:
    """Embeddings of unit length from int8 codes and a scale for each row."""
    vectors = codes.astype(np.float32) * scales[:, None]
    unit: NDArray[np.float32] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit


def _split(text: NDArray[np.uint8], ends: NDArray[np.uint32]) -> list[str]:
    """Strings from their joined UTF-8 bytes and the place where each ends."""
    joined = text.tobytes()
    starts = [0, *ends[:-1].tolist()]
    return [joined[start:end].decode() for start, end in zip(starts, ends.tolist(), strict=True)]
