"""What a line names as its input: a text, a file, or stdin, whole and bounded, or in blocks.

A text of 4 GiB is beyond the engine, so no more is read of anything at once, and nothing at all of a device that never
ends. Not here: what the bytes mean (the engine validates them).
"""

from __future__ import annotations

import contextlib
import io
import os
import stat
import sys
from collections.abc import Iterator
from typing import IO, Any

from toktier.errors import ArtifactNotFound, EnvironmentFault, InvalidText, ToktierError, UsageError
from toktier.labels import shown_path

MAX_INPUT_BYTES = (1 << 32) - 1
CHUNK = 1 << 20
_Opened = contextlib.AbstractContextManager[Any]
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


def named(error: ToktierError, path: str) -> ToktierError:
    """The error, which says of which file it is."""
    name = shown_path(path)
    if name not in error.message:
        error.message = f"{name}: {error.message}"
    error.details["path"] = path
    return error


@contextlib.contextmanager
def text_of_file(path: str | None) -> Iterator[None]:
    """Around what validates the text of a file: the engine, which knows no names, counts in bytes of it. None: the
    text is not of a file."""
    try:
        yield
    except InvalidText as error:
        if path is not None:
            named(error, path)
        raise


def read_stdin() -> bytes:
    """All of stdin. UsageError for a device or more than the bound."""
    return b"" if sys.stdin is None else _all(sys.stdin.buffer, "stdin")


def read_file(path: str) -> bytes:
    """All bytes of a file or pipe. ArtifactNotFound or EnvironmentFault name it; UsageError as for stdin."""
    with _open(path) as stream:
        return _all(stream, path)


def text_blocks(text: str | None, input_: str | None) -> Iterator[bytes]:
    """The one text that the line names, in blocks as they come: `read_text` for texts of any size. Errors of the line
    and of opening a file are raised before the first block."""
    if input_ is not None and text is None:
        return file_blocks(input_)
    if input_ is None and (text == "-" or (text is None and not (sys.stdin is not None and sys.stdin.isatty()))):
        return stdin_blocks()
    whole = read_text(text, input_)
    return iter((whole.encode() if isinstance(whole, str) else whole,))


@contextlib.contextmanager
def open_stream(path: str) -> Iterator[IO[bytes]]:
    """A file or pipe to be read on from, - for stdin. Errors as `read_file`."""
    if path == "-":
        stream: IO[bytes] = io.BytesIO() if sys.stdin is None else sys.stdin.buffer
        _refuse_device(stream, "stdin")
        yield stream
        return
    with _open(path) as stream:
        _refuse_device(stream, path)
        yield stream


def stdin_blocks() -> Iterator[bytes]:
    """stdin in blocks. UsageError for a device."""
    return iter(()) if sys.stdin is None else _blocks(contextlib.nullcontext(sys.stdin.buffer), "stdin")


def file_blocks(path: str) -> Iterator[bytes]:
    """A file or pipe in blocks. Errors as `read_file`, all but those of reading on before the first block."""
    return _blocks(_open(path), path)


def _blocks(opened: _Opened, name: str) -> Iterator[bytes]:
    blocks = _read_on(opened, name)
    next(blocks)  # as far as the stream is open and no device
    return (block for block in blocks if block)


def _read_on(opened: _Opened, name: str) -> Iterator[bytes]:
    with opened as stream:
        _refuse_device(stream, name)
        yield b""
        # read1: what a pipe holds now; nothing is gained by waiting for a full block.
        while data := stream.read1(CHUNK):
            yield data


@contextlib.contextmanager
def _open(path: str) -> Iterator[Any]:
    try:
        with open(path, "rb") as stream:
            yield stream
    except FileNotFoundError:
        raise ArtifactNotFound(
            f"{shown_path(path)} does not exist", details={"path": path}, remedy="check the path"
        ) from None
    except IsADirectoryError:
        raise UsageError(
            f"{shown_path(path)} is a directory: expected a file",
            details={"path": path},
            remedy="name a file; directories are for toktier count --recursive",
        ) from None
    except OSError as error:
        raise EnvironmentFault(
            f"{shown_path(path)} cannot be read: {error.strerror}",
            details={"path": path},
            remedy="check the path and its permissions",
        ) from None


def _refuse_device(stream: IO[bytes], name: str) -> os.stat_result | None:
    """None for what is held in memory by whoever calls the command in Python."""
    try:
        status = os.fstat(stream.fileno())
    except io.UnsupportedOperation:
        return None
    endless = stat.S_ISCHR(status.st_mode) and status.st_rdev != _NULL and not stream.isatty()
    if endless or stat.S_ISBLK(status.st_mode):
        raise UsageError(
            f"{shown_path(name)} is a device: expected a file, a pipe or a terminal",
            details={"path": name},
            remedy="give a file, or pipe the part that is wanted: head -c 1000 DEVICE | toktier ... -",
        )
    return status


def _all(stream: IO[bytes], name: str) -> bytes:
    status = _refuse_device(stream, name)
    if status is None or (stat.S_ISREG(status.st_mode) and 0 < status.st_size <= MAX_INPUT_BYTES):
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
