"""The SQLite file of the router's records: its tables, how it is made, opened, bounded and set aside.

    requests  one row for each finished request: the members of RequestFacts, and its class of reuse
    slots     what each slot held when rows were last written
    outputs   only where outputs are recorded, for `toktier serve report`: position INTEGER PRIMARY KEY,
              prompt_digest BLOB, reused INTEGER, output TEXT, started REAL, request_id TEXT
              `prompt_digest`: of the prompt's token IDs and of all that decides what is sampled: outputs of equal ones
              are to be compared. `reused`: 1 where tokens of a slot were reused, else 0. `position`: grows by the
              bytes of each row, so that the oldest rows beyond a budget are found without a sum.

No text but of outputs, no token IDs. SQLite's log (WAL) is not used: its index is memory mapped from a file, and
whoever truncates that file ends the process. Used by one thread at a time; `reading` is for everybody else. Not here:
the queue before it and what happens after a fault (`records`), the words for faults (`records_faults`).
"""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import sqlite3
import stat
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from toktier.errors import StoreCorrupt, StoreFormatUnsupported, StoreNotFound
from toktier.labels import shown, shown_path
from toktier.router.records_faults import RecordsFault, RecordsRefused, fault_of
from toktier.router.request_facts import RequestFacts
from toktier.router.rows import SlotRow
from toktier.sessions.database import translated
from toktier.sessions.file_systems import is_network, type_of
from toktier.storage import PRIVATE, make_directory

FORMAT: Final = 1
APPLICATION_ID: Final = 0x746B7273
MAX_CHECKED_BYTES = 256 << 20
KEEP_DAMAGED = 4  # files set aside beside the database; with as many there, no further one is made
ROW_OVERHEAD = 128  # bytes that a row of outputs counts beside its text

_TIMEOUT = 1.0  # seconds to wait for another writer
_CACHE_KIB = 1024
_DAMAGED = ".damaged-"
_SIDE_FILES = ("-journal", "-wal", "-shm")
_DAY = 86_400.0
_MAX_INTEGER = (1 << 63) - 1

_TABLES: Final = {
    "requests": (
        "number INTEGER PRIMARY KEY", "id TEXT NOT NULL", "started REAL NOT NULL", "route TEXT NOT NULL",
        "stream INTEGER NOT NULL", "upstream INTEGER NOT NULL", "slot INTEGER", "choice TEXT NOT NULL",
        "unrouted TEXT", "ids TEXT NOT NULL", "outcome TEXT NOT NULL", "status INTEGER",
        "prompt_tokens INTEGER NOT NULL", "generated_tokens INTEGER NOT NULL", "predicted INTEGER NOT NULL",
        "measured INTEGER", "reuse TEXT NOT NULL", "stale INTEGER NOT NULL", "prompt_ms REAL", "generated_ms REAL",
        "first_byte_ms REAL", "duration_ms REAL", "router_ms REAL",
    ),
    "slots": (
        "number INTEGER PRIMARY KEY", "upstream INTEGER NOT NULL", "slot INTEGER NOT NULL", "state TEXT NOT NULL",
        "tokens INTEGER NOT NULL", "sure INTEGER NOT NULL", "held INTEGER NOT NULL", "reuses INTEGER NOT NULL",
        "last_use REAL", "written REAL NOT NULL",
    ),
    "outputs": (
        "position INTEGER PRIMARY KEY", "prompt_digest BLOB NOT NULL", "reused INTEGER NOT NULL",
        "output TEXT NOT NULL", "started REAL NOT NULL", "request_id TEXT NOT NULL",
    ),
}  # fmt: skip
_COLUMNS = {table: [column.split(" ")[0] for column in columns] for table, columns in _TABLES.items()}


class Output(NamedTuple):
    """A row of `outputs`."""

    prompt_digest: bytes
    reused: bool
    text: str
    bytes: int
    started: float
    request_id: str


