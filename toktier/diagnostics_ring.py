"""The last fallbacks and errors of this user's processes, so that a ticket can speak of one that has ended.

With TOKTIER_DIAGNOSTICS=1 an entry is a code, numbers and a time: never text, names, paths or ids. 256 slots of 256
bytes in one file of the state directory; an entry replaces the oldest. Writers exclude each other by flock and give up
after 50 ms: an entry may be lost, a call never waits. Readers take no lock: a slot that is half written does not hold
its own check and is passed over. Not here: when something is recorded, who may read it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from toktier.config import Settings
from toktier.errors import EnvironmentFault, ToktierError, error_codes
from toktier.regular_files import open_regular
from toktier.routing.vocabulary import BackendId, Reason
from toktier.storage import FILE_MODE, make_directory

FILE = "diagnostics.ring"
SLOTS, SLOT_BYTES = 256, 256
WAIT_SECONDS = 0.05
FALLBACK, ERROR = "fallback", "error"
_NUMBERS = ("size", "position")  # bytes of what was given; where in it


def record(settings: Settings, kind: str, code: str, *, backend: str | None = None, **numbers: int) -> bool:
    """Keeps one entry; False where diagnostics are off, the host refuses, or another writer holds the file.

    `kind`: FALLBACK with the code of a routing reason, or ERROR with an error code; other codes are refused with
    ValueError, and so are numbers under other names than "size" and "position". Never raises for the host's sake.
    """
    if not settings.diagnostics or settings.state_dir is None:
        return False
    known = {reason.value for reason in Reason} if kind == FALLBACK else error_codes()
    if code not in known or not set(numbers) <= set(_NUMBERS) or backend not in (None, *BackendId):
        raise ValueError("not an entry of the ring")
    entry: dict[str, Any] = {"kind": kind, "code": code, "pid": os.getpid(), **{n: int(v) for n, v in numbers.items()}}
    if backend is not None:
        entry["backend"] = str(backend)
    entry["at"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    try:
        make_directory(settings.state_dir)
        return _append(settings.state_dir / FILE, entry)
    except (OSError, EnvironmentFault):
        return False


def record_error(settings: Settings, error: ToktierError) -> None:
    """Keeps an error once, whoever meets it on its way up: its code, and of its details `size` and `position`."""
    if not settings.diagnostics or getattr(error, "recorded", False):
        return
    error.recorded = True  # type: ignore[attr-defined]
    numbers = {n: v for n in _NUMBERS if type(v := error.details.get(n)) is int and abs(v) < 1 << 63}
    record(settings, ERROR, error.code, backend=None, **numbers)


@contextlib.contextmanager
def recording(settings: Settings) -> Iterator[None]:
    """Keeps the ToktierError that leaves the block, and passes it on."""
    try:
        yield
    except ToktierError as error:
        record_error(settings, error)
        raise


def read(state_dir: Path) -> list[dict[str, Any]]:
    """The entries, oldest first; empty where there are none or they cannot be read. Writes nothing, takes no lock."""
    try:
        with open_regular(state_dir / FILE) as stream:
            data = stream.read(SLOTS * SLOT_BYTES)
    except OSError:
        return []
    return [entry for _, entry in sorted(_entries(data or b"").items())]


def _append(path: Path, entry: Mapping[str, Any]) -> bool:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(path, flags, FILE_MODE)
    try:
        if not _lock(descriptor):
            return False
        last = max(_entries(os.pread(descriptor, SLOTS * SLOT_BYTES, 0)), default=-1)
        number = last + 1
        os.pwrite(descriptor, _slot(number, entry), number % SLOTS * SLOT_BYTES)
        return True
    finally:
        os.close(descriptor)  # and the lock with it


def _lock(descriptor: int) -> bool:
    end = time.monotonic() + WAIT_SECONDS
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        if time.monotonic() >= end:
            return False
        time.sleep(0.001)


def _slot(number: int, entry: Mapping[str, Any]) -> bytes:
    body = json.dumps({"number": number, **entry}, separators=(",", ":")).encode("ascii")
    line = b"%08x %s" % (zlib.crc32(body), body)
    assert len(line) < SLOT_BYTES, "codes and numbers are shorter"
    return line.ljust(SLOT_BYTES - 1) + b"\n"


def _entries(data: bytes) -> dict[int, dict[str, Any]]:
    """By number, in which entries were written. A slot of other content is no entry."""
    found = {}
    for start in range(0, len(data) - SLOT_BYTES + 1, SLOT_BYTES):
        check, _, body = data[start : start + SLOT_BYTES].rstrip().partition(b" ")
        with contextlib.suppress(ValueError, TypeError, KeyError, RecursionError):
            if int(check, 16) != zlib.crc32(body):
                continue
            entry = json.loads(body)
            allowed = {"number", "kind", "code", "pid", "backend", "at", *_NUMBERS}
            if isinstance(entry["number"], int) and isinstance(entry["code"], str) and set(entry) <= allowed:
                found[entry["number"]] = entry
    return found
