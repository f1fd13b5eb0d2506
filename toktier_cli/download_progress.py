"""Progress of downloads on stderr: bytes of the file that comes, rewritten on a terminal, one line a minute elsewhere.

Nothing with --quiet, nothing for a download that ends within half a second on a terminal or a minute elsewhere.
"""

from __future__ import annotations

import sys
import time

from toktier.artifacts.pins import PinnedFile
from toktier_cli.invocation import Invocation
from toktier_cli.progress import FIRST_SECONDS, LOG_SECONDS, TERMINAL_SECONDS
from toktier_cli.table import size


class DownloadProgress:
    """Told of the bytes so far, a few times a second."""

    def __init__(self, invocation: Invocation) -> None:
        self._shown = not invocation.errors_alone
        self._terminal = sys.stderr.isatty()
        self._next = time.monotonic() + (FIRST_SECONDS if self._terminal else LOG_SECONDS)
        self._dirty = False

    def __call__(self, file: PinnedFile, done: int) -> None:
        now = time.monotonic()
        if not self._shown or now < self._next:
            return
        self._next = now + (TERMINAL_SECONDS if self._terminal else LOG_SECONDS)
        line = f"{file.family}: {file.name}, {size(done)} of {size(file.size)}"
        sys.stderr.write(f"\r\x1b[K{line}" if self._terminal else f"{line}\n")
        sys.stderr.flush()
        self._dirty = self._terminal

    def close(self) -> None:
        """Leaves an empty line on a terminal."""
        if self._dirty:
            self._dirty = False
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
