"""The second level of the prefix cache: ids of prefixes in a Redis or Valkey server that several hosts share.

The contract is docs/prefix-cache-redis.md. A look-up is one round trip over a connection that is already open, and ends
at its time-out, whatever the server does; a server that failed is not asked for a while. Writes are done in the
background, in bounded number. Whatever fails is a miss that is counted, never an error. A server holds digests and ids,
never a text.
"""

from __future__ import annotations

import math
import os
import time
import weakref
from collections.abc import Sequence
from typing import Any

from toktier.cache.level import KEY_BYTES
from toktier.cache.second_level_connector import Connector
from toktier.cache.second_level_script import find
from toktier.cache.second_level_state import State
from toktier.cache.second_level_upkeep import Upkeep, word_of
from toktier.cache.second_level_values import is_storable, key_prefix, unpacked
from toktier.errors import ConfigInvalid
from toktier.sessions.redis_url import NAMESPACE

TIMEOUT_SECONDS = 0.02
TTL_SECONDS = 3600
PREFIX = "toktier"
MAX_PENDING_WRITES = 128
CLOSE_SECONDS = 1.0
DEEPEST, SHALLOWEST = 1008, 16  # keys of a look-up: 1 ms of the server's time; the last turns, and what all texts share


class RedisSecondLevel:
    """A `toktier.cache.level.SecondLevel`. For any number of threads; a forked child has connections of its own."""

    def __init__(
        self,
        url: str,
        *,
        timeout: float = TIMEOUT_SECONDS,
        ttl: int = TTL_SECONDS,
        prefix: str = PREFIX,
        max_pending_writes: int = MAX_PENDING_WRITES,
    ) -> None:
        """`timeout`: seconds that a look-up may take in all; `ttl`: seconds that a value lives; `prefix`: what begins
        every key, 1 to 64 letters, digits, and . _ : -; `max_pending_writes`: values that wait to be written, of
        32 MiB of ids together at most.

        Connects to nothing yet. Raises CONFIG_INVALID, and BACKEND_UNAVAILABLE without the extra `redis`.
        """
        given: tuple[tuple[str, object, tuple[type, ...]], ...] = (
            ("url", url, (str,)),
            ("timeout", timeout, (int, float)),
            ("ttl", ttl, (int,)),
            ("prefix", prefix, (str,)),
            ("max_pending_writes", max_pending_writes, (int,)),
        )
        for argument, value, kinds in given:
            if type(value) not in kinds:
                raise ConfigInvalid(
                    f"{argument} is of type {type(value).__name__}: expected {kinds[-1].__name__}",
                    details={"argument": argument},
                    remedy=f"leave {argument} out" if argument != "url" else "give a URL, as redis://host:6379/0",
                )
        if not (math.isfinite(timeout) and 0 < timeout <= 10):
            raise ConfigInvalid(f"timeout is {timeout}: expected more than 0 and at most 10 seconds")
        if not 1 <= ttl <= 31_536_000:
            raise ConfigInvalid(f"ttl is {ttl}: expected 1 to 31536000 seconds")
        if max_pending_writes < 1:
            raise ConfigInvalid(f"max_pending_writes is {max_pending_writes}: expected 1 or more")
        if NAMESPACE.fullmatch(prefix) is None:
            raise ConfigInvalid("the prefix of a second level is 1 to 64 letters, digits, and . _ : -")
        self._connector = Connector(url)
        self._timeout = timeout
        self._ttl = ttl
        self._key_prefix = key_prefix(prefix)
        self._max_pending_writes = max_pending_writes
        self._begin()
        _all.add(self)

    def _begin(self) -> None:
        self._state = State(self._timeout, self._max_pending_writes)
        self._upkeep = Upkeep(self._connector, self._state, self._key_prefix, self._ttl)
        # The thread has no reference to this object: one that nobody closed ends with it.
        self._end = weakref.finalize(self, self._state.close, 0.0)
        self._end.atexit = False

    def _renew(self) -> None:
        """In a forked child: locks may be held by threads that are not here, and an answer that is on its way to the
        parent's connections is the parent's."""
        state, upkeep = self._state, self._upkeep
        self._end.detach()
        self._begin()
        if state.closed:
            self._state.close(0.0)
        state.abandon()
        upkeep.abandon()

    def __repr__(self) -> str:
        return f"RedisSecondLevel({self._connector.where!r})"

    def lookup(self, keys: Sequence[bytes], /) -> tuple[int, bytes] | None:
        """Index and ids of the first of `keys` that is known: of the DEEPEST first ones and the SHALLOWEST last."""
        if not keys:
            return None
        begun = time.monotonic()
        gap = max(0, len(keys) - DEEPEST - SHALLOWEST)
        asked = [*keys[:DEEPEST], *keys[DEEPEST + gap :]] if gap else keys
        joined = b"".join(asked)
        if len(joined) != KEY_BYTES * len(asked):
            raise ValueError(f"a key has {KEY_BYTES} bytes")
        state = self._state
        try:
            found = self._found(state, asked, joined, begun + self._timeout)
        finally:
            with state.lock:
                state.counters.lookups += 1
                state.counters.lookup_seconds += time.monotonic() - begun
        if found is None:
            return None
        index, ids = found
        return (index if index < DEEPEST else index + gap), ids

    def store(self, key: bytes, ids: bytes, /) -> None:
        """Never waits: the value is written in the background, or dropped and counted."""
        state = self._state
        if not is_storable(key, ids):
            with state.lock:
                state.counters.refused_ids += 1
            return
        if self._has_begun():
            state.store(key, bytes(ids))

    def stats(self) -> dict[str, Any]:
        """Counts since it was made, in this process; docs/prefix-cache-redis.md says what each is."""
        state = self._state
        with state.lock:
            counters = {name: getattr(state.counters, name) for name in type(state.counters).__slots__}
            return {
                "server": self._connector.where,
                **counters,
                "dropped": state.pending.dropped,
                "pending": len(state.pending),
                "pending_bytes": state.pending.bytes,
                "connections": state.live,
                "paused": state.breaker.is_open,
                "pauses": state.breaker.opened,
                "last_failure": state.last_failure,
                "closed": state.closed,
            }

    def close(self) -> None:
        """Writes what is pending, for a second at most, and ends. Calls after it find nothing and keep nothing."""
        until = time.monotonic() + CLOSE_SECONDS
        self._end.detach()
        self._state.close(until)
        self._upkeep.end(until)

    def _has_begun(self) -> bool:
        try:
            self._upkeep.begin()
        except RuntimeError:  # the interpreter ends, or the process has no thread left
            return False
        return True

    def _found(self, state: State, asked: Sequence[bytes], joined: bytes, deadline: float) -> tuple[int, bytes] | None:
        if not self._has_begun():
            with state.lock:
                state.counters.errors += 1
            return None
        for last in (False, True):
            exchange = state.take(deadline)
            if exchange is None:
                return None
            answered = lost = False
            try:
                answer = find(exchange, self._key_prefix, joined, deadline)
                answered = True
            except OSError as error:
                # Lost, as after a restart, without having cost time: another connection may be good.
                lost = not isinstance(error, TimeoutError)
                if last or not lost:
                    self._failed(state, error)
                    return None
            except Exception as error:
                self._failed(state, error)
                return None
            finally:  # after a signal, too: an answer may be on its way, which the next question would take for its own
                if answered:
                    state.give(exchange)
                else:
                    state.drop(exchange, others=lost)
            if answered:
                return self._judged(state, asked, answer)
        raise AssertionError("unreachable")

    def _judged(
        self, state: State, asked: Sequence[bytes], answer: tuple[int, memoryview] | None
    ) -> tuple[int, bytes] | None:
        index, ids = 0, None
        if answer is not None and answer[0] < len(asked):
            index = answer[0]
            ids = unpacked(asked[index], answer[1])
            if ids is None:
                state.remove(asked[index])
        with state.lock:
            if ids is not None:
                state.counters.hits += 1
                return index, ids
            state.counters.misses += answer is None
            state.counters.damaged += answer is not None
        return None

    def _failed(self, state: State, error: Exception) -> None:
        with state.lock:
            if isinstance(error, TimeoutError):
                state.counters.timeouts += 1
            else:
                state.counters.errors += 1
        state.failed(word_of(error))


_all: weakref.WeakSet[RedisSecondLevel] = weakref.WeakSet()


def _in_child() -> None:
    for level in list(_all):
        level._renew()


os.register_at_fork(after_in_child=_in_child)
