"""The bound of a batcher: how many texts, and bytes of them, are unanswered, and the refusal of more.

A text counts from its acceptance to the moment when its answer is made, also when its caller has left meanwhile: as
long as it takes memory. The lock is the batcher's only one: queue and lanes change under it, too.
"""

from __future__ import annotations

import threading
from typing import Final

from toktier.errors import BatcherClosed, QueueFull
from toktier.serving.limits import Limits

IDLE_SECONDS: Final = 10.0  # after which a thread with nothing to do ends; the next text starts another


class Room:
    """Its methods are called with `lock` held."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        # The same thread may come again while it holds it: the garbage collector and handlers of signals run anywhere,
        # and what they call may cancel and ask. Whoever holds it is ready for that (batch_queue.py, lanes.py).
        self.lock = threading.RLock()
        self.texts = self.bytes = 0
        self.refused = 0
        self.is_closed = False

    def enter(self, texts: int, weight: int) -> None:
        """Raises QueueFull, BatcherClosed."""
        if self.is_closed:
            raise BatcherClosed("the batcher is closed")
        limits = self.limits
        if self.texts and (self.texts + texts > limits.queue_texts or self.bytes + weight > limits.queue_bytes):
            self.refused += texts
            raise QueueFull(
                f"{self.texts} texts of {self.bytes} bytes are unanswered: at most {limits.queue_texts} texts and "
                f"{limits.queue_bytes} bytes may be",
                details={
                    "texts": self.texts,
                    "bytes": self.bytes,
                    "queue_texts": limits.queue_texts,
                    "queue_bytes": limits.queue_bytes,
                },
            )
        self.texts += texts
        self.bytes += weight

    def leave(self, texts: int, weight: int) -> None:
        self.texts -= texts
        self.bytes -= weight

    def renew(self) -> None:
        """In a forked child: empty, and a lock that nobody holds."""
        self.lock = threading.RLock()
        self.texts = self.bytes = 0
