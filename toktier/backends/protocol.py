"""What a backend is: one tokenizer on one engine. The tokenizer talks to this and to nothing behind it.

Not here: which backend serves (`toktier.routing.plan`), counters and fallbacks (`toktier.tokenizer`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    from toktier._native import Encoding, EncodingBatch
    from toktier.routing.vocabulary import BackendId

Text = str | bytes | bytearray | memoryview


class Vocabulary(Protocol):
    """Tokens and ids of one tokenizer."""

    @property
    def vocab_size(self) -> int:
        """Number of token strings, added tokens included."""

    @property
    def special_tokens(self) -> dict[str, int]:
        """Content and id of every special added token, ascending by id."""

    def token_to_id(self, token: str) -> int | None:
        """Id of a token string, None when there is none."""

    def id_to_token(self, token_id: int) -> str | None:
        """Token string of an id, None when there is none."""


class Decoder(Protocol):
    """Text of ids."""

    def decode(self, ids: Iterable[int], skip_special_tokens: bool) -> str:
        """Text of `ids`; ids without a token are passed over."""


class Backend(Vocabulary, Decoder, Protocol):
    """Everything that serving takes."""

    id: ClassVar[BackendId]

    def encode(self, text: Text, add_special_tokens: bool, plain: bool) -> Encoding:
        """IDs of one text. `plain`: special added tokens in the text are ordinary text. Raises InvalidText."""

    def encode_batch(
        self, texts: Iterable[Text], add_special_tokens: bool, plain: bool, workers: int | None
    ) -> EncodingBatch:
        """IDs of many texts; padding to the longest goes over the batch. Raises InvalidText naming the item."""

    def count(self, text: Text, add_special_tokens: bool, plain: bool) -> int:
        """Number of ids that `encode` would give."""
