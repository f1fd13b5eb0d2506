"""The result of a call in the shape of `transformers`: a mapping whose keys are attributes too, and what can be asked
of its rows. Not here: making the columns (`composed_rows`, `reference_calls`).
"""

from __future__ import annotations

import copy
from collections import UserDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from toktier.compat.call_options import tensor_kind
from toktier.compat.tensor_columns import tensors
from toktier.errors import InternalError, ToktierError, UnsupportedConfig
from toktier.routing.vocabulary import THIRD_PARTY

if TYPE_CHECKING:
    import tokenizers


class CharSpan(NamedTuple):
    """Code points [start, end) of a text."""

    start: int
    end: int


class TokenSpan(NamedTuple):
    """Tokens [start, end) of a row."""

    start: int
    end: int


class BatchEncoding(UserDict[str, Any]):
    """Columns by name (`result["input_ids"]`, `result.input_ids`); an int asks for the reference's encoding of a row.

    Words, spans and tokens of rows are the reference's answers: where the engine served, the reference encodes the same
    call once, when the first of them is asked for, and its ids are held to the columns. A row index may be left out of
    a result of one row.
    """

    data: dict[str, Any]

    def __init__(
        self,
        data: dict[str, Any],
        encodings: Callable[[], list[tokenizers.Encoding]] | list[tokenizers.Encoding] | None = None,
        *,
        ids: Callable[[int], list[int]] | None = None,
        backend: str | None = "hf",
    ) -> None:
        """`encodings`: of all rows, or a function that makes them, whose ids must be `ids(row)`. `backend`: which
        engine made the columns; None of rows that `pad()` was given."""
        super().__init__()
        self.data = data  # UserDict would copy it key by key
        self._encodings, self._ids, self._backend = encodings, ids, backend

    @property
    def backend(self) -> str | None:
        """Which engine made the columns, by its id ("hf" is the reference); None where `pad()` was given
        them."""
        return self._backend

    def __getitem__(self, item: Any) -> Any:
        if isinstance(item, str):
            return self.data[item]
        if isinstance(item, slice) and self._encodings is None:
            return {name: column[item] for name, column in self.data.items()}
        if isinstance(item, (int, slice)):
            return self.encodings[item]
        raise KeyError(f"expected a name, an index of a row or a slice of rows, not {type(item).__name__}")

    def __getattr__(self, name: str) -> Any:
        data = self.__dict__.get("data")  # absent while a copy or a pickle is being made
        if data is None or name not in data:
            raise AttributeError(name)
        return data[name]

    def __getstate__(self) -> dict[str, Any]:
        """Encodings that were not asked for stay behind: the tokenizer makes them."""
        made = self._encodings if isinstance(self._encodings, list) else None
        return {"data": self.data, "_encodings": made, "_ids": None, "_backend": self._backend}

    def __deepcopy__(self, memo: dict[int, Any]) -> BatchEncoding:
        """Columns are copied; encodings are not, as nothing here changes them."""
        data = copy.deepcopy(self.data, memo)
        return BatchEncoding(data, self._encodings, ids=self._ids, backend=self._backend)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    @property
    def is_fast(self) -> bool:
        """Whether rows have encodings to be asked: not where `pad()` made them, nor in another process."""
        return self._encodings is not None

    @property
    def encodings(self) -> list[tokenizers.Encoding]:
        """The reference's encodings of the rows."""
        found = self._encodings
        if callable(found):
            encodings = found()
            for row, encoding in enumerate(encodings):
                if self._ids is not None and encoding.ids != self._ids(row):
                    raise _other_ids(row, self._backend)
            self._encodings = found = encodings
        if found is None:
            raise ValueError("this result has no encodings: it is a copy from another process, or was padded by pad()")
        return found

    @property
    def n_sequences(self) -> int | None:
        """1, or 2 for pairs; None of no row."""
        encodings = self.encodings
        return encodings[0].n_sequences if encodings else None

    def tokens(self, batch_index: int = 0) -> list[str]:
        """Token strings of a row."""
        return self.encodings[batch_index].tokens

    def sequence_ids(self, batch_index: int = 0) -> list[int | None]:
        """Of each token: 0 or 1 for the text or its pair, None for what a template or padding put there."""
        return self.encodings[batch_index].sequence_ids

    def word_ids(self, batch_index: int = 0) -> list[int | None]:
        """Of each token the index of its word, None for what a template or padding put there."""
        return self.encodings[batch_index].word_ids

    def token_to_sequence(self, batch_or_token_index: int, token_index: int | None = None) -> int | None:
        """0 or 1: the text of a token."""
        row, token = self._place(batch_or_token_index, token_index)
        return self.encodings[row].token_to_sequence(token)

    def token_to_word(self, batch_or_token_index: int, token_index: int | None = None) -> int | None:
        """The word of a token."""
        row, token = self._place(batch_or_token_index, token_index)
        return self.encodings[row].token_to_word(token)

    def word_to_tokens(
        self, batch_or_word_index: int, word_index: int | None = None, sequence_index: int = 0
    ) -> TokenSpan | None:
        """The tokens of a word; None where it has none."""
        row, word = self._place(batch_or_word_index, word_index)
        span = self.encodings[row].word_to_tokens(word, sequence_index)
        return None if span is None else TokenSpan(*span)

    def token_to_chars(self, batch_or_token_index: int, token_index: int | None = None) -> CharSpan | None:
        """The code points of a token; None for what no text stands behind."""
        row, token = self._place(batch_or_token_index, token_index)
        span = self.encodings[row].token_to_chars(token)
        return None if span is None else CharSpan(*span)

    def char_to_token(
        self, batch_or_char_index: int, char_index: int | None = None, sequence_index: int = 0
    ) -> int | None:
        """The first token that holds a code point; None where there is none."""
        row, char = self._place(batch_or_char_index, char_index)
        return self.encodings[row].char_to_token(char, sequence_index)

    def word_to_chars(
        self, batch_or_word_index: int, word_index: int | None = None, sequence_index: int = 0
    ) -> CharSpan | None:
        """The code points of a word; None where it has none."""
        row, word = self._place(batch_or_word_index, word_index)
        span = self.encodings[row].word_to_chars(word, sequence_index)
        return None if span is None else CharSpan(*span)

    def char_to_word(
        self, batch_or_char_index: int, char_index: int | None = None, sequence_index: int = 0
    ) -> int | None:
        """The word that holds a code point."""
        row, char = self._place(batch_or_char_index, char_index)
        return self.encodings[row].char_to_word(char, sequence_index)

    def convert_to_tensors(self, tensor_type: str | None = None, prepend_batch_axis: bool = False) -> BatchEncoding:
        """Every column turned into a tensor in place, as `return_tensors` would have it; a row of its own first where
        `prepend_batch_axis` is set. Raises InvalidCall, BackendUnavailable."""
        kind = tensor_kind(tensor_type)
        if kind is not None:
            given = {name: [column] for name, column in self.data.items()} if prepend_batch_axis else self.data
            self.data = tensors(given, kind)
        return self

    def to(self, device: Any, **settings: Any) -> BatchEncoding:
        """Every tensor moved to a device; only of results with `return_tensors="pt"`."""
        self.data = {
            name: value.to(device, **settings) if hasattr(value, "to") else value for name, value in self.data.items()
        }
        return self

    @staticmethod
    def _place(first: int, second: int | None) -> tuple[int, int]:
        return (0, first) if second is None else (first, second)


def _other_ids(row: int, backend: str | None) -> ToktierError:
    """Of this package's engine that is a fault to be reported; of an engine of others it is how they are."""
    text = f"row {row}: the reference gives other ids than {backend} gave"
    if backend not in THIRD_PARTY:
        return InternalError(text)
    return UnsupportedConfig(
        f"{text}, so that words and spans of it are not known",
        details={"backend": backend},
        remedy="ask for nothing but ids, or use another backend: fast_cpu or hf",
    )
