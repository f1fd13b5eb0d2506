"""What requests and the background thread of a second level share, under one lock: connections, the breaker, writes.

A request takes a connection that is ready, or waits for one until its deadline; only the background thread opens them.
Nothing here asks a server, and nothing is done under the lock that could wait.
"""

from __future__ import annotations

import enum
import threading
import time
from dataclasses import dataclass
from typing import NamedTuple

from toktier.cache.second_level_breaker import Breaker
from toktier.cache.second_level_exchange import Exchange
from toktier.cache.second_level_writes import PendingWrites

MAX_CONNECTIONS = 8  # of look-ups; who finds them all busy waits, within the time-out


@dataclass(slots=True)
class Counters:
    lookups: int = 0
    hits: int = 0
    misses: int = 0  # answered: none of the keys is there
    not_asked: int = 0  # the server failed a moment ago
    timeouts: int = 0  # look-ups that waited for their whole time-out
    errors: int = 0  # look-ups that ended otherwise without an answer
    damaged: int = 0  # values that do not hold, or are none
    lookup_seconds: float = 0.0
    written: int = 0
    removed: int = 0
    write_errors: int = 0
    refused_ids: int = 0  # more than a value may have, or no ids at all


class Task(enum.Enum):
    OPEN = enum.auto()
    END = enum.auto()


class Write(NamedTuple):
    key: bytes
    ids: bytes | None  # None: remove what is there


class State:
    def __init__(self, timeout: float, max_pending_writes: int) -> None:
        """`timeout`: of a look-up, in seconds."""
        self.lock = threading.RLock()  # a finalizer can close it wherever the collector runs, here too
        self.breaker = Breaker(timeout)
        self.pending = PendingWrites(max_pending_writes)
        self.counters = Counters()
        self.last_failure: str | None = None
        self.live = 0  # connections of look-ups, ready or in use
        self.closed = False
        self._drain_until = 0.0
        self._ready: list[Exchange] = []
        self._waiting = 0
        self._has_work = threading.Condition(self.lock)
        self._is_ready = threading.Condition(self.lock)

    # What a request does.

    def take(self, deadline: float) -> Exchange | None:
        """A connection to ask once, for `give` or `drop` afterwards; None, counted: there is none in time."""
        with self.lock:
            while not (self.closed or self.breaker.is_open):
                if self._ready:
                    return self._ready.pop()
                left = deadline - time.monotonic()
                if left <= 0:
                    self.counters.timeouts += 1
                    if self.live == 0:  # otherwise others are served, or will fail by themselves
                        self._fail("TIMEOUT")
                    return None
                self._waiting += 1
                self._has_work.notify()
                try:
                    self._is_ready.wait(left)
                finally:
                    self._waiting -= 1
            self.counters.not_asked += 1
            return None

    def give(self, exchange: Exchange) -> None:
        """After an answer."""
        with self.lock:
            self.breaker.answered()
            if not self.closed:
                self._ready.append(exchange)
                self._is_ready.notify()
                return
            self.live -= 1
        exchange.close()

    def drop(self, exchange: Exchange, *, others: bool = False) -> None:
        """After none. `others`: those that are ready too, for a server that closed one has mostly closed all."""
        with self.lock:
            dropped = [exchange, *(self._ready if others else ())]
            if others:
                self._ready = []
            self.live -= len(dropped)
        for one in dropped:
            one.close()

    def failed(self, word: str) -> None:
        with self.lock:
            self._fail(word)

    def store(self, key: bytes, ids: bytes) -> None:
        with self.lock:
            if self.closed:
                self.pending.dropped += 1
                return
            self.pending.store(key, ids)
            self._has_work.notify()

    def remove(self, key: bytes) -> None:
        with self.lock:
            if not self.closed and self.pending.remove(key):
                self._has_work.notify()

    # What the background thread does.

    def next_task(self) -> Task | Write:
        """Waits for one. Connections come before writes, and a server that failed is only asked by a probe."""
        with self.lock:
            while True:
                now = time.monotonic()
                if self.closed:
                    if self.breaker.is_open or now >= self._drain_until:
                        self.pending.clear()
                    return Write(*self.pending.pop()) if self.pending else Task.END
                if self.breaker.is_open:
                    left = self.breaker.until_probe(now)
                    if left == 0:
                        return Task.OPEN
                    self._has_work.wait(left)
                elif self._waiting > len(self._ready) and self.live < MAX_CONNECTIONS:
                    return Task.OPEN
                elif self.pending:
                    return Write(*self.pending.pop())
                else:
                    self._has_work.wait()

    def opened(self, exchange: Exchange) -> None:
        with self.lock:
            self.breaker.probe_answered()
            if not self.closed and self.live < MAX_CONNECTIONS:
                self.live += 1
                self._ready.append(exchange)
                self._is_ready.notify()
                return
        exchange.close()

    def not_opened(self, word: str) -> None:
        with self.lock:
            self.last_failure = word
            self.breaker.probe_failed(time.monotonic())
            self._is_ready.notify_all()

    def close(self, drain_until: float) -> None:
        """What is pending may be written until then."""
        with self.lock:
            if self.closed:
                return
            self.closed = True
            self._drain_until = drain_until
            ready, self._ready = self._ready, []
            self.live -= len(ready)
            self._has_work.notify_all()
            self._is_ready.notify_all()
        for exchange in ready:
            exchange.close()

    def abandon(self) -> None:
        """In a forked child, for the state of the parent, whose lock may be held: closes what would stay open here.
        The parent's connections live on."""
        for exchange in self._ready:
            exchange.close()

    def _fail(self, word: str) -> None:
        self.last_failure = word
        self.breaker.failed(time.monotonic())
        self._is_ready.notify_all()
        self._has_work.notify()
