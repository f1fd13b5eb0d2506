"""Runs a registry's own client as a child: its time-out is an unreachable source, its output is fit to be shown.

What such a client prints may hold the URL it was given; `without_credentials` takes user names, passwords and queries
out before a person reads it. Not here: which client, and what its output means.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable

from toktier.artifacts.child_process import run_child
from toktier.errors import SourceUnreachable

_USERINFO = re.compile(r"(?<=://)[^/\s@'\"]*@")
_QUERY = re.compile(r"(?P<url>\b[a-z][a-z0-9+.-]*://[^\s?#'\"]*)[?#][^\s'\"]*", re.IGNORECASE)


def without_credentials(text: str) -> str:
    """`text` with every URL in it cut down to scheme, host and path."""
    return _USERINFO.sub("", _QUERY.sub(r"\g<url>", text))


def run_client(
    command: list[str],
    timeout: float,
    what: str,
    source: str,
    *,
    environment: dict[str, str] | None = None,
    given: bytes = b"",
    watch: Callable[[], None] | None = None,
) -> tuple[int, str, str]:
    """Exit status, stdout and stderr, without credentials. Raises SourceUnreachable after `timeout` seconds.

    `environment`: added variables; what the user set himself stands. `given`: what the child reads from stdin: secrets
    go there, the command line is everybody's to read. `watch` is called a few times a second.
    """
    try:
        code, stdout, stderr = run_child(
            command, timeout=timeout, environment=(environment or {}) | dict(os.environ), given=given, watch=watch
        )
    except subprocess.TimeoutExpired:
        raise SourceUnreachable(
            f"the {what} took longer than {round(timeout, 1):g} s",
            details={"source": source, "timeout_s": timeout, "reason": "timeout"},
            remedy="try again with a longer `--timeout`",
        ) from None
    return code, without_credentials(stdout), without_credentials(stderr)


def last_json(stdout: str) -> dict[str, str]:
    """The JSON object in the last line that a child printed; empty if there is none."""
    try:
        value = json.loads(stdout.splitlines()[-1] if stdout else "")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def last_line(text: str) -> str:
    """The last line that says something, at most 300 characters of it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""