class RecordsFile:
    """The file, opened when it is first written and anew when another lies in its place."""

    def __init__(self, path: Path, *, keep_rows: int, keep_days: float, keep_output_bytes: int) -> None:
        self.path = path
        self._keep_rows, self._keep_days, self._keep_output_bytes = keep_rows, keep_days, keep_output_bytes
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None

    def open(self) -> None:
        """Nothing where it is open and still the file of this name. Raises RecordsRefused, sqlite3.Error, OSError or
        EnvironmentFault: `fault_of` tells which fault. A damaged file is told too; the next call makes a new one."""
        if self._connection is not None:
            if _identity_of(self.path) == self._identity:
                return
            self.close()
            raise RecordsRefused(RecordsFault.REMOVED)
        make_directory(self.path.parent)
        kind = type_of(self.path.parent)
        if kind is not None and is_network(kind):
            raise RecordsRefused(RecordsFault.NETWORK)
        self._prepare()
        identity = _identity_of(self.path)
        connection = _connect(self.path)
        try:
            _settle(connection)
        except BaseException as error:
            connection.close()
            if fault_of(error) is RecordsFault.DAMAGED:
                self._set_aside()
            raise
        self._connection, self._identity = connection, identity

    def write(
        self,
        requests: Sequence[tuple[Any, ...]],
        outputs: Sequence[Output],
        slots: Sequence[SlotRow] | None,
        now: float,
    ) -> None:
        """One transaction: all of it or, after an error as of `open`, nothing. `requests`: of `request_row`. `slots`:
        replaces what is there; None: leaves it. `now`: seconds since the epoch."""
        self.open()
        connection = self._connection
        assert connection is not None
        try:
            connection.execute("BEGIN IMMEDIATE")
            try:
                connection.executemany(_insertion("requests"), requests)
                _insert_outputs(connection, outputs)
                if slots is not None:
                    connection.execute("DELETE FROM slots")
                    connection.executemany(_insertion("slots"), ((None, *_slot_row(row), now) for row in slots))
                self._forget(connection, now)
                connection.execute("COMMIT")
            finally:
                connection.rollback()  # of nothing, after COMMIT
            # What was committed is not to be written again, whatever becomes of room that could be given back. As a
            # script: each step gives back one page, and `execute` makes only the first.
            with contextlib.suppress(sqlite3.Error):
                connection.executescript("PRAGMA incremental_vacuum")
        except sqlite3.Error as error:
            self.close()
            if fault_of(error) is RecordsFault.DAMAGED:
                self._set_aside()
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR:
                # The tables were there when it was opened: somebody has emptied the file.
                raise RecordsRefused(RecordsFault.REMOVED) from None
            raise

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def abandon(self) -> sqlite3.Connection | None:
        """The connection, which must not be used or closed: after a fork it is the parent's."""
        connection, self._connection = self._connection, None
        return connection

    def size(self) -> int:
        """Bytes of the file; 0 where there is none."""
        try:
            return os.stat(self.path).st_size
        except OSError:
            return 0

    def _prepare(self) -> None:
        """A plain file of this name that nobody else may read."""
        try:
            found = os.lstat(self.path)
        except FileNotFoundError:
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(self.path, flags, PRIVATE.file)
            try:
                os.fchmod(descriptor, PRIVATE.file)
            finally:
                os.close(descriptor)
            return
        if not stat.S_ISREG(found.st_mode):
            raise RecordsRefused(RecordsFault.NOT_A_FILE)
        if stat.S_IMODE(found.st_mode) & 0o077:
            os.chmod(self.path, PRIVATE.file)

    def _set_aside(self) -> None:
        """Under a name that is not taken. Where enough damaged files lie there, something else is wrong: left alone."""
        with contextlib.suppress(OSError):
            beside = [name for name in os.listdir(self.path.parent) if name.startswith(self.path.name + _DAMAGED)]
            if sum(not name.endswith(_SIDE_FILES) for name in beside) >= KEEP_DAMAGED:
                return
            stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
            target = f"{self.path}{_DAMAGED}{stamp}-{secrets.token_hex(4)}"
            for suffix in ("", *_SIDE_FILES):
                with contextlib.suppress(FileNotFoundError):
                    if os.path.getsize(f"{self.path}{suffix}"):
                        os.rename(f"{self.path}{suffix}", f"{target}{suffix}")

    def _forget(self, connection: sqlite3.Connection, now: float) -> None:
        """Deletes what is beyond the bounds, oldest first: by number and position, which only grow, not by the clock
        of a host that can be set."""
        (last,) = connection.execute("SELECT coalesce(max(number), 0) FROM requests").fetchone()
        # The first one that is young enough: rows lie in the order of their time, but for requests that overlapped.
        young = connection.execute(
            "SELECT number FROM requests WHERE started >= ? ORDER BY number LIMIT 1", (now - self._keep_days * _DAY,)
        ).fetchone()
        first = max(last - self._keep_rows + 1, last + 1 if young is None else young[0])
        connection.execute("DELETE FROM requests WHERE number < ?", (first,))
        connection.execute(
            "DELETE FROM outputs WHERE position <= (SELECT max(position) FROM outputs) - ?", (self._keep_output_bytes,)
        )


@contextlib.contextmanager
def reading(path: str | os.PathLike[str], timeout: float = 5.0) -> Iterator[sqlite3.Connection]:
    """A connection to a copy of the file as it is now, for reports, which may take as long as they like: a router goes
    on writing. The copy is a temporary file of SQLite's, which has no name and ends with the connection.

    Raises StoreNotFound, StoreFormatUnsupported, StoreCorrupt, LockTimeout (after `timeout` seconds) or
    EnvironmentFault.
    """
    path = Path(path)
    if not path.exists():
        raise StoreNotFound(
            f"there are no records in {shown_path(path)}",
            details={"path": os.fspath(path)},
            remedy="name the file that `toktier serve` was given for its records",
        )
    try:
        with (
            contextlib.closing(sqlite3.connect("", isolation_level=None)) as copy,
            contextlib.closing(_connect(path, timeout)) as connection,  # undoes what a killed router left half written
        ):
            connection.execute("PRAGMA query_only = ON")
            connection.execute("BEGIN")
            if not _is_ours(connection):
                raise StoreFormatUnsupported(
                    f"{shown_path(path)} holds no records of `toktier serve` in format {FORMAT}",
                    details={"path": os.fspath(path), "expected": FORMAT},
                    remedy="name the file that `toktier serve` was given for its records",
                )
            connection.backup(copy)  # with the lock of the statement before: no writer can keep it waiting
            connection.close()
            copy.execute("PRAGMA trusted_schema = OFF")
            copy.execute("PRAGMA query_only = ON")
            yield copy
    except sqlite3.Error as error:
        refusal = translated(error, path, "read the records", timeout)
        if isinstance(refusal, StoreCorrupt):  # the remedy there is of a store of sessions
            refusal.remedy = "name the file that `toktier serve` was given for its records, or move it away"
        raise refusal from None


