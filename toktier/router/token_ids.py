"""Token IDs as the router keeps and compares them: arrays of 32-bit numbers.

Not here: what they stand for in a slot (`slot_content`), and whose they are (`vocabulary.Ids`).
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

TokenIds: TypeAlias = npt.NDArray[np.uint32]

NO_IDS: Final[TokenIds] = np.empty(0, dtype=np.uint32)
NO_IDS.flags.writeable = False

_FIRST_STEP = 4096  # tokens compared at once: 16 KiB, about the price of the call itself
_STEP_GROWTH = 4  # a long common prefix takes few calls, an early difference never costs a long comparison


def as_ids(tokens: object) -> TokenIds:
    """A contiguous copy, so that no larger buffer stays alive for it. Raises OverflowError, TypeError or ValueError for
    what is no IDs."""
    return np.array(tokens, dtype=np.uint32)


def shared_prefix(a: TokenIds, b: TokenIds) -> int:
    """Length in tokens of the longest common prefix."""
    end = min(len(a), len(b))
    if not end or a[0] != b[0]:
        return 0
    start, step = 0, _FIRST_STEP
    while start < end:
        stop = min(end, start + step)
        differs = a[start:stop] != b[start:stop]
        first = int(differs.argmax())
        if differs[first]:
            return start + first
        start, step = stop, step * _STEP_GROWTH
    return end
