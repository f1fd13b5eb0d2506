"""Progress of long work on stderr: one line rewritten on a terminal, one line a minute elsewhere, none with --quiet.

Nothing is shown for work that ends within half a second.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

from toktier_cli.invocation import Invocation

FIRST_SECONDS = 0.5
TERMINAL_SECONDS = 0.1
LOG_SECONDS = 60.0


class Progress:
    """Counts finished items of `total`; any thread may advance it. `detail`: what more to say, asked when shown.
    `total` None: nobody knows how much there is, and `detail` is all that is shown."""

    def __init__(
        self, invocation: Invocation, total: int | None, unit: str, detail: Callable[[], str] = lambda: ""
    ) -> None:
        self._shown = not invocation.errors_alone
        self._terminal = sys.stderr.isatty()
        self._total = total
        self._unit = unit
        self._detail = detail
        self._done = 0
        self._dirty = False
        self._next = time.monotonic() + (FIRST_SECONDS if self._terminal else LOG_SECONDS)
        self._guard = threading.Lock()

    def advance(self, items: int = 1) -> None:
        """More items are done; 0: some part of one is, which `detail` may tell."""
        with self._guard:
            self._done += items
            now = time.monotonic()
            if not self._shown or now < self._next:
                return
            self._next = now + (TERMINAL_SECONDS if self._terminal else LOG_SECONDS)
            known = "" if self._total is None else f"{self._done} of {self._total} {self._unit}"
            line = f"{known}{self._detail()}"
            sys.stderr.write(f"\r{line}\x1b[K" if self._terminal else f"{line}\n")
            sys.stderr.flush()
            self._dirty = self._terminal

    def close(self) -> None:
        """Leaves an empty line on a terminal."""
        if self._dirty:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
