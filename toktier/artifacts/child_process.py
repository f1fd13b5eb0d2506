"""Runs a program to its end: output kept, bounded in time, and gone with its own children when we stop waiting."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

WATCH_SECONDS = 0.2


def run_child(
    command: list[str],
    *,
    timeout: float,
    environment: Mapping[str, str],
    cwd: Path | None = None,
    given: bytes = b"",
    watch: Callable[[], None] | None = None,
) -> tuple[int, str, str]:
    """Exit status, stdout and stderr. `timeout` in seconds. Raises subprocess.TimeoutExpired, or OSError where the
    program cannot be started. `given` is what it reads from stdin; `watch` is called a few times a second.

    The child leads a process group of its own, which is killed on a time-out and on any exception (Ctrl-C).
    """
    deadline = time.monotonic() + timeout
    with subprocess.Popen(
        command,
        cwd=cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(environment),
        start_new_session=True,
    ) as child:
        try:
            stdout, stderr = _communicate(child, given, deadline, watch)
        finally:
            if child.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
    return child.returncode, stdout.decode("utf-8", "replace"), stderr.decode("utf-8", "replace")


def _communicate(
    child: subprocess.Popen[bytes], given: bytes, deadline: float, watch: Callable[[], None] | None
) -> tuple[bytes, bytes]:
    first: bytes | None = given
    while True:
        left = max(0.0, deadline - time.monotonic())
        try:
            return child.communicate(first, timeout=left if watch is None else min(left, WATCH_SECONDS))
        except subprocess.TimeoutExpired:
            if time.monotonic() >= deadline:
                raise
            first = None  # taken over by the first call
            if watch is not None:
                watch()
