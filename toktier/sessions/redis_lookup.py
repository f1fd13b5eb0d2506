"""The longest stored prefix of a text in a Redis store: found by its marks, believed only after verification.

The server finds the last mark that is held and by whom, in one round trip; each candidate says its points near it in
another; ids are read of the best one alone. What fails is a miss that is counted, never an error, and a server that is
away is not asked again for a while: a look-up is there to save time.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from toktier.errors import BackendUnavailable, SessionRevisionConflict, StoreFormatUnsupported, ToktierError
from toktier.sessions.chains import MARK, Damage
from toktier.sessions.presented import CANDIDATES, Counters, Presented
from toktier.sessions.records import CommitPoint, Prefix
from toktier.sessions.redis_scripts import DONE, FIND, HOLDERS, LOCATE, TOUCH
from toktier.sessions.redis_sessions import Sessions, located
from toktier.sessions.redis_upkeep import Upkeep
from toktier.sessions.redis_values import (
    IDENTITY_BYTES,
    LAST_USE_AT,
    Held,
    entry,
    mark_key,
    proven_ids,
    session_of,
    unpacked,
    unpacked_heads,
)

TOUCH_NANOSECONDS = 1_000_000_000  # a hit is a write only where the last use lies further back
PAUSE_TIMEOUTS = 10  # a server that hangs costs a look-up its timeout: one in so many
MARKS = 64  # presented at first, a quarter of a megabyte; then twice as many each time
POINTS = 8  # of a candidate, asked for at once: more where it has many in one mark


@dataclass(frozen=True, slots=True)
class _Found:
    one: Held
    point: CommitPoint


class RedisLookup:
    def __init__(self, sessions: Sessions, upkeep: Upkeep) -> None:
        self._sessions = sessions
        self._server = sessions.server
        self._keys = sessions.keys
        self._upkeep = upkeep
        self._paused_until = 0.0
        self.counters = Counters()

    def longest_prefix(self, text: bytes, fingerprint: str) -> Prefix | None:
        """None where nothing of 4 KiB and more is stored, and where the store cannot be asked."""
        self.counters.lookups += 1
        search = _Search(self._sessions, Presented(text, fingerprint), fingerprint)
        found: _Hit | None = None
        try:
            with self.unless_paused():
                found = search.find()
        except Damage:
            self.counters.failed_checks += 1
        except ToktierError:
            self.counters.unavailable += 1
        self.counters.failed_checks += len(search.damaged)
        for session in search.damaged:
            self._drop(session)
        if found is None:
            self.counters.misses += 1
            return None
        self.counters.hits += 1
        self._touch(found.one)
        point = found.point
        number = found.one.state.number
        return Prefix(number, point.tokens, point.text_bytes, point.code_points, found.ids, point.ids_digest)

    @contextlib.contextmanager
    def unless_paused(self) -> Iterator[None]:
        """For what only saves time, look-ups and what they are to find: BACKEND_UNAVAILABLE without asking where the
        server did not answer such a question a moment ago."""
        if time.monotonic() < self._paused_until:
            raise BackendUnavailable(
                f"the store {self._server.where} did not answer a moment ago, and is not asked for a while",
                details={"server": self._server.where, "refusal": "PAUSED", "timeout_s": self._server.timeout},
                remedy="look after the server",
            )
        try:
            yield
        except BackendUnavailable:
            self._paused_until = time.monotonic() + PAUSE_TIMEOUTS * self._server.timeout
            raise

    def _drop(self, session: bytes) -> None:
        """A damaged anonymous entry is of no use to anybody; named ones are left for their owner to see."""
        if session[:1] == b"a":
            with contextlib.suppress(ToktierError, Damage):
                self._upkeep.forget([session[1:]])

    def _touch(self, one: Held) -> None:
        """Best effort: an entry used a moment ago is not older for it."""
        now = time.time_ns()
        if now - one.last_use < TOUCH_NANOSECONDS:
            return
        session = session_of(one.state)
        with contextlib.suppress(ToktierError, Damage):
            self._server.run(
                TOUCH, (self._keys.state(session),), one.head[:IDENTITY_BYTES], LAST_USE_AT, now.to_bytes(8, "little")
            )
            if session[:1] == b"a":
                self._server.call("ZADD", self._keys.uses, "XX", now, session[1:])


@dataclass(frozen=True, slots=True)
class _Hit:
    one: Held
    point: CommitPoint
    ids: bytes


class _Search:
    """One look-up. `damaged` holds the sessions that failed a check."""

    def __init__(self, sessions: Sessions, text: Presented, fingerprint: str) -> None:
        self._sessions = sessions
        self._server = sessions.server
        self._keys = sessions.keys
        self._text = text
        self._fingerprint = fingerprint
        self._holders: dict[int, list[bytes]] = {}
        self.damaged: set[bytes] = set()

    def find(self) -> _Hit | None:
        seen: set[bytes] = set()
        tries = 0
        found: list[_Found] = []
        for mark in range(self._longest_mark(), 0, -1):
            # Whoever comes with this mark and not with the next shares less than the next mark's text.
            if tries >= CANDIDATES or any(f.point.text_bytes >= (mark + 1) * MARK for f in found):
                break
            sessions = [s for s in self._holders_of(mark) if s not in seen][: CANDIDATES - tries]
            tries += len(sessions)
            points, stale = self._last_points(sessions, mark)
            seen.update(set(sessions) - stale)  # a stale entry goes, and the session may hold a mark before it
            found += points
        for best in sorted(found, key=lambda f: -f.point.text_bytes):
            try:
                steps = self._sessions.steps(best.one, 0, best.point.sequence)
                return _Hit(best.one, best.point, proven_ids(best.one.state, steps))
            except SessionRevisionConflict:
                continue  # edited in this moment
            except Damage:
                self.damaged.add(session_of(best.one.state))
        return None

    def _longest_mark(self) -> int:
        """Number of the last mark of the text that some session has; 0: none."""
        longest, first, size = 0, 1, MARKS
        while first <= self._text.marks:
            last = min(first + size - 1, self._text.marks)
            chains = [mark_key(self._text.mark(mark)) for mark in range(first, last + 1)]
            found, *holders = self._server.run(FIND, (self._entries(),), first, CANDIDATES, *chains)
            if not found:
                break
            longest = found
            self._note(range(max(first, found - 3), found + 1), holders)
            if found < last:
                break
            first, size = last + 1, 2 * size
        return longest

    def _holders_of(self, mark: int) -> list[bytes]:
        if mark not in self._holders:
            marks = range(max(1, mark - MARKS + 1), mark + 1)
            asked = [part for m in reversed(marks) for part in (m, mark_key(self._text.mark(m)))]
            self._note(marks, self._server.run(HOLDERS, (self._entries(),), CANDIDATES, *asked))
        return self._holders[mark]

    def _note(self, marks: range, pairs: Sequence[Any]) -> None:
        self._holders = {mark: [] for mark in marks}
        for mark, session in zip(pairs[::2], pairs[1::2], strict=True):
            self._holders[mark].append(session)

    def _entries(self) -> str:
        return self._keys.entries(mark_key(self._text.mark(1)))

    def _last_points(self, sessions: Sequence[bytes], mark: int) -> tuple[list[_Found], set[bytes]]:
        """Of each session its last point that is one of the text, where it has one; and whose entries were stale."""
        if not sessions:
            return [], set()
        most = min(len(self._text.text), (mark + 1) * MARK)
        asked = (b"", *located("text_bytes", most, POINTS))
        calls = [((self._keys.state(s), self._keys.steps(s)), asked) for s in sessions]
        found: list[_Found] = []
        stale: set[bytes] = set()
        for session, answer in zip(sessions, self._server.run_many(LOCATE, calls), strict=True):
            try:
                candidate = self._last_point(session, mark, answer)
            except SessionRevisionConflict:
                continue
            except (Damage, StoreFormatUnsupported):
                if self._is_damaged(session, mark):
                    self.damaged.add(session)
                else:
                    stale.add(session)
                continue
            if candidate is not None:
                found.append(candidate)
        return found, stale

    def _last_point(self, session: bytes, mark: int, answer: Any) -> _Found | None:
        if isinstance(answer, Damage):
            raise answer
        code, *rest = answer
        if code != DONE or rest[0] is None:
            raise Damage("an entry of the look-up is of no session")
        value, steps, sequence, heads = rest
        one = unpacked(value, self._server.where)
        state = one.state
        if session_of(state) != session or steps != state.sequence or state.text_bytes < mark * MARK:
            raise Damage("an entry of the look-up is of another session")
        if state.fingerprint != self._fingerprint:
            return None
        while sequence > 0:
            points = unpacked_heads(heads, sequence)
            if not points:
                raise Damage("a step is missing")
            for point, _ in points:
                if self._text.holds(point):
                    return _Found(one, point)
                if point.text_bytes <= mark * MARK:  # it shares this much, or so its mark says
                    raise Damage("a point does not hold over the presented text")
            sequence -= len(points)
            if sequence > 0:
                heads = self._earlier(one, sequence)
        return None

    def _earlier(self, one: Held, sequence: int) -> bytes:
        session = session_of(one.state)
        keys = (self._keys.state(session), self._keys.steps(session))
        code, *rest = self._server.run(LOCATE, keys, one.head, *located("sequence", sequence, 16 * POINTS))
        if code != DONE:
            raise self._sessions.conflict_of(one.state, rest[0])
        heads: bytes = rest[3]
        return heads

    def _is_damaged(self, session: bytes, mark: int) -> bool:
        """Whether a session that failed holds the mark at all. If not, it went or was edited since: the entry goes."""
        key = mark_key(self._text.mark(mark))
        (held,) = self._server.many([("LINDEX", self._keys.marks(session), mark - 1)])
        if held == key or isinstance(held, Damage):
            return True
        self._server.call("ZREM", self._entries(), entry(mark, key, session))
        return False
