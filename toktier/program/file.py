"""The program file: sections written under a header, and read back only when every byte of it adds up.

docs/program-format.md is the contract. Here the container is checked (magic, version, sizes, order, digest); the tables
in it are checked by the engine that follows them (`native/engine/program.cpp`).
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from toktier.errors import ProgramCorrupt
from toktier.program.layout import ALIGNMENT, ENTRY_SIZE, FORMAT_VERSION, HEADER_SIZE, MAGIC, MAX_SECTIONS, SECTIONS

_HEADER = struct.Struct("<8sIIQ32s32s32sQ")
_ENTRY = struct.Struct("<4sIQQQ")
_DIGEST = slice(24, 56)

Buffer = bytes | memoryview


@dataclass(frozen=True)
class ProgramFile:
    """A program file whose container holds. `artifact_sha256` and `fingerprint` are hex."""

    buffer: Buffer
    artifact_sha256: str
    fingerprint: str
    places: Mapping[str, tuple[int, int]]  # tag: offset, length in bytes

    def section(self, tag: str) -> memoryview:
        """The bytes of a section; empty when it is absent."""
        offset, length = self.places.get(tag, (0, 0))
        return memoryview(self.buffer)[offset : offset + length]


def write_program(sections: Mapping[str, bytes], artifact_sha256: str, fingerprint: str) -> bytes:
    """The file of `sections`; empty ones are left out. Deterministic: equal sections give equal bytes."""
    present = [(tag, sections[tag]) for tag in SECTIONS if sections.get(tag)]
    unknown = sections.keys() - SECTIONS.keys()
    assert not unknown, unknown
    offset = HEADER_SIZE + ENTRY_SIZE * len(present)
    entries, parts = bytearray(), []
    for tag, data in present:
        assert len(data) % SECTIONS[tag] == 0, tag
        padding = -offset % ALIGNMENT
        offset += padding
        entries += _ENTRY.pack(tag.encode("ascii"), SECTIONS[tag], offset, len(data), 0)
        parts += [bytes(padding), data]
        offset += len(data)
    identity = bytes.fromhex(artifact_sha256), bytes.fromhex(fingerprint)
    header = _HEADER.pack(MAGIC, FORMAT_VERSION, len(present), offset, bytes(32), *identity, 0)
    image = bytearray(b"".join((header, entries, *parts)))
    image[_DIGEST] = hashlib.sha256(image).digest()
    return bytes(image)


def read_program(buffer: Buffer, *, verify_digest: bool = True) -> ProgramFile:
    """The file in `buffer`. Without `verify_digest` the caller vouches that it was verified before.

    Raises ProgramCorrupt: what was found, what was expected.
    """
    size = len(buffer)
    if size < HEADER_SIZE:
        raise _corrupt(f"{size} bytes are less than a header of {HEADER_SIZE}")
    magic, version, count, stated, digest, artifact, fingerprint, zero = _HEADER.unpack_from(buffer)
    if magic != MAGIC:
        raise _corrupt(f"it begins with {magic!r}, not {MAGIC!r}")
    if version != FORMAT_VERSION:
        raise _corrupt(f"format {version}, this version of toktier reads {FORMAT_VERSION}")
    if stated != size:
        raise _corrupt(f"{size:,} bytes, its header says {stated:,}")
    if zero or not 0 < count <= MAX_SECTIONS or HEADER_SIZE + ENTRY_SIZE * count > size:
        raise _corrupt("its header is malformed")
    if verify_digest and _digest(buffer) != digest:
        raise _corrupt("its SHA-256 is not the one in its header")
    places: dict[str, tuple[int, int]] = {}
    end = HEADER_SIZE + ENTRY_SIZE * count
    for index in range(count):
        raw, element, offset, length, zero = _ENTRY.unpack_from(buffer, HEADER_SIZE + ENTRY_SIZE * index)
        tag = raw.decode("latin-1")
        known = SECTIONS.get(tag)
        if known != element or zero or tag in places or offset % ALIGNMENT or length % element:
            raise _corrupt(f"section {index} ({tag!r}) is malformed")
        if offset < end or offset + length > size:
            raise _corrupt(f"section {tag} lies outside its place")
        places[tag] = (offset, length)
        end = offset + length
    return ProgramFile(buffer, artifact.hex(), fingerprint.hex(), places)


def _digest(buffer: Buffer) -> bytes:
    view = memoryview(buffer)
    state = hashlib.sha256(view[: _DIGEST.start])
    state.update(bytes(32))
    state.update(view[_DIGEST.stop :])
    return state.digest()


def _corrupt(what: str) -> ProgramCorrupt:
    return ProgramCorrupt(
        f"the program file does not hold: {what}", remedy="remove it; it is compiled again when needed"
    )
