"""What a path may hold: directories, wheels, tarballs and bare files, opened as a stream of candidate files.

A container is told by its first bytes, never by its name, and nothing is ever unpacked: a candidate is read into memory
when its size makes it worth hashing, with a limit. Not here: which candidates are wanted (`recognise`).
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from toktier.artifacts.tar import BLOCK, TarReader, looks_like_tar
from toktier.errors import ArtifactNotFound, BundleInvalid, EnvironmentFault, ToktierError
from toktier.labels import escaped, shown, shown_path
from toktier.regular_files import open_regular

CHUNK = 1 << 20
MAX_ZIP_DIRECTORY = 16 << 20  # bytes of a central directory: about 200,000 members
MAX_ZSTD_WINDOW = 1 << 27
MAX_DEPTH = 100  # directories in one another; a hub cache has 6
# What is read out of one archive, in bytes. A tokenizer.json shrinks to a fifth; members that share their bytes, or
# zeros, would make hours of hashing out of a small file.
MAX_READ, MAX_READ_RATIO = 2 << 30, 20
# Inside a directory only these suffixes are opened as containers: a model directory may hold hundreds of gigabytes.
CONTAINER_SUFFIXES = (".whl", ".zip", ".tar", ".tar.gz", ".tgz", ".tar.zst", ".json.zst", ".json.gz")

_LARGE_DIRECTORY = "its directory is larger than any wheel needs"
_ZIP, _GZIP, _ZSTD = b"PK\x03\x04", b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


class _Readable(Protocol):
    def read(self, count: int, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that may be an artifact. `size` is None where only decompression would tell.

    `read(limit)` gives all its bytes, or None when they are more than `limit`; it is to be called before the next
    candidate is asked for, if at all. `path` is set for a plain file, which can be used where it lies.
    """

    where: str
    size: int | None
    read: Callable[[int], bytes | None]
    path: Path | None = None


def candidates(path: Path, passed_over: list[ToktierError] | None = None) -> Iterator[Candidate]:
    """Every file at or in `path`. ArtifactNotFound when there is nothing, BundleInvalid for a container that is
    damaged, EnvironmentFault when the host refuses to read; `Candidate.read` raises the last two as well.

    In a directory neither ends the search: what cannot be read is passed over, and its error added to `passed_over`.
    """
    with _faults_of(path):
        if path.is_dir():
            yield from _directory(path, passed_over if passed_over is not None else [])
        elif path.is_file():
            yield from _file(path)
        else:
            problem = "is neither a file nor a directory" if os.path.lexists(path) else "does not exist"
            raise ArtifactNotFound(
                f"{shown_path(path)} {problem}", details={"path": escaped(path)}, remedy="check the path"
            )


@contextmanager
def _faults_of(path: Path) -> Iterator[None]:
    """What the readers of the standard library raise, as one error that names the file and its size."""
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, EOFError, gzip.BadGzipFile, NotImplementedError, struct.error) as error:
        raise _damaged(path, error) from None
    except OSError as error:
        if error.errno is None:  # bz2 says so of bad data; the host always gives a number
            raise _damaged(path, error) from None
        raise EnvironmentFault(
            f"{shown_path(path)} cannot be read: {error.strerror or error}",
            details={"path": escaped(path)},
            remedy="check the permissions",
        ) from None


def _damaged(path: Path, error: Exception) -> BundleInvalid:
    size = 0
    with contextlib.suppress(OSError):
        size = path.stat().st_size
    return BundleInvalid(
        f"{shown_path(path)} ({size:,} bytes) is damaged: {shown(str(error), 200)}",
        details={"file": escaped(path), "size": size},
        remedy="copy or download the file again",
    )


def bounded_read(stream: _Readable, limit: int) -> bytes | None:
    """All of `stream`, or None when it holds more than `limit` bytes. Never reads more than one byte beyond."""
    parts: list[bytes] = []
    left = limit + 1
    while left:
        data = stream.read(min(left, CHUNK))
        if not data:
            return b"".join(parts)
        parts.append(data)
        left -= len(data)
    return None


