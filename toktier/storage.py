"""Files that are either whole or absent: atomic writes, room for them, and locks that die with their holder.

Every file that toktier writes (cache, programs, state) goes through here. A write goes to a temporary file in the same
directory, is synced, and is renamed over the final name, so that no reader and no power loss ever sees half a file. No
hard or symbolic link is needed. Not here: what is written, digests of it, quotas.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO

from toktier.errors import EnvironmentFault, LockTimeout
from toktier.labels import shown, shown_path


@dataclass(frozen=True, slots=True)
class Modes:
    """Who may use what is written: permission bits of files, directories and lock files."""

    file: int
    directory: int
    lock: int


PRIVATE = Modes(0o600, 0o700, 0o600)
# The directories hand their group down. A lock file holds only its holder's name, which anyone may read.
GROUP = Modes(0o660, 0o2770, 0o664)
FILE_MODE = PRIVATE.file
DIRECTORY_MODE = PRIVATE.directory

# Left free beside what is to be written: notes, hints, and the writers of others.
RESERVE_BYTES = 4 << 20

_TEMPORARY_PREFIX = ".tmp-"
_STALE_SECONDS = 3600.0
_POLL_FIRST, _POLL_LONGEST = 0.002, 0.05
# A lock file of another user gets the bits of its group a moment after it appears.
_FOREIGN_LOCK_SECONDS = 1.0
_MAX_HOLDER_BYTES = 512

_UNREADABLE = "make the file readable for this user"
_DIRECTORY = "name a file"
# What names the place of a file: the remedy for a refusal there says to give another.
HOME, OUT = "TOKTIER_HOME", "--out"
_REMEDIES = {
    errno.ENOSPC: "free space on that file system, or point {} elsewhere",
    errno.EDQUOT: "free space within the quota, or point {} elsewhere",
    errno.EACCES: "make the directory writable, or point {} at one that is",
    errno.EPERM: "make the directory writable, or point {} at one that is",
    errno.EROFS: "point {} at a writable file system",
    errno.ENOENT: "point {} at a directory that can be made",
    errno.ENOTDIR: "point {} elsewhere: a part of this path is a file",
}


def environment_fault(
    error: OSError, action: str, path: str | os.PathLike[str], named_by: str = HOME
) -> EnvironmentFault:
    """The host's refusal as an error that names what was tried, where, and what mends it. `named_by`: what the user
    gives to have it elsewhere, HOME or OUT."""
    reason = error.strerror or (os.strerror(error.errno) if error.errno else str(error))
    remedy = _REMEDIES.get(error.errno or 0, "").format(named_by) or None
    if action.startswith("read"):  # no other place would hold what is to be read
        remedy = {errno.EACCES: _UNREADABLE, errno.EPERM: _UNREADABLE, errno.EISDIR: _DIRECTORY}.get(error.errno or 0)
    return EnvironmentFault(
        f"cannot {action} {shown_path(path)}: {reason}",
        details={"path": os.fspath(path), "errno": errno.errorcode.get(error.errno or 0, "")},
        remedy=remedy,
    )


def require_space(
    path: str | os.PathLike[str], needed: int, reserve: int = RESERVE_BYTES, *, named_by: str = HOME
) -> None:
    """Raises EnvironmentFault unless `needed` bytes and the reserve are free where `path` is, or would be made.

    A forecast that spares a long download: quotas are not asked, and others may fill the disk meanwhile.
    """
    step = Path(path)
    while True:
        try:
            status = os.statvfs(step)
            break
        except FileNotFoundError:
            if step == step.parent:
                return
            step = step.parent
        except OSError:
            return  # what cannot be asked is left to the write itself
    available = status.f_bavail * status.f_frsize
    if status.f_blocks and available < needed + reserve:
        raise EnvironmentFault(
            f"not enough space for {shown_path(path)}: {needed:,} bytes are needed and {reserve:,} stay free, "
            f"{available:,} are available",
            details={
                "path": os.fspath(path),
                "errno": "ENOSPC",
                "needed_bytes": needed,
                "reserve_bytes": reserve,
                "available_bytes": available,
            },
            remedy=_REMEDIES[errno.ENOSPC].format(named_by),
        )


def make_directory(path: str | os.PathLike[str], mode: int = DIRECTORY_MODE, *, named_by: str = HOME) -> Path:
    """Makes `path` and its parents, each new one with `mode` whatever the umask. Raises EnvironmentFault."""
    directory = Path(path)
    try:
        missing: list[Path] = []
        step = directory
        while not step.exists():
            missing.append(step)
            step = step.parent
        for step in reversed(missing):
            with contextlib.suppress(FileExistsError):
                step.mkdir(mode=mode)
                step.chmod(mode)
        if not directory.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), os.fspath(directory))
    except OSError as error:
        raise environment_fault(error, "make the directory", directory, named_by) from None
    return directory


def sync_directory(path: str | os.PathLike[str]) -> None:
    """Makes a rename in `path` durable. File systems that cannot sync a directory are left to their own order."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def atomic_writer(
    path: str | os.PathLike[str], mode: int | None = FILE_MODE, *, named_by: str = HOME
) -> Iterator[IO[bytes]]:
    """A binary file to write to; it becomes `path` when the block ends, and vanishes when the block raises.

    The directory must exist. The final file has exactly `mode`; None: what the umask leaves of 0666, as for any file
    that the user himself makes. Raises EnvironmentFault for the host's refusals.
    """
    final = Path(path)
    temporary = final.parent / f"{_TEMPORARY_PREFIX}{os.getpid()}-{os.urandom(8).hex()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        descriptor = os.open(temporary, flags, 0o666 if mode is None else mode)
    except OSError as error:
        raise environment_fault(error, "write in", final.parent, named_by) from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, final)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError):
            raise _write_fault(error, final, named_by) from None
        raise
    sync_directory(final.parent)


