"""A lock that a forked child does not inherit as held: whoever held it is not there.

What it guards must be whole at every moment at which a fork can come, as far as the child uses it.
"""

from __future__ import annotations

import os
import threading
import weakref
from types import TracebackType


class Turns:
    """A context manager; the thread that has it may take it again."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _all.add(self)

    def renew(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()


_all: weakref.WeakSet[Turns] = weakref.WeakSet()


def _in_child() -> None:
    for turns in list(_all):
        turns.renew()


os.register_at_fork(after_in_child=_in_child)
