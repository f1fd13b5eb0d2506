"""The durable store of sessions, whose contract is docs/session-store.md: it keeps what it is given.

Not here: how a text is encoded and where it may be cut; whoever appends knows.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Literal

from toktier.errors import (
    InvalidText,
    InvalidToken,
    SessionNeedsText,
    SessionRevisionConflict,
    SessionStateMismatch,
    StoreCorrupt,
)
from toktier.labels import quoted
from toktier.sessions import chains, rows, upkeep
from toktier.sessions.database import Database, corrupt
from toktier.sessions.lookup import Counters, Lookup
from toktier.sessions.records import Append, CommitPoint, Finding, Prefix, SessionInfo, SessionState

BUDGET_BYTES = 256 << 20
TIMEOUT_SECONDS = 10.0
_Column = Literal["tokens", "text_bytes", "code_points"]


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
        with _guarded(self._database), self._database.snapshot() as connection:
            state = rows.find_named(connection, name)
        if state is None:
            with _guarded(self._database), self._database.writing() as connection:
                state = rows.find_named(connection, name) or rows.add_session(connection, name, fingerprint, keep_text)
        if state.fingerprint != fingerprint:
            raise SessionStateMismatch(
                f"the session {quoted(name)} is of a tokenizer with another fingerprint",
                details={"expected": fingerprint, "found": state.fingerprint},
                remedy="open it with the tokenizer that made it, or give another session name",
            )
        return StoredSession(self._database, state)

    def remember(self, fingerprint: str, appends: Sequence[Append]) -> int | None:
        """An anonymous session, for look-ups; gives its number, or None where it alone exceeds the budget.

        Each append is a point at which a look-up can end. Expected revisions are 0, 1, 2 …
        """
        with _guarded(self._database), self._database.writing() as connection:
            state = rows.add_session(connection, None, fingerprint, False)
            for append in appends:
                _expect(append, state.revision)
                state = _append(connection, state, (append,))
            if state.held > self.budget_bytes:
                rows.remove(connection, state.number)
                return None
            upkeep.evict(connection, self.budget_bytes, state.number)
        return state.number

    def longest_prefix(self, text: str | bytes, fingerprint: str) -> Prefix | None:
        """The longest stored prefix that ends at a commit point, verified over `text`; None: nothing, or a miss."""
        return self._lookup.longest_prefix(_encoded(text) if isinstance(text, str) else text, fingerprint)

    def evict(self, budget_bytes: int | None = None) -> list[int]:
        """Numbers of the anonymous sessions that went for the rest to fit."""
        with self._database.writing() as connection:
            return upkeep.evict(connection, self.budget_bytes if budget_bytes is None else budget_bytes)

    def compact(self) -> int:
        """Merges small rows and gives space back; gives the number of rows merged."""
        return upkeep.compact(self._database)

    def sessions(self) -> list[SessionInfo]:
        with self._database.reading() as connection:
            return rows.infos(connection)

    def show(self, name: str) -> SessionInfo | None:
        with self._database.snapshot() as connection:
            number = rows.number_of(connection, name)
            return None if number is None else next(iter(rows.infos(connection, number)), None)

    def remove(self, name: str) -> bool:
        """Also a damaged session. Whoever still has it open gets SESSION_REVISION_CONFLICT."""
        with self._database.writing() as connection:
            number = rows.number_of(connection, name)
            if number is not None:
                rows.remove(connection, number)
        return number is not None

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

    def append(self, *changes: Append) -> int:
        """The new revision: one, however many changes. Each but the last is there to end at a commit point of its own.

        Raises SESSION_REVISION_CONFLICT where somebody else wrote, and nothing is written.
        """
        with self._database.lock, self._writing() as connection:
            _expect(changes[0], self.state.revision)
            state = _append(connection, self.state, changes)
        self.state = state
        return state.revision

    def replace(self, point: CommitPoint, *changes: Append, before: bytes | None = None) -> int:
        """Drops all after `point` and appends, as one revision. `before`: committed text that ends at the point, at
        least its last 1,023 bytes; needed unless the point is the end, the beginning, or the text is kept."""
        with self._database.lock, self._writing() as connection:
            _expect(changes[0], self.state.revision)
            state = self.state
            if point.sequence < state.sequence:
                state = _cut(connection, state, point, before)
            elif (point.sequence, point.ids_digest) != (state.sequence, state.ids_digest):
                raise _foreign_point(state)
            state = _append(connection, state, changes)
        self.state = state
        return state.revision

    def refresh(self) -> SessionState:
        """The state as it is in the store now. Raises SESSION_REVISION_CONFLICT when the session is gone."""
        with self._database.lock, _guarded(self._database, self.state.number), self._database.snapshot() as connection:
            found = rows.find_number(connection, self.state.number)
            if found is None:
                raise _conflict(self.state.revision, None)
            self.state = found
            return found

    def last_point(self, column: _Column, at_most: int) -> CommitPoint:
        """The last commit point with at most so many tokens, bytes or code points; the beginning is one."""
        with self._reading() as (connection, state):
            return rows.point_at(connection, state, rows.last_at_most(connection, state, column, at_most))

    def ids(self) -> bytes:
        """All committed ids, little-endian uint32, proven by their chain."""
        with self._reading() as (connection, state):
            return rows.verified_ids(connection, state, state.sequence)

    def points(self) -> list[CommitPoint]:
        """All commit points but the beginning, proven by their chain."""
        with self._reading() as (connection, state):
            rows.verified_ids(connection, state, state.sequence)
            return rows.all_points(connection, state)

    def text(self) -> bytes:
        """All committed text. Raises SESSION_NEEDS_TEXT where none is kept."""
        if not self.state.keep_text:
            raise SessionNeedsText(
                "the session keeps no text",
                details={"session": self.state.number},
                remedy="present the text, or make sessions with keep_text=True",
            )
        with self._reading() as (connection, state):
            return rows.verified_text(connection, state)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[tuple[sqlite3.Connection, SessionState]]:
        """A snapshot in which the store is at the revision of this object; if not: a conflict, no mixture."""
        with self._database.lock, _guarded(self._database, self.state.number), self._database.snapshot() as connection:
            found = rows.found_revision(connection, self.state.number)
            if found != self.state.revision:
                raise _conflict(self.state.revision, found)
            yield connection, self.state

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with _guarded(self._database, self.state.number), self._database.writing() as connection:
            yield connection


@contextlib.contextmanager
def _guarded(database: Database, session: int | None = None) -> Iterator[None]:
    """Damage as STORE_CORRUPT, of that session where one is known."""
    try:
        yield
    except rows.Damage as damage:
        raise corrupt(database.path, str(damage), session) from None
    except StoreCorrupt as error:
        error.details["session"] = session
        raise


def _expect(change: Append, revision: int) -> None:
    if change.expected_revision != revision:
        raise _conflict(change.expected_revision, revision)


def _conflict(expected: int, found: int | None) -> SessionRevisionConflict:
    what = "is gone" if found is None else f"is at revision {found}"
    return SessionRevisionConflict(
        f"the session {what}: expected revision {expected}",
        details={"expected": expected, "found": found},
        remedy="open the session again, and apply the change to what it holds now",
    )


def _foreign_point(state: SessionState) -> SessionStateMismatch:
    return SessionStateMismatch(
        "the commit point is none of this session any more",
        details={"session": state.number},
        remedy="ask the session for its points again",
    )


def _append(connection: sqlite3.Connection, state: SessionState, changes: Sequence[Append]) -> SessionState:
    """Writes `changes` onto `state` as one revision; gives the state after it."""
    new, steps = state, []
    for change in changes:
        new, step = _appended(new, change)
        if step is not None:
            steps.append(step)
    new = replace(new, revision=state.revision + 1)
    if not rows.write_state(connection, new, state.revision):
        raise _conflict(state.revision, rows.found_revision(connection, state.number))
    for step in steps:
        rows.add_step(connection, state.number, step.point, step.ids, step.text)
        if step.marks:
            rows.add_blocks(connection, state.number, step.marks)
    return new


@dataclass(frozen=True, slots=True)
class _Step:
    point: CommitPoint
    ids: bytes
    text: bytes  # as it is stored
    marks: list[tuple[int, bytes]]


def _appended(state: SessionState, change: Append) -> tuple[SessionState, _Step | None]:
    """The state after `change`, the revision apart, and the row it adds."""
    code_points = _code_points(change.text)
    _code_points(change.tail_text)
    if len(change.ids) % 4 or len(change.tail_ids) % 4:
        raise InvalidToken("ids of an append are not whole: expected 4 bytes each")
    new = replace(state, tail_text=change.tail_text, tail_ids=change.tail_ids)
    if not change.ids and not change.text:
        return new, None
    stored = rows.deflated(change.text) if state.keep_text else b""
    before = chains.TextEnd(state.text_chain, state.open_text)
    end, marks = chains.extend_text(before, state.text_bytes // chains.BLOCK, change.text)
    tokens, size = state.tokens + len(change.ids) // 4, state.text_bytes + len(change.text)
    code_points += state.code_points
    text = chains.text_digest(end, tokens, size, code_points)
    ids = chains.ids_digest(state.ids_digest, text, change.ids)
    point = CommitPoint(state.sequence + 1, tokens, size, code_points, ids, end.chain, text)
    new = replace(
        new,
        sequence=point.sequence,
        tokens=tokens,
        text_bytes=size,
        code_points=code_points,
        ids_digest=ids,
        text_chain=end.chain,
        open_text=end.open_text,
        held=state.held + len(change.ids) + len(stored) + rows.ROW_BYTES + len(marks) * rows.BLOCK_BYTES,
    )
    return new, _Step(point, change.ids, stored, marks)


def _cut(connection: sqlite3.Connection, state: SessionState, point: CommitPoint, before: bytes | None) -> SessionState:
    """Drops the rows after `point`; gives the state there, which is not written yet."""
    found = rows.found_revision(connection, state.number)
    if found != state.revision:
        raise _conflict(state.revision, found)
    if rows.point_at(connection, state, point.sequence) != point:
        raise _foreign_point(state)
    rest = point.text_bytes % chains.BLOCK
    if not rest:
        open_text = b""
    elif before is not None and len(before) >= rest:
        open_text = before[len(before) - rest :]
    elif state.keep_text:
        after = rows.last_at_most(connection, state, "text_bytes", point.text_bytes - rest)
        open_text = rows.text_between(connection, state, after, point.sequence)[-rest:]
    else:
        raise SessionNeedsText(
            f"an edit before the end of the session needs the {rest} bytes of text before it",
            details={"session": state.number, "needed_bytes": rest},
            remedy="present the text, or make sessions with keep_text=True",
        )
    end = chains.TextEnd(point.text_chain, open_text)
    if chains.text_digest(end, point.tokens, point.text_bytes, point.code_points) != point.text_digest:
        if before is None:
            raise rows.Damage("the text digest of a step does not hold")
        raise SessionStateMismatch(
            "the text that was given is not what the session committed there",
            details={"session": state.number},
            remedy="present the text that was appended, or begin another session",
        )
    dropped = rows.cut_after(connection, state, point)
    return replace(
        state,
        sequence=point.sequence,
        tokens=point.tokens,
        text_bytes=point.text_bytes,
        code_points=point.code_points,
        ids_digest=point.ids_digest,
        text_chain=point.text_chain,
        open_text=open_text,
        held=max(0, state.held - dropped),
    )


def _code_points(text: bytes) -> int:
    try:
        return len(text.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise InvalidText(f"the text is no UTF-8 at byte {error.start}", details={"position": error.start}) from None


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidText(
            f"the text has a lone surrogate at code point {error.start}", details={"position": error.start}
        ) from None
