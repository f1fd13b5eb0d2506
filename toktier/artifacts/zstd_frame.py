"""One zstd frame, read block by block with bounded memory, to its stated end and not a byte further.

The library's stream reader ends without a word where a frame is cut, and allocates whatever window a header asks for.
So the frame's skeleton (RFC 8878: header, three bytes before each block, checksum) is walked here, and the library is
given whole blocks: at most 128 KiB come out of each, and where the frame ends is known. Not here: compression.
"""

from __future__ import annotations

from typing import Any, Protocol

from toktier.artifacts.bundle_faults import FaultMaker, Reason
from toktier.labels import shown

MAGIC = b"\x28\xb5\x2f\xfd"
MAX_WINDOW = 8 << 20
_MAX_BLOCK = 128 << 10
_FREE_BLOCKS, _MIN_BLOCK = 4096, 1024  # beyond so many blocks, each must give that many bytes on average
_SIZE_FIELD = {0: 0, 1: 2, 2: 4, 3: 8}
_RAW, _RLE, _RESERVED = 0, 1, 3


class _Readable(Protocol):
    def read(self, count: int, /) -> bytes: ...


def is_skippable(head: bytes) -> bool:
    """Whether these bytes begin a skippable frame."""
    return len(head) >= 4 and head[1:4] == b"\x2a\x4d\x18" and head[0] & 0xF0 == 0x50


class ZstdFrame:
    """The content of the frame that `stream` holds, and nothing after it. `read` raises BundleInvalid."""

    def __init__(self, stream: _Readable, fault: FaultMaker) -> None:
        import zstandard  # 20 ms, which plain bundles do not pay

        self._stream, self._fault = stream, fault
        self._error: type[Exception] = zstandard.ZstdError
        self._frame: Any = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW).decompressobj()
        self._ready = b""
        self._at = 0
        self._ended = False
        self._blocks = self._given = 0
        self._block_limit, self._checksum = self._header()

    def read(self, count: int, /) -> bytes:
        """At most `count` bytes; empty after the frame's end, when nothing may follow it."""
        while self._at == len(self._ready):
            if self._ended:
                return b""
            self._ready, self._at = self._next_block(), 0
        data = self._ready[self._at : self._at + count]
        self._at += len(data)
        return data

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self._stream.read(count - len(data))
            if not more:
                raise self._fault(Reason.TRUNCATED)
            data += more
        return data

    def _feed(self, data: bytes) -> bytes:
        try:
            out: bytes = self._frame.decompress(data)
        except self._error as error:
            raise self._fault(Reason.ZSTD_DAMAGED, problem=shown(str(error))) from None
        return out

    def _header(self) -> tuple[int, bool]:
        """Checks the frame header and feeds it. Gives the largest block and whether a checksum ends the frame."""
        head = self._exactly(4)
        if head != MAGIC:
            raise self._fault(Reason.ZSTD_SKIPPABLE if is_skippable(head) else Reason.ZSTD_HEADER)
        descriptor = self._exactly(1)
        bits = descriptor[0]
        if bits & 0b1000:
            raise self._fault(Reason.ZSTD_HEADER)
        if bits & 0b11:
            raise self._fault(Reason.ZSTD_DICTIONARY)
        single = bool(bits & 0b100000)
        window_field = b"" if single else self._exactly(1)
        size_field = self._exactly(1 if single and bits >> 6 == 0 else _SIZE_FIELD[bits >> 6])
        if single:
            window = int.from_bytes(size_field, "little") + (256 if len(size_field) == 2 else 0)
        else:
            base = 1 << (10 + (window_field[0] >> 3))
            window = base + base // 8 * (window_field[0] & 7)
        if window > MAX_WINDOW:
            raise self._fault(Reason.ZSTD_WINDOW, observed=window, limit=MAX_WINDOW)
        self._feed(head + descriptor + window_field + size_field)
        return min(window, _MAX_BLOCK), bool(bits & 0b100)

    def _next_block(self) -> bytes:
        head = self._exactly(3)
        word = int.from_bytes(head, "little")
        last, kind, size = word & 1, word >> 1 & 3, word >> 3
        self._blocks += 1
        too_many = self._blocks > _FREE_BLOCKS + self._given // _MIN_BLOCK
        if kind == _RESERVED or size > self._block_limit or too_many:
            raise self._fault(Reason.ZSTD_BLOCK)
        out = self._feed(head + self._exactly(1 if kind == _RLE else size))
        self._given += len(out)
        if last:
            if self._checksum:
                out += self._feed(self._exactly(4))
            if not self._frame.eof or self._frame.unused_data:
                raise self._fault(Reason.ZSTD_BLOCK)
            if self._stream.read(1):
                raise self._fault(Reason.TRAILING_DATA)
            self._ended = True
        return out
