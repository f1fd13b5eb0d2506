"""The check of the session store: where it lies, who may read it, its format, its file system.

By status and header of its files alone: SQLite would make a log beside them and take locks. So a version that is still
in the log is not seen, and nothing is proven (`toktier session verify` does). Only for a process that has the store not
open: closing a file lets go all locks that the process holds on it.
"""

from __future__ import annotations

import os
import stat
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toktier.config import Settings, store_scheme, without_credentials
from toktier.diagnosis.context import Context
from toktier.diagnosis.model import Code, Finding, Reason, Remedy, Status, ok, skip
from toktier.diagnosis.settings import nearest
from toktier.labels import shown_path, typed
from toktier.regular_files import open_regular
from toktier.sessions.file_systems import is_network, type_of

# SQLite's header: its magic, and as big-endian numbers the format version and the application's mark.
MAGIC = b"SQLite format 3\0"
HEADER_BYTES = 100
_VERSION_AT, _APPLICATION_AT = 60, 68
# The database, its log and the index of the log.
_SUFFIXES = ("", "-wal", "-shm")
_ELSEWHERE = "point store= (TOKTIER_STORE, `store` in config.toml) at a directory of a local file system"


@dataclass
class _Seen:
    """What was found so far; the worst status counts."""

    facts: dict[str, Any]
    status: Status = Status.OK
    said: list[str] = field(default_factory=list)
    reasons: list[Reason] = field(default_factory=list)
    remedy: Remedy | None = None

    def tell(self, status: Status, said: str, reason: Reason, remedy: Remedy) -> None:
        if status.severity > self.status.severity:
            self.status, self.remedy = status, remedy
        self.said.append(said)
        self.reasons.append(reason)

    def finding(self) -> Finding:
        return Finding(self.status, "; ".join(self.said), self.facts, tuple(self.reasons), self.remedy)


def store(context: Context) -> Finding:
    known = context.settings
    facts: dict[str, Any] = {"store": None, "store_origin": known.origins.get("store", "default"), "exists": False}
    place = _place(known)
    if place is None:
        return skip("none is set, and there is no state directory", **facts)
    facts["store"] = without_credentials(place)
    if store_scheme(place) is not None:
        return skip(f"{facts['store']}: a server, which is not asked", **(facts | {"exists": None}))
    return _directory(Path(place), facts, said=known.store is not None)


def _place(known: Settings) -> str | None:
    return None if known.store is None and known.state_dir is None else known.require_store()


def _directory(directory: Path, facts: dict[str, Any], *, said: bool) -> Finding:
    """`said`: somebody named it, so that it is to be what it should; else it is only where the command looks."""
    standing, status, hidden = nearest(directory)
    seen = _Seen(facts)
    if hidden or (stat.S_ISDIR(status.st_mode) and standing == directory and not os.access(directory, os.X_OK)):
        seen.tell(
            Status.UNKNOWN,
            f"{shown_path(standing)} may not be searched by this user",
            Reason(Code.DIRECTORY_UNREADABLE, "not searchable", "a directory that this user can search"),
            Remedy("make it readable for this user, or point store= elsewhere"),
        )
        return seen.finding()
    file = _database_in(directory) if standing == directory else None
    if file is None and not said:
        return skip(f"none in {shown_path(directory)}, and no other is set", **facts)
    if not stat.S_ISDIR(status.st_mode):
        seen.tell(
            Status.FAIL,
            f"{shown_path(standing)} is no directory",
            Reason(Code.DIRECTORY_NOT_A_DIRECTORY, "something else", "a directory"),
            Remedy("move what lies there away, or point store= elsewhere"),
        )
        return seen.finding()
    _file_system(seen, standing)
    if file is not None:
        facts["exists"] = True
        _header(seen, file)
        _modes(seen, directory, file)
    _access(seen, standing, file)
    if seen.reasons:
        return seen.finding()
    if file is None:
        return ok(f"{shown_path(directory)}: no store yet, made when a session is kept", **facts)
    modes = f"{facts['directory_mode']}/{facts['file_mode']}"
    kind = f", {facts['file_system']}" if facts["file_system"] else ""
    return ok(
        f"{shown_path(directory)}: format {facts['format_version']}, {facts['bytes']} bytes, modes {modes}{kind}",
        **facts,
    )


def _database_in(directory: Path) -> Path | None:
    from toktier.sessions.database import FILE  # here: SQLite is not loaded where there is no directory

    file = directory / FILE
    return file if os.path.exists(file) else None


