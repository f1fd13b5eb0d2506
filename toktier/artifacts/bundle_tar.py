"""USTAR as bundles use it: one form of header, written and read, and an archive read once, forwards, within bounds.

Stricter than `toktier.artifacts.tar`, which looks into archives of other people: here the format is ours, so whatever
is not a plain regular file under a plain name is an error and never passed over. Not here: which members there must be.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from toktier.artifacts.bundle_faults import FaultMaker, Reason
from toktier.artifacts.tar import BLOCK, looks_like_tar
from toktier.labels import shown

CHUNK = 256 << 10
RECORD = 20 * BLOCK  # an archive ends on a multiple of it
_ZEROS = bytes(BLOCK)

_KINDS = {
    b"1": "a hard link", b"2": "a symbolic link", b"3": "a character device", b"4": "a block device",
    b"5": "a directory", b"6": "a FIFO", b"7": "a contiguous file", b"x": "a PAX header", b"g": "a global PAX header",
    b"L": "a GNU long name", b"K": "a GNU long link", b"S": "a sparse file", b"\0": "of a kind older than USTAR",
}  # fmt: skip


def member_header(name: str, size: int) -> bytes:
    """The header block of a regular file. `name`: at most 100 bytes of ASCII."""
    block = bytearray(BLOCK)
    block[0 : len(name)] = name.encode("ascii")
    block[100:124] = b"0000600\0" + b"0000000\0" * 2
    block[124:136] = b"%011o\0" % size
    block[136:148] = b"00000000000\0"
    block[156:157] = b"0"
    block[257:265] = b"ustar\00000"
    block[148:156] = b"%06o\0 " % (sum(block) + 8 * 0x20)
    return bytes(block)


def padding(size: int) -> int:
    """Zeros that follow a member of `size` bytes."""
    return -size % BLOCK


def archive_size(sizes: list[int]) -> int:
    """Bytes of an archive with members of these sizes."""
    content = sum(BLOCK + size + padding(size) for size in sizes) + 2 * BLOCK
    return content + -content % RECORD


def archive_end(written: int) -> bytes:
    """What follows the last member of an archive of which `written` bytes are there."""
    return bytes(2 * BLOCK + -(written + 2 * BLOCK) % RECORD)


class Source(Protocol):
    def read(self, count: int, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Header:
    """A checked header of a regular file. `name` is another's word."""

    name: str
    size: int


class ArchiveReader:
    """An archive, or with `limit` one that lies inside another as a member of that many bytes."""

    def __init__(self, source: Source, fault: FaultMaker, *, limit: int | None = None) -> None:
        self._source, self._fault, self._limit = source, fault, limit
        self._digest = hashlib.sha256()
        self.offset = 0

    @property
    def sha256(self) -> str:
        """Of everything that was read, in hex."""
        return self._digest.hexdigest()

    def fault(self, reason: Reason, **facts: object) -> Exception:
        return self._fault(reason, offset=self.offset, **facts)

    def read(self, count: int, /) -> bytes:
        """At most `count` bytes; empty only at the end."""
        if self._limit is not None:
            count = min(count, self._limit - self.offset)
        data = self._source.read(count) if count else b""
        self._digest.update(data)
        self.offset += len(data)
        return data

    def take(self, count: int) -> bytes:
        """Exactly `count` bytes, which must be few."""
        parts: list[bytes] = []
        self.pour(count, parts.append)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def pour(self, count: int, into: Callable[[bytes], object]) -> None:
        """Exactly `count` bytes, in chunks."""
        while count:
            data = self.read(min(count, CHUNK))
            if not data:
                raise self.fault(Reason.TRUNCATED)
            into(data)
            count -= len(data)

    def header(self) -> Header | None:
        """The next header, or None at the end mark. Raises BundleInvalid for anything but a plain regular file."""
        block = self.take(BLOCK)
        if block == _ZEROS:
            return None
        if self.offset == BLOCK and not looks_like_tar(block):
            raise self.fault(Reason.NOT_A_BUNDLE)
        return self._parsed(block)

    def end_member(self, header: Header) -> None:
        """Reads over the padding."""
        if self.take(padding(header.size)).strip(b"\0"):
            raise self.fault(Reason.MEMBER_PADDING, member=shown(header.name))

    def end(self) -> None:
        """The second zero block, zeros up to the end of the record, and nothing more, after `header` gave None."""
        if self.take(BLOCK).strip(b"\0") or self.take(-self.offset % RECORD).strip(b"\0") or self.read(1):
            raise self.fault(Reason.TRAILING_DATA)

    def _parsed(self, block: bytes) -> Header:
        if self._octal(block[148:156], "checksum") != sum(block) - sum(block[148:156]) + 8 * 0x20:
            raise self.fault(Reason.HEADER_CHECKSUM)
        kind = block[156:157]
        if kind != b"0":
            raise self.fault(Reason.MEMBER_KIND, kind=_KINDS.get(kind, f"of the unknown type {kind!r}"))
        if block[257:265] != b"ustar\00000":
            raise self.fault(Reason.HEADER_FORMAT)
        for name, start, end in (("mode", 100, 108), ("owner", 108, 116), ("group", 116, 124), ("time", 136, 148)):
            self._octal(block[start:end], name)
        for name, start, end in (("device number", 329, 337), ("device number", 337, 345)):
            if block[start:end].strip(b"\0") and self._octal(block[start:end], name):
                raise self.fault(Reason.HEADER_FIELD, field=name)
        for name, start, end in (("link name", 157, 257), ("prefix", 345, 500), ("end", 500, 512)):
            if block[start:end].strip(b"\0"):
                raise self.fault(Reason.HEADER_FIELD, field=name)
        spelled, _, rest = block[:100].partition(b"\0")
        if rest.strip(b"\0") or not spelled.isascii():
            raise self.fault(Reason.HEADER_FIELD, field="name")
        return Header(spelled.decode("ascii"), self._octal(block[124:136], "size"))

    def _octal(self, field: bytes, name: str) -> int:
        digits = field.rstrip(b"\0 ")
        if not digits or digits.strip(b"01234567") or len(digits) == len(field):
            raise self.fault(Reason.HEADER_FIELD, field=name)
        return int(digits, 8)
