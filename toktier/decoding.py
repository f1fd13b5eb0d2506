"""Decoding and the vocabulary, as calls of `toktier.Tokenizer`: by the engine that serves where it decodes, else by the
reference.

Not here: what text a stream gives when (`toktier.decode_stream`), encoding (`toktier.tokenizer`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from toktier._native import ids_of
from toktier.decode_stream import DecodeStream, checked_id
from toktier.errors import InvalidToken
from toktier.routing.vocabulary import BackendId, Reason

if TYPE_CHECKING:
    from toktier.backends.fast_cpu import FastCpuBackend
    from toktier.backends.hf import HfBackend
    from toktier.routing.counters import Counters
    from toktier.routing.third_party_route import ThirdPartyRoute


class Decoding:
    """A base of `Tokenizer`, which sets what is declared here."""

    _native: FastCpuBackend | None
    _reference: HfBackend
    _third_party: ThirdPartyRoute | None
    _serving: FastCpuBackend | ThirdPartyRoute | HfBackend
    _facts: FastCpuBackend | HfBackend
    """Of the vocabulary: a program knows them even while the reference serves."""
    _names: FastCpuBackend | HfBackend
    _known_ids: set[int]
    """Ids that have a token, as streams met them: at most the vocabulary."""
    _counters: Counters
    _fallback: Reason | None

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        """Text of `ids`, an Encoding, a buffer of uint32 or any iterable of int.

        `skip_special_tokens`: special added tokens give no text. Ids without a token are passed over, as the reference
        does. Raises InvalidToken for what is no id (`details["index"]`: its place), TypeError for what holds no ids.
        """
        return self._decoder(skip_special_tokens)(ids)

    def decode_batch(self, batch: Iterable[Iterable[int]], skip_special_tokens: bool = True) -> list[str]:
        """Text of each row, one after the other: `decode` of each. Raises InvalidToken, `details["item"]` its row."""
        decode = self._decoder(skip_special_tokens)
        texts: list[str] = []
        for item, ids in enumerate(batch):
            try:
                texts.append(decode(ids))
            except InvalidToken as error:
                raise InvalidToken(
                    f"item {item}: {error.message}", details={"item": item, **error.details}, remedy=error.remedy
                ) from None
        return texts

    def decode_stream(self, prompt: Iterable[int] = (), *, skip_special_tokens: bool = False) -> DecodeStream:
        """Incremental decoding, equal to `tokenizers.decoders.DecodeStream`, default for special tokens included.
        `prompt`: ids that came before and whose text was already shown."""
        decode = self._decoder(skip_special_tokens)
        by_others = self._third_party is not None and self._third_party.decodes  # nothing is known of how
        tail = None if self._native is None or by_others else self._native.tail_rule(decode)
        # Which special tokens the reference passes over is its own affair where it decodes: it differs by version.
        passes_over = skip_special_tokens and self._native_decodes
        specials = frozenset(self._facts.special_tokens.values()) if passes_over else frozenset()
        known, id_to_token = self._known_ids, self._facts.id_to_token

        def is_silent(token_id: int) -> bool:
            if token_id not in known:
                if id_to_token(token_id) is None:
                    return True
                known.add(token_id)
            return token_id in specials

        return DecodeStream(decode, is_silent, tail, ids_of(prompt))

    @property
    def _native_decodes(self) -> bool:
        return self._native is not None and self._serving is self._native and self._native.decodes

    def _decoder(self, skip_special_tokens: bool) -> Callable[[Iterable[int]], str]:
        if self._native_decodes and self._native is not None:
            native = self._native

            def decode_natively(ids: Iterable[int]) -> str:
                text = native.decode(ids, skip_special_tokens)
                self._counters.decoded_natively()
                return text

            return decode_natively
        third_party = self._third_party
        if third_party is not None and third_party.decodes:
            return lambda ids: third_party.decode(ids_of(ids), skip_special_tokens, self._counters)
        left = self._serving is self._native or third_party is not None
        reason = Reason.DECODE_REFERENCE if left else self._fallback

        def decode(ids: Iterable[int]) -> str:
            text = self._reference.decode(ids_of(ids), skip_special_tokens)
            self._counters.decoded(BackendId.HF, reason)
            return text

        return decode

    # vocabulary

    @property
    def vocab_size(self) -> int:
        """Number of token strings, added tokens included."""
        return self._facts.vocab_size

    @property
    def special_tokens(self) -> dict[str, int]:
        """Content and id of every special added token, ascending by id."""
        return dict(self._facts.special_tokens)

    def token_to_id(self, token: str) -> int | None:
        """Id of a token string, None when there is none."""
        return self._facts.token_to_id(token)

    def id_to_token(self, token_id: int) -> str | None:
        """Token string of an id, None when there is none. Raises InvalidToken for what is no id."""
        return self._names.id_to_token(checked_id(token_id))
