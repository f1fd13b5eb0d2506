"""Names from archives and file systems as text for people: on one line, without control characters, of bounded length.

A member's name can hold terminal escapes, and a path that is not UTF-8 reaches Python with lone surrogates, which no
UTF-8 output takes. Not here: names to open files by; a label is never opened.
"""

from __future__ import annotations

import os

MAX_MEMBER = 120
MAX_PATH = 240  # longer than a member: its reader has to find the file


def escaped(text: str | os.PathLike[str]) -> str:
    """`text` with everything unprintable as backslash escapes."""
    text = os.fspath(text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def shown(text: str | os.PathLike[str], limit: int = MAX_MEMBER) -> str:
    """`escaped`, with the middle left out beyond `limit` characters: both ends tell files apart."""
    text = os.fspath(text)
    if len(text) > 2 * limit:  # escaping makes ten characters of one; most of a huge name is not worth it
        text = text[:limit] + text[-limit:]
    text = escaped(text)
    half = (limit - 1) // 2
    return text if len(text) <= limit else f"{text[:half]}…{text[-half:]}"


def shown_path(path: str | os.PathLike[str]) -> str:
    return shown(path, MAX_PATH)
