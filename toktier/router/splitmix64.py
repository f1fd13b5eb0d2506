"""The finalizer of splitmix64 over arrays: every bit of a number in every bit of its hash, in a few steps of numpy.

No secret is safe with it. Not here: what is hashed (`remembered`, `embedding`).
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]

_FACTORS: Final = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS: Final = (np.uint64(30), np.uint64(27), np.uint64(31))


def mixed(words: Words) -> Words:
    """Of each of `words` [n]; `words` stay as they are."""
    x = words ^ (words >> _SHIFTS[0])
    x *= _FACTORS[0]
    x ^= x >> _SHIFTS[1]
    x *= _FACTORS[1]
    x ^= x >> _SHIFTS[2]
    return x