def _directory(root: Path, passed_over: list[ToktierError]) -> Iterator[Candidate]:
    """Files below `root`, sorted, links to files followed (a hub cache is made of them), links to directories not."""
    below = [(root, 1)]
    while below:
        directory, depth = below.pop()
        try:
            files, directories = _entries(directory)
        except OSError:
            if directory == root:
                raise
            passed_over.append(_unread(directory, "cannot be read"))
            continue
        for path in files:
            yield from _file_in_directory(path, passed_over)
        if depth < MAX_DEPTH:
            below += [(path, depth + 1) for path in reversed(directories)]
        elif directories:
            passed_over.append(_unread(directories[0], f"lies more than {MAX_DEPTH} directories deep"))


def _unread(path: Path, problem: str) -> EnvironmentFault:
    return EnvironmentFault(f"{shown_path(path)} {problem}", details={"path": escaped(path)})


def _entries(directory: Path) -> tuple[list[Path], list[Path]]:
    """Regular files, and directories that are no links, each sorted."""
    files, directories = [], []
    with os.scandir(directory) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    directories.append(entry.name)
                elif entry.is_file():
                    files.append(entry.name)
    return [directory / name for name in sorted(files)], [directory / name for name in sorted(directories)]


def _file_in_directory(path: Path, passed_over: list[ToktierError]) -> Iterator[Candidate]:
    """The candidates of one file; its first error is noted, and its later candidates are still tried."""
    noted = False

    def note(error: ToktierError) -> None:
        nonlocal noted
        if not noted:
            passed_over.append(error)
        noted = True

    def forgiving(read: Callable[[int], bytes | None]) -> Callable[[int], bytes | None]:
        def attempt(limit: int) -> bytes | None:
            try:
                return read(limit)
            except ToktierError as error:
                note(error)
                return None

        return attempt

    try:
        with _faults_of(path):
            for found in _file(path) if path.name.endswith(CONTAINER_SUFFIXES) else (_plain(path),):
                yield replace(found, read=forgiving(found.read))
    except ToktierError as error:
        note(error)


class _Allowance:
    """How much may still be read out of one archive."""

    def __init__(self, archive: Path) -> None:
        self._left = max(MAX_READ, MAX_READ_RATIO * archive.stat().st_size)

    def bounded_read(self, stream: _Readable, limit: int) -> bytes | None:
        if self._left <= 0:
            raise zipfile.BadZipFile("more would be read out of it than an archive of its size can hold")
        data = bounded_read(stream, limit)
        self._left -= limit if data is None else len(data)
        return data


def _candidate(
    path: Path, where: str, size: int | None, read: Callable[[int], bytes | None], own: Path | None = None
) -> Candidate:
    def guarded(limit: int) -> bytes | None:
        with _faults_of(path):
            data = read(limit)
            if data is not None and size is not None and len(data) < size:
                raise EOFError(f"{where} ends after {len(data)} of {size:,} bytes")
            return data

    return Candidate(where, size, guarded, own)


def _member(path: Path, name: str, size: int, read: Callable[[int], bytes | None]) -> Candidate:
    return _candidate(path, f"{shown_path(path)}!{shown(name)}", size, read)


def _plain(path: Path) -> Candidate:
    def read(limit: int) -> bytes | None:
        with open_regular(path) as stream:
            return bounded_read(stream, limit)

    return _candidate(path, shown_path(path), path.stat().st_size, read, path)


def _file(path: Path) -> Iterator[Candidate]:
    with open_regular(path) as raw, io.BufferedReader(raw) as stream:
        head = stream.read(BLOCK)
        stream.seek(0)
        if head.startswith(_ZIP):
            yield from _zip(path, stream)
        elif head.startswith(_GZIP):
            with gzip.GzipFile(fileobj=stream) as plain:
                yield from _stream(path, plain, None)
        elif head.startswith(_ZSTD):
            import zstandard

            with _zstd_faults():
                size = zstandard.frame_content_size(head)
                decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_ZSTD_WINDOW)
                with decompressor.stream_reader(stream, read_across_frames=False) as plain:
                    yield from _stream(path, _ZstdStream(plain), size if size >= 0 else None)
        elif looks_like_tar(head):
            yield from _tar(path, stream)
        else:
            yield _plain(path)


@contextmanager
def _zstd_faults() -> Iterator[None]:
    import zstandard

    try:
        yield
    except zstandard.ZstdError as error:
        raise zlib.error(str(error)) from None


