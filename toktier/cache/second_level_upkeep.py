"""The background thread of a second level: it opens connections, asks a server that failed whether it is back, writes.

One daemon thread for each process, started by the first call that needs it and not inherited by a fork. What it cannot
write is dropped and counted; it tries nothing twice but a connection that was lost.
"""

from __future__ import annotations

import contextlib
import threading
import time
import warnings

from toktier.cache.level import KEY_BYTES
from toktier.cache.second_level_connector import Connector
from toktier.cache.second_level_exchange import Exchange, Garbled, Refused
from toktier.cache.second_level_script import find
from toktier.cache.second_level_state import State, Task, Write
from toktier.cache.second_level_values import packed
from toktier.errors import ToktierWarning

TIMEOUT_SECONDS = 1.0  # of each step here, which nobody waits for
_NO_KEY = bytes(KEY_BYTES)
_PASSING = ("LOADING", "BUSY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN")  # refusals that need nobody's hand


class Upkeep:
    def __init__(self, connector: Connector, state: State, key_prefix: bytes, ttl: int) -> None:
        """`ttl`: seconds after which a value that is written here expires."""
        self._connector = connector
        self._state = state
        self._key_prefix = key_prefix
        self._ttl = ttl
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._writer: Exchange | None = None
        self._warned = False

    def begin(self) -> None:
        """Starts the thread where none runs yet. Raises RuntimeError where the process can start none."""
        if self._thread is None:
            with self._starting:
                if self._thread is None and not self._state.closed:
                    thread = threading.Thread(target=self._run, name="toktier second level", daemon=True)
                    thread.start()
                    self._thread = thread

    def end(self, until: float) -> None:
        """After the state was closed: waits for the thread at most until then, and ends its connection."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(max(0.0, until - time.monotonic()))
        self._close_writer()

    def abandon(self) -> None:
        """In a forked child, for the thread of the parent."""
        self._close_writer()

    def _run(self) -> None:
        while (task := self._state.next_task()) is not Task.END:
            if isinstance(task, Write):
                self._write(task)
            else:
                self._open()
        self._close_writer()

    def _open(self) -> None:
        """A connection counts as opened when the script that look-ups need has run over it."""
        exchange: Exchange | None = None
        try:
            exchange = self._connector.open(TIMEOUT_SECONDS)
            find(exchange, self._key_prefix, _NO_KEY, time.monotonic() + TIMEOUT_SECONDS)
        except Exception as error:
            if exchange is not None:
                exchange.close()
            word = word_of(error)
            self._state.not_opened(word)
            if isinstance(error, Refused) and word not in _PASSING:
                self._warn(word)
        else:
            self._state.opened(exchange)

    def _write(self, write: Write) -> None:
        counters = self._state.counters
        key = self._key_prefix + write.key
        try:
            if write.ids is None:
                self._ask("UNLINK", key)
                counters.removed += 1
            else:
                self._ask("SET", key, packed(write.key, write.ids), "EX", self._ttl)
                counters.written += 1
        except Exception as error:
            with self._state.lock:  # for `stats`, which shows both
                counters.write_errors += 1
                if isinstance(error, Refused):  # which says nothing about look-ups
                    self._state.last_failure = error.word
            if not isinstance(error, Refused):
                self._close_writer()
                self._state.failed(word_of(error))

    def _ask(self, *command: bytes | str | int) -> None:
        for again in (False, True):
            fresh = self._writer is None
            writer = self._writer = self._writer or self._connector.open(TIMEOUT_SECONDS)
            try:
                writer.ask(*command, deadline=time.monotonic() + TIMEOUT_SECONDS, most=0)
            except TimeoutError:
                raise
            except OSError:  # lost, as after a restart; both commands bear being done twice
                self._close_writer()
                if fresh or again:
                    raise
            else:
                return

    def _close_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def _warn(self, word: str) -> None:
        if self._warned:
            return
        self._warned = True
        with contextlib.suppress(ToktierWarning):  # where warnings are errors
            warnings.warn(
                f"the second level of the prefix cache, {self._connector.where}, refuses what it is asked ({word}): "
                "texts are encoded as if it were not there",
                ToktierWarning,
                stacklevel=1,
            )


def word_of(error: Exception) -> str:
    """One word for the failure of a question: it is kept and shown, so it quotes nothing."""
    if isinstance(error, Refused):
        return error.word
    if isinstance(error, TimeoutError):
        return "TIMEOUT"
    if isinstance(error, OSError):
        return "CONNECTION"
    return "GARBLED" if isinstance(error, Garbled) else "INTERNAL"
