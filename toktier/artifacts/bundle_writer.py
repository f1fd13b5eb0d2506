"""Writes bundles: the same bytes for the same files, on every host, at any time (docs/bundle-format.md).

Files are hashed again while they are written, so a bundle never carries what its manifest does not say. Not here: which
files a family has (`export`), signatures.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from toktier.artifacts.bundle_manifest import (
    INDEX_NAME,
    MANIFEST_NAME,
    BundleManifest,
    IndexEntry,
    encode_index,
)
from toktier.artifacts.bundle_tar import CHUNK, archive_end, archive_size, member_header, padding
from toktier.artifacts.zstd_frame import MAX_WINDOW
from toktier.errors import ArtifactHashMismatch, EnvironmentFault, UsageError
from toktier.labels import escaped, shown_path
from toktier.regular_files import open_regular
from toktier.storage import OUT, atomic_writer, environment_fault, require_space

COMPRESSED_SUFFIX = ".tar.zst"
PLAIN_SUFFIX = ".tar"
ZSTD_LEVEL = 10

_Write = Callable[[bytes], object]


@dataclass(frozen=True, slots=True)
class BundlePart:
    """One family: its manifest and where each declared file lies."""

    manifest: BundleManifest
    sources: dict[str, Path]

    @property
    def size(self) -> int:
        """Bytes of its plain bundle."""
        return archive_size([len(self.manifest.encode()), *(f.size for f in self.manifest.files)])


@dataclass(frozen=True, slots=True)
class Written:
    """`content_digest`: SHA-256 of the uncompressed archive; `size` of the file and `uncompressed` in bytes."""

    path: Path
    size: int
    uncompressed: int
    content_digest: str


def compresses(out: Path) -> bool:
    """Whether the suffix asks for compression. UsageError for any suffix but .tar and .tar.zst."""
    if out.name.endswith(COMPRESSED_SUFFIX):
        return True
    if out.name.endswith(PLAIN_SUFFIX):
        return False
    raise UsageError(
        f"{shown_path(out)}: expected a name that ends in {PLAIN_SUFFIX} or {COMPRESSED_SUFFIX}",
        details={"out": escaped(out)},
        remedy="toktier artifacts export FAMILY --out bundle.tar",
    )


def check_target(out: Path) -> None:
    """Raises unless `out` is absent or a regular file in a directory that is there: a rename over a device node would
    take the device away, and over a link the link."""
    try:
        status = os.lstat(out)
    except FileNotFoundError:
        if not out.parent.is_dir():
            raise EnvironmentFault(
                f"{shown_path(out.parent)}, where the bundle is to lie, is no directory",
                details={"path": escaped(out.parent)},
                remedy="make the directory first",
            ) from None
        return
    except OSError as error:
        raise environment_fault(error, "write", out, OUT) from None
    if not stat.S_ISREG(status.st_mode):
        raise UsageError(
            f"{shown_path(out)} is there and is no regular file; it is left as it is",
            details={"out": escaped(out)},
            remedy="give --out another name",
        )


def write_bundle(out: Path, parts: Sequence[BundlePart]) -> Written:
    """Writes a plain bundle of one part, or an index and a plain bundle of each, as the suffix of `out` says.

    Written aside, synced, renamed. Raises UsageError for a target that may not be replaced, ArtifactHashMismatch for a
    source that is not what the manifest says, EnvironmentFault.
    """
    compressed = compresses(out)
    check_target(out)
    parts = sorted(parts, key=lambda part: part.manifest.alias)
    index = b"" if len(parts) == 1 else encode_index(_entry(part) for part in parts)
    total = parts[0].size if len(parts) == 1 else archive_size([len(index), *(part.size for part in parts)])
    require_space(out.parent, total // 4 if compressed else total, named_by=OUT)
    digest = hashlib.sha256()
    # The user's own umask says who may read it: what is registered as local/NAME may be private.
    with (
        atomic_writer(out, mode=None, named_by=OUT) as file,
        _compressor(file.write, total, compressed) as write,
    ):
        tally = _Tally(digest.update, write)
        if index:
            _write_several(tally, index, parts)
        else:
            _write_part(tally, parts[0])
        assert tally.count == total
    return Written(out, out.stat().st_size, total, digest.hexdigest())


class _Tally:
    """Passes bytes on and counts them."""

    def __init__(self, *targets: _Write) -> None:
        self._targets = targets
        self.count = 0

    def __call__(self, data: bytes) -> None:
        for target in self._targets:
            target(data)
        self.count += len(data)


@contextlib.contextmanager
def _compressor(write: _Write, total: int, compressed: bool) -> Iterator[_Write]:
    if not compressed:
        yield write
        return
    import zstandard

    parameters = zstandard.ZstdCompressionParameters.from_level(
        ZSTD_LEVEL,
        source_size=total,
        window_log=min(MAX_WINDOW.bit_length() - 1, max(10, (total - 1).bit_length())),
        write_checksum=True,
        write_content_size=True,
    )
    frame = zstandard.ZstdCompressor(compression_params=parameters).compressobj(size=total)
    yield lambda data: write(frame.compress(data))
    write(frame.flush())


def _entry(part: BundlePart) -> IndexEntry:
    return IndexEntry(part.manifest.alias, part.manifest.root_digest, part.size)


def _write_several(write: _Tally, index: bytes, parts: Sequence[BundlePart]) -> None:
    _write_member(write, INDEX_NAME, index)
    for part in parts:
        write(member_header(_entry(part).path, part.size))
        inner = _Tally(write)
        _write_part(inner, part)
        write(bytes(padding(part.size)))
    write(archive_end(write.count))


def _write_part(write: _Tally, part: BundlePart) -> None:
    _write_member(write, MANIFEST_NAME, part.manifest.encode())
    for file in part.manifest.files:
        write(member_header(file.path, file.size))
        _copy(part.sources[file.path], file.sha256, file.size, write)
        write(bytes(padding(file.size)))
    write(archive_end(write.count))


def _write_member(write: _Tally, name: str, data: bytes) -> None:
    write(member_header(name, len(data)))
    write(data)
    write(bytes(padding(len(data))))


def _copy(path: Path, sha256: str, size: int, write: _Write) -> None:
    digest, left = hashlib.sha256(), size
    try:
        with open_regular(path) as stream:
            while left and (data := stream.read(min(left, CHUNK))):
                digest.update(data)
                write(data)
                left -= len(data)
    except OSError as error:
        if error.filename is None:
            raise  # of the target, whose own guard names it
        raise environment_fault(error, "read", path) from None
    if left or digest.hexdigest() != sha256:
        raise ArtifactHashMismatch(
            f"{shown_path(path)} is damaged, or changed while it was exported: expected {size:,} bytes with the "
            f"SHA-256 {sha256}",
            details={"path": escaped(path), "expected_sha256": sha256, "observed_sha256": digest.hexdigest()},
            remedy="toktier artifacts verify",
        )