class _ZstdStream:
    """zstandard's reader, with the errors that the other readers raise."""

    def __init__(self, stream: _Readable) -> None:
        self._stream = stream

    def read(self, count: int) -> bytes:
        with _zstd_faults():
            return self._stream.read(count)


def _stream(path: Path, plain: _Readable, size: int | None) -> Iterator[Candidate]:
    """A decompressed stream: a tar archive, or one file."""
    pushed = _Pushed(plain)
    if looks_like_tar(pushed.peek(BLOCK)):
        yield from _tar(path, pushed)
    else:
        yield _candidate(path, shown_path(path), size, lambda limit: bounded_read(pushed, limit))


class _Pushed:
    """A stream whose first bytes can be looked at and still be read."""

    def __init__(self, stream: _Readable) -> None:
        self._stream = stream
        self._head = b""

    def peek(self, count: int) -> bytes:
        while len(self._head) < count and (data := self._stream.read(count - len(self._head))):
            self._head += data
        return self._head

    def read(self, count: int) -> bytes:
        if self._head:
            data, self._head = self._head[:count], self._head[count:]
            return data
        return self._stream.read(count)


def _tar(path: Path, stream: _Readable) -> Iterator[Candidate]:
    allowance = _Allowance(path)
    for member in TarReader(stream, path):
        yield _member(path, member.name, member.size, partial(allowance.bounded_read, member.body))


def _zip(path: Path, stream: BinaryIO) -> Iterator[Candidate]:
    _check_zip_directory(stream)
    allowance = _Allowance(path)
    with _zip_faults():
        archive = zipfile.ZipFile(cast(BinaryIO, _ShortReads(stream)))
    with archive:
        for info in archive.infolist():
            if not info.filename.endswith("/"):  # is_dir of an empty name raises before Python 3.12
                yield _member(path, info.filename, info.file_size, partial(_read_zip, archive, info, allowance))


def _read_zip(archive: zipfile.ZipFile, info: zipfile.ZipInfo, allowance: _Allowance, limit: int) -> bytes | None:
    with _zip_faults(), archive.open(info) as member:
        return allowance.bounded_read(member, limit)


@contextmanager
def _zip_faults() -> Iterator[None]:
    """What else zipfile and its decompressors raise on bad bytes: a name that is no UTF-8 (ValueError), an encrypted
    member (RuntimeError), an LZMA member that is damaged or asks for gigabytes."""
    try:
        yield
    except (ValueError, RuntimeError, ArithmeticError, LookupError, MemoryError) as error:
        raise zipfile.BadZipFile(str(error) or type(error).__name__) from None
    except Exception as error:
        # By name: importing lzma fails in a Python that was built without it.
        if type(error).__name__ != "LZMAError":
            raise
        raise zipfile.BadZipFile(str(error)) from None


class _ShortReads:
    """The archive as zipfile may read it. It takes in a whole central directory with one read, whose length may come
    from any of several records; only the read itself can be bounded."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.tell, self.seekable = stream.tell, stream.seekable

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        try:
            return self._stream.seek(offset, whence)
        except OSError:
            if whence != os.SEEK_SET:
                raise  # zipfile probes from the end, and takes this for "not there"
            raise zipfile.BadZipFile(f"it points at byte {offset}") from None

    def read(self, count: int = -1) -> bytes:
        if count > MAX_ZIP_DIRECTORY:
            raise zipfile.BadZipFile(_LARGE_DIRECTORY)
        data = self._stream.read(count if count >= 0 else MAX_ZIP_DIRECTORY + 1)
        if len(data) > MAX_ZIP_DIRECTORY:
            raise zipfile.BadZipFile(_LARGE_DIRECTORY)
        return data


def _check_zip_directory(stream: BinaryIO) -> None:
    """Tells a cut archive, and one whose stated directory is too large, before zipfile looks at it."""
    size = stream.seek(0, os.SEEK_END)
    stream.seek(max(0, size - (1 << 16) - 22))
    tail = stream.read()
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) < at + 22:
        raise zipfile.BadZipFile("the archive ends early")
    stated = int.from_bytes(tail[at + 12 : at + 16], "little")
    if MAX_ZIP_DIRECTORY < stated < 0xFFFFFFFF:  # all ones: the length is in the zip64 record
        raise zipfile.BadZipFile(_LARGE_DIRECTORY)
    stream.seek(0)
