"""What others named, as text for people: on one line, without control characters, of bounded length.

A member of an archive, a file, a token or a JSON key can hold terminal escapes and have megabytes, and a path that is
not UTF-8 reaches Python with lone surrogates, which no UTF-8 output takes. Every message and remedy of a `ToktierError`
passes through `message`. Not here: names to open files by; a label is never opened.
"""

from __future__ import annotations

import os
import shlex

MAX_MEMBER = 120
MAX_PATH = 240  # longer than a member: its reader has to find the file
MAX_QUOTED = 60
MAX_MESSAGE = 1500  # with three paths in it; a longer one has lost its middle


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


def quoted(text: str, limit: int = MAX_QUOTED) -> str:
    """`text` as a Python literal; of a longer one the beginning, and its length in characters."""
    if len(text) <= limit:
        return repr(text)
    return f"{text[:limit]!r}... ({len(text):,} characters)"


def message(text: str) -> str:
    """A sentence, or what mends it."""
    return shown(text, MAX_MESSAGE)


def shown_path(path: str | os.PathLike[str]) -> str:
    return shown(path, MAX_PATH)


def typed(path: str | os.PathLike[str]) -> str:
    """`path` as one argument of a command that somebody pastes into a shell (sh; bash for unprintable names): quoted,
    never cut, never an option."""
    text = os.fspath(path)
    if text.startswith("-"):
        text = f"./{text}"
    if text.isprintable():
        return shlex.quote(text)
    safe = "".join(c if c.isprintable() and c not in "\\'" else _octal(c) for c in text)
    return f"$'{safe}'"


def _octal(character: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in os.fsencode(character))
