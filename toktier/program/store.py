"""Compiled programs on disk: a tokenizer.json is compiled once, and mapped read-only ever after.

A file of the cache is named by the artifact's digest and the compiler's. It is used when its own digest holds (or is
trusted, `trust.py`), its header names the artifact, and the engine opens it; otherwise it is compiled again and
replaced. A cache that cannot be written costs a compilation and one notice, never an answer. While the program is at
hand, no tokenizer.json is parsed and no compiler is imported.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import Any, TypeVar, overload

from toktier import storage
from toktier.errors import ArtifactNotFound, EnvironmentFault, ProgramCorrupt
from toktier.labels import shown_path
from toktier.program import engine_identity, trust
from toktier.program.compiler_identity import compiler_digest
from toktier.program.file import read_program
from toktier.program.installation import identities
from toktier.program.layout import FORMAT_VERSION, HEADER_SIZE
from toktier.program.meta import read_meta
from toktier.program.strict_json import check_size

LOCK_SECONDS = 60.0
KEPT_PER_ARTIFACT = 4  # programs of other compilers: a few installations may share a cache
# Of all programs together, when one is added. One takes 1 to 30 MB, and compiling it again a second.
KEPT_FILES = 64
KEPT_BYTES = 4 << 30
KEPT_HINTS = 1_024  # in one directory: digests of sources by path, or of installations; 300 bytes each
_HINTS, _INSTALLATIONS = "sources", "installations"  # directories beside the programs
# Of madvise(2), which mmap does not name yet. Opening reads most of a program, and the first texts the rest: one call
# in the place of a page fault for every 64 KiB.
_POPULATE_READ = 22
USE_NOTED_AFTER = 86_400.0  # seconds; the time of last use is kept no finer, and costs a write a day

Buffer = bytes | mmap.mmap
T = TypeVar("T")


@dataclass(frozen=True)
class ProgramInfo:
    """Where a program came from. `path` is None for one that is held in memory; `notice` says why in one sentence.
    `meta`: see `meta.py`. `trusted`: its digest was not computed now but when the file was last seen to change."""

    artifact_sha256: str
    fingerprint: str
    path: Path | None
    from_cache: bool
    trusted: bool
    notice: str | None
    meta: dict[str, Any] = field(repr=False)


@overload
def load_or_compile(
    source: bytes | str | os.PathLike[str],
    cache_dir: Path | None,
    *,
    name: str | None = None,
    sha256: str | None = None,
) -> tuple[Buffer, ProgramInfo]: ...


@overload
def load_or_compile(
    source: bytes | str | os.PathLike[str],
    cache_dir: Path | None,
    *,
    opener: Callable[[Buffer], T],
    name: str | None = None,
    sha256: str | None = None,
) -> tuple[T, ProgramInfo]: ...


def load_or_compile(
    source: bytes | str | os.PathLike[str],
    cache_dir: Path | None,
    *,
    opener: Callable[[Buffer], Any] = lambda buffer: buffer,
    name: str | None = None,
    sha256: str | None = None,
) -> tuple[Any, ProgramInfo]:
    """The program of a tokenizer.json, given as its bytes or its path, and where it came from.

    `cache_dir`: directory of programs (made when needed), None for none. `opener` turns the bytes of a program into
    what is returned first, and refuses with ValueError or ProgramCorrupt: a cached program is then compiled again.
    `name` stands in messages. `sha256` (hex): digest of the source where the caller has verified it.

    Raises ArtifactNotFound, EnvironmentFault (unreadable), and what `read_tokenizer` raises.
    """
    artifact = _Artifact(source, name, cache_dir, sha256)
    if cache_dir is None:
        return _in_memory(artifact, opener, "there is no cache directory")
    found = _open_cached(cache_dir, artifact.digest, opener)
    if found is not None:
        return found
    artifact.read()  # from here on `digest` is that of the bytes in hand
    path = _place(cache_dir, artifact.digest)
    lock = storage.FileLock(path.with_suffix(".lock"), LOCK_SECONDS)
    try:
        storage.make_directory(cache_dir)
        lock.acquire()
    except EnvironmentFault as error:
        return _open_cached(cache_dir, artifact.digest, opener) or _in_memory(artifact, opener, error.message)
    try:
        found = _open_cached(cache_dir, artifact.digest, opener)  # by the process that held the lock
        if found is not None:
            return found
        program = artifact.compile()
        storage.atomic_write(path, program)
        _tidy(cache_dir, artifact.digest, path)
    except EnvironmentFault as error:
        return _in_memory(artifact, opener, error.message)
    finally:
        lock.release()
    mapped = _map(path)
    if mapped is None:
        return _in_memory(artifact, opener, f"{shown_path(path)} has vanished")
    return _finish(mapped[0], opener, path=path, notice=None)


def program_path(cache_dir: Path, artifact_sha256: str) -> Path:
    """Where the program of an artifact lies for this compiler. Writes nothing."""
    return cache_dir / _name(artifact_sha256, compiler_digest())


def _place(cache_dir: Path, artifact_sha256: str) -> Path:
    return cache_dir / _name(artifact_sha256, identities(cache_dir / _INSTALLATIONS).compiler)


def _name(artifact_sha256: str, compiler: str) -> str:
    return f"{artifact_sha256}.{compiler[:32]}.v{FORMAT_VERSION}.program"


def installed_engine(cache_dir: Path | None) -> str:
    """The identity of the engine, hex; hashed where no cache directory holds a note of it."""
    return engine_identity.engine_identity() if cache_dir is None else identities(cache_dir / _INSTALLATIONS).engine


class _Artifact:
    """The source, read no more than once and no earlier than needed."""

    def __init__(
        self,
        source: bytes | str | os.PathLike[str],
        name: str | None,
        cache_dir: Path | None,
        sha256: str | None,
    ) -> None:
        self.data: bytes | None = None
        self._program: bytes | None = None
        self._path: Path | None = None
        self._hint: Path | None = None
        if isinstance(source, bytes):
            self.name = name or "tokenizer.json"
            self.data = source
            self.digest = sha256 or hashlib.sha256(source).hexdigest()
            return
        self._path = Path(source)
        self.name = name or shown_path(source)
        if cache_dir is not None:
            with contextlib.suppress(FileNotFoundError):  # a relative path, and the current directory was deleted
                place = hashlib.sha256(os.fsencode(self._path.absolute())).hexdigest()
                self._hint = cache_dir / _HINTS / f"{place}.json"
        known = sha256 or self._trusted()
        self.digest = known if known is not None else self._hash()

    def _trusted(self) -> str | None:
        if self._path is None or self._hint is None:
            return None
        with contextlib.suppress(OSError):
            return trust.trusted_digest(self._path.stat(), self._hint)
        return None

    def _hash(self) -> str:
        """The digest of the file, read in small pieces: mostly a program is at hand, and the bytes are not needed."""
        with self._opened() as file:
            status = os.fstat(file.fileno())
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        self._note(status, digest)
        return digest

    def read(self) -> bytes:
        """The bytes; `digest` becomes theirs."""
        if self.data is not None:
            return self.data
        with self._opened() as file:
            status = os.fstat(file.fileno())
            self.data = file.read()
        digest = hashlib.sha256(self.data).hexdigest()
        if digest != self.digest:  # the file was replaced meanwhile
            self.digest = digest
            self._note(status, digest)
        return self.data

    @contextlib.contextmanager
    def _opened(self) -> Iterator[FileIO]:
        """The file, for reading. Raises what the constructor is said to raise, of reading it too."""
        assert self._path is not None
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            with os.fdopen(descriptor, "rb", buffering=0) as file:
                status = os.fstat(descriptor)
                if not stat.S_ISREG(status.st_mode):
                    raise ArtifactNotFound(f"{self.name} is no regular file", details={"path": os.fspath(self._path)})
                check_size(status.st_size, self.name)
                yield file
        except FileNotFoundError:
            raise ArtifactNotFound(f"there is no file {self.name}", details={"path": os.fspath(self._path)}) from None
        except OSError as error:
            raise storage.environment_fault(error, "read", self._path) from None

    def _note(self, status: os.stat_result, digest: str) -> None:
        if self._hint is not None:
            with contextlib.suppress(EnvironmentFault):
                storage.make_directory(self._hint.parent)
                trust.record_digest(status, digest, self._hint)
                _bound_hints(self._hint.parent)

    def compile(self) -> bytes:
        """The program of the bytes in hand, compiled no more than once."""
        if self._program is None:
            from toktier.program.compile import compile_tokenizer

            self._program = compile_tokenizer(self.read(), self.name, sha256=self.digest)
        return self._program


def _open_cached(cache_dir: Path, digest: str, opener: Callable[[Buffer], Any]) -> tuple[Any, ProgramInfo] | None:
    """The cached program, or None when there is none that holds."""
    path = _place(cache_dir, digest)
    mapped = _map(path)
    if mapped is None:
        return None
    buffer, status = mapped
    hint = path.with_suffix(".verified")
    header = hashlib.sha256(memoryview(buffer)[:HEADER_SIZE]).hexdigest()  # holds the digest of the rest
    trusted = trust.trusted_digest(status, hint) == header
    with contextlib.suppress(ProgramCorrupt, ValueError):
        program = read_program(memoryview(buffer), verify_digest=not trusted)
        if program.artifact_sha256 == digest:
            if not trusted:
                trust.record_digest(status, header, hint)
            else:
                _note_use(hint)
            return _finish(buffer, opener, path=path, notice=None, from_cache=True, trusted=trusted)
    return None


def _map(path: Path) -> tuple[mmap.mmap, os.stat_result] | None:
    """The file mapped, and its status; None for what is not there, empty, or could be written by someone else.

    A digest says that a file is whole, not who made it: a program planted by another user would be whole too.
    """
    try:
        # O_NONBLOCK: a FIFO in the place of the file must not hold the caller.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        if not trust.only_owner_writes(status):
            return None
        mapped = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
        with contextlib.suppress(OSError):  # an older kernel
            mapped.madvise(_POPULATE_READ)
        return mapped, status
    except (OSError, ValueError):  # ValueError: an empty file
        return None
    finally:
        os.close(descriptor)


def _in_memory(artifact: _Artifact, opener: Callable[[Buffer], Any], reason: str) -> tuple[Any, ProgramInfo]:
    artifact.read()
    return _finish(artifact.compile(), opener, path=None, notice=_notice(reason))


def _notice(reason: str) -> str:
    return f"the compiled program is held in memory only: {reason}"


def _finish(
    buffer: Buffer,
    opener: Callable[[Buffer], Any],
    *,
    path: Path | None,
    notice: str | None,
    from_cache: bool = False,
    trusted: bool = False,
) -> tuple[Any, ProgramInfo]:
    program = read_program(memoryview(buffer), verify_digest=False)
    meta = read_meta(program.section("META"))
    info = ProgramInfo(program.artifact_sha256, program.fingerprint, path, from_cache, trusted, notice, meta)
    return opener(buffer), info


def _bound_hints(directory: Path) -> None:
    """One for each path ever read, temporary ones too, would be without end: beyond KEPT_HINTS the older quarter goes.
    A hint that is gone costs one hashing."""
    with contextlib.suppress(OSError):
        hints = [(entry.stat().st_mtime, entry.path) for entry in os.scandir(directory) if entry.name.endswith(".json")]
        if len(hints) <= KEPT_HINTS:
            return
        storage.remove_stale_temporaries(directory)
        for _, path in sorted(hints)[: len(hints) - KEPT_HINTS * 3 // 4]:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)


def _note_use(hint: Path) -> None:
    """The time of the hint, not of the program: a change of that one's would have it hashed again."""
    with contextlib.suppress(OSError):
        if time.time() - hint.stat().st_mtime > USE_NOTED_AFTER:
            os.utime(hint)


