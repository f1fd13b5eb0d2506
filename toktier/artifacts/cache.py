"""The artifact cache: content-addressed blobs, verified whenever they are handed out, and a note per family.

    artifacts/blobs/sha256/ab/abcdef…     the bytes, named by their digest
    artifacts/verified/ab/abcdef….json    a hint that this very file was hashed and right (`toktier.program.trust`)
    artifacts/verified/ab/abcdef….stored  which file was written from verified bytes; for people, never believed
    artifacts/families/<family>.json      where the family's files came from and when; for people, never believed
    artifacts/locks/                      one lock per blob while it is brought in
    artifacts/parts/                      downloads that are not whole yet
    artifacts/staging/                    files of an import that is under way
    artifacts/quarantine/                 damaged files that a right one has replaced

The shipped pins say which blobs belong to a family, so a cache filled by copying blobs is as good as one filled here.
Reading takes no lock and writes nothing that matters: a read-only cache works, only without new hints. Beside the
user's cache others of the same layout may be read (`shared_caches`), never written. Not here: pins, sources.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from toktier.artifacts.pins import PinnedFile
from toktier.artifacts.quarantine import set_aside
from toktier.canonical import canonical_json
from toktier.config import Settings
from toktier.errors import ArtifactDamaged, ArtifactHashMismatch, ConfigInvalid, EnvironmentFault, ToktierError
from toktier.labels import shown, shown_path, typed
from toktier.program import trust
from toktier.regular_files import open_regular
from toktier.storage import (
    GROUP,
    PRIVATE,
    FileLock,
    Modes,
    atomic_write,
    atomic_writer,
    environment_fault,
    make_directory,
    remove_stale_temporaries,
    require_space,
    sync_directory,
)

NOTE_SCHEMA = "toktier.family_note"
CHUNK = 1 << 20
MAX_NOTE_BYTES = 1 << 16
STALE_PART_SECONDS = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class BlobState:
    """One look at a blob. `status` is ok, missing or damaged, or present where only the size was compared; `sha256` is
    set where the content is known, `shared` for a file of a shared cache."""

    status: str
    path: Path
    size: int | None = None
    sha256: str | None = None
    shared: bool = False


def hash_file(path: Path) -> tuple[str, int]:
    """Hex SHA-256 of a file and the number of bytes that were hashed."""
    digest, size = hashlib.sha256(), 0
    with open_regular(path) as stream:
        while data := stream.read(CHUNK):
            digest.update(data)
            size += len(data)
    return digest.hexdigest(), size


def _unreadable(error: OSError, path: Path) -> EnvironmentFault:
    """Names what refuses: of a blob behind a closed directory nobody knows whether it is there."""
    while isinstance(error, PermissionError) and path != path.parent:
        try:
            os.lstat(path)
        except OSError:
            path = path.parent
        else:
            break
    return EnvironmentFault(
        f"cannot read {shown_path(path)}: {error.strerror}",
        details={"path": str(path)},
        remedy="make the file readable for this user, or point TOKTIER_HOME at a cache that is",
    )


class ArtifactCache:
    """Blobs and notes below `cache_dir`; below `shared` for reading. Nothing is made before something is stored."""

    def __init__(
        self, cache_dir: Path, *, shared: Sequence[Path] = (), modes: Modes = PRIVATE, writable: bool = True
    ) -> None:
        self.root = cache_dir / "artifacts"
        self.shared = tuple(path / "artifacts" for path in shared if path != cache_dir)
        self.modes = modes
        self.writable = writable

    @classmethod
    def of(cls, settings: Settings) -> ArtifactCache:
        """The cache of this run, to read and write. ConfigInvalid on a host that has none."""
        modes = GROUP if settings.cache_mode == "group" else PRIVATE
        return cls(settings.require_cache(), shared=settings.shared_caches, modes=modes)

    @classmethod
    def readable(cls, settings: Settings) -> ArtifactCache | None:
        """As `of`; on a host without a cache directory the shared caches alone, or None."""
        if settings.cache_dir is not None:
            return cls.of(settings)
        if not settings.shared_caches:
            return None
        first, *others = settings.shared_caches
        return cls(first, shared=others, writable=False)

    def own(self) -> ArtifactCache:
        """This cache without the shared ones."""
        return ArtifactCache(self.root.parent, modes=self.modes, writable=self.writable)

    def blob_path(self, sha256: str) -> Path:
        """Where the blob lies, or would, in the user's own cache."""
        return _blob(self.root, sha256)

    def state(self, file: PinnedFile, *, trust_hint: bool = True) -> BlobState:
        """Whether the blob is there and right. With `trust_hint`, a file that only its owner can write and that did
        not change since it was last hashed is not hashed again. What is missing in the user's cache is looked for in
        the shared ones; what is damaged there is not."""
        return self._first(lambda root: self._checked(file, root, trust_hint))

    def inspect(self, file: PinnedFile) -> BlobState:
        """As `state`, always hashed, and nothing written."""
        return self._first(lambda root: self._hashed(file, root, write_hint=False))

    def glance(self, file: PinnedFile) -> BlobState:
        """As `state`, by size alone: present, damaged or missing."""

        def by_size(root: Path) -> BlobState:
            path = _blob(root, file.sha256)
            try:
                size = path.stat().st_size
            except (FileNotFoundError, NotADirectoryError):
                return BlobState("missing", path)
            except OSError as error:
                raise _unreadable(error, path) from None
            return BlobState("present" if size == file.size else "damaged", path, size=size)

        return self._first(by_size)

    def _first(self, look: Callable[[Path], BlobState]) -> BlobState:
        own = look(self.root)
        if own.status != "missing":
            return own
        damaged = None
        for root in self.shared:
            try:
                state = replace(look(root), shared=True)
            except EnvironmentFault:
                continue  # a shared cache that this user may not read is no cache of this user
            if state.status in ("ok", "present"):
                return state
            if state.status == "damaged":
                damaged = damaged or state
        return damaged or own

    def _checked(self, file: PinnedFile, root: Path, trust_hint: bool) -> BlobState:
        path = _blob(root, file.sha256)
        if trust_hint:
            with contextlib.suppress(OSError):
                status = os.stat(path)
                if status.st_size == file.size:
                    for hint in {_hint(root, file.sha256), _hint(self.root, file.sha256)}:
                        if trust.trusted_digest(status, hint) == file.sha256:
                            return BlobState("ok", path, size=status.st_size, sha256=file.sha256)
        return self._hashed(file, root, write_hint=self.writable)

    def _hashed(self, file: PinnedFile, root: Path, *, write_hint: bool) -> BlobState:
        path = _blob(root, file.sha256)
        try:
            status = os.stat(path)
            if not stat.S_ISREG(status.st_mode) or status.st_size != file.size:
                return BlobState("damaged", path, size=status.st_size)
            digest, size = hash_file(path)
        except (FileNotFoundError, NotADirectoryError):
            return BlobState("missing", path)
        except OSError as error:
            raise _unreadable(error, path) from None
        if digest != file.sha256 or size != file.size:
            return BlobState("damaged", path, size=size, sha256=digest)
        if write_hint:
            hint = _hint(self.root, file.sha256)
            with contextlib.suppress(EnvironmentFault):
                make_directory(hint.parent, self.modes.directory)
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
        local = file.family.startswith("local/")
        remedy = f"toktier artifacts {'import PATH --as' if local else 'fetch'} {file.family}"
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
        anything but the whole content; a damaged blob under it is set aside and replaced.
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
        self.require_writable()
        require_space(path, file.size)
        make_directory(path.parent, self.modes.directory)
        with self.lock(file.sha256):
            state = self.state(file)
            if state.status == "ok":
                return False
            self._remove_stale_temporaries()
            if state.status == "damaged" and not state.shared:
                self._replace(path, data)
            else:
                atomic_write(path, data, self.modes.file)
            self._record_stored(file.sha256)
        return True

    def adopt(self, file: PinnedFile, staged: Path) -> bool:
        """As `store`, of a file on the same file system that the caller has hashed and synced: it is moved, not copied.
        Gives False, and leaves it, when a right blob was there already."""
        path = self.blob_path(file.sha256)
        make_directory(path.parent, self.modes.directory)
        with self.lock(file.sha256):
            state = self.state(file)
            if state.status == "ok":
                return False
            try:
                if state.status == "damaged" and not state.shared:
                    set_aside(path, self.root / "quarantine", self.modes)
                os.replace(staged, path)
            except OSError as error:
                raise environment_fault(error, "write", path) from None
            sync_directory(path.parent)
            self._record_stored(file.sha256)
        return True

    def _replace(self, path: Path, data: bytes) -> None:
        """Sets aside what lies at `path` once the right bytes are written, so that a full disk leaves it as it was."""
        with atomic_writer(path, self.modes.file) as stream:
            stream.write(data)
            stream.flush()
            set_aside(path, self.root / "quarantine", self.modes)

    def require_writable(self) -> None:
        """Raises ConfigInvalid where there is no cache of this user's own, EnvironmentFault for a cache in which any
        user could replace what was stored. Reading such a cache is safe: what is read is hashed."""
        if not self.writable:
            raise ConfigInvalid(
                "no cache directory of its own: the shared caches are only read",
                details={"setting": "cache_dir"},
                remedy="set TOKTIER_HOME to a directory, or give --home DIR",
            )
        for directory in (self.root, self.root.parent, self.root.parent.parent):
            with contextlib.suppress(OSError):
                mode = directory.stat().st_mode
                if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
                    raise EnvironmentFault(
                        f"{shown_path(directory)} can be written by every user (mode {stat.S_IMODE(mode):04o}); "
                        "nothing is stored where others could replace it",
                        details={"path": str(directory), "mode": f"{stat.S_IMODE(mode):04o}"},
                        remedy=f"chmod o-w {typed(directory)}, or point TOKTIER_HOME elsewhere; "
                        "users of one group share a cache with `cache_mode = group`",
                    )

    def _remove_stale_temporaries(self) -> None:
        """What killed writers left anywhere here: the same blob may never be written again."""
        directories = [self.root / "families"]
        for parent in (self.root / "blobs" / "sha256", self.root / "verified"):
            with contextlib.suppress(OSError), os.scandir(parent) as entries:
                directories += [parent / e.name for e in entries if e.is_dir(follow_symlinks=False)]
        for directory in directories:
            remove_stale_temporaries(directory)
        remove_stale_temporaries(self.root / "parts", prefix="", seconds=STALE_PART_SECONDS)

    def lock(self, name: str, timeout: float = 60.0) -> FileLock:
        """The lock of one blob or one family. Makes its directory."""
        directory = make_directory(self.root / "locks", self.modes.directory)
        return FileLock(directory / f"{name}.lock", timeout, mode=self.modes.lock)

    def remove(self, file: PinnedFile) -> int:
        """Removes a blob and its hint from the user's own cache; gives the bytes freed."""
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
        for record in (_hint(self.root, file.sha256), _stored(self.root, file.sha256)):
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
        if not self.writable:
            return
        with contextlib.suppress(EnvironmentFault):
            make_directory(self.root / "families", self.modes.directory)
            path = self.root / "families" / f"{family}.json"
            atomic_write(path, canonical_json(document) + b"\n", self.modes.file)

    def read_note(self, family: str) -> dict[str, Any] | None:
        """The note of a family, or None; a note that cannot be read is as good as none."""
        for root in (self.root, *self.shared):
            document = _read_json(root / "families" / f"{family}.json")
            if document is not None and document.get("schema") == NOTE_SCHEMA:
                return document
        return None

    def remove_note(self, family: str) -> None:
        with contextlib.suppress(OSError):
            (self.root / "families" / f"{family}.json").unlink()

    def verified_at(self, sha256: str) -> tuple[str, str] | None:
        """When the blob as it lies there was last known to be right (RFC 3339, UTC), and by what: "hashed", or "stored"
        for bytes that were hashed before they were written and have not been since. None: nothing is recorded."""
        for root in (self.root, *self.shared):
            with contextlib.suppress(OSError):
                status = os.stat(_blob(root, sha256))
                for hint in (_hint(root, sha256), _hint(self.root, sha256)):
                    if trust.trusted_digest(status, hint) == sha256:
                        return _rfc3339(hint.stat().st_mtime), "hashed"
                stored = _stored(root, sha256)
                if (_read_json(stored) or {}).get("identity") == _identity(status):
                    return _rfc3339(stored.stat().st_mtime), "stored"
                return None
        return None

    def _record_stored(self, sha256: str) -> None:
        """Not a hint: those wait until a change would leave a trace. A host that refuses loses only the time."""
        record = _stored(self.root, sha256)
        with contextlib.suppress(EnvironmentFault, OSError):
            identity = _identity(os.stat(self.blob_path(sha256)))
            make_directory(record.parent, self.modes.directory)
            atomic_write(record, canonical_json({"identity": identity}), self.modes.file)


def _blob(root: Path, sha256: str) -> Path:
    return root / "blobs" / "sha256" / sha256[:2] / sha256


def _hint(root: Path, sha256: str) -> Path:
    return root / "verified" / sha256[:2] / f"{sha256}.json"


def _stored(root: Path, sha256: str) -> Path:
    return root / "verified" / sha256[:2] / f"{sha256}.stored"


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
