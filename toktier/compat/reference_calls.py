"""Calls that the reference answers in the shape of `transformers`: pairs, texts split into words, truncation that only
it can judge, tokenizers beyond the compiler, and everything that is asked of an encoding besides its columns.

Truncation, padding and `encode_special_tokens` are settings of a reference object and no arguments, so these calls have
an object of their own and take turns at it: no call sees the settings of another. Not here: rows that need nothing but
the ids of texts (`composed_rows`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from toktier.backends.hf import HfBackend, checked_text
from toktier.compat import call_options as names
from toktier.compat.call_options import CallOptions, InvalidCall
from toktier.sessions.turns import Turns

if TYPE_CHECKING:
    import tokenizers

    from toktier.tokenizer import Tokenizer

# Single, pair and special tokens, as TemplateProcessing takes them.
Template = tuple[str, str, tuple[tuple[str, int], ...]]

# What transformers puts where the file has no post-processor: it adds no id, but padding is of no sequence then.
_NO_TEMPLATE: Template = ("$A:0", "$A:0 $B:1", ())


class ReferenceCalls:
    """The reference on the file of a Tokenizer, without the truncation and padding that it stores. Thread-safe."""

    def __init__(self, tokenizer: Tokenizer, template: Template | None = None) -> None:
        """`template`: what stands in place of the file's post-processor."""
        self._tokenizer, self._template = tokenizer, template
        self._turns = Turns()
        self._object: tokenizers.Tokenizer | None = None
        self._asked_in: int | None = None  # the process whose call is at the object

    def __reduce__(self) -> tuple[type[ReferenceCalls], tuple[Tokenizer, Template | None]]:
        return ReferenceCalls, (self._tokenizer, self._template)

    def source(self) -> bytes:
        """The tokenizer.json. Raises what `ArtifactSource.read` raises."""
        return self._tokenizer._reference._source.read()

    def ask(self, what: Callable[[tokenizers.Tokenizer], Any]) -> Any:
        """`what` of the reference object, which it must not change."""
        with self._turn() as reference:
            return what(reference)

    def encode(self, inputs: Sequence[Any], options: CallOptions) -> list[tokenizers.Encoding]:
        """One encoding of each input, padded together. Raises InvalidText, and InvalidCall where the reference refuses
        the input or cannot truncate it as asked."""
        given = [_checked(item, index) for index, item in enumerate(inputs)]
        with self._turn() as reference:
            try:
                _set(reference, options)
                return reference.encode_batch(
                    given, add_special_tokens=options.add_special_tokens, is_pretokenized=options.split_into_words
                )
            except BaseException as error:
                if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                    raise
                message = " ".join(str(error).split())[:300]
                raise InvalidCall(
                    f"the reference refuses the call: {message}",
                    details={"backend": "hf", "exception": type(error).__name__},
                    remedy="correct the inputs, max_length, stride or truncation",
                ) from None

    @contextmanager
    def _turn(self) -> Iterator[tokenizers.Tokenizer]:
        """The object for one call. A fork while a thread is at it leaves its inner lock held in the child, by nobody:
        there it is opened anew."""
        with self._turns.lock:
            before, process = self._asked_in, os.getpid()
            if before not in (None, process):
                self._object, before = None, None
            reference = self._opened()
            self._asked_in = process
            try:
                yield reference
            finally:
                self._asked_in = before

    def _opened(self) -> tokenizers.Tokenizer:
        if self._object is None:
            opened = HfBackend(self._tokenizer._reference._source).load()
            template = self._template or (_NO_TEMPLATE if opened.post_processor is None else None)
            if template is not None:
                from tokenizers.processors import TemplateProcessing

                single, pair, tokens = template
                opened.post_processor = TemplateProcessing(single=single, pair=pair, special_tokens=list(tokens))
            self._object = opened
        return self._object


def as_lists(encodings: list[tokenizers.Encoding], options: CallOptions) -> dict[str, list[Any]]:
    """Every column as one list for each encoding; overflowing ones are taken as they stand in `encodings`."""
    read: dict[str, Callable[[Any], Any]] = {
        names.INPUT_IDS: lambda e: e.ids,
        names.TYPE_IDS: lambda e: e.type_ids,
        names.ATTENTION_MASK: lambda e: e.attention_mask,
        names.SPECIAL_MASK: lambda e: e.special_tokens_mask,
        names.OFFSETS: lambda e: e.offsets,
        names.LENGTH: lambda e: len(e.ids),
    }
    return {name: [read[name](encoding) for encoding in encodings] for name in options.columns}


def _set(reference: tokenizers.Tokenizer, options: CallOptions) -> None:
    reference.encode_special_tokens = options.plain
    if options.truncation is None:
        reference.no_truncation()
    else:
        reference.enable_truncation(
            options.max_length or 0,
            stride=options.stride,
            strategy=options.truncation,
            direction=options.truncation_side,
        )
    if options.padding is None:
        reference.no_padding()
        return
    reference.enable_padding(
        direction=options.padding_side,
        pad_id=options.pad_id,
        pad_type_id=options.pad_type_id,
        pad_token=options.pad_token,
        length=options.max_length if options.padding == "max_length" else None,
        pad_to_multiple_of=options.multiple_of,
    )


def _checked(item: Any, index: int) -> Any:
    """An input with every text in it checked as the engine checks texts; what holds none is left to the reference."""
    if isinstance(item, str):
        return checked_text(item, index)
    if isinstance(item, (list, tuple)):
        return type(item)(_checked(part, index) for part in item)
    return item
