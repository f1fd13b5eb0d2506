"""Private mount and network namespaces for tests: a mount stops root where no permission would.

Not here: what runs inside.
"""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
SMALL = 'mount -t tmpfs -o size={size} none "$0" && exec "$@"'


@functools.cache
def can_unshare(*kinds: str) -> bool:
    """Whether this user may make such namespaces, for example `--mount`."""
    try:
        return subprocess.run(["unshare", *kinds, "true"], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def read_only(directory: Path, *command: str) -> list[str]:
    """The command, run where `directory` is a read-only mount."""
    return ["unshare", "--mount", "sh", "-c", READ_ONLY, str(directory), *command]


def small_disk(directory: Path, size: str, *command: str) -> list[str]:
    """The command, run where `directory` is an empty file system of `size`, for example 16m."""
    return ["unshare", "--mount", "sh", "-c", SMALL.format(size=size), str(directory), *command]


def no_network(*command: str) -> list[str]:
    """The command, run where there is no network interface but a loopback that is down."""
    return ["unshare", "--net", *command]
