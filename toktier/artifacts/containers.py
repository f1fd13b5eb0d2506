"""What a path may hold: directories, wheels, tarballs and bare files, opened as a stream of candidate files.

A container is told by its first bytes, never by its name, and nothing is ever unpacked: a candidate is read into memory
when its size makes it worth hashing, with a limit. Not here: which candidates are wanted (`recognise`).
"""

from __future__ import annotations

import gzip
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, Protocol

from toktier.artifacts.tar import BLOCK, TarReader, looks_like_tar
from toktier.errors import ArtifactNotFound, BundleInvalid, EnvironmentFault, ToktierError

CHUNK = 1 << 20
MAX_ZIP_DIRECTORY = 16 << 20  # bytes of a central directory: about 200,000 members
MAX_ZSTD_WINDOW = 1 << 27
# Inside a directory only these suffixes are opened as containers: a model directory may hold hundreds of gigabytes.
CONTAINER_SUFFIXES = (".whl", ".zip", ".tar", ".tar.gz", ".tgz", ".tar.zst", ".json.zst", ".json.gz")

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


def candidates(path: Path) -> Iterator[Candidate]:
    """Every file at or in `path`. ArtifactNotFound when there is nothing, BundleInvalid for a container that is
    damaged, EnvironmentFault when the host refuses to read; `Candidate.read` raises the last two as well."""
    with _faults_of(path):
        if path.is_dir():
            yield from _directory(path)
        elif path.is_file():
            yield from _file(path)
        else:
            problem = "is neither a file nor a directory" if os.path.lexists(path) else "does not exist"
            raise ArtifactNotFound(f"{path} {problem}", details={"path": str(path)}, remedy="check the path")


@contextmanager
def _faults_of(path: Path) -> Iterator[None]:
    """What the readers of the standard library raise, as one error that names the file and its size."""
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, EOFError, gzip.BadGzipFile, NotImplementedError) as error:
        size = path.stat().st_size
        raise BundleInvalid(
            f"{path} ({size:,} bytes) is damaged: {error}",
            details={"file": str(path), "size": size},
            remedy="copy or download the file again",
        ) from None
    except OSError as error:
        raise EnvironmentFault(
            f"{path} cannot be read: {error.strerror or error}",
            details={"path": str(path)},
            remedy="check the permissions",
        ) from None


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


def _directory(root: Path) -> Iterator[Candidate]:
    """Files below `root`, sorted, links to files followed (a hub cache is made of them), links to directories not.

    A damaged container among them is passed over: what it should have brought is missed by whoever wanted it.
    """
    for directory, names, files in os.walk(root):
        names.sort()
        for name in sorted(files):
            path = Path(directory, name)
            if not path.is_file():
                continue
            if not name.endswith(CONTAINER_SUFFIXES):
                yield _plain(path)
                continue
            try:
                yield from candidates(path)
            except ToktierError:
                continue


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


def _plain(path: Path) -> Candidate:
    def read(limit: int) -> bytes | None:
        with open(path, "rb") as stream:
            return bounded_read(stream, limit)

    return _candidate(path, str(path), path.stat().st_size, read, path)


def _file(path: Path) -> Iterator[Candidate]:
    with open(path, "rb") as stream:
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
        yield _candidate(path, str(path), size, lambda limit: bounded_read(pushed, limit))


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
    for member in TarReader(stream, str(path)):
        yield _candidate(path, f"{path}!{member.name}", member.size, partial(bounded_read, member.body))


def _zip(path: Path, stream: BinaryIO) -> Iterator[Candidate]:
    _check_zip_directory(stream)
    with zipfile.ZipFile(stream) as archive:
        for info in archive.infolist():
            if not info.is_dir():
                yield _candidate(path, f"{path}!{info.filename}", info.file_size, partial(_read_zip, archive, info))


def _read_zip(archive: zipfile.ZipFile, info: zipfile.ZipInfo, limit: int) -> bytes | None:
    try:
        with archive.open(info) as member:
            return bounded_read(member, limit)
    except RuntimeError as error:  # encrypted
        raise zipfile.BadZipFile(str(error)) from None


def _check_zip_directory(stream: BinaryIO) -> None:
    """zipfile reads the whole central directory at once: look at its stated size first."""
    size = stream.seek(0, os.SEEK_END)
    stream.seek(max(0, size - (1 << 16) - 22))
    tail = stream.read()
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) < at + 22:
        raise zipfile.BadZipFile("the archive ends early")
    if int.from_bytes(tail[at + 12 : at + 16], "little") > MAX_ZIP_DIRECTORY:
        raise zipfile.BadZipFile("its directory is larger than any wheel needs")
    stream.seek(0)
