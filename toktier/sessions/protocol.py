"""What every store of sessions does, and every session in one: whoever keeps sessions asks for these alone.

Their meaning is docs/session-store.md and docs/redis-store.md; the contract tests run over each store.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Literal, Protocol, Self

from toktier.sessions.presented import Counters
from toktier.sessions.records import Append, CommitPoint, Finding, Prefix, SessionInfo, SessionState

Column = Literal["tokens", "text_bytes", "code_points"]


class Session(Protocol):
    """A named session as this process last saw it."""

    @property
    def state(self) -> SessionState: ...

    def append(self, *appends: Append) -> int: ...

    def replace(self, point: CommitPoint, *appends: Append, before: bytes | None = None) -> int: ...

    def refresh(self) -> SessionState: ...

    def last_point(self, column: Column, at_most: int) -> CommitPoint: ...

    def ids(self) -> bytes: ...

    def points(self) -> list[CommitPoint]: ...

    def text(self) -> bytes: ...


class Store(Protocol):
    """Named sessions, and anonymous ones that look-ups find."""

    budget_bytes: int

    @property
    def counters(self) -> Counters: ...

    def open(self, name: str, fingerprint: str, *, keep_text: bool = False) -> Session: ...

    def remember(self, fingerprint: str, appends: Sequence[Append]) -> int | None: ...

    def longest_prefix(self, text: str | bytes, fingerprint: str) -> Prefix | None: ...

    def evict(self, budget_bytes: int | None = None) -> list[int]: ...

    def compact(self) -> int: ...

    def sessions(self) -> list[SessionInfo]: ...

    def show(self, name: str) -> SessionInfo | None: ...

    def remove(self, name: str) -> bool: ...

    def verify(self, name: str | None = None) -> list[Finding]: ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
