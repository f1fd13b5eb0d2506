"""A lock that a forked child does not inherit as held: whoever held it is not there.

What it guards must be whole at every moment at which a fork can come, as far as the child uses it.
"""

from __future__ import annotations

import os
import threading
import weakref


class Turns:
    """`with turns.lock`; the thread that has it may take it again. The lock itself, because a signal that comes into
    an `__enter__` written in Python, when that has the lock, would leave it held for good."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        _all.add(self)

    def renew(self) -> None:
        self.lock = threading.RLock()


_all: weakref.WeakSet[Turns] = weakref.WeakSet()


def _in_child() -> None:
    for turns in list(_all):
        turns.renew()


os.register_at_fork(after_in_child=_in_child)
