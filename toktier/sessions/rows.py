"""Rows of a store: what is read and written inside a transaction that somebody else holds.

A damaged row raises `chains.Damage`.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable
from typing import Any

from toktier.sessions import chains, changes
from toktier.sessions.records import CommitPoint, SessionInfo, SessionState

LAST_SEQUENCE = 2**32 - 1
# Of a step: digests, counts, the row itself; of a mark: its entry and that of the index.
COSTS = changes.Costs(step=160, mark=24)

_STATE = (
    "s.number, s.name, s.fingerprint, s.keep_text, t.revision, t.sequence, t.tokens, t.text_bytes, t.code_points,"
    " t.ids_digest, t.text_chain, t.open_text, t.tail_text, t.tail_ids, t.held, t.seal"
)
_POINT = "number & 4294967295, tokens, text_bytes, code_points, ids_digest, text_chain, text_digest"


def base(session: int) -> int:
    if not 0 <= session < 2**31:
        raise chains.Damage("a session has a number that none has")
    return session << 32


def find_named(connection: sqlite3.Connection, name: str) -> SessionState | None:
    key = chains.name_key(chains.encoded_name(name))
    row = connection.execute(
        f"SELECT {_STATE} FROM session s JOIN state t ON t.number = s.number WHERE s.name_key = ?", (key,)
    ).fetchone()
    if row is None:
        orphan = connection.execute("SELECT number FROM session WHERE name_key = ?", (key,)).fetchone()
        if orphan is not None:
            raise chains.Damage("a session has no state row")
        return None
    state = _checked(row)
    if state.name != name:
        raise chains.Damage("a session has another name than its key")
    return state


def number_of(connection: sqlite3.Connection, name: str) -> int | None:
    """Without verification, so that a damaged session can be named, too."""
    key = chains.name_key(chains.encoded_name(name))
    row = connection.execute("SELECT number FROM session WHERE name_key = ?", (key,)).fetchone()
    return None if row is None else int(row[0])


def find_number(connection: sqlite3.Connection, session: int) -> SessionState | None:
    row = connection.execute(
        f"SELECT {_STATE} FROM session s JOIN state t ON t.number = s.number WHERE s.number = ?", (session,)
    ).fetchone()
    return None if row is None else _checked(row)


def _checked(row: tuple[Any, ...]) -> SessionState:
    """The state of a row whose types, seal and name hold."""
    *fields, seal = row
    try:
        name = fields[1]
        fields[1] = None if name is None else bytes(name).decode("utf-8", "surrogatepass")
        fields[3] = (False, True)[fields[3]]
        fields[-1] = _number(fields[-1])
        state = SessionState(*fields)
        if chains.seal(state) != seal:
            raise chains.Damage("the seal of a state row does not hold")
    except chains.Damage:
        raise
    except Exception:
        raise chains.Damage("a state row holds what no state is") from None
    return state


def add_session(connection: sqlite3.Connection, name: str | None, fingerprint: str, keep_text: bool) -> SessionState:
    now = time.time_ns()
    encoded = None if name is None else chains.encoded_name(name)
    key = None if encoded is None else chains.name_key(encoded)
    cursor = connection.execute(
        "INSERT INTO session (name, name_key, fingerprint, keep_text, created) VALUES (?, ?, ?, ?, ?)",
        (encoded, key, fingerprint, int(keep_text), now),
    )
    number = cursor.lastrowid
    assert number is not None
    state = changes.started(number, name, fingerprint, keep_text)
    connection.execute(
        "INSERT INTO state VALUES (?, 0, 0, 0, 0, 0, ?, ?, x'', x'', x'', ?, 0, ?)",
        (number, state.ids_digest, state.text_chain, chains.seal(state), now),
    )
    return state


def write_state(connection: sqlite3.Connection, state: SessionState, before: SessionState) -> bool:
    """False, and nothing written, where the row is not `before`: by its seal, for a store that was restored can come to
    the same revision by another history."""
    cursor = connection.execute(
        "UPDATE state SET revision = ?, sequence = ?, tokens = ?, text_bytes = ?, code_points = ?, ids_digest = ?,"
        " text_chain = ?, open_text = ?, tail_text = ?, tail_ids = ?, seal = ?, held = ?, last_use = ?"
        " WHERE number = ? AND revision = ? AND seal = ?",
        (
            *(state.revision, state.sequence, state.tokens, state.text_bytes, state.code_points, state.ids_digest),
            *(state.text_chain, state.open_text, state.tail_text, state.tail_ids, chains.seal(state), state.held),
            *(time.time_ns(), state.number, before.revision, chains.seal(before)),
        ),
    )
    return cursor.rowcount == 1


def found_revision(connection: sqlite3.Connection, session: int) -> int | None:
    row = connection.execute("SELECT revision FROM state WHERE number = ?", (session,)).fetchone()
    return None if row is None else _number(row[0])


def expect(connection: sqlite3.Connection, state: SessionState) -> None:
    """Raises SESSION_REVISION_CONFLICT unless the session is as it was read."""
    row = connection.execute("SELECT revision, seal FROM state WHERE number = ?", (state.number,)).fetchone()
    if row != (state.revision, chains.seal(state)):
        raise changes.conflict(state.revision, None if row is None else _number(row[0]))


def touch(connection: sqlite3.Connection, session: int) -> None:
    connection.execute("UPDATE state SET last_use = ? WHERE number = ?", (time.time_ns(), session))


def last_use(connection: sqlite3.Connection, session: int) -> int:
    row = connection.execute("SELECT last_use FROM state WHERE number = ?", (session,)).fetchone()
    return 0 if row is None else _number(row[0])


def _number(value: Any) -> int:
    """Of a column that no seal is over: a row may hold anything. 0 for what is no number."""
    return value if isinstance(value, int) else 0


def add_step(connection: sqlite3.Connection, session: int, point: CommitPoint, ids: bytes, text: bytes) -> None:
    if point.sequence > LAST_SEQUENCE:
        raise chains.Damage("the session has 2**32 steps, and no number for another")
    try:
        connection.execute(
            "INSERT INTO step VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(base(session) + point.sequence, point.tokens, point.text_bytes, point.code_points),
                *(point.ids_digest, point.text_chain, point.text_digest, ids, text),
            ),
        )
    except sqlite3.IntegrityError:
        raise chains.Damage("a step is already there") from None


def add_blocks(connection: sqlite3.Connection, session: int, marks: Iterable[tuple[int, bytes]]) -> None:
    """An entry that is already there can only be a leftover: it goes."""
    connection.executemany(
        "INSERT OR REPLACE INTO block VALUES (?, ?)",
        [(base(session) + number, chains.mark_key(chain)) for number, chain in marks],
    )


def point_at(connection: sqlite3.Connection, state: SessionState, sequence: int) -> CommitPoint:
    if sequence == 0:
        return chains.start(state.fingerprint)
    row = connection.execute(f"SELECT {_POINT} FROM step WHERE number = ?", (base(state.number) + sequence,)).fetchone()
    if row is None:
        raise chains.Damage("a step is missing")
    return _point(row)


def _point(row: tuple[Any, ...]) -> CommitPoint:
    if [type(v) for v in row] != [int, int, int, int, bytes, bytes, bytes] or min(row[:4]) < 0:
        raise chains.Damage("a step holds what no step is")
    return CommitPoint(*row)


def all_points(connection: sqlite3.Connection, state: SessionState) -> list[CommitPoint]:
    """Those after the beginning, in order, without a gap."""
    rows = connection.execute(
        f"SELECT {_POINT} FROM step WHERE number > ? AND number <= ? ORDER BY number",
        (base(state.number), base(state.number) + LAST_SEQUENCE),
    ).fetchall()
    points = [_point(row) for row in rows]
    if [p.sequence for p in points] != list(range(1, state.sequence + 1)):
        raise chains.Damage("steps are missing, or more than there should be")
    return points


def last_at_most(connection: sqlite3.Connection, state: SessionState, column: str, value: int) -> int:
    """Sequence of the last point whose `column` (tokens, text_bytes, code_points) is at most `value`; 0: none is."""
    low, high = 0, state.sequence
    while low < high:
        middle = (low + high + 1) // 2
        row = connection.execute(
            f"SELECT {column} FROM step WHERE number = ?", (base(state.number) + middle,)
        ).fetchone()
        if row is None or not isinstance(row[0], int):
            raise chains.Damage("a step is missing")
        low, high = (middle, high) if row[0] <= value else (low, middle - 1)
    return low


def ids_between(connection: sqlite3.Connection, state: SessionState, after: int, sequence: int) -> bytes:
    """Ids of the steps after the point `after` up to `sequence`: not verified, but as many as there should be."""
    return _between(connection, state, after, sequence, "tokens", 4)


def text_between(connection: sqlite3.Connection, state: SessionState, after: int, sequence: int) -> bytes:
    """The same of a kept text."""
    return _between(connection, state, after, sequence, "text_bytes", 1)


def _between(
    connection: sqlite3.Connection, state: SessionState, after: int, sequence: int, counted: str, width: int
) -> bytes:
    """Rows may hold what earlier ones committed, so reading begins before `after` and ends behind `sequence`."""
    start, end = (getattr(point_at(connection, state, s), counted) for s in (after, sequence))
    if start == end:
        return b""
    column = "ids" if counted == "tokens" else "text"
    cursor = connection.execute(
        f"SELECT {counted}, {column} FROM step WHERE number > ? AND number <= ? AND length({column}) > 0"
        " ORDER BY number",
        (base(state.number) + after, base(state.number) + state.sequence),
    )
    parts: list[bytes] = []
    position: int | None = None
    for total, stored in cursor:
        data = changes.inflated(stored) if column == "text" else stored
        if not isinstance(data, bytes) or len(data) % width or not isinstance(total, int):
            raise chains.Damage("a step holds what no step is")
        begin = total - len(data) // width
        if position is None:
            if begin > start:
                break
            data, position = data[(start - begin) * width :], total
        elif begin != position:
            break
        else:
            position = total
        parts.append(data)
        if total >= end:
            whole = b"".join(parts) if len(parts) > 1 else parts[0]
            return whole if total == end else whole[: (end - start) * width]
    raise chains.Damage(f"the {column} of a session are not all there")


def verified_ids(connection: sqlite3.Connection, state: SessionState, sequence: int) -> bytes:
    """All ids up to a point, proven by the chain of their appends; up to the end: by the state row, too.

    Plain rows, no records: a session has thousands of steps.
    """
    steps = connection.execute(
        "SELECT tokens, text_digest, ids_digest, ids FROM step WHERE number > ? AND number <= ? ORDER BY number",
        (base(state.number), base(state.number) + sequence),
    ).fetchall()
    try:
        ids = b"".join([step[3] for step in steps])
        if steps and len(ids) != 4 * steps[-1][0]:  # a row behind the last one holds its ids
            ids = ids_between(connection, state, 0, sequence)
        chains.prove_ids(state.fingerprint, [step[:3] for step in steps], ids)
    except TypeError:
        raise chains.Damage("a step holds what no step is") from None
    if len(steps) != sequence:
        raise chains.Damage("a step is missing")
    if sequence == state.sequence:
        chains.prove_last(state, point_at(connection, state, sequence))
    return ids


def verified_text(connection: sqlite3.Connection, state: SessionState) -> bytes:
    """The committed text of a session that keeps it, proven by the chain in the state row."""
    text = text_between(connection, state, 0, state.sequence)
    chains.prove_text(state, text)
    return text


def cut_after(connection: sqlite3.Connection, state: SessionState, point: CommitPoint) -> int:
    """Drops all after a point; gives the bytes that were held by it. What a later row held for earlier ones stays."""
    low, high = base(state.number) + point.sequence, base(state.number) + LAST_SEQUENCE
    carrier = connection.execute(
        "SELECT tokens, text_bytes, ids, text FROM step WHERE number > ? AND number <= ?"
        " AND (length(ids) > 0 OR length(text) > 0) ORDER BY number LIMIT 1",
        (low, high),
    ).fetchone()
    dropped = connection.execute(
        f"SELECT ifnull(sum(length(ids) + length(text) + {COSTS.step}), 0) FROM step WHERE number > ? AND number <= ?",
        (low, high),
    ).fetchone()[0]
    connection.execute("DELETE FROM step WHERE number > ? AND number <= ?", (low, high))
    whole_marks = base(state.number) + point.text_bytes // chains.MARK
    gone = connection.execute("DELETE FROM block WHERE number > ? AND number <= ?", (whole_marks, high)).rowcount
    if carrier is not None and point.sequence:
        tokens, size, ids, stored = carrier
        text = changes.inflated(stored) if stored else b""
        kept_ids = ids[: max(0, 4 * point.tokens - (4 * tokens - len(ids)))]
        kept_text = changes.deflated(text[: max(0, point.text_bytes - (size - len(text)))])
        for column, kept in (("ids", kept_ids), ("text", kept_text)):
            if kept:  # what a later row held, and so the row of the point holds nothing itself
                connection.execute(f"UPDATE step SET {column} = ? WHERE number = ?", (kept, low))
                dropped -= len(kept)
    return int(dropped) + gone * COSTS.mark


def remove(connection: sqlite3.Connection, session: int) -> None:
    low, high = base(session), base(session) + LAST_SEQUENCE
    for table in ("step", "block"):
        connection.execute(f"DELETE FROM {table} WHERE number >= ? AND number <= ?", (low, high))
    connection.execute("DELETE FROM state WHERE number = ?", (session,))
    connection.execute("DELETE FROM session WHERE number = ?", (session,))


def infos(connection: sqlite3.Connection, session: int | None = None) -> list[SessionInfo]:
    """Without verification: what is listed must be listable when it is damaged."""
    rows = connection.execute(
        "SELECT s.number, s.name, s.fingerprint, s.keep_text, t.revision, t.sequence, t.tokens, t.text_bytes,"
        " t.code_points, length(t.tail_text), length(t.tail_ids) / 4, t.held, t.last_use FROM session s JOIN state t"
        " ON t.number = s.number WHERE ?1 IS NULL OR s.number = ?1 ORDER BY s.number",
        (session,),
    ).fetchall()
    return [_info(row) for row in rows]


def _info(row: tuple[Any, ...]) -> SessionInfo:
    number, name, fingerprint, keep_text, *counts, used = row
    shown = None
    if name is not None:
        try:
            shown = name.decode("utf-8", "surrogatepass")
        except (UnicodeError, AttributeError):
            shown = str(name)
    counts = [_number(count) for count in counts]
    return SessionInfo(*(number, shown, str(fingerprint), bool(keep_text), *counts, _number(used) / 1e9))
