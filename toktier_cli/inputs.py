"""What a line names as its input: a text, a file, or stdin, whole and bounded.

A text of 4 GiB is beyond the engine, so no more is read of anything, and nothing at all of a device that never ends.
Not here: what the bytes mean (the engine validates them).
"""

from __future__ import annotations

import io
import os
import stat
import sys
from collections.abc import Iterator
from typing import IO

from toktier.errors import ArtifactNotFound, EnvironmentFault, UsageError
from toktier.labels import shown_path

MAX_INPUT_BYTES = (1 << 32) - 1
CHUNK = 1 << 20
_NULL = os.makedev(1, 3)  # /dev/null: the one device of which everybody expects an end


def read_text(text: str | None, input_: str | None) -> str | bytes:
    """The one text that the line names; bytes are UTF-8 and validated by the engine."""
    if text is not None and input_ is not None:
        raise UsageError("expected one of TEXT and --input, not both", remedy="toktier encode --help")
    if input_ is not None:
        return read_file(input_)
    if text is None and sys.stdin is not None and sys.stdin.isatty():
        raise UsageError("no text: give TEXT, --input FILE, or - for stdin", remedy="toktier encode --help")
    if text is None or text == "-":
        return read_stdin()
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return os.fsencode(text)  # arguments that are not UTF-8: the engine names the byte
    return text


def read_stdin() -> bytes:
    """All of stdin. UsageError for a device or more than the bound."""
    return b"" if sys.stdin is None else _all(sys.stdin.buffer, "stdin")


def read_file(path: str) -> bytes:
    """All bytes of a file or pipe. ArtifactNotFound or EnvironmentFault name it; UsageError as for stdin."""
    try:
        with open(path, "rb") as stream:
            return _all(stream, path)
    except FileNotFoundError:
        raise ArtifactNotFound(
            f"{shown_path(path)} does not exist", details={"path": path}, remedy="check the path"
        ) from None
    except OSError as error:
        raise EnvironmentFault(
            f"{shown_path(path)} cannot be read: {error.strerror}",
            details={"path": path},
            remedy="check the path and its permissions",
        ) from None


def _all(stream: IO[bytes], name: str) -> bytes:
    try:
        status = os.fstat(stream.fileno())
    except io.UnsupportedOperation:  # held in memory by whoever calls the command in Python
        return stream.read()
    endless = stat.S_ISCHR(status.st_mode) and status.st_rdev != _NULL and not stream.isatty()
    if endless or stat.S_ISBLK(status.st_mode):
        raise UsageError(
            f"{shown_path(name)} is a device: expected a file, a pipe or a terminal",
            details={"path": name},
            remedy="give a file, or pipe the part that is wanted: head -c 1000 DEVICE | toktier ... -",
        )
    if stat.S_ISREG(status.st_mode) and 0 < status.st_size <= MAX_INPUT_BYTES:
        return stream.read()
    return b"".join(_bounded(stream, name))


def _bounded(stream: IO[bytes], name: str) -> Iterator[bytes]:
    size = 0
    while data := stream.read(CHUNK):
        size += len(data)
        if size > MAX_INPUT_BYTES:
            raise UsageError(
                f"{shown_path(name)} has more than {MAX_INPUT_BYTES:,} bytes, and no text may have more",
                details={"path": name, "limit": MAX_INPUT_BYTES},
                remedy="give it in parts",
            )
        yield data
