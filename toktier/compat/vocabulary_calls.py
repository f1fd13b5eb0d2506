"""Decoding and the vocabulary in the shape of `transformers`: tokens, ids and texts of a Tokenizer, one from another.

Not here: encoding (`transformers`), the names of special tokens (`special_tokens`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from toktier.compat import call_options as names
from toktier.compat.file_facts import FileFacts
from toktier.compat.padded_rows import as_lists
from toktier.compat.reference_calls import ReferenceCalls
from toktier.compat.special_tokens import SpecialTokens
from toktier.errors import UnsupportedConfig
from toktier.tokenizer import Tokenizer

_CLOSED_UP = (" .", " ?", " !", " ,", " ' ", " n't", " 'm", " 's", " 've", " 're")  # in this order


class VocabularyCalls(SpecialTokens):
    """What needs no encoding."""

    _tokenizer: Tokenizer
    _facts: FileFacts
    _reference: ReferenceCalls
    _clean_up_bpe: bool
    clean_up_tokenization_spaces: bool

    def decode(
        self,
        token_ids: Any,
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: bool | None = None,
    ) -> Any:
        """Text of ids, or of every row of them; arrays and tensors too. Raises InvalidToken.

        Spaces are cleaned up as in transformers 5: not for BPE, whose text that would damage, unless the config forces
        it.
        """
        ids = as_lists(token_ids)
        skip_special_tokens = names.flag("skip_special_tokens", skip_special_tokens)
        if isinstance(ids, Mapping):
            ids = ids[names.INPUT_IDS]
        if isinstance(ids, (list, tuple)) and ids and isinstance(ids[0], (list, tuple)):
            texts = self._tokenizer.decode_batch(ids, skip_special_tokens)
            return [self._cleaned(text, clean_up_tokenization_spaces) for text in texts]
        text = self._tokenizer.decode([ids] if isinstance(ids, int) else ids, skip_special_tokens)
        return self._cleaned(text, clean_up_tokenization_spaces)

    def batch_decode(
        self,
        sequences: Any,
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: bool | None = None,
    ) -> list[str]:
        """`decode` of rows of ids; of one row of ids, a list of its text."""
        rows = as_lists(sequences)
        if len(rows) == 0:
            return []
        found = self.decode(rows, skip_special_tokens, clean_up_tokenization_spaces)
        return [found] if isinstance(found, str) else found

    # vocabulary

    @property
    def vocab_size(self) -> int:
        """Tokens of the model, added tokens not counted."""
        return self._facts.model_size(self._reference)

    def __len__(self) -> int:
        return self._tokenizer.vocab_size

    def __bool__(self) -> bool:
        return True

    def get_vocab(self) -> dict[str, int]:
        """Id of every token string; a new dict."""
        vocabulary: dict[str, int] = self._reference.ask(lambda reference: reference.get_vocab(with_added_tokens=True))
        return vocabulary

    @property
    def vocab(self) -> dict[str, int]:
        """`get_vocab()`."""
        return self.get_vocab()

    @property
    def added_tokens_decoder(self) -> dict[int, Any]:
        """Every added token by id, as `tokenizers.AddedToken` with its flags; a new dict."""
        added: dict[int, Any] = self._reference.ask(lambda reference: reference.get_added_tokens_decoder())
        return added

    def get_added_vocab(self) -> dict[str, int]:
        """Id of every added token, ascending."""
        return {token.content: token_id for token_id, token in sorted(self.added_tokens_decoder.items())}

    @property
    def added_tokens_encoder(self) -> dict[str, int]:
        """`get_added_vocab()`."""
        return self.get_added_vocab()

    def convert_tokens_to_ids(self, tokens: Any) -> Any:
        """Id of a token string, or of each in a list; of what is no token that of the unknown token, or None."""
        if isinstance(tokens, str):
            found = self._tokenizer.token_to_id(tokens)
            unknown = self._named.get("unk_token")
            return self._tokenizer.token_to_id(unknown) if found is None and unknown is not None else found
        return [self.convert_tokens_to_ids(token) for token in tokens]

    def convert_ids_to_tokens(self, ids: Any, skip_special_tokens: bool = False) -> Any:
        """Token string of an id, or of each in a list; None for an id without a token. Raises InvalidToken."""
        if isinstance(ids, int):
            return self._tokenizer.id_to_token(ids)
        passed_over = set(self.all_special_ids) if skip_special_tokens else frozenset[int]()
        found = (int(token_id) for token_id in ids)
        return [self._tokenizer.id_to_token(token_id) for token_id in found if token_id not in passed_over]

    def convert_tokens_to_string(self, tokens: Sequence[str]) -> str:
        """Text of token strings, by the decoder of the file."""
        found: str = self._reference.ask(
            lambda reference: " ".join(tokens) if reference.decoder is None else reference.decoder.decode(list(tokens))
        )
        return found

    def get_special_tokens_mask(
        self,
        token_ids_0: Iterable[int],
        token_ids_1: Iterable[int] | None = None,
        already_has_special_tokens: bool = False,
    ) -> list[int]:
        """1 for every id of `all_special_ids`. Raises UnsupportedConfig unless `already_has_special_tokens` is set."""
        if not already_has_special_tokens or token_ids_1 is not None:
            raise UnsupportedConfig(
                "a mask of ids without their special tokens is not served here",
                details={"argument": "already_has_special_tokens"},
                remedy="call the tokenizer with return_special_tokens_mask=True",
            )
        special = set(self.all_special_ids)
        return [int(int(token_id) in special) for token_id in token_ids_0]

    def _cleaned(self, text: str, wanted: bool | None) -> str:
        clean = self.clean_up_tokenization_spaces if wanted is None else wanted
        if not clean or (self._facts.is_bpe(self._reference) and not self._clean_up_bpe):
            return text
        for written in _CLOSED_UP:
            text = text.replace(written, written.strip())
        return text