def _file_system(seen: _Seen, directory: Path) -> None:
    kind = type_of(directory)
    seen.facts["file_system"] = kind
    seen.facts["network_file_system"] = None if kind is None else is_network(kind)
    if kind is not None and is_network(kind):
        seen.tell(
            Status.FAIL,
            f"{shown_path(directory)} is on a network file system ({kind}), where no store can lie",
            Reason(Code.STORE_ON_NETWORK, kind, "a local file system"),
            Remedy(_ELSEWHERE),
        )


def _header(seen: _Seen, file: Path) -> None:
    from toktier.sessions.database import APPLICATION_ID, FORMAT

    try:
        with open_regular(file) as stream:
            header = stream.read(HEADER_BYTES)
    except PermissionError:
        seen.tell(
            Status.UNKNOWN,
            f"{shown_path(file)} cannot be read by this user",
            Reason(Code.STORE_UNREADABLE, "not readable", "a file that this user can read"),
            Remedy("make it readable for this user, or point store= elsewhere"),
        )
        return
    except OSError as error:
        seen.tell(
            Status.FAIL,
            f"{shown_path(file)}: {error.strerror}",
            Reason(Code.STORE_UNREADABLE, error.strerror, "a regular file"),
            Remedy("move what lies there away, or point store= elsewhere"),
        )
        return
    if len(header) < HEADER_BYTES or not header.startswith(MAGIC):
        seen.tell(
            Status.FAIL,
            f"{shown_path(file)} is no database",
            Reason(Code.STORE_DAMAGED, f"{len(header)} bytes of header", "the header of a database"),
            Remedy("move the directory away and let sessions be made anew, or restore it from a copy"),
        )
        return
    (version,), (application,) = (struct.unpack_from(">I", header, at) for at in (_VERSION_AT, _APPLICATION_AT))
    if application != APPLICATION_ID:
        seen.tell(
            Status.FAIL,
            f"{shown_path(file)} is a database of something else, no session store",
            Reason(Code.STORE_FORMAT_UNSUPPORTED, f"{application:#010x}", f"{APPLICATION_ID:#010x}"),
            Remedy("point store= at another directory"),
        )
        return
    seen.facts["format_version"] = version
    if version != FORMAT:
        seen.tell(
            Status.FAIL,
            f"{shown_path(file)} has format {version}: this version reads {FORMAT}",
            Reason(Code.STORE_FORMAT_UNSUPPORTED, version, FORMAT),
            Remedy("use the version of toktier that wrote it, or point store= at another directory"),
        )


def _access(seen: _Seen, directory: Path, file: Path | None) -> None:
    if seen.status is Status.UNKNOWN or all(os.access(path, os.W_OK) for path in (directory, file or directory)):
        return
    what = "no session can be kept" if file is None else "a store must be, to be read, too"
    seen.tell(
        Status.WARN,
        f"{shown_path(directory)} cannot be written: {what}",
        Reason(Code.DIRECTORY_READ_ONLY, "read-only", "a directory that this user can write"),
        Remedy("make it writable, or point store= at a directory that is"),
    )


def _modes(seen: _Seen, directory: Path, file: Path) -> None:
    """The database's own files; whoever may read one of them reads ids and the end of texts."""
    files = [Path(f"{file}{suffix}") for suffix in _SUFFIXES]
    found = {path: _status(path) for path in (directory, *files)}
    modes = {path: stat.S_IMODE(status.st_mode) for path, status in found.items() if status is not None}
    seen.facts["bytes"] = sum(status.st_size for path in files if (status := found[path]) is not None)
    seen.facts["directory_mode"] = f"{modes.get(directory, 0):04o}"
    seen.facts["file_mode"] = f"{modes.get(file, 0):04o}"
    wide = [path for path, mode in modes.items() if mode & (stat.S_IRWXG | stat.S_IRWXO)]
    if not wide:
        return
    commands = [f"chmod {'700' if path == directory else '600'} {typed(path)}" for path in wide]
    told = ", ".join(f"{modes[path]:04o} {shown_path(path)}" for path in wide)
    seen.tell(
        Status.WARN,
        f"others may use what is in the store: {told}",
        Reason(Code.STORE_OPEN_TO_OTHERS, f"{modes[wide[0]]:04o}", "0700" if wide[0] == directory else "0600"),
        Remedy("keep it to this user", " && ".join(commands)),
    )


def _status(path: Path) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None  # the log comes and goes
