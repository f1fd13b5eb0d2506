"""The batches that a subscriber may still ask for: bounded, and always enough to know everything that is held.

The oldest batch that is kept is an *announcement*: it clears, then stores all that is held. Whoever reads from there
on knows all; older batches go when another announcement can take the first place. Where none can, one is wanted.

Pure. Not here: who makes announcements and sends batches (`kv_event_feed`).
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import NamedTuple


class _Batch(NamedTuple):
    payload: bytes
    size: int
    announces: bool


class History:
    """`most` batches of `most_bytes` together; an announcement alone may be larger. `keep`: false where nobody can ask:
    then only their sizes are kept, for the same rhythm of announcements."""

    def __init__(self, most: int, most_bytes: int, *, keep: bool) -> None:
        self.most, self._most_bytes, self._keep = most, most_bytes, keep
        self._batches: deque[_Batch] = deque()
        self._first = 0  # the sequence number of the oldest
        self._announcements: deque[int] = deque()  # their sequence numbers
        self._last_announcement_size = 0
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._batches)

    def append(self, sequence: int, payload: bytes, *, announces: bool) -> None:
        """Sequence numbers are consecutive, and the first batch is an announcement."""
        size = len(payload)
        if announces:
            if not self._batches:
                self._first = sequence
            self._announcements.append(sequence)
            self._last_announcement_size = size
        self._batches.append(_Batch(payload if self._keep else b"", size, announces))
        self.bytes += size
        while self._is_over and len(self._announcements) > 1:
            self._announcements.popleft()
            while self._first < self._announcements[0]:
                self.bytes -= self._batches.popleft().size
                self._first += 1

    @property
    def wants_announcement(self) -> bool:
        return self._is_over and not self._batches[-1].announces

    @property
    def _is_over(self) -> bool:
        # Twice: else a large announcement would be followed by the next one at once.
        most_bytes = max(self._most_bytes, 2 * self._last_announcement_size)
        return len(self._batches) > self.most or self.bytes > most_bytes

    def since(self, sequence: int) -> list[tuple[int, bytes]]:
        """The batches from this number on, in order, with their numbers. Where it is gone: from the latest announcement
        on, which says the same in fewer."""
        if sequence >= self._first + len(self._batches):
            return []
        if sequence < self._first:
            sequence = self._announcements[-1]
        kept = islice(self._batches, sequence - self._first, None)
        return [(number, batch.payload) for number, batch in enumerate(kept, sequence)]