def _last_used(path: Path) -> float:
    status = path.stat()
    latest = max(status.st_mtime, status.st_atime)
    with contextlib.suppress(OSError):
        latest = max(latest, path.with_suffix(".verified").stat().st_mtime)
    return latest


def _tidy(cache_dir: Path, digest: str, newest: Path) -> None:
    """Removes what killed writers left, programs of this artifact but the newest few, and beyond the bounds on all of
    them the least recently used; never `newest`. A process that has one of them mapped keeps it."""
    storage.remove_stale_temporaries(cache_dir)
    _bound_hints(cache_dir / _INSTALLATIONS)
    with contextlib.suppress(OSError):
        _remove_beyond_bounds(cache_dir, digest, newest)


def _remove_beyond_bounds(cache_dir: Path, digest: str, newest: Path) -> None:
    programs: list[tuple[float, int, Path]] = []
    for path in cache_dir.glob("*.program"):
        with contextlib.suppress(OSError):  # removed meanwhile, by another process
            programs.append((_last_used(path), path.stat().st_size, path))
    for hint in cache_dir.glob("*.verified"):
        if not hint.with_suffix(".program").exists():
            hint.unlink(missing_ok=True)
    kept, size, of_artifact = 1, newest.stat().st_size, 1
    for _, length, path in sorted(programs, reverse=True):
        if path == newest:
            continue
        same = path.name.startswith(f"{digest}.")
        if kept < KEPT_FILES and size + length <= KEPT_BYTES and not (same and of_artifact == KEPT_PER_ARTIFACT):
            kept, size, of_artifact = kept + 1, size + length, of_artifact + same
            continue
        with contextlib.suppress(OSError):
            path.unlink()
            path.with_suffix(".verified").unlink(missing_ok=True)
