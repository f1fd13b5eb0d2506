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
from pathlib import Path

from toktier import storage
from toktier.canonical import canonical_json
from toktier.errors import EnvironmentFault

_SETTLED_NS = 2_000_000_000
_MAX_HINT_BYTES = 4096


def trusted_digest(status: os.stat_result, hint: Path) -> str | None:
    """The SHA-256 (hex) that `hint` records for the file of `status`, or None."""
    if not only_owner_writes(status):
        return None
    with contextlib.suppress(OSError, ValueError, RecursionError):
        descriptor = os.open(hint, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            if not only_owner_writes(os.fstat(descriptor)):
                return None
            document = json.loads(file.read(_MAX_HINT_BYTES))
        if isinstance(document, dict) and document.get("identity") == _identity(status):
            digest = document.get("sha256")
            if isinstance(digest, str) and len(digest) == 64 and set(digest) <= set("0123456789abcdef"):
                return digest
    return None


def record_digest(status: os.stat_result, digest: str, hint: Path) -> bool:
    """Records that the file of `status`, taken before it was hashed, has `digest`; False when no hint was written."""
    changed = max(status.st_mtime_ns, status.st_ctime_ns)
    if not only_owner_writes(status) or time.time_ns() - changed < _SETTLED_NS:
        return False
    try:
        storage.atomic_write(hint, canonical_json({"identity": _identity(status), "sha256": digest}))
    except EnvironmentFault:
        return False
    return True


def _identity(status: os.stat_result) -> list[str]:
    numbers = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return [str(number) for number in numbers]  # nanoseconds are beyond the integers of canonical JSON


def only_owner_writes(status: os.stat_result) -> bool:
    """A regular file of this user or root that nobody else may write: without that, what it holds is another's word."""
    mode = status.st_mode
    return stat.S_ISREG(mode) and status.st_uid in (0, os.geteuid()) and not mode & (stat.S_IWGRP | stat.S_IWOTH)
