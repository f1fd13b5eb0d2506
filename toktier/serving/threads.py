"""The threads of a batcher: entered in its books with its lock held, and started without it.

A thread that begins may collect garbage before its starter hears of it, and a finalizer may ask the same batcher: were
the lock held meanwhile, each would wait for the other. Not here: what the threads do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

STARTING_SECONDS: Final = 1.0  # after which whoever ends a thread no longer waits for somebody to start it


class BatcherThread(threading.Thread):
    """A daemon. Made with the lock held, started once."""

    def __init__(self, run: Callable[[], None], name: str) -> None:
        super().__init__(target=run, name=name, daemon=True)
        self._tried = threading.Event()

    def start(self) -> None:
        """Raises RuntimeError where the interpreter starts no more threads. After a KeyboardInterrupt it runs."""
        try:
            super().start()
        finally:
            self._tried.set()

    def end(self) -> None:
        """Waits until it has ended, also when it is only about to be started. Of the thread itself: does nothing."""
        if self is threading.current_thread():
            return
        self._tried.wait(STARTING_SECONDS)
        if self.ident is not None:
            self.join()
