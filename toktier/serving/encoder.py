"""What a batcher asks of a tokenizer: `toktier.Tokenizer` is one. A protocol, because tokenizers make batchers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from toktier._native import Encoding, EncodingBatch
from toktier.sessions.session import Session

Text = Any  # str, or bytes-like UTF-8


class Traits(NamedTuple):
    """What holds for a tokenizer from its load on. `apart`: its file stores truncation or padding, so that ids of a row
    may depend on the other rows of a call. `inline`: the CPU engine serves, for which a short text is a matter of
    microseconds. `asks_store`: long texts are looked up in a store unless the call forbids
    it; `store_from`: bytes from which on."""

    apart: bool
    inline: bool
    asks_store: bool
    store_from: int


class Encoder(Protocol):
    """Thread-safe."""

    def encode(
        self,
        text: Text,
        add_special_tokens: bool = False,
        *,
        session: str | Session | None = None,
        lookup: str | None = None,
        plain: bool = False,
    ) -> Encoding: ...

    def encode_batch(
        self,
        texts: Iterable[Text],
        add_special_tokens: bool = False,
        *,
        workers: int | None = None,
        plain: bool = False,
    ) -> EncodingBatch: ...

    def session(self, name: str | None = None, *, keep_text: bool = False) -> Session: ...

    @property
    def _batch_traits(self) -> Traits: ...

    @property
    def _gpu_from(self) -> int | None:
        """Bytes from which on a batch goes to a GPU; None: no GPU serves."""
