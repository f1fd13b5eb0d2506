"""What a batcher asks of what it encodes with: a `toktier.Tokenizer`, a `toktier.cache.PrefixCache` over one, or
whatever has these calls. A protocol, because tokenizers make batchers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from toktier._native import Encoding, EncodingBatch
from toktier.sessions.session import Session

Text = Any  # str, or bytes-like UTF-8


class Traits(NamedTuple):
    """What holds for an encoder from its load on. `apart`: its file stores truncation or padding, so that ids of a row
    may depend on the other rows of a call. `inline`: the CPU engine serves, for which a short text is a matter of
    microseconds. `gpu`: a GPU may serve, now or later. `asks_store`: texts of `store_from` bytes and more are looked up
    in a store, which may take its time, unless the call forbids it. `cached`: `encode` finds prefixes in memory, and
    `encode_batch` does not."""

    apart: bool = False
    inline: bool = False
    gpu: bool = False
    asks_store: bool = False
    store_from: int = 0
    cached: bool = False


class Encoder(Protocol):
    """Thread-safe. Arguments that are at their defaults are not given to it. A Tokenizer tells its traits and, as
    `_gpu_from`, the bytes from which on a batch goes to a GPU that serves."""

    def encode(self, text: Text, add_special_tokens: bool = False) -> Encoding: ...

    def encode_batch(self, texts: Iterable[Text], add_special_tokens: bool = False) -> EncodingBatch: ...

    def session(self, name: str | None = None, *, keep_text: bool = False) -> Session: ...


def traits_of(encoder: Any) -> Traits:
    """Its own; of a cache around another those of what is inside, which it may ask or not. A second level of it is a
    store like any other."""
    told: Traits | None = getattr(encoder, "_batch_traits", None)
    if told is not None:
        return told
    # A backend of others is asked text by text: its batch call may pad rows to each other, and gives no EncodingBatch.
    others = Traits(apart=hasattr(encoder, "inner"))
    inside: Traits = getattr(getattr(encoder, "inner", None), "_batch_traits", others)
    return Traits(apart=inside.apart, asks_store=getattr(encoder, "second_level", None) is not None)
