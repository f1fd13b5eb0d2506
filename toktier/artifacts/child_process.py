"""Runs a program to its end: output kept, bounded in time, and gone with its own children when we stop waiting."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path


def run_child(
    command: list[str], *, timeout: float, environment: Mapping[str, str], cwd: Path | None = None
) -> tuple[int, str, str]:
    """Exit status, stdout and stderr. `timeout` in seconds. Raises subprocess.TimeoutExpired, or OSError where the
    program cannot be started.

    The child leads a process group of its own, which is killed on a time-out and on any exception (Ctrl-C).
    """
    with subprocess.Popen(
        command,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(environment),
        start_new_session=True,
    ) as child:
        try:
            stdout, stderr = child.communicate(timeout=timeout)
        finally:
            if child.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
    return child.returncode, stdout.decode("utf-8", "replace"), stderr.decode("utf-8", "replace")
