"""Reads a bundle as hostile input: once, forwards, in bounded memory, and nothing but what its manifest declares.

The manifest comes first and fixes names, order and sizes of all that follows, so nothing is discovered from the
archive. What is done with the files is the visitor's: `Visitor` itself is strict and keeps nothing. Not here: writing
anything, whether content is pinned, signatures.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from toktier.artifacts.bundle_faults import FaultMaker, Reason
from toktier.artifacts.bundle_manifest import (
    INDEX_NAME,
    MANIFEST_NAME,
    MAX_MANIFEST_BYTES,
    MAX_TOTAL_BYTES,
    BundleFile,
    BundleManifest,
    IndexEntry,
    parse_index,
    parse_manifest,
)
from toktier.artifacts.bundle_tar import CHUNK, ArchiveReader, Header, Source
from toktier.artifacts.tar import BLOCK, TarReader, looks_like_tar
from toktier.artifacts.zstd_frame import MAGIC, ZstdFrame, is_skippable
from toktier.errors import BundleInvalid
from toktier.labels import shown, shown_path
from toktier.regular_files import open_regular
from toktier.storage import environment_fault

MAX_ARCHIVE_BYTES = MAX_TOTAL_BYTES + (64 << 20)  # headers and padding of all files and parts
MAX_STRAYS, MAX_STRAY_BYTES = 1000, 64 << 20
SUFFIXES = (".tar", ".tar.zst")


@dataclass(frozen=True, slots=True)
class BundleContent:
    """What was read. `content_digest`: SHA-256 of the uncompressed archive, `uncompressed` its bytes."""

    parts: tuple[BundleManifest, ...]
    several: bool
    compressed: bool
    content_digest: str
    uncompressed: int


class Visitor:
    """Strict: what is missing, undeclared or not what its digest says ends the reading. Overridden to do more."""

    def index(self, entries: Sequence[IndexEntry]) -> None:
        """An index was read; its parts follow."""

    def part(self, manifest: BundleManifest) -> None:
        """A manifest was read; its files follow."""

    def sink(self, manifest: BundleManifest, file: BundleFile) -> Callable[[bytes], object]:
        """Where the bytes of the next file go."""
        return _nowhere

    def file(self, manifest: BundleManifest, file: BundleFile, sha256: str, wrong: BundleInvalid) -> None:
        """All bytes of a file were read. `wrong` is the error for another digest than the declared one."""
        if sha256 != file.sha256:
            raise wrong

    def missing(self, manifest: BundleManifest, file: BundleFile, fault: BundleInvalid) -> None:
        """A declared file is not there."""
        raise fault

    def extra(self, name: str, fault: BundleInvalid) -> None:
        """A member that nobody declared, or that comes twice or late."""
        raise fault


def _nowhere(_: bytes) -> None:
    return None


def looks_like_bundle(path: Path) -> bool:
    """Whether a path is to be read as a bundle: a plain or zstd-compressed tar with a manifest in it, or a file that is
    named like one and whose beginning is no archive that another reader could want. Raises EnvironmentFault when it
    cannot be read."""
    if not path.is_file():
        return False
    fault = FaultMaker(path)
    try:
        with open_regular(path) as raw, io.BufferedReader(raw, CHUNK) as stream:
            head = stream.peek(BLOCK)[:BLOCK]
            compressed = head.startswith(MAGIC)
            source: Source = ZstdFrame(stream, fault) if compressed else stream
            first = ArchiveReader(source, fault).take(BLOCK)
            if looks_like_tar(first) and _is_manifest(first[:100].split(b"\0")[0].decode("ascii", "replace")):
                return True
            rest = ArchiveReader(_After(first, source), fault, limit=MAX_ARCHIVE_BYTES)
            if looks_like_tar(first) and _holds_a_manifest(rest, path):
                return True  # in the wrong place: to be refused as a bundle, not searched as an archive
    except BundleInvalid:
        return path.name.endswith(SUFFIXES)
    except OSError as error:
        raise environment_fault(error, "read", shown_path(path)) from None
    return path.name.endswith(SUFFIXES) and not looks_like_tar(first)


def _is_manifest(name: str) -> bool:
    return name in (MANIFEST_NAME, INDEX_NAME)


def _holds_a_manifest(archive: Source, path: Path) -> bool:
    try:
        return any(_is_manifest(member.name) for member in TarReader(archive, path))
    except BundleInvalid:
        return False  # whoever searches the archive will say what is wrong with it


class _After:
    """A block that was read already, and the rest."""

    def __init__(self, block: bytes, rest: Source) -> None:
        self._block, self._rest = block, rest

    def read(self, count: int, /) -> bytes:
        if self._block:
            data, self._block = self._block[:count], self._block[count:]
            return data
        return self._rest.read(count)


def read_bundle(path: Path, visitor: Visitor) -> BundleContent:
    """Reads all of a bundle. Raises BundleInvalid with a reason, EnvironmentFault, and what the visitor raises."""
    fault = FaultMaker(path)
    try:
        with open_regular(path) as raw:
            size = os.fstat(raw.fileno()).st_size
            if size == 0:
                raise fault(Reason.EMPTY)
            if size > MAX_ARCHIVE_BYTES:
                raise fault(Reason.TOO_LARGE, size=size, limit=MAX_ARCHIVE_BYTES)
            with io.BufferedReader(raw, CHUNK) as stream:
                return _Reading(stream, fault, visitor).run()
    except OSError as error:
        raise environment_fault(error, "read", shown_path(path)) from None


class _Reading:
    def __init__(self, stream: io.BufferedReader[io.FileIO], fault: FaultMaker, visitor: Visitor) -> None:
        head = stream.peek(BLOCK)[:BLOCK]
        self._compressed = head.startswith(MAGIC) or is_skippable(head)
        self._fault, self._visitor = fault, visitor
        self._strays = self._stray_bytes = 0
        self._archive = ArchiveReader(ZstdFrame(stream, fault) if self._compressed else stream, fault)

    def run(self) -> BundleContent:
        archive = self._archive
        first = archive.header()
        if first is None or not _is_manifest(first.name):
            raise archive.fault(Reason.NOT_A_BUNDLE)
        several = first.name == INDEX_NAME
        parts = self._parts(archive, first) if several else (self._part(archive, first),)
        return BundleContent(parts, several, self._compressed, archive.sha256, archive.offset)

    def _parts(self, archive: ArchiveReader, first: Header) -> tuple[BundleManifest, ...]:
        parts = []
        entries = parse_index(self._small(archive, first), self._fault)
        self._visitor.index(entries)
        for entry in entries:
            header = archive.header()
            if header is None or header.name != entry.path:
                raise archive.fault(
                    Reason.MEMBER_ORDER,
                    member="none" if header is None else shown(header.name),
                    expected=entry.path,
                )
            self._same_size(archive, header, entry.size)
            inner = ArchiveReader(archive, self._fault, limit=entry.size)
            head = inner.header()
            if head is None or head.name != MANIFEST_NAME:
                raise inner.fault(Reason.PART, member=entry.path, field="first member")
            parts.append(self._part(inner, head, entry))
            archive.end_member(header)
        if (header := archive.header()) is not None:
            raise archive.fault(Reason.MEMBER_EXTRA, member=shown(header.name))
        archive.end()
        return tuple(parts)

    def _part(self, archive: ArchiveReader, first: Header, entry: IndexEntry | None = None) -> BundleManifest:
        """One plain bundle from after its first header to its end."""
        manifest = parse_manifest(self._small(archive, first), self._fault)
        for field in ("alias", "root_digest"):
            if entry is not None and getattr(entry, field) != getattr(manifest, field):
                raise archive.fault(Reason.PART, member=entry.path, field=field)
        self._visitor.part(manifest)
        left = list(manifest.files)
        header = archive.header()
        while header is not None:
            at = next((i for i, file in enumerate(left) if file.path == header.name), None)
            if at is None:
                self._stray(archive, header, left)
            else:
                for skipped in left[:at]:
                    self._missing(archive, manifest, skipped, header.name)
                self._file(archive, manifest, left[at], header)
                del left[: at + 1]
            header = archive.header()
        for skipped in left:
            self._missing(archive, manifest, skipped, None)
        archive.end()
        return manifest

    def _small(self, archive: ArchiveReader, header: Header) -> bytes:
        """A manifest's bytes, refused by size before they are read."""
        if header.size > MAX_MANIFEST_BYTES:
            raise archive.fault(
                Reason.MANIFEST_SIZE, member=header.name, observed=header.size, limit=MAX_MANIFEST_BYTES
            )
        data = archive.take(header.size)
        archive.end_member(header)
        return data

    def _same_size(self, archive: ArchiveReader, header: Header, expected: int) -> None:
        if header.size != expected:
            raise archive.fault(Reason.MEMBER_SIZE, member=shown(header.name), observed=header.size, expected=expected)

    def _file(self, archive: ArchiveReader, manifest: BundleManifest, file: BundleFile, header: Header) -> None:
        self._same_size(archive, header, file.size)
        sink, digest = self._visitor.sink(manifest, file), hashlib.sha256()

        def both(data: bytes) -> None:
            digest.update(data)
            sink(data)

        archive.pour(file.size, both)
        archive.end_member(header)
        observed = digest.hexdigest()
        wrong = self._fault(Reason.FILE_DIGEST, member=file.path, observed=observed, expected=file.sha256)
        self._visitor.file(manifest, file, observed, wrong)

    def _missing(self, archive: ArchiveReader, manifest: BundleManifest, file: BundleFile, instead: str | None) -> None:
        if instead is None:
            fault = self._fault(Reason.MEMBER_MISSING, offset=archive.offset, expected=file.path)
        else:
            fault = self._fault(Reason.MEMBER_ORDER, offset=archive.offset, member=shown(instead), expected=file.path)
        self._visitor.missing(manifest, file, fault)

    def _stray(self, archive: ArchiveReader, header: Header, left: list[BundleFile]) -> None:
        """An undeclared member: an error, or for a visitor that only looks, one more name."""
        if left:
            fault = self._fault(
                Reason.MEMBER_ORDER, offset=archive.offset, member=shown(header.name), expected=left[0].path
            )
        else:
            fault = self._fault(Reason.MEMBER_EXTRA, offset=archive.offset, member=shown(header.name))
        self._strays += 1
        self._stray_bytes += header.size
        if self._strays > MAX_STRAYS or self._stray_bytes > MAX_STRAY_BYTES:
            raise fault
        self._visitor.extra(header.name, fault)
        archive.pour(header.size, _nowhere)
        archive.end_member(header)
