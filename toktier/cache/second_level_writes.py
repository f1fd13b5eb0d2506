"""What is still to be written to a second level: bounded in number and in bytes, the oldest go for the newest.

Knows no threads: whoever shares one has the lock.
"""

from __future__ import annotations

MAX_PENDING_BYTES = 32 << 20  # of ids


class PendingWrites:
    """`dropped` counts what was never written because there was no room."""

    def __init__(self, most: int, most_bytes: int = MAX_PENDING_BYTES) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._writes: dict[bytes, bytes | None] = {}  # in the order in which they came
        self.bytes = 0
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._writes)

    def store(self, key: bytes, ids: bytes) -> None:
        self._take_out(key)
        if len(ids) > self._most_bytes:
            self.dropped += 1
            return
        self._writes[key] = ids
        self.bytes += len(ids)
        while len(self._writes) > self._most or self.bytes > self._most_bytes:
            self._take_out(next(iter(self._writes)))
            self.dropped += 1

    def remove(self, key: bytes) -> bool:
        """Whether the removal is kept: it takes no room from what is to be stored, and what is to be stored under its
        key replaces the value anyway."""
        if key in self._writes or len(self._writes) >= self._most:
            return False
        self._writes[key] = None
        return True

    def pop(self) -> tuple[bytes, bytes | None]:
        """The oldest; None: its key is to be removed. Raises KeyError when empty."""
        for key in self._writes:
            return key, self._take_out(key)
        raise KeyError("nothing is to be written")

    def clear(self) -> None:
        self.dropped += len(self._writes)
        self._writes.clear()
        self.bytes = 0

    def _take_out(self, key: bytes) -> bytes | None:
        ids = self._writes.pop(key, None)
        self.bytes -= len(ids or b"")
        return ids
