"""Hints that spare a second hashing: a file that was verified once, and whose stat says that it is still that file.

A hint is believed only when both files can be written by nobody but their owner, who is this user or root, and when
device, inode, size, mtime and ctime are those of the verified file. It is not written for a file that changed in the
last two seconds: within one tick of the clock a change leaves no trace. A missing or refused hint costs one hashing,
never more. Commands that verify do not ask here.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from toktier import storage
from toktier.canonical import canonical_json
from toktier.errors import EnvironmentFault

_SETTLED_NS = 2_000_000_000
_MAX_HINT_BYTES = 4096
_HEX = frozenset("0123456789abcdef")


def trusted_digest(status: os.stat_result, hint: Path) -> str | None:
    """The SHA-256 (hex) that `hint` records for the file of `status`, or None."""
    if not only_owner_writes(status):
        return None
    found = read_hint(hint, identity(status), ("sha256",))
    return None if found is None else found[0]


def read_hint(hint: Path, wanted: str | list[str], names: Sequence[str]) -> list[str] | None:
    """The digests (hex) that a hint holds under `names`; None where its identity is not `wanted`, or it is no hint."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        descriptor = os.open(hint, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            if not only_owner_writes(os.fstat(descriptor)):
                return None
            document = json.loads(os.read(descriptor, _MAX_HINT_BYTES))
        finally:
            os.close(descriptor)
        if isinstance(document, dict) and document.get("identity") == wanted:
            digests = [value for name in names if isinstance(value := document.get(name), str)]
            if len(digests) == len(names) and all(len(d) == 64 and _HEX.issuperset(d) for d in digests):
                return digests
    return None


def record_digest(status: os.stat_result, digest: str, hint: Path) -> bool:
    """Records that the file of `status`, taken before it was hashed, has `digest`; False when no hint was written."""
    if not only_owner_writes(status) or not is_settled(status):
        return False
    return write_hint(hint, identity(status), {"sha256": digest})


def write_hint(hint: Path, of: str | list[str], digests: Mapping[str, str]) -> bool:
    """Writes what `read_hint` reads; False where it cannot be written."""
    try:
        storage.atomic_write(hint, canonical_json({"identity": of, **digests}))
    except EnvironmentFault:
        return False
    return True


def is_settled(status: os.stat_result) -> bool:
    """Whether the last change is so long ago that another one would show."""
    return time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) >= _SETTLED_NS


def identity(status: os.stat_result) -> list[str]:
    """What tells that a file is still the one that it was."""
    numbers = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return [str(number) for number in numbers]  # nanoseconds are beyond the integers of canonical JSON


def only_owner_writes(status: os.stat_result) -> bool:
    """A regular file of this user or root that nobody else may write: without that, what it holds is another's word."""
    mode = status.st_mode
    return stat.S_ISREG(mode) and status.st_uid in (0, os.geteuid()) and not mode & (stat.S_IWGRP | stat.S_IWOTH)
