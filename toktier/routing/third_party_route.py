"""The way of texts to a third-party engine, and to the reference where it fails on one.

An engine that throws, or that ran before this process was forked, gives no ids: the reference encodes the text in its
place where the plan has it below, counted by reason; else the error reaches the caller, as it does of segments and
sessions. What a caller did wrong (a text that is none, segments that the engine has not) is nobody's to redo. Not here:
what may serve at all (`plan`), the engines (`toktier.backends.third_party`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from toktier.errors import BackendExecutionFault
from toktier.routing.vocabulary import THIRD_PARTY, BackendId, Reason

if TYPE_CHECKING:
    from toktier._native import Encoding, EncodingBatch
    from toktier.backends.hf import HfBackend
    from toktier.backends.text import Text
    from toktier.backends.third_party import ThirdPartyBackend
    from toktier.cache.prefix_cache import PrefixCache
    from toktier.routing.counters import Counters
    from toktier.routing.plan import Plan

T = TypeVar("T")


class ThirdPartyRoute:
    """Of one tokenizer. Thread-safe. Counts what it is asked, by who answered."""

    def __init__(self, plan: Plan, backend: ThirdPartyBackend, reference: HfBackend, version: str) -> None:
        """`version`: of the engine's distribution."""
        self.id = backend.id
        self.changes_length = backend.changes_length
        self.decodes = THIRD_PARTY[backend.id].decodes
        self.identity = f"{backend.id.value} {version} sha256:{plan.program.artifact_sha256}"
        self.last: tuple[BackendId, Reason | None] | None = None  # who answered the last text, and why not the engine
        self.last_decoded: tuple[BackendId, Reason | None] | None = None  # the same of ids, where the engine decodes
        self.backend, self._reference = backend, reference
        self._may_fall = BackendId.HF in plan.chain

    def encode(
        self, text: Text, add_special_tokens: bool, plain: bool, counters: Counters, cache: PrefixCache | None = None
    ) -> Encoding:
        """`cache`: over the engine, which then sees the parts that the cache has not. Where it fails on one of them the
        reference gets the whole text: ids of two engines are not put together."""

        def ask() -> Encoding:
            if cache is not None:
                return cache.encode(text, add_special_tokens)
            return self.backend.encode(text, add_special_tokens, plain)

        encoding, reason = self._try(
            ask,
            lambda: self._reference.encode(text, add_special_tokens, plain),
        )
        self._encoded(counters, 1, reason)
        return encoding

    def encode_alone(self, text: Text, add_special_tokens: bool, counters: Counters) -> Encoding:
        """Of a session, which is kept under the identity of the engine: nobody stands in."""
        encoding = self.backend.encode(text, add_special_tokens, False)
        self._encoded(counters, 1, None)
        return encoding

    def encode_batch(
        self, texts: Iterable[Text], add_special_tokens: bool, plain: bool, workers: int | None, counters: Counters
    ) -> EncodingBatch:
        """A batch of which the engine fails on one text is the reference's as a whole: it says of none which."""
        given = texts if isinstance(texts, (str, bytes, bytearray)) else list(texts)
        batch, reason = self._try(
            lambda: self.backend.encode_batch(given, add_special_tokens, plain),
            lambda: self._reference.encode_batch(given, add_special_tokens, plain, workers),
        )
        self._encoded(counters, len(batch), reason)
        return batch

    def encode_segments(self, segments: Iterable[tuple[Text, bool]], counters: Counters) -> Encoding:
        """Nobody stands in for parts: other engines read them otherwise."""
        encoding = self.backend.encode_segments(segments)
        self._encoded(counters, 1, None)
        return encoding

    def decode(self, ids: list[int], skip_special_tokens: bool, counters: Counters) -> str:
        text, reason = self._try(
            lambda: self.backend.decode(ids, skip_special_tokens),
            lambda: self._reference.decode(ids, skip_special_tokens),
        )
        by = self.id if reason is None else BackendId.HF
        self.last_decoded = by, reason
        counters.decoded(by, reason)
        return text

    def _try(self, ask: Callable[[], T], instead: Callable[[], T]) -> tuple[T, Reason | None]:
        """The answer, and why it is the reference's."""
        try:
            return ask(), None
        except BackendExecutionFault as fault:
            if not self._may_fall:
                raise
            reason = Reason.BACKEND_FORKED if fault.details.get("forked") else Reason.EXEC_FAULT
        return instead(), reason

    def _encoded(self, counters: Counters, texts: int, reason: Reason | None) -> None:
        by = self.id if reason is None else BackendId.HF
        if texts:
            self.last = by, reason
        counters.encoded(by, texts, reason)
