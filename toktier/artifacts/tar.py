"""Members of a tar stream, read by hand: headers checked, one pass, bounded memory, nothing written.

`tarfile` reads the body of an extended header whole before any limit of ours could run (a 600 KB archive took 624 MB),
and follows links, devices and sparse maps that no artifact needs. Here a member is a name, a size and a body of exactly
that many bytes; anything but a regular file is passed over. Names are labels for messages, never paths to write to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from toktier.errors import BundleInvalid
from toktier.labels import escaped, shown_path

BLOCK = 512
MAX_EXTENSION = 64 << 10  # bytes of a PAX or long-name body; real ones hold a path
MAX_EXTENSIONS_IN_A_ROW = 4
MAX_MEMBERS = 1_000_000
CHUNK = 256 << 10

_REGULAR = frozenset({b"0", b"\0", b"7"})
_NO_BODY = frozenset({b"1", b"2", b"3", b"4", b"5", b"6"})
_EXTENSIONS = frozenset({b"x", b"g", b"L", b"K"})


class _Readable(Protocol):
    def read(self, count: int, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class TarMember:
    """One regular file. `body` reads from the archive and is good until the next member is asked for."""

    name: str
    size: int
    body: _Body


class _Body:
    """The bytes of one member; never gives more than its size."""

    def __init__(self, archive: TarReader, size: int) -> None:
        self._archive = archive
        self.remaining = size

    def read(self, count: int) -> bytes:
        """At most `count` bytes; empty at the end of the member."""
        count = min(count, self.remaining)
        if count == 0:
            return b""
        data = self._archive.take(count)
        self.remaining -= len(data)
        return data


class TarReader:
    """Iterates over the regular files of a tar stream. BundleInvalid names the byte where the archive is wrong."""

    def __init__(self, stream: _Readable, where: str | Path) -> None:
        self._stream = stream
        self._where = where
        self.offset = 0

    def take(self, count: int) -> bytes:
        """Exactly `count` bytes; BundleInvalid when the archive ends before."""
        parts = []
        wanted = count
        while wanted:
            data = self._stream.read(min(wanted, CHUNK))
            if not data:
                raise self.fault("ends early")
            parts.append(data)
            wanted -= len(data)
            self.offset += len(data)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def fault(self, problem: str) -> BundleInvalid:
        return BundleInvalid(
            f"{shown_path(self._where)}: the archive {problem} at byte {self.offset:,}",
            details={"file": escaped(self._where), "offset": self.offset},
            remedy="copy or download the archive again",
        )

    def __iter__(self) -> Iterator[TarMember]:
        long_name: str | None = None
        long_size: int | None = None
        extensions = 0
        for _ in range(MAX_MEMBERS):
            block = self.take(BLOCK)
            if block == bytes(BLOCK):
                return
            kind, name, size = self._header(block)
            if kind in _EXTENSIONS:
                extensions += 1
                if extensions > MAX_EXTENSIONS_IN_A_ROW:
                    raise self.fault("has too many extended headers in a row")
                if size > MAX_EXTENSION:
                    raise self.fault(f"has an extended header of {size:,} bytes, {MAX_EXTENSION:,} are accepted,")
                body = self.take(size)
                self._skip(-size % BLOCK)
                if kind == b"L":
                    long_name = body.rstrip(b"\0").decode("utf-8", "replace")
                elif kind == b"x":
                    long_name, long_size = self._pax(body, long_name, long_size)
                continue
            name = long_name if long_name is not None else name
            size = long_size if long_size is not None else size
            long_name = long_size = None
            extensions = 0
            if kind in _NO_BODY:
                continue
            entry = _Body(self, size)
            if kind in _REGULAR and not name.endswith("/"):
                yield TarMember(name, size, entry)
            self._skip(entry.remaining)
            self._skip(-size % BLOCK)
        raise self.fault(f"has more than {MAX_MEMBERS} members")

    def _skip(self, count: int) -> None:
        while count:
            count -= len(self.take(min(count, CHUNK)))

    def _header(self, block: bytes) -> tuple[bytes, str, int]:
        try:
            stated = int(block[148:156].split(b"\0")[0].strip() or b"-1", 8)
        except ValueError:
            stated = -1
        if stated != sum(block) - sum(block[148:156]) + 8 * 0x20:
            raise self.fault("has a damaged header before")
        name = block[0:100].split(b"\0")[0]
        if block[257:263] == b"ustar\0" and (prefix := block[345:500].split(b"\0")[0]):
            name = prefix + b"/" + name
        return block[156:157], name.decode("utf-8", "replace"), self._number(block[124:136])

    def _number(self, field: bytes) -> int:
        if field[0] == 0x80:  # base-256, for sizes from 8 GiB on
            return int.from_bytes(field[1:], "big")
        digits = field.split(b"\0")[0].strip()
        if not digits or digits.strip(b"01234567"):
            raise self.fault("has a header with a bad size before")
        return int(digits, 8)

    def _pax(self, body: bytes, name: str | None, size: int | None) -> tuple[str | None, int | None]:
        """Records `<length> <key>=<value>\\n`; path and size count, the rest is of no use here."""
        at = 0
        while at < len(body):
            blank = body.find(b" ", at, at + 10)
            digits = body[at:blank] if blank > at else b""
            end = at + int(digits) if digits.isdigit() else 0
            if end <= blank or end > len(body) or body[end - 1 : end] != b"\n" or b"=" not in body[blank:end]:
                raise self.fault("has a damaged extended header before")
            key, value = body[blank + 1 : end - 1].split(b"=", 1)
            if key == b"path":
                name = value.decode("utf-8", "replace")
            elif key == b"size":
                if not value.isdigit() or len(value) > 20:
                    raise self.fault("has a bad size in an extended header before")
                size = int(value)
            at = end
        return name, size


def looks_like_tar(block: bytes) -> bool:
    """Whether these first 512 bytes are a tar header. Zeros are none: a file of zeros is a damaged file."""
    if len(block) < BLOCK:
        return False
    if block[257:262] == b"ustar":
        return True
    field = block[148:156].split(b"\0")[0].strip()
    return bool(field) and not field.strip(b"01234567") and int(field, 8) == sum(block) - sum(block[148:156]) + 256
