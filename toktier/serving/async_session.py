"""AsyncSession: a session of a tokenizer for tasks of asyncio and trio. Its changes are made in the order in which they
are awaited, on a thread of the batcher's lanes, so that a store that is slow holds up no event loop.

A session in memory, and short texts, are changed in microseconds: `Tokenizer.session` itself costs a loop less there
than the way to another thread and back. Not here: what a session is (`toktier.sessions`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from typing import Any, TypeVar

from toktier._native import Encoding, TokenPatch, text_of, text_weight
from toktier.serving.encoder import Encoder, Text
from toktier.serving.lanes import Call
from toktier.sessions.session import Session

T = TypeVar("T")

Alone = Callable[[Hashable, Call, int], Awaitable[Any]]


class AsyncSession:
    """Made by `Tokenizer.asession` and `Batcher.asession`; its calls are those of `Session`, and raise QueueFull and
    BatcherClosed besides. A task that is cancelled takes its change back as long as it has not begun; one that has is
    made whole. Used by one loop or by several."""

    def __init__(self, alone: Alone, tokenizer: Encoder, name: str | None, keep_text: bool) -> None:
        """`alone`: makes a call in a lane and waits for it."""
        if name is not None and not isinstance(name, str):
            raise TypeError(f"the name of a session is a str, not {type(name).__name__}")
        self.name = None if name is None else str.__str__(name)
        self._alone, self._tokenizer, self._keep_text = alone, tokenizer, keep_text
        self._lane: Hashable = object() if self.name is None else ("session", self.name)
        self._own: Session | None = None  # that of no name, which nobody else can ask for

    async def append(self, text: Text, *, expected_revision: int | None = None) -> TokenPatch:
        """`Session.append`: what the text at the end made of the tokens."""
        text, weight = _taken(text)
        return await self._call(Session.append, weight, text, expected_revision=expected_revision)

    async def replace(self, start: int, text: Text, *, expected_revision: int | None = None) -> TokenPatch:
        """`Session.replace`: everything from code point `start` on becomes `text`."""
        text, weight = _taken(text)
        return await self._call(Session.replace, weight, start, text, expected_revision=expected_revision)

    async def present(self, text: Text, add_special_tokens: bool = False) -> Encoding:
        """`Session.present`: the whole text as it is now."""
        text, weight = _taken(text)
        return await self._call(Session.present, weight, text, add_special_tokens)

    async def snapshot(self) -> Encoding:
        """All ids, as an Encoding, after every change that was awaited before."""
        return await self._call(Session.snapshot, 0)

    async def refresh(self) -> int:
        """In a store: takes over what other processes wrote. Gives the revision."""
        return await self._call(Session.refresh, 0)

    async def close(self) -> None:
        """`Session.close`, after the changes before it."""
        await self._call(Session.close, 0)

    async def _call(self, method: Callable[..., T], weight: int, *arguments: Any, **named: Any) -> T:
        result: T = await self._alone(self._lane, partial(self._run, method, arguments, named), weight)
        return result

    def _run(self, method: Callable[..., T], arguments: tuple[Any, ...], named: dict[str, Any]) -> T:
        """On a thread of the lanes, one call at a time."""
        session = self._own
        if session is None:
            session = self._tokenizer.session(self.name, keep_text=self._keep_text)
            if self.name is None:
                self._own = session
        result: T = getattr(session, method.__name__)(*arguments, **named)
        return result

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("an AsyncSession cannot be pickled or copied: give the text, or a store and a name")

    def __repr__(self) -> str:
        return f"<toktier.serving.AsyncSession{'' if self.name is None else f' {self.name!r}'}>"


def _taken(text: Text) -> tuple[Text, int]:
    """A text that nobody can write to afterwards, and its bytes."""
    if type(text) not in (str, bytes):
        text = text_of(text)
    return text, text_weight(text)
