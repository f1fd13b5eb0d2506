"""A request to stop (Ctrl-C, SIGTERM) as something that a loop asks for, so that what was done is kept.

The second Ctrl-C acts as it does everywhere else. Only the main thread can ask; elsewhere nothing is changed.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from toktier.errors import Interrupted, Terminated


class StopRequest:
    """`signal` is the number of the one that came, None before."""

    signal: int | None = None

    def __call__(self) -> bool:
        return self.signal is not None

    def error(self, message: str, remedy: str) -> Interrupted:
        """What is to be raised for it."""
        kind = Terminated if self.signal == signal.SIGTERM else Interrupted
        return kind(message, remedy=remedy)


@contextlib.contextmanager
def listening() -> Iterator[StopRequest]:
    """Handlers of SIGINT and SIGTERM for the block; the former ones come back."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return

    def note(number: int, frame: FrameType | None) -> None:
        if request.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        request.signal = number

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