def _connect(path: Path, timeout: float = _TIMEOUT) -> sqlite3.Connection:
    """`check_same_thread` off: before a fork another thread closes it."""
    name = f"{path.absolute().as_uri()}?mode=rw"  # one that is gone is not made by the way
    return sqlite3.connect(name, uri=True, timeout=timeout, isolation_level=None, check_same_thread=False)


def _settle(connection: sqlite3.Connection) -> None:
    """The settings of a connection; the tables, where the file has none."""
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    if not _is_ours(connection):
        if _pragma(connection, "application_id") or _tables(connection):
            raise RecordsRefused(RecordsFault.FOREIGN)
        _make(connection)
    # Whole, each time it is opened: 0.1 s for the rows that are kept by default. Damage in a larger one is met later.
    size = _pragma(connection, "page_count") * _pragma(connection, "page_size")
    if size <= MAX_CHECKED_BYTES and _pragma(connection, "quick_check(1)") != "ok":
        raise RecordsRefused(RecordsFault.DAMAGED)
    for table, columns in _COLUMNS.items():
        if [row[1] for row in connection.execute(f"PRAGMA table_info({table})")] != columns:
            raise RecordsRefused(RecordsFault.DAMAGED)
    if _pragma(connection, "journal_mode = TRUNCATE") != "truncate":
        raise RecordsRefused(RecordsFault.LOCKED)  # somebody has it open with a log
    connection.execute("PRAGMA mmap_size = 0")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")


def _make(connection: sqlite3.Connection) -> None:
    """The tables, in one transaction: whoever is killed meanwhile leaves an empty database, which is made again."""
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("BEGIN IMMEDIATE")
    try:
        if not _tables(connection):  # another process may have been here first
            for table, columns in _TABLES.items():
                connection.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {FORMAT}")
        connection.execute("COMMIT")
    finally:
        connection.rollback()


def _is_ours(connection: sqlite3.Connection) -> bool:
    found = (_pragma(connection, "application_id"), _pragma(connection, "user_version"))
    return found == (APPLICATION_ID, FORMAT)


def _tables(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0])


def _pragma(connection: sqlite3.Connection, name: str) -> Any:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


def _insertion(table: str) -> str:
    columns = _COLUMNS[table]
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"


def _insert_outputs(connection: sqlite3.Connection, outputs: Sequence[Output]) -> None:
    if not outputs:
        return
    (position,) = connection.execute("SELECT coalesce(max(position), 0) FROM outputs").fetchone()
    rows = []
    for row in outputs:
        position += row.bytes + ROW_OVERHEAD
        rows.append((position, row.prompt_digest, int(row.reused), row.text, _real(row.started), shown(row.request_id)))
    connection.executemany(_insertion("outputs"), rows)


def request_row(facts: RequestFacts) -> tuple[Any, ...]:
    """A row of `requests`, in the order of its columns. What no column can hold is bounded here: an upstream may say
    anything."""
    return (
        None, shown(facts.id), _real(facts.started), shown(facts.route), int(facts.stream), _integer(facts.upstream),
        _integer(facts.slot), facts.choice.value, None if facts.unrouted is None else facts.unrouted.value,
        facts.ids.value, facts.outcome.value, _integer(facts.status), _integer(facts.prompt_tokens),
        _integer(facts.generated_tokens), _integer(facts.predicted), _integer(facts.measured), facts.reuse.value,
        int(facts.stale), _real(facts.prompt_ms), _real(facts.generated_ms), _real(facts.first_byte_ms),
        _real(facts.duration_ms), _real(facts.router_ms),
    )  # fmt: skip


def _slot_row(row: SlotRow) -> tuple[Any, ...]:
    return (
        _integer(row.upstream), _integer(row.slot), row.state.value, _integer(row.tokens), _integer(row.sure),
        int(row.held), _integer(row.reuses), _real(row.last_use),
    )  # fmt: skip


def _integer(value: int | None) -> int | None:
    return None if value is None else max(-_MAX_INTEGER, min(value, _MAX_INTEGER))


def _real(value: float | None) -> float | None:
    """None for what is no number: SQLite has no NaN."""
    return None if value is None or math.isnan(value) else float(value)


def _identity_of(path: Path) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
