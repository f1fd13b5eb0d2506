"""The longest stored prefix of a text: found by keys of the text chain, believed only after verification.

A session that holds a mark of a text holds all marks before it, so the longest is found by doubling and halving. Its
points near that mark are then compared over the presented text itself, and its ids by their chain. What fails is a miss
that is counted, never an error.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from typing import NamedTuple

from toktier.errors import ToktierError
from toktier.sessions import chains, rows
from toktier.sessions.database import Database
from toktier.sessions.presented import CANDIDATES, Counters, Presented
from toktier.sessions.records import CommitPoint, Prefix, SessionState

TOUCH_NANOSECONDS = 1_000_000_000  # a hit is a write only where the last use lies further back


class _Found(NamedTuple):
    state: SessionState
    point: CommitPoint


class Lookup:
    def __init__(self, database: Database) -> None:
        self._database = database
        self.counters = Counters()

    def longest_prefix(self, text: bytes, fingerprint: str) -> Prefix | None:
        """None where nothing of 4 KiB and more is stored, and where the store cannot be read."""
        self.counters.lookups += 1
        damaged: set[int] = set()
        found: Prefix | None = None
        try:
            presented = Presented(text, fingerprint)
            found = self._database.read(lambda connection: self._find(connection, presented, fingerprint, damaged))
        except (ToktierError, chains.Damage):
            self.counters.failed_checks += 1
        self.counters.failed_checks += len(damaged)
        for session in damaged:
            self._drop(session)
        if found is None:
            self.counters.misses += 1
            return None
        self.counters.hits += 1
        self._touch(found.session)
        return found

    def _find(
        self, connection: sqlite3.Connection, text: Presented, fingerprint: str, damaged: set[int]
    ) -> Prefix | None:
        seen: set[int] = set()
        found: list[_Found] = []
        for mark in range(_longest_mark(connection, text), 0, -1):
            # Whoever comes with this mark and not with the next shares less than the next mark's text.
            if len(seen) >= CANDIDATES or any(f.point.text_bytes >= (mark + 1) * chains.MARK for f in found):
                break
            for session in _sessions_with(connection, text, mark, seen):
                seen.add(session)
                try:
                    candidate = _last_point(connection, text, session, mark, fingerprint)
                except chains.Damage:
                    damaged.add(session)
                    continue
                if candidate is not None:
                    found.append(candidate)
        for best in sorted(found, key=lambda f: -f.point.text_bytes):
            try:
                ids = rows.verified_ids(connection, best.state, best.point.sequence)
            except chains.Damage:
                damaged.add(best.state.number)
                continue
            point = best.point
            return Prefix(best.state.number, point.tokens, point.text_bytes, point.code_points, ids, point.ids_digest)
        return None

    def _drop(self, session: int) -> None:
        """A damaged anonymous entry is of no use to anybody; named ones are left for their owner to see."""

        def drop(connection: sqlite3.Connection) -> None:
            named = connection.execute("SELECT name IS NOT NULL FROM session WHERE number = ?", (session,)).fetchone()
            if named is None or not named[0]:
                rows.remove(connection, session)

        with contextlib.suppress(ToktierError, chains.Damage):
            self._database.write(drop)

    def _touch(self, session: int) -> None:
        """Best effort: an entry used a moment ago is not older for it."""
        with contextlib.suppress(ToktierError, chains.Damage):
            with self._database.reading() as connection:
                if time.time_ns() - rows.last_use(connection, session) < TOUCH_NANOSECONDS:
                    return
            self._database.write(lambda connection: rows.touch(connection, session))


def _longest_mark(connection: sqlite3.Connection, text: Presented) -> int:
    """Number of the last mark of the text that some session has; 0: none."""

    def stored(mark: int) -> bool:
        key = chains.mark_key(text.mark(mark))
        return connection.execute("SELECT 1 FROM block WHERE key = ? LIMIT 1", (key,)).fetchone() is not None

    low, step = 0, 1  # doubling: a text is hashed at most twice as far as it is known
    while low + step <= text.marks and stored(low + step):
        low, step = low + step, 2 * step
    high = min(low + step - 1, text.marks)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if stored(middle) else (low, middle - 1)
    return low


def _sessions_with(connection: sqlite3.Connection, text: Presented, mark: int, seen: set[int]) -> list[int]:
    key = chains.mark_key(text.mark(mark))
    cursor = connection.execute("SELECT number FROM block WHERE key = ? ORDER BY number DESC", (key,))
    sessions: list[int] = []
    for (number,) in cursor:
        if number & rows.LAST_SEQUENCE == mark and number >> 32 not in seen:
            sessions.append(number >> 32)
            if len(seen) + len(sessions) >= CANDIDATES:
                break
    return sessions


def _last_point(
    connection: sqlite3.Connection, text: Presented, session: int, mark: int, fingerprint: str
) -> _Found | None:
    """The last point of a session that is one of the text. None: its only ones are past what it shares."""
    state = rows.find_number(connection, session)
    if state is None or state.text_bytes < mark * chains.MARK:
        raise chains.Damage("an entry of the look-up is of no session")
    if state.fingerprint != fingerprint:
        return None
    most = min(len(text.text), (mark + 1) * chains.MARK)
    sequence = rows.last_at_most(connection, state, "text_bytes", most)
    while sequence > 0:
        point = rows.point_at(connection, state, sequence)
        if text.holds(point):
            return _Found(state, point)
        if point.text_bytes <= mark * chains.MARK:  # it shares this much, or so its mark says
            raise chains.Damage("a point does not hold over the presented text")
        sequence -= 1
    return None
