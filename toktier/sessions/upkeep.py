"""What keeps a store small and shows that it is whole: eviction, compaction, verification."""

from __future__ import annotations

import sqlite3
from functools import partial
from pathlib import Path
from typing import Any

from toktier.sessions import chains, changes, rows
from toktier.sessions.database import Database
from toktier.sessions.records import CommitPoint, Finding, SessionState

CHUNK_BYTES = 64 << 10  # of ids, or of text, in a merged row


def evict(connection: sqlite3.Connection, budget_bytes: int, spared: int | None = None) -> list[int]:
    """Removes the least recently used anonymous sessions until the rest fits; gives their numbers. Named ones stay."""
    entries = connection.execute(
        "SELECT t.number, CASE typeof(t.held) WHEN 'integer' THEN t.held ELSE 0 END FROM session s"
        " JOIN state t ON t.number = s.number WHERE s.name_key IS NULL"
        " ORDER BY t.last_use, t.number"
    ).fetchall()
    total = sum(held for _, held in entries)
    gone: list[int] = []
    for number, held in entries:
        if total <= budget_bytes:
            break
        if number != spared:
            rows.remove(connection, number)
            total -= held
            gone.append(number)
    return gone


def compact(database: Database) -> int:
    """Merges small rows, a session at a time, and gives free pages back; gives the number of rows merged.

    Only where ids and text lie changes: no point, digest, revision or answer does.
    """
    with database.reading() as connection:
        numbers = [number for (number,) in connection.execute("SELECT number FROM state ORDER BY number")]
    merged = 0
    for number in numbers:
        merged += database.write(partial(_merge, session=number))
    with database.reading() as connection:
        connection.executescript("PRAGMA incremental_vacuum")  # execute would free one page: it makes one step
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return merged


def _merge(connection: sqlite3.Connection, session: int) -> int:
    cursor = connection.execute(
        "SELECT number, length(ids), length(text) FROM step WHERE number > ? AND number <= ?"
        " AND (length(ids) > 0 OR length(text) > 0) ORDER BY number",
        (rows.base(session), rows.base(session) + rows.LAST_SEQUENCE),
    )
    groups: list[list[int]] = [[]]
    size = 0
    for number, ids, text in cursor:
        if max(ids, text) >= CHUNK_BYTES // 2:
            groups.append([])
            size = 0
            continue
        groups[-1].append(number)
        size += max(ids, 4 * text)  # texts deflate to a quarter or so
        if size >= CHUNK_BYTES:
            groups.append([])
            size = 0
    merged = 0
    for group in groups:
        if len(group) > 1:
            _merge_group(connection, group)
            merged += len(group)
    return merged


def _merge_group(connection: sqlite3.Connection, group: list[int]) -> None:
    span = (group[0], group[-1])
    parts = connection.execute(
        "SELECT ids, text FROM step WHERE number BETWEEN ? AND ? ORDER BY number", span
    ).fetchall()
    if not all(isinstance(part, bytes) for row in parts for part in row):
        return  # left as it is, for whoever reads it to find
    ids = b"".join(part for part, _ in parts)
    try:
        text = changes.deflated(b"".join(changes.inflated(stored) for _, stored in parts if stored))
    except chains.Damage:
        return
    connection.execute("UPDATE step SET ids = x'', text = x'' WHERE number BETWEEN ? AND ?", span)
    connection.execute("UPDATE step SET ids = ?, text = ? WHERE number = ?", (ids, text, group[-1]))


def verify(database: Database, session: int | None = None) -> list[Finding]:
    """All that does not hold, of one session or of the store; it reads everything and changes nothing."""
    return database.read(lambda connection: _verify(connection, session))


def _verify(connection: sqlite3.Connection, session: int | None) -> list[Finding]:
    findings: list[Finding] = []
    if session is None:
        findings += _whole(connection)
        numbers = [number for (number,) in connection.execute("SELECT number FROM session ORDER BY number")]
    else:
        numbers = [session]
    for number in numbers:
        try:
            _verify_session(connection, number)
        except chains.Damage as damage:
            findings.append(Finding(number, str(damage)))
        except sqlite3.DatabaseError as error:
            findings.append(Finding(number, f"SQLite says {getattr(error, 'sqlite_errorname', 'error')}"))
    return findings


def _whole(connection: sqlite3.Connection) -> list[Finding]:
    findings: list[Finding] = []
    try:
        if connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
            findings.append(Finding(None, "SQLite's own check fails"))
        for table in ("step", "block", "state"):
            number = "number" if table == "state" else "number >> 32"
            query = f"SELECT count(*) FROM {table} WHERE {number} NOT IN (SELECT number FROM session)"
            count = connection.execute(query).fetchone()[0]
            if count:
                findings.append(Finding(None, f"{count:,} rows of {table} are of no session"))
    except sqlite3.DatabaseError as error:
        findings.append(Finding(None, f"SQLite says {getattr(error, 'sqlite_errorname', 'error')}"))
    return findings


def _verify_session(connection: sqlite3.Connection, session: int) -> None:
    state = rows.find_number(connection, session)
    if state is None:
        raise chains.Damage("a session has no state row")
    key = connection.execute("SELECT name_key FROM session WHERE number = ?", (session,)).fetchone()[0]
    if key != (None if state.name is None else chains.name_key(chains.encoded_name(state.name))):
        raise chains.Damage("a session has another name than its key")
    rows.verified_ids(connection, state, state.sequence)
    points = rows.all_points(connection, state)
    blocks = connection.execute(
        "SELECT number, key FROM block WHERE number >= ? AND number <= ? ORDER BY number",
        (rows.base(session), rows.base(session) + rows.LAST_SEQUENCE),
    ).fetchall()
    if [number & rows.LAST_SEQUENCE for number, _ in blocks] != list(range(1, state.text_bytes // chains.MARK + 1)):
        raise chains.Damage("entries of the look-up are missing, or more than there should be")
    if state.keep_text:
        _verify_text(connection, state, points, [key for _, key in blocks])


def _verify_text(
    connection: sqlite3.Connection, state: SessionState, points: list[CommitPoint], keys: list[Any]
) -> None:
    text = rows.verified_text(connection, state)
    marks = chains.prove_points(state, points, text)
    if [chains.mark_key(chain) for _, chain in marks] != keys:
        raise chains.Damage("an entry of the look-up is of another text")


def size_of(path: Path) -> int:
    """Bytes on disk, the log included."""
    return sum(file.stat().st_size for file in (path, Path(f"{path}-wal"), Path(f"{path}-shm")) if file.exists())
