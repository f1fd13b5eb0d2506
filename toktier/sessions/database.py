"""The database file of a store: made whole or not at all, opened with its settings, its refusals as our errors.

Not here: tables' meaning. SQLite's own locks order the processes; the lock of `toktier.storage` only keeps two of them
from making the file at once.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from toktier.errors import (
    EnvironmentFault,
    InternalError,
    LockTimeout,
    StoreCorrupt,
    StoreFormatUnsupported,
    ToktierError,
)
from toktier.labels import shown_path
from toktier.sessions.file_systems import refuse_network
from toktier.storage import PRIVATE, FileLock, environment_fault, make_directory, sync_directory

_T = TypeVar("_T")
FILE = "sessions.db"
FORMAT = 1
APPLICATION_ID = 0x746B7365
PAGE_SIZE = 1024  # an append dirties a few pages whatever their size: 15 KB an append with 4,096
WAL_PAGES = 4000  # a state row that is written a thousand times reaches the database once
CACHE_KIB = 4096  # a session of a thousand steps is read from memory the second time
SYNCHRONOUS = {"process": "NORMAL", "full": "FULL"}
NAMED_BY = "store="

SCHEMA = """
CREATE TABLE session (
  number INTEGER PRIMARY KEY AUTOINCREMENT, name BLOB, name_key BLOB UNIQUE, fingerprint TEXT NOT NULL,
  keep_text INTEGER NOT NULL, created INTEGER NOT NULL);
CREATE TABLE state (
  number INTEGER PRIMARY KEY, revision INTEGER NOT NULL, sequence INTEGER NOT NULL, tokens INTEGER NOT NULL,
  text_bytes INTEGER NOT NULL, code_points INTEGER NOT NULL, ids_digest BLOB NOT NULL, text_chain BLOB NOT NULL,
  open_text BLOB NOT NULL, tail_text BLOB NOT NULL, tail_ids BLOB NOT NULL, seal BLOB NOT NULL, held INTEGER NOT NULL,
  last_use INTEGER NOT NULL);
CREATE TABLE step (
  number INTEGER PRIMARY KEY, tokens INTEGER NOT NULL, text_bytes INTEGER NOT NULL, code_points INTEGER NOT NULL,
  ids_digest BLOB NOT NULL, text_chain BLOB NOT NULL, text_digest BLOB NOT NULL, ids BLOB NOT NULL, text BLOB NOT NULL);
CREATE TABLE block (number INTEGER PRIMARY KEY, key INTEGER NOT NULL);
CREATE INDEX block_key ON block (key);
"""

_RESTORE = "move the directory away and let sessions be made anew, or restore it from a copy"
_ERRNO = {
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_READONLY: errno.EROFS,
    sqlite3.SQLITE_PERM: errno.EACCES,
    sqlite3.SQLITE_CANTOPEN: errno.EACCES,
    sqlite3.SQLITE_AUTH: errno.EACCES,
    sqlite3.SQLITE_IOERR: errno.EIO,
    sqlite3.SQLITE_NOLFS: errno.EFBIG,
    sqlite3.SQLITE_TOOBIG: errno.EFBIG,
    sqlite3.SQLITE_NOMEM: errno.ENOMEM,
}


def corrupt(path: Path, what: str, session: int | None = None) -> StoreCorrupt:
    """`what` says what does not hold; it must not quote any text of the store."""
    return StoreCorrupt(
        f"the store {shown_path(path)} is damaged: {what}",
        details={"path": os.fspath(path), "session": session},
        remedy=_RESTORE if session is None else "remove this session from the store, and present its text anew",
    )


def translated(error: sqlite3.Error, path: Path, action: str, timeout: float) -> ToktierError:
    """SQLite's refusal as ours. Its own message is left out but for its code: it can quote values."""
    code = getattr(error, "sqlite_errorcode", None)
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    primary = None if code is None else code & 0xFF
    if primary is None:
        return InternalError(f"SQLite refused a call on the store {shown_path(path)}: {name}")
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL):
        return LockTimeout(
            f"waited {timeout:g} s for the store {shown_path(path)}, which another process is writing",
            details={"path": os.fspath(path), "timeout_s": timeout, "holder": {}},
            remedy="wait for that process, or end it, and try again",
        )
    if primary in _ERRNO:
        number = _ERRNO[primary]
        if primary == sqlite3.SQLITE_CANTOPEN and not path.exists():
            number = errno.ENOENT
        if number == errno.EROFS and not os.access(path.parent, os.W_OK):
            number = errno.EACCES
        return environment_fault(OSError(number, f"{os.strerror(number)} ({name})"), action, path, NAMED_BY)
    return corrupt(path, f"SQLite says {name}")


