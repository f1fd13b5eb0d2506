"""Damaged files set aside: what was found under a blob's name and is not that blob, kept for people, bounded.

A file comes here when a right one is in hand to take its place, never before: until then the damage is reported where
it lies. Nothing here is read again by toktier. Not here: what counts as damaged.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path

from toktier.errors import EnvironmentFault
from toktier.storage import PRIVATE, Modes, make_directory

KEPT_FILES = 4
KEPT_BYTES = 256 << 20


def set_aside(path: Path, directory: Path, modes: Modes = PRIVATE) -> Path | None:
    """Moves `path` into `directory` under its name and the time, and drops the oldest beyond the bounds.

    None where the host refuses: the caller's own write then replaces the file or says why not.
    """
    now = time.time_ns()
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now // 10**9)) + f".{now % 10**9:09d}Z"
    target = directory / f"{stamp}-{os.urandom(4).hex()}-{path.name}"
    try:
        make_directory(directory, modes.directory)
        os.rename(path, target)
    except (EnvironmentFault, OSError):
        return None
    _drop_oldest(directory)
    return target


def _drop_oldest(directory: Path) -> None:
    kept = total = 0
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(directory), reverse=True):  # names begin with the time
            path = directory / name
            with contextlib.suppress(OSError):
                total += path.lstat().st_size
            kept += 1
            if kept > KEPT_FILES or (kept > 1 and total > KEPT_BYTES):
                _delete(path)


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()
