"""The calls of `toktier.Tokenizer` for tasks of asyncio and trio, all of which go through its batcher.

Not here: the batcher (`toktier.serving.batcher`), which is imported when one of these is first called.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING, Any, cast

from toktier.sessions.turns import Turns

if TYPE_CHECKING:
    from toktier._native import Encoding, EncodingBatch
    from toktier.serving.async_session import AsyncSession
    from toktier.serving.batcher import Batcher
    from toktier.serving.encoder import Encoder, Text
    from toktier.sessions.session import Session


class AsyncCalls:
    """A base of what is an `Encoder`."""

    _batcher: Batcher | None = None

    @property
    def batcher(self) -> Batcher:
        """What the calls below go through: a `toktier.serving.Batcher` with `Limits()`, made when it is first asked
        for. One with other limits is made by hand."""
        if self._batcher is None:
            from toktier.serving.batcher import Batcher

            with _making.lock:
                if self._batcher is None:
                    self._batcher = Batcher(cast("Encoder", self))
        return self._batcher

    def aencode(
        self,
        text: Text,
        add_special_tokens: bool = False,
        *,
        session: str | Session | None = None,
        lookup: str | None = None,
        plain: bool = False,
    ) -> Coroutine[Any, Any, Encoding]:
        """`encode` for tasks of asyncio and trio: what many ask for at once is encoded as one batch, off their loops.

        Raises also QueueFull, where more texts are unanswered than the batcher may hold. See docs/serving.md.
        """
        return self.batcher.aencode(text, add_special_tokens, session=session, lookup=lookup, plain=plain)

    def aencode_batch(
        self, texts: Iterable[Text], add_special_tokens: bool = False, *, plain: bool = False
    ) -> Coroutine[Any, Any, EncodingBatch]:
        """`encode_batch` for tasks, off their loops. Raises also QueueFull."""
        return self.batcher.aencode_batch(texts, add_special_tokens, plain=plain)

    def asession(self, name: str | None = None, *, keep_text: bool = False) -> AsyncSession:
        """`session` for tasks: `await session.append(text)` and its siblings, in their order, off their loops."""
        return self.batcher.asession(name, keep_text=keep_text)


_making = Turns()
