"""Similar prompts by cosine, compared with every one that is kept: exact, in one product of a matrix.

Up to 10,000 vectors a graph index is no faster and finds less. Of results within 5 % of the best the one with most
tokens comes first, for it may spare most. A candidate is never reuse: whoever takes one compares its token IDs first.
Not here: making vectors (`embedding`).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

WITHIN: Final = 0.95  # of the best score, inclusive

Vector = npt.NDArray[np.float32]
KeyT = TypeVar("KeyT", bound=Hashable)


class Candidate(NamedTuple, Generic[KeyT]):
    """`score`: cosine, -1 to 1; `tokens`: length of the prompt."""

    key: KeyT
    score: float
    tokens: int


class BruteForceIndex(Generic[KeyT]):
    """At most `capacity` vectors of `dims` floats, allocated at once (20 MB for 10,000 of 512). A full index drops the
    one that was added first."""

    def __init__(self, dims: int, capacity: int) -> None:
        if dims < 1 or capacity < 1:
            raise ValueError(f"an index of {capacity} vectors of {dims} dimensions: expected 1 or more of each")
        self._vectors = np.zeros((capacity, dims), dtype=np.float32)
        self._tokens = np.zeros(capacity, dtype=np.int64)
        self._rows: dict[KeyT, int] = {}  # in order of addition
        self._keys: list[KeyT] = []  # of the rows in use, which are the first ones

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: KeyT, vector: Vector, tokens: int) -> None:
        """In place of what `key` had before. A vector of zeros, or that is not finite, is not kept."""
        if vector.shape != (self._vectors.shape[1],):
            raise ValueError(f"a vector of shape {vector.shape}: expected {self._vectors.shape[1]} numbers")
        norm = float(np.linalg.norm(vector))
        self.remove(key)
        if not (np.isfinite(norm) and norm > 0):
            return
        if len(self._keys) == len(self._vectors):
            self.remove(next(iter(self._rows)))
        row = len(self._keys)
        self._keys.append(key)
        self._rows[key] = row
        self._vectors[row] = vector / np.float32(norm)
        self._tokens[row] = tokens

    def remove(self, key: KeyT) -> None:
        """The last row takes its place. An unknown key is nothing to remove."""
        row = self._rows.pop(key, None)
        if row is None:
            return
        last = len(self._keys) - 1
        if row != last:
            self._vectors[row], self._tokens[row] = self._vectors[last], self._tokens[last]
            self._keys[row] = self._keys[last]
            self._rows[self._keys[row]] = row
        self._keys.pop()

    def search(self, vector: Vector, k: int) -> list[Candidate[KeyT]]:
        """The `k` best. Those within 5 % of the best come first, most tokens first; then by score."""
        count = len(self._keys)
        norm = float(np.linalg.norm(vector))
        if count == 0 or k < 1 or not (np.isfinite(norm) and norm > 0):
            return []
        scores = self._vectors[:count] @ (vector / np.float32(norm))
        best = float(scores.max())
        near = np.flatnonzero(scores >= (WITHIN * best if best > 0 else best))
        order = near[np.lexsort((near, -scores[near], -self._tokens[near]))][:k]
        if len(order) < min(k, count):
            top = np.argpartition(scores, count - k)[count - k :] if k < count else np.arange(count)
            far = top[scores[top] < scores[near].min()]  # those near are the best, so all of them are in `top`
            order = np.concatenate((order, far[np.lexsort((far, -scores[far]))]))
        return [Candidate(self._keys[i], float(scores[i]), int(self._tokens[i])) for i in order]
