"""Why records could not be written, as words: the one table, and which of them SQLite's or the host's refusal is.

A fault is counted and shown; it never reaches a request. Not here: what is done about one (`records`).
"""

from __future__ import annotations

import errno
import sqlite3
from enum import StrEnum
from typing import Final

from toktier.errors import EnvironmentFault


class RecordsFault(StrEnum):
    """Why records could not be written."""

    UNWRITABLE = "unwritable"
    FULL = "full"
    LOCKED = "locked"
    REMOVED = "removed"
    DAMAGED = "damaged"
    FOREIGN = "foreign"
    NOT_A_FILE = "not_a_file"
    NETWORK = "network"
    IO = "io"
    OTHER = "other"


RECORDS_FAULT_MEANINGS: Final[dict[RecordsFault, str]] = {
    RecordsFault.UNWRITABLE: "there is no permission to write the file, or its file system is read-only",
    RecordsFault.FULL: "the disk or the quota is full",
    RecordsFault.LOCKED: "another process reads or writes the file and does not end",
    RecordsFault.REMOVED: "the file was removed, replaced or emptied; a new one is written",
    RecordsFault.DAMAGED: "the file is damaged; it is set aside, and a new one is written",
    RecordsFault.FOREIGN: "the file is a database of something else, or of another version; it is left alone",
    RecordsFault.NOT_A_FILE: "what has the name of the file is no plain file, or lies below one",
    RecordsFault.NETWORK: "the file would lie on a network file system, whose locks cannot be relied on",
    RecordsFault.IO: "the disk fails",
    RecordsFault.OTHER: "SQLite or the host refuses for another reason",
}

_BY_SQLITE: Final = {
    sqlite3.SQLITE_BUSY: RecordsFault.LOCKED,
    sqlite3.SQLITE_LOCKED: RecordsFault.LOCKED,
    sqlite3.SQLITE_PROTOCOL: RecordsFault.LOCKED,
    sqlite3.SQLITE_FULL: RecordsFault.FULL,
    sqlite3.SQLITE_READONLY: RecordsFault.UNWRITABLE,
    sqlite3.SQLITE_PERM: RecordsFault.UNWRITABLE,
    sqlite3.SQLITE_AUTH: RecordsFault.UNWRITABLE,
    sqlite3.SQLITE_CANTOPEN: RecordsFault.UNWRITABLE,
    sqlite3.SQLITE_IOERR: RecordsFault.IO,
    sqlite3.SQLITE_CORRUPT: RecordsFault.DAMAGED,
    sqlite3.SQLITE_NOTADB: RecordsFault.DAMAGED,
}
_BY_ERRNO: Final = {
    errno.ENOSPC: RecordsFault.FULL,
    errno.EDQUOT: RecordsFault.FULL,
    errno.EACCES: RecordsFault.UNWRITABLE,
    errno.EPERM: RecordsFault.UNWRITABLE,
    errno.EROFS: RecordsFault.UNWRITABLE,
    errno.EISDIR: RecordsFault.NOT_A_FILE,
    errno.ENOTDIR: RecordsFault.NOT_A_FILE,
    errno.ELOOP: RecordsFault.NOT_A_FILE,
    errno.EIO: RecordsFault.IO,
}


class RecordsRefused(Exception):
    """A fault, inside the router only: it never reaches a request."""

    def __init__(self, fault: RecordsFault) -> None:
        super().__init__(fault.value)
        self.fault = fault


def fault_of(error: BaseException) -> RecordsFault:
    """The word for what SQLite or the host said."""
    if isinstance(error, RecordsRefused):
        return error.fault
    if isinstance(error, sqlite3.Error):
        return _BY_SQLITE.get(getattr(error, "sqlite_errorcode", -1) & 0xFF, RecordsFault.OTHER)
    if isinstance(error, EnvironmentFault):
        return _BY_ERRNO.get(getattr(errno, error.details.get("errno") or "", 0), RecordsFault.OTHER)
    if isinstance(error, OSError):
        return _BY_ERRNO.get(error.errno or 0, RecordsFault.OTHER)
    return RecordsFault.OTHER
