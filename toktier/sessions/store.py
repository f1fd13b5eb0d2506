"""The durable store of sessions, whose contract is docs/session-store.md: it keeps what it is given.

Not here: how a text is encoded and where it may be cut; whoever appends knows.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Literal, TypeVar

from toktier.errors import StoreCorrupt
from toktier.sessions import chains, changes, rows, upkeep
from toktier.sessions.database import Database, corrupt
from toktier.sessions.lookup import Lookup
from toktier.sessions.presented import Counters
from toktier.sessions.protocol import Column, Session, Store
from toktier.sessions.records import Append, CommitPoint, Finding, Prefix, SessionInfo, SessionState

_T = TypeVar("_T")
BUDGET_BYTES = 256 << 20
TIMEOUT_SECONDS = 10.0


class SessionStore:
    """A store in a directory, for any number of threads; several processes may have it open at once."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Literal["process", "full"] = "process",
        budget_bytes: int = BUDGET_BYTES,
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        """`budget_bytes` bounds the anonymous sessions; `timeout`: seconds to wait for other writers."""
        self.budget_bytes = budget_bytes
        self._database = Database(path, durability, timeout)
        self._lookup = Lookup(self._database)

    @property
    def counters(self) -> Counters:
        return self._lookup.counters

    def open(self, name: str, fingerprint: str, *, keep_text: bool = False) -> StoredSession:
        """The named session, made where there is none (`keep_text` is of that moment). Reads no history."""

        def made(connection: sqlite3.Connection) -> SessionState:
            return rows.find_named(connection, name) or rows.add_session(connection, name, fingerprint, keep_text)

        with _guarded(self._database):
            state = self._database.read(lambda connection: rows.find_named(connection, name))
            if state is None:
                state = self._database.write(made)
        changes.expect_fingerprint(state, name, fingerprint)
        return StoredSession(self._database, state)

    def remember(self, fingerprint: str, appends: Sequence[Append]) -> int | None:
        """An anonymous session, for look-ups; gives its number, or None where it alone exceeds the budget.

        Each append is a point at which a look-up can end. Expected revisions are 0, 1, 2 …
        """

        def remember(connection: sqlite3.Connection) -> int | None:
            state = rows.add_session(connection, None, fingerprint, False)
            for append in appends:
                changes.expect(append, state.revision)
                state = _append(connection, state, state, (append,))
            if state.held > self.budget_bytes:
                rows.remove(connection, state.number)
                return None
            upkeep.evict(connection, self.budget_bytes, state.number)
            return state.number

        with _guarded(self._database):
            return self._database.write(remember)

    def extend(self, prefix: Prefix, appends: Sequence[Append]) -> bool:
        """Adds to the anonymous session that ends where `prefix` does; False, and nothing is written, where the session
        is a named one, has grown or is gone. Expected revisions do not count."""

        def extend(connection: sqlite3.Connection) -> bool:
            state = rows.find_number(connection, prefix.session)
            if state is None or state.name is not None or state.ids_digest != prefix.ids_digest:
                return False
            state = _append(connection, state, state, appends)
            upkeep.evict(connection, self.budget_bytes, state.number)
            return True

        with _guarded(self._database):
            return self._database.write(extend)

    def longest_prefix(self, text: str | bytes, fingerprint: str) -> Prefix | None:
        """The longest stored prefix that ends at a commit point, verified over `text`; None: nothing, or a miss."""
        return self._lookup.longest_prefix(changes.encoded(text), fingerprint)

    def evict(self, budget_bytes: int | None = None) -> list[int]:
        """Numbers of the anonymous sessions that went for the rest to fit."""
        budget = self.budget_bytes if budget_bytes is None else budget_bytes
        with _guarded(self._database):
            return self._database.write(lambda connection: upkeep.evict(connection, budget))

    def compact(self) -> int:
        """Merges small rows and gives space back; gives the number of rows merged."""
        with _guarded(self._database):
            return upkeep.compact(self._database)

    def sessions(self) -> list[SessionInfo]:
        with self._database.reading() as connection:
            return rows.infos(connection)

    def show(self, name: str) -> SessionInfo | None:
        def show(connection: sqlite3.Connection) -> SessionInfo | None:
            number = rows.number_of(connection, name)
            return None if number is None else next(iter(rows.infos(connection, number)), None)

        return self._database.read(show)

    def remove(self, name: str) -> bool:
        """Also a damaged session. Whoever still has it open gets SESSION_REVISION_CONFLICT."""

        def remove(connection: sqlite3.Connection) -> bool:
            number = rows.number_of(connection, name)
            if number is not None:
                rows.remove(connection, number)
            return number is not None

        with _guarded(self._database):
            return self._database.write(remove)

    def verify(self, name: str | None = None) -> list[Finding]:
        """What does not hold: of one session, or of the whole store. Nothing of a name that is not there."""
        number = None
        if name is not None:
            with self._database.reading() as connection:
                number = rows.number_of(connection, name)
            if number is None:
                return []
        return upkeep.verify(self._database, number)

    @property
    def disk_bytes(self) -> int:
        return upkeep.size_of(self._database.path)

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> SessionStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class StoredSession:
    """A named session as this process last saw it. `state` is all that is held of it: no history."""

    def __init__(self, database: Database, state: SessionState) -> None:
        self._database = database
        self.state = state

    def append(self, *appends: Append) -> int:
        """The new revision: one, however many changes. Each but the last is there to end at a commit point of its own.

        Raises SESSION_REVISION_CONFLICT where somebody else wrote, and nothing is written.
        """

        def append(connection: sqlite3.Connection) -> SessionState:
            changes.expect(appends[0], self.state.revision)
            return _append(connection, self.state, self.state, appends)

        return self._write(append)

    def replace(self, point: CommitPoint, *appends: Append, before: bytes | None = None) -> int:
        """Drops all after `point` and appends, as one revision. `before`: committed text that ends at the point, at
        least its last 1,023 bytes; needed unless the point is the end, the beginning, or the text is kept."""

        def replace(connection: sqlite3.Connection) -> SessionState:
            changes.expect(appends[0], self.state.revision)
            state = self.state
            if point.sequence < state.sequence:
                state = _cut(connection, state, point, before)
            else:
                changes.expect_end(state, point)
            return _append(connection, self.state, state, appends)

        return self._write(replace)

    def refresh(self) -> SessionState:
        """The state as it is in the store now. Raises SESSION_REVISION_CONFLICT when the session is gone."""

        def found(connection: sqlite3.Connection) -> SessionState:
            state = rows.find_number(connection, self.state.number)
            # In a store that was restored, the number may be another session's by now.
            if state is None or not changes.is_same_session(state, self.state):
                raise changes.conflict(self.state.revision, None)
            return state

        with self._database.lock, _guarded(self._database, self.state.number):
            self.state = self._database.read(found)
            return self.state

    def last_point(self, column: Column, at_most: int) -> CommitPoint:
        """The last commit point with at most so many tokens, bytes or code points; the beginning is one."""
        return self._read(lambda c, state: rows.point_at(c, state, rows.last_at_most(c, state, column, at_most)))

    def ids(self) -> bytes:
        """All committed ids, little-endian uint32, proven by their chain."""
        return self._read(lambda connection, state: rows.verified_ids(connection, state, state.sequence))

    def points(self) -> list[CommitPoint]:
        """All commit points but the beginning, proven by their chain."""

        def points(connection: sqlite3.Connection, state: SessionState) -> list[CommitPoint]:
            rows.verified_ids(connection, state, state.sequence)
            return rows.all_points(connection, state)

        return self._read(points)

    def text(self) -> bytes:
        """All committed text. Raises SESSION_NEEDS_TEXT where none is kept."""
        changes.expect_kept_text(self.state)
        return self._read(rows.verified_text)

    def _read(self, look: Callable[[sqlite3.Connection, SessionState], _T]) -> _T:
        """`look` at one state of the store, in which the session is as this object read it; if not: a conflict, no
        mixture."""

        def found(connection: sqlite3.Connection) -> _T:
            rows.expect(connection, self.state)
            return look(connection, self.state)

        with self._database.lock, _guarded(self._database, self.state.number):
            return self._database.read(found)

    def _write(self, change: Callable[[sqlite3.Connection], SessionState]) -> int:
        with self._database.lock, _guarded(self._database, self.state.number):
            self.state = self._database.write(change)
            return self.state.revision


