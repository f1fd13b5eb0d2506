"""The artifact cache: content-addressed blobs, verified whenever they are handed out, and a note per family.

    artifacts/blobs/sha256/ab/abcdef…     the bytes, named by their digest
    artifacts/verified/ab/abcdef….json    a hint that this very file was hashed and right (`toktier.program.trust`)
    artifacts/verified/ab/abcdef….stored  which file was written from verified bytes; for people, never believed
    artifacts/families/<family>.json      where the family's files came from and when; for people, never believed
    artifacts/locks/                      one lock per blob while it is brought in

The shipped pins say which blobs belong to a family, so a cache filled by copying blobs is as good as one filled here.
Reading writes nothing that matters: a read-only cache works, only without new hints. Not here: pins, sources.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toktier.artifacts.pins import PinnedFile
from toktier.canonical import canonical_json
from toktier.errors import ArtifactDamaged, ArtifactHashMismatch, EnvironmentFault, ToktierError
from toktier.labels import shown
from toktier.program import trust
from toktier.regular_files import open_regular
from toktier.storage import FileLock, atomic_write, make_directory, remove_stale_temporaries

NOTE_SCHEMA = "toktier.family_note"
CHUNK = 1 << 20
MAX_NOTE_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class BlobState:
    """One look at a blob. `status` is ok, missing or damaged; `sha256` is set where the content is known."""

    status: str
    path: Path
    size: int | None = None
    sha256: str | None = None


def hash_file(path: Path) -> tuple[str, int]:
    """Hex SHA-256 of a file and the number of bytes that were hashed."""
    digest, size = hashlib.sha256(), 0
    with open_regular(path) as stream:
        while data := stream.read(CHUNK):
            digest.update(data)
            size += len(data)
    return digest.hexdigest(), size


class ArtifactCache:
    """Blobs and notes below `cache_dir`. Nothing is created before something is stored."""

    def __init__(self, cache_dir: Path) -> None:
        self.root = cache_dir / "artifacts"

    def blob_path(self, sha256: str) -> Path:
        return self.root / "blobs" / "sha256" / sha256[:2] / sha256

    def state(self, file: PinnedFile, *, trust_hint: bool = True) -> BlobState:
        """Whether the blob is there and right. With `trust_hint`, a file that only its owner can write and that did
        not change since it was last hashed is not hashed again."""
        path = self.blob_path(file.sha256)
        if trust_hint:
            with contextlib.suppress(OSError):
                status = os.stat(path)
                hint = self._hint_path(file.sha256)
                if status.st_size == file.size and trust.trusted_digest(status, hint) == file.sha256:
                    return BlobState("ok", path, size=status.st_size, sha256=file.sha256)
        return self._hashed(file, path, write_hint=True)

    def inspect(self, file: PinnedFile) -> BlobState:
        """As `state`, always hashed, and nothing written."""
        return self._hashed(file, self.blob_path(file.sha256), write_hint=False)

    def _hashed(self, file: PinnedFile, path: Path, *, write_hint: bool) -> BlobState:
        try:
            status = os.stat(path)
            if not stat.S_ISREG(status.st_mode) or status.st_size != file.size:
                return BlobState("damaged", path, size=status.st_size)
            digest, size = hash_file(path)
        except (FileNotFoundError, NotADirectoryError):
            return BlobState("missing", path)
        except OSError as error:
            raise EnvironmentFault(
                f"cannot read {path}: {error.strerror}",
                details={"path": str(path)},
                remedy="make the file readable for this user, or point TOKTIER_HOME at a cache that is",
            ) from None
        if digest != file.sha256 or size != file.size:
            return BlobState("damaged", path, size=size, sha256=digest)
        if write_hint:
            hint = self._hint_path(file.sha256)
            with contextlib.suppress(EnvironmentFault):
                make_directory(hint.parent)
                trust.record_digest(status, digest, hint)
        return BlobState("ok", path, size=size, sha256=digest)

    def damage(self, file: PinnedFile, state: BlobState) -> ToktierError:
        """The error for a blob that is not what its name says."""
        details: dict[str, Any] = {
            "family": file.family,
            "file": file.name,
            "path": str(state.path),
            "size": state.size,
            "expected_size": file.size,
            "expected_sha256": file.sha256,
        }
        remedy = f"toktier artifacts fetch {file.family}"
        if state.sha256 is not None:
            details["observed_sha256"] = state.sha256
            return ArtifactHashMismatch(
                f"{state.path} ({state.size:,} bytes) is damaged: {file.family}'s {file.name} must have the SHA-256 "
                f"{file.sha256}, this file has {state.sha256}",
                details=details,
                remedy=remedy,
            )
        problem = "is empty (0 bytes)" if state.size == 0 else f"has {state.size:,} bytes"
        return ArtifactDamaged(
            f"{state.path} is damaged: it {problem}, {file.family}'s {file.name} has {file.size:,}",
            details=details,
            remedy=remedy,
        )

    def store(self, file: PinnedFile, data: bytes) -> bool:
        """Puts verified bytes under their digest. Gives False when a right blob was there already.

        Raises ArtifactHashMismatch for other bytes, EnvironmentFault when the host refuses. The final name never holds
        anything but the whole content; a damaged blob under it is replaced.
        """
        digest = hashlib.sha256(data).hexdigest()
        if digest != file.sha256 or len(data) != file.size:
            raise ArtifactHashMismatch(
                f"{file.family}'s {file.name} must have the SHA-256 {file.sha256}; "
                f"these {len(data):,} bytes have {digest}",
                details={"expected_sha256": file.sha256, "observed_sha256": digest, "size": len(data)},
            )
        path = self.blob_path(file.sha256)
        if self.state(file).status == "ok":
            return False
        make_directory(path.parent)
        with self.lock(file.sha256):
            if self.state(file).status == "ok":
                return False
            self._remove_stale_temporaries()
            atomic_write(path, data)
            self._record_stored(file.sha256)
        return True

    def _remove_stale_temporaries(self) -> None:
        """What killed writers left anywhere here: the same blob may never be written again."""
        directories = [self.root / "families"]
        for parent in (self.root / "blobs" / "sha256", self.root / "verified"):
            with contextlib.suppress(OSError), os.scandir(parent) as entries:
                directories += [parent / e.name for e in entries if e.is_dir(follow_symlinks=False)]
        for directory in directories:
            remove_stale_temporaries(directory)

    def lock(self, name: str, timeout: float = 60.0) -> FileLock:
        """The lock of one blob or one family. Makes its directory."""
        directory = make_directory(self.root / "locks")
        return FileLock(directory / f"{name}.lock", timeout)

    def remove(self, file: PinnedFile) -> int:
        """Removes a blob and its hint; gives the bytes freed."""
        path = self.blob_path(file.sha256)
        try:
            size = path.stat().st_size
            path.unlink()
        except (FileNotFoundError, NotADirectoryError):
            return 0
        except OSError as error:
            raise EnvironmentFault(
                f"cannot remove {path}: {error.strerror}",
                details={"path": str(path)},
                remedy="make the cache writable, or remove it as its owner",
            ) from None
        for record in (self._hint_path(file.sha256), self._stored_path(file.sha256)):
            with contextlib.suppress(OSError):
                record.unlink()
        return size

    def note(self, family: str, files: dict[str, str], source: str) -> None:
        """Writes down where a family's files came from. A host that refuses loses only the note."""
        before = self.read_note(family) or {}
        if isinstance(before.get("files"), dict):
            kept = {n: d for n, d in before["files"].items() if isinstance(d, str) and (n + d).isprintable()}
            files = kept | files
        document = {
            "schema": NOTE_SCHEMA,
            "schema_version": 1,
            "family": family,
            "files": files,
            "source": shown(source, 300),
            "stored_at": _rfc3339(time.time()),
        }
        with contextlib.suppress(EnvironmentFault):
            make_directory(self.root / "families")
            atomic_write(self.root / "families" / f"{family}.json", canonical_json(document) + b"\n")

    def read_note(self, family: str) -> dict[str, Any] | None:
        """The note of a family, or None; a note that cannot be read is as good as none."""
        document = _read_json(self.root / "families" / f"{family}.json")
        return document if document is not None and document.get("schema") == NOTE_SCHEMA else None

    def remove_note(self, family: str) -> None:
        with contextlib.suppress(OSError):
            (self.root / "families" / f"{family}.json").unlink()

    def verified_at(self, sha256: str) -> tuple[str, str] | None:
        """When the blob as it lies there was last known to be right (RFC 3339, UTC), and by what: "hashed", or "stored"
        for bytes that were hashed before they were written and have not been since. None: nothing is recorded."""
        with contextlib.suppress(OSError):
            status = os.stat(self.blob_path(sha256))
            hint, stored = self._hint_path(sha256), self._stored_path(sha256)
            if trust.trusted_digest(status, hint) == sha256:
                return _rfc3339(hint.stat().st_mtime), "hashed"
            if (_read_json(stored) or {}).get("identity") == _identity(status):
                return _rfc3339(stored.stat().st_mtime), "stored"
        return None

    def _record_stored(self, sha256: str) -> None:
        """Not a hint: those wait until a change would leave a trace. A host that refuses loses only the time."""
        record = self._stored_path(sha256)
        with contextlib.suppress(EnvironmentFault, OSError):
            identity = _identity(os.stat(self.blob_path(sha256)))
            make_directory(record.parent)
            atomic_write(record, canonical_json({"identity": identity}))

    def _hint_path(self, sha256: str) -> Path:
        return self.root / "verified" / sha256[:2] / f"{sha256}.json"

    def _stored_path(self, sha256: str) -> Path:
        return self.root / "verified" / sha256[:2] / f"{sha256}.stored"


def _identity(status: os.stat_result) -> list[str]:
    numbers = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return [str(number) for number in numbers]  # nanoseconds are beyond the integers of canonical JSON


def _rfc3339(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        with open_regular(path) as stream:
            data = stream.read(MAX_NOTE_BYTES)
        document = json.loads(data)
    except (OSError, ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None
