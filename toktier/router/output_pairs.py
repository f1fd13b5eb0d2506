"""Pairs of outputs of one prompt, with reuse of a slot and without: out of JSON lines, or of the records of a router.

One pair is in memory at a time. Not here: what pairs say (`divergence`), who writes records (`records`).
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from toktier.errors import ArtifactNotFound, InvalidText, LockTimeout, OutputsInvalid, ToktierError
from toktier.labels import quoted, shown_path

CACHED: Final = "cached"
UNCACHED: Final = "uncached"
# Of a line and of a recorded output: ten million tokens of English in both texts of a line.
MAX_BYTES: Final = 64 << 20
TIMEOUT_SECONDS: Final = 5.0
_LINE = 'give one {"cached": "...", "uncached": "..."} a line'
_RECORD = "record outputs with: toktier serve --record-outputs"


@dataclass(frozen=True, slots=True)
class OutputPair:
    """`place`: the number of the line, from 1, or the row of the output with reuse in the table of outputs."""

    place: int
    cached: str
    uncached: str


def pairs_of_lines(stream: IO[bytes], name: str) -> Iterator[OutputPair]:
    """Of JSON lines, each an object with the texts `cached` and `uncached`; other members, and empty lines, count for
    nothing. OutputsInvalid and InvalidText name the line. A stream without a pair is OutputsInvalid too."""
    number, empty = 0, True
    while line := stream.readline(MAX_BYTES + 1):
        number += 1
        if len(line) > MAX_BYTES:
            raise _invalid(name, number, f"more than {MAX_BYTES:,} bytes")
        if line.strip():
            empty = False
            yield OutputPair(number, *_texts(line, name, number))
    if empty:
        raise OutputsInvalid(
            f"{shown_path(name)} holds no pair of outputs: expected JSON lines", details={"path": name}, remedy=_LINE
        )


def _texts(line: bytes, name: str, number: int) -> tuple[str, str]:
    try:
        decoded = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _no_text(name, number, f"byte {error.start} is not UTF-8", error.start) from None
    try:
        value = json.loads(decoded)
    except (ValueError, RecursionError) as error:
        position = f" at character {error.pos}" if isinstance(error, json.JSONDecodeError) else ""
        raise _invalid(name, number, f"no JSON{position}") from None
    if not isinstance(value, dict):
        raise _invalid(name, number, "no JSON object")
    return _member(value, CACHED, name, number), _member(value, UNCACHED, name, number)


def _member(value: dict[str, Any], key: str, name: str, number: int) -> str:
    text = value.get(key)
    if not isinstance(text, str):
        raise _invalid(name, number, f"the member {quoted(key)} is " + ("missing" if key not in value else "no text"))
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise _no_text(name, number, f"{quoted(key)} has a lone surrogate at {error.start}", error.start) from None
    return text


def _invalid(name: str, number: int, what: str) -> OutputsInvalid:
    return OutputsInvalid(
        f"{shown_path(name)}, line {number}: {what}", details={"path": name, "line": number}, remedy=_LINE
    )


def _no_text(name: str, number: int, what: str, position: int) -> InvalidText:
    details = {"path": name, "line": number, "position": position}
    return InvalidText(f"{shown_path(name)}, line {number}: {what}", details=details)


# Sorted are digests alone, and an output is read when its turn has come: the sorter holds no text.
_OUTPUTS = """
SELECT rowid, prompt_digest, reused > 0 FROM outputs
WHERE reused IS NOT NULL AND typeof(prompt_digest) = 'blob' ORDER BY prompt_digest, reused > 0, started, rowid
"""


def pairs_of_records(path: str | os.PathLike[str]) -> Iterator[OutputPair]:
    """Each recorded output with reuse, beside the first one of the same prompt without; a prompt of which there are not
    both gives no pair, nor does an output of which the reuse was not measured.

    The database is opened for reading alone, also while a router writes it. ArtifactNotFound, OutputsInvalid where it
    is damaged, no database or without recorded outputs, LockTimeout.
    """
    place = Path(path)
    if not place.exists():
        raise ArtifactNotFound(f"{shown_path(place)} does not exist", details={"path": os.fspath(path)})
    if not place.is_file():
        raise _damaged(place, "it is no regular file")
    connection: sqlite3.Connection | None = None
    try:
        connection = sqlite3.connect(f"{place.absolute().as_uri()}?mode=ro", uri=True, timeout=TIMEOUT_SECONDS)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_BYTES)
        connection.execute("PRAGMA query_only = 1")
        connection.execute("PRAGMA trusted_schema = 0")
        connection.text_factory = bytes
        connection.isolation_level = None
        connection.execute("BEGIN")  # all of one moment, whatever the router adds and drops meanwhile
        kind = connection.execute("SELECT type FROM sqlite_master WHERE name = 'outputs'").fetchone()
        if kind != (b"table",):  # a view would run what others wrote
            raise OutputsInvalid(
                f"{shown_path(place)} holds no recorded outputs", details={"path": os.fspath(path)}, remedy=_RECORD
            )
        yield from _recorded(connection, place)
    except sqlite3.Error as error:
        raise _refused(error, place) from None
    finally:
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()


def _recorded(connection: sqlite3.Connection, path: Path) -> Iterator[OutputPair]:
    digest: bytes | None = None
    first = ""
    for row, prompt, reused in connection.execute(_OUTPUTS):
        if not reused:
            if prompt != digest:
                digest, first = prompt, _output(connection, row, path)
        elif prompt == digest:
            yield OutputPair(row, _output(connection, row, path), first)


def _output(connection: sqlite3.Connection, row: int, path: Path) -> str:
    found = connection.execute("SELECT output FROM outputs WHERE rowid = ?", (row,)).fetchone()
    if found is None:
        raise _damaged(path, f"row {row} went while it was read", row)
    (output,) = found
    try:
        if isinstance(output, bytes):
            return output.decode("utf-8")
    except UnicodeDecodeError:
        pass
    raise _damaged(path, f"the output of row {row} is no text", row)


def _damaged(path: Path, what: str, row: int | None = None) -> OutputsInvalid:
    details: dict[str, Any] = {"path": os.fspath(path)}
    if row is not None:
        details["row"] = row
    return OutputsInvalid(
        f"{shown_path(path)} is no whole database of records: {what}", details=details, remedy=_RECORD
    )


def _refused(error: sqlite3.Error, path: Path) -> ToktierError:
    """SQLite's own words are left out: they can quote what the file holds."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is not None and code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return LockTimeout(
            f"waited {TIMEOUT_SECONDS:g} s for {shown_path(path)}, which another process is writing",
            details={"path": os.fspath(path), "timeout_s": TIMEOUT_SECONDS, "holder": {}},
            remedy="try again",
        )
    return _damaged(path, f"SQLite says {getattr(error, 'sqlite_errorname', type(error).__name__)}")