class Database:
    """One connection, used by one thread at a time, opened anew after a fork on both sides."""

    def __init__(self, directory: str | os.PathLike[str], durability: str, timeout: float) -> None:
        self.directory = Path(directory)
        self.path = self.directory / FILE
        self.timeout = timeout
        self._synchronous = SYNCHRONOUS[durability]
        self.lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None  # device and number of the file that is open
        self._closed = False
        _forks.watch(self)
        make_directory(self.directory, PRIVATE.directory, named_by=NAMED_BY)
        refuse_network(self.directory)
        if not self.path.exists():
            self._make()
        with self.reading():
            pass

    def close(self) -> None:
        with self.lock:
            self._closed = True
            connection, self._connection = self._connection, None
            if connection is not None:
                with contextlib.suppress(sqlite3.Error):
                    connection.close()

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The connection, where each statement sees the latest commit; several as one belong in `read`."""
        with self.lock:
            try:
                yield self._open()
            except sqlite3.Error as error:
                raise translated(error, self.path, "use the store", self.timeout) from None

    def read(self, look: Callable[[sqlite3.Connection], _T]) -> _T:
        """`look`, all of whose statements see one state of the store.

        A function, as `write`: a signal that comes into the `__enter__` of a context manager would leave it open.
        """
        with self.lock:
            if self._connection is not None and self._connection.in_transaction:
                return look(self._connection)
            try:
                connection = self._open()
                try:
                    connection.execute("BEGIN")
                    return look(connection)
                finally:
                    connection.rollback()  # first of all: no signal can come before it
            except sqlite3.Error as error:
                raise translated(error, self.path, "use the store", self.timeout) from None

    def write(self, change: Callable[[sqlite3.Connection], _T]) -> _T:
        """`change` as one transaction, which no other writer comes between; undone when it raises."""
        with self.lock:
            try:
                connection = self._open()
                if connection.in_transaction:  # a finalizer or a signal handler, in the middle of another one
                    raise RuntimeError("this thread is using the store already")
                try:
                    connection.execute("BEGIN IMMEDIATE")
                    result = change(connection)
                    connection.execute("COMMIT")
                    return result
                finally:
                    connection.rollback()  # of nothing, after COMMIT; first of all, as above
            except sqlite3.Error as error:
                raise translated(error, self.path, "write the store", self.timeout) from None

    def _open(self) -> sqlite3.Connection:
        if self._connection is not None:
            if self._connection.in_transaction or _identity(self.path) == self._file:
                return self._connection
            # Removed, or another one put in its place: what is written to the old file nobody would ever read.
            connection, self._connection = self._connection, None
            connection.close()
        if self._closed:
            raise EnvironmentFault(f"the store {shown_path(self.path)} is closed", remedy="open it again")
        file = _identity(self.path)
        connection = _connect(self.path, self.timeout)
        try:
            self._check(connection)
            connection.execute(f"PRAGMA synchronous = {self._synchronous}")
            connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
            connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}")
            connection.execute(f"PRAGMA journal_size_limit = {2 * WAL_PAGES * PAGE_SIZE}")
        except BaseException:
            connection.close()
            raise
        self._connection, self._file = connection, file
        return connection

    def suspend(self) -> None:
        """Before a fork: waits for what is running here, and lets the file go until it is next used."""
        self.lock.acquire()
        connection = self._connection
        if connection is not None and not connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                connection.close()
            self._connection = None

    def resume(self, in_child: bool) -> None:
        if in_child:
            self.lock = threading.RLock()
        else:
            self.lock.release()

    def _check(self, connection: sqlite3.Connection) -> None:
        application = _pragma(connection, "application_id")
        version = _pragma(connection, "user_version")
        where = shown_path(self.path)
        details = {"path": os.fspath(self.path), "found": version, "expected": FORMAT}
        if application != APPLICATION_ID:
            raise StoreFormatUnsupported(
                f"{where} is a database of something else, no session store",
                details=details,
                remedy="point store= at another directory",
            )
        if version != FORMAT:
            raise StoreFormatUnsupported(
                f"the store {where} has format {version}: this version reads {FORMAT}",
                details=details,
                remedy="use the version of toktier that wrote it, or point store= at another directory",
            )

    def _make(self) -> None:
        """Under another name, then renamed: nobody ever opens half a store."""
        with FileLock(self.directory / ".make-lock", self.timeout, named_by=NAMED_BY):
            if self.path.exists():
                return
            temporary = self.directory / f".tmp-{os.getpid()}-{os.urandom(8).hex()}"
            try:
                os.close(os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE.file))
                os.chmod(temporary, PRIVATE.file)
                connection = _connect(temporary, self.timeout)
                try:
                    connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
                    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
                    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                    connection.executescript(SCHEMA)
                    connection.execute(f"PRAGMA user_version = {FORMAT}")
                    connection.execute("PRAGMA journal_mode = WAL")
                finally:
                    connection.close()
                os.replace(temporary, self.path)
            except sqlite3.Error as error:
                raise translated(error, self.path, "write the store", self.timeout) from None
            except OSError as error:
                raise environment_fault(error, "write", self.path, NAMED_BY) from None
            finally:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
            sync_directory(self.directory)


class _Forks:
    """SQLite's note of which locks a process holds must not reach a child, where nobody holds them: a file that is open
    across a fork could lose what the child writes. So no store is open while its process forks.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._databases: weakref.WeakSet[Database] = weakref.WeakSet()
        self._suspended: list[Database] = []
        os.register_at_fork(before=self._before, after_in_parent=self._after, after_in_child=self._in_child)

    def watch(self, database: Database) -> None:
        with self._lock:
            self._databases.add(database)

    def _before(self) -> None:
        self._lock.acquire()
        self._suspended = list(self._databases)
        for database in self._suspended:
            database.suspend()

    def _after(self) -> None:
        for database in self._suspended:
            database.resume(False)
        self._suspended = []
        self._lock.release()

    def _in_child(self) -> None:
        for database in self._suspended:
            database.resume(True)
        self._suspended = []
        self._lock = threading.RLock()


_forks = _Forks()


def _connect(path: Path, timeout: float) -> sqlite3.Connection:
    """`mode=rw`: a file that is gone is not made anew by the way."""
    name = f"{path.absolute().as_uri()}?mode=rw"
    return sqlite3.connect(
        name, uri=True, timeout=timeout, isolation_level=None, check_same_thread=False, cached_statements=64
    )


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _pragma(connection: sqlite3.Connection, name: str) -> Any:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]