def _write_fault(error: OSError, final: Path, named_by: str) -> EnvironmentFault:
    """`environment_fault` of a write; where space or quota ended, also what was free when it ended."""
    fault = environment_fault(error, "write", final, named_by)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        with contextlib.suppress(OSError):
            status = os.statvfs(final.parent)
            fault.details["available_bytes"] = status.f_bavail * status.f_frsize
    return fault


def atomic_write(
    path: str | os.PathLike[str],
    data: bytes | bytearray | memoryview,
    mode: int | None = FILE_MODE,
    *,
    named_by: str = HOME,
) -> None:
    """Writes `data` as `path`, whole or not at all, as `atomic_writer` does. Raises EnvironmentFault; `details` of a
    full disk hold `needed_bytes` and `available_bytes`."""
    try:
        with atomic_writer(path, mode, named_by=named_by) as file:
            file.write(data)
    except EnvironmentFault as fault:
        if "available_bytes" in fault.details:
            fault.details["needed_bytes"] = memoryview(data).nbytes
        raise


def is_temporary(name: str) -> bool:
    """Whether a file of this name is one that `atomic_writer` had not finished."""
    return name.startswith(_TEMPORARY_PREFIX)


def remove_stale_temporaries(
    directory: str | os.PathLike[str], *, prefix: str = _TEMPORARY_PREFIX, seconds: float = _STALE_SECONDS
) -> int:
    """Removes what killed writers left in `directory` more than an hour ago, or files of `prefix` that are `seconds`
    old; gives the number of files removed.

    By age, not by process number: a directory may be shared by hosts or containers whose numbers say nothing here.
    """
    removed = 0
    oldest = time.time() - seconds
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if not entry.name.startswith(prefix):
                continue
            with contextlib.suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode) and status.st_mtime < oldest:
                    os.unlink(entry.path)
                    removed += 1
    return removed