@contextlib.contextmanager
def _guarded(database: Database, session: int | None = None) -> Iterator[None]:
    """Damage as STORE_CORRUPT, of that session where one is known."""
    try:
        yield
    except chains.Damage as damage:
        raise corrupt(database.path, str(damage), session) from None
    except StoreCorrupt as error:
        error.details["session"] = session
        raise


def _append(
    connection: sqlite3.Connection, before: SessionState, state: SessionState, appends: Sequence[Append]
) -> SessionState:
    """Writes `appends` onto `state`, which is `before` or what was cut of it, as one revision; gives the state after
    it."""
    new, steps = changes.applied(state, appends, rows.COSTS)
    if not rows.write_state(connection, new, before):
        raise changes.conflict(state.revision, rows.found_revision(connection, state.number))
    for step in steps:
        rows.add_step(connection, state.number, step.point, step.ids, step.text)
        if step.marks:
            rows.add_blocks(connection, state.number, step.marks)
    return new


def _cut(connection: sqlite3.Connection, state: SessionState, point: CommitPoint, before: bytes | None) -> SessionState:
    """Drops the rows after `point`; gives the state there, which is not written yet."""
    rows.expect(connection, state)
    if rows.point_at(connection, state, point.sequence) != point:
        raise changes.foreign_point(state)

    def kept(size: int) -> bytes:
        after = rows.last_at_most(connection, state, "text_bytes", point.text_bytes - size)
        return rows.text_between(connection, state, after, point.sequence)[-size:]

    open_text = changes.open_text_at(state, point, before, kept)
    dropped = rows.cut_after(connection, state, point)
    return changes.cut(state, point, open_text, max(0, state.held - dropped))


if TYPE_CHECKING:
    _store: type[Store] = SessionStore
    _session: type[Session] = StoredSession
