"""Pairs of outputs of one prompt, with reuse of a slot and without: out of JSON lines, or of the records of a router.

One pair is in memory at a time. Not here: what pairs say (`divergence`), the file of records (`records_file`).
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from toktier.errors import InvalidText, OutputsInvalid, StoreFormatUnsupported
from toktier.labels import quoted, shown_path

CACHED: Final = "cached"
UNCACHED: Final = "uncached"
# Of a line and of a recorded output: ten million tokens of English in both texts of a line.
MAX_BYTES: Final = 64 << 20
_LINE = 'give one {"cached": "...", "uncached": "..."} a line'


@dataclass(frozen=True, slots=True)
class OutputPair:
    """`place`: the number of the line, from 1, or the position of the output with reuse in the records."""

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
SELECT position, prompt_digest, reused > 0 FROM outputs ORDER BY prompt_digest, reused > 0, started, position
"""


def pairs_of_records(path: str | os.PathLike[str]) -> Iterator[OutputPair]:
    """Each recorded output with reuse, beside the first one of the same prompt without; a prompt of which there are not
    both gives no pair. All are of one moment, whatever a router writes meanwhile.

    Raises what `records_file.reading` does; StoreFormatUnsupported for what is no regular file either, and
    OutputsInvalid for an output that is no text.
    """
    from toktier.router.records_file import reading

    place = Path(path)
    if place.exists() and not place.is_file():  # the open of a FIFO would wait for a writer
        raise StoreFormatUnsupported(
            f"{shown_path(place)} is no regular file", details={"path": os.fspath(path)}, remedy="name a file"
        )
    with reading(place) as connection:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_BYTES)
        connection.text_factory = bytes
        digest: bytes | None = None
        first = ""
        for position, prompt, reused in connection.execute(_OUTPUTS):
            if not reused:
                if prompt != digest:
                    digest, first = prompt, _output(connection, position, place)
            elif prompt == digest:
                yield OutputPair(position, _output(connection, position, place), first)


def _output(connection: sqlite3.Connection, position: int, path: Path) -> str:
    (output,) = connection.execute("SELECT output FROM outputs WHERE position = ?", (position,)).fetchone()
    try:
        if isinstance(output, bytes):
            return output.decode("utf-8")
    except UnicodeDecodeError:
        pass
    raise OutputsInvalid(
        f"{shown_path(path)}, position {position}: the output is no text",
        details={"path": os.fspath(path), "position": position},
        remedy="name the file that `toktier serve` was given for its records",
    )