class FileLock:
    """An exclusive lock between processes and threads, named by a file; a context manager, not reentrant.

    The kernel holds the lock (flock), so it ends with its holder however that ends. The file carries the holder's
    process number, host and start for messages only, and is removed on release.
    """

    def __init__(
        self, path: str | os.PathLike[str], timeout: float = 60.0, *, mode: int = PRIVATE.lock, named_by: str = HOME
    ) -> None:
        """`timeout` in seconds; 0 tries once. `mode`: permission bits of the file, whatever the umask."""
        self.path = Path(path)
        self.timeout = timeout
        self.mode = mode
        self.named_by = named_by
        self._descriptor: int | None = None
        self._refused_since: float | None = None

    def acquire(self) -> None:
        """Raises LockTimeout after `timeout` seconds, EnvironmentFault when the host cannot lock there."""
        if self._descriptor is not None:
            raise RuntimeError(f"{self.path} is already held by this object")
        deadline = time.monotonic() + self.timeout
        pause = _POLL_FIRST
        self._refused_since = None
        while not self._try():
            left = deadline - time.monotonic()
            if left <= 0:
                raise self._timed_out()
            time.sleep(min(pause, left))
            pause = min(pause * 2, _POLL_LONGEST)

    def release(self) -> None:
        """Removes the file, then lets the next one in. Nothing happens when the lock is not held."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        try:
            # Removed while held: whoever opened this file meanwhile finds that the name is gone, and opens it anew.
            with contextlib.suppress(OSError):
                os.unlink(self.path)
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_UN)
        finally:
            os.close(descriptor)

    def _try(self) -> bool:
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, self.mode)
        except OSError as error:
            if isinstance(error, PermissionError) and self._may_become_open():
                return False
            raise environment_fault(error, "lock", self.path, self.named_by) from None
        held = False
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            except OSError as error:
                raise environment_fault(error, "lock", self.path, self.named_by) from None
            try:
                named = os.stat(self.path, follow_symlinks=False)
            except FileNotFoundError:
                return False
            mine = os.fstat(descriptor)
            if (named.st_dev, named.st_ino) != (mine.st_dev, mine.st_ino):
                return False
            with contextlib.suppress(OSError):
                if mine.st_uid == os.geteuid():
                    os.fchmod(descriptor, self.mode)
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, _holder_line(), 0)
            held = True
        finally:
            if not held:
                os.close(descriptor)
        self._descriptor = descriptor
        return True

    def _may_become_open(self) -> bool:
        """Whether the file is another user's whose bits may still be to come: only where a group shares locks."""
        if self.mode == PRIVATE.lock or not os.path.lexists(self.path):
            return False
        now = time.monotonic()
        self._refused_since = self._refused_since or now
        return now - self._refused_since < _FOREIGN_LOCK_SECONDS

    def _timed_out(self) -> LockTimeout:
        holder = read_holder(self.path)
        who = "another process"
        if holder:
            who = f"process {holder['pid']} on {holder['host']} since {holder['since']}"
        return LockTimeout(
            f"waited {self.timeout:g} s for {shown_path(self.path)}, held by {who}",
            details={"path": os.fspath(self.path), "holder": holder, "timeout_s": self.timeout},
            remedy="wait for that process, or end it, and try again",
        )

    def __enter__(self) -> FileLock:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _holder_line() -> bytes:
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return f"{os.getpid()} {os.uname().nodename} {since}\n".encode("ascii", "backslashreplace")


def read_holder(path: str | os.PathLike[str]) -> dict[str, str]:
    """`pid`, `host` and `since` (RFC 3339, UTC) of whoever holds the lock file, for messages; empty if unknown."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return {}
    with os.fdopen(descriptor, "rb") as file, contextlib.suppress(OSError):
        words = [shown(word) for word in file.read(_MAX_HOLDER_BYTES).decode("ascii", "replace").split()]
        if len(words) == 3:
            return dict(zip(("pid", "host", "since"), words, strict=True))
    return {}
