"""The sessions of one tokenizer: which kind a name gets, and those that were asked for by name, kept for the next call.

A session in a store is only a faster way to it when it is kept here; one in memory, of a tokenizer without a store,
lives here. Both go by least recent use when together they take more than the budget. Not here: encoding.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from toktier._native import Encoding
from toktier.errors import ConfigInvalid, SessionRevisionConflict
from toktier.sessions.durable import DurableSession
from toktier.sessions.live import Live, Text
from toktier.sessions.session import Session
from toktier.sessions.turns import Turns

if TYPE_CHECKING:
    from toktier.sessions.protocol import Store

KEPT_BYTES = 256 << 20
KEPT_SESSIONS = 1024
ATTEMPTS = 3  # to present a text that other processes write over


class OpenSessions:
    """Thread-safe."""

    def __init__(self, new_live: Callable[[], Live], fingerprint: str, store: Store | None) -> None:
        self._new_live, self._fingerprint, self.store = new_live, fingerprint, store
        self._guard = Turns()
        self._kept: OrderedDict[str, Session] = OrderedDict()

    def get(self, name: str | None, keep_text: bool) -> Session:
        """The session of a name, made where there is none; None: one that nobody else can ask for."""
        if name is not None and not isinstance(name, str):
            raise TypeError(f"the name of a session is a str, not {type(name).__name__}")
        if name is not None:
            name = str.__str__(name)  # of a subclass, whose methods may say anything
        if keep_text and (name is None or self.store is None):
            raise ConfigInvalid(
                "keep_text=True is about sessions in a store, and this one is in memory",
                details={"argument": "keep_text"},
                remedy="load the tokenizer with store=, or leave keep_text out: in memory the text is there",
            )
        if name is None:
            return Session(self._new_live(), None, self._fingerprint)
        with self._guard.lock:
            session = self._kept.get(name)
            if session is not None:
                self._kept.move_to_end(name)
                return session
        opened = self._open(name, keep_text)  # without the lock: a store may take its time
        with self._guard.lock:
            session = self._kept.setdefault(name, opened)  # another thread may have been first
            self._kept.move_to_end(name)
            self._trim()
        return session

    def present(self, name: str, text: Text, add_special_tokens: bool) -> Encoding:
        """The whole text of a named session. Where another process wrote to it meanwhile, or removed it, the text that
        is presented here counts: it is whole."""
        for _ in range(ATTEMPTS):
            session = self.get(name, False)
            try:
                return session.present(text, add_special_tokens)
            except SessionRevisionConflict:
                with self._guard.lock:
                    self._kept.pop(name, None)
        return self.get(name, False).present(text, add_special_tokens)

    def _open(self, name: str, keep_text: bool) -> Session:
        if self.store is None:
            return Session(self._new_live(), name, self._fingerprint)
        return DurableSession(self._new_live, self.store.open(name, self._fingerprint, keep_text=keep_text), name)

    def _trim(self) -> None:
        """The one opened last stays, whatever it takes. Asked when one is opened: a look at every one costs."""
        held = sum(session.memory for session in self._kept.values())
        while len(self._kept) > 1 and (len(self._kept) > KEPT_SESSIONS or held > KEPT_BYTES):
            _, oldest = self._kept.popitem(last=False)
            held -= oldest.memory
