"""Incremental decoding: text of ids that arrive one by one, equal to `tokenizers.decoders.DecodeStream`.

The stream holds back text that ends in U+FFFD (an unfinished character) and gives the rest. It works over any `decode`
of a list of ids, so the native engine and the reference share it. Where the reference's stream fails for good (decoded
text that no longer begins with what was given: a byte-fallback run turned malformed after part of it was given), this
one goes on with the text of the ids not yet given; nothing is given twice.

Work per step is bounded by the ids since the last text, and a `TailRule` keeps a long malformed run from being decoded
again at each step. Not here: decoding itself.
"""

from __future__ import annotations

import codecs
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from toktier.errors import InvalidToken

REPLACEMENT = "\ufffd"
MAX_ID = 2**32 - 1


def checked_id(value: object) -> int:
    """`value` as an id. Raises InvalidToken for what is no integer from 0 to 2**32 - 1."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = -1
    if not 0 <= number <= MAX_ID or isinstance(value, bool):
        shown = repr(value)[:80]
        raise InvalidToken(
            f"{shown} is no token id: expected an integer from 0 to {MAX_ID}",
            details={"value": shown},
            remedy="pass ids as non-negative integers of 32 bits",
        )
    return number


class TailRule(Protocol):
    """Knows, without decoding everything, that a text certainly ends in U+FFFD.

    `concatenates`: where the text of some ids does not end in U+FFFD, the text of those and more ids is that text and
    then the text of the rest alone.
    """

    concatenates: bool

    def feed(self, token_id: int) -> None:
        """One more id was added to the text."""

    def unfinished(self, ids: Sequence[int]) -> bool:
        """True only when the text of `ids` certainly ends in U+FFFD."""


class NoTail:
    """For decoders without such knowledge: every step decodes what is held back."""

    concatenates = False

    def feed(self, token_id: int) -> None:
        return

    def unfinished(self, ids: Sequence[int]) -> bool:
        return False


class ByteLevelTail:
    """A byte-level decoder's text is that of its bytes, and ends as the text of the last four does: a byte that does
    not continue a character starts a new one, and no character is longer. Nearly every id has a byte: a few decide."""

    WINDOW = 16

    def __init__(self, decode: Callable[[Sequence[int]], str], concatenates: bool = True) -> None:
        self._decode = decode
        self.concatenates = concatenates

    def feed(self, token_id: int) -> None:
        return

    def unfinished(self, ids: Sequence[int]) -> bool:
        if len(ids) <= 2 * self.WINDOW:
            return False
        text = self._decode(ids[-self.WINDOW :])
        return len(text) >= 4 and text.endswith(REPLACEMENT)


class ByteFallbackTail:
    """A run of byte tokens that is malformed stays so however it goes on: each of its bytes is a U+FFFD to the end."""

    concatenates = False

    def __init__(self, byte_of: Callable[[int], int | None]) -> None:
        self._byte_of = byte_of
        self._decoder = codecs.getincrementaldecoder("utf-8")("strict")
        self._malformed = False

    def feed(self, token_id: int) -> None:
        byte = self._byte_of(token_id)
        if byte is None:
            self._malformed = False
            self._decoder.reset()
        elif not self._malformed:
            try:
                self._decoder.decode(bytes((byte,)))
            except UnicodeDecodeError:
                self._malformed = True
                self._decoder.reset()

    def unfinished(self, ids: Sequence[int]) -> bool:
        return self._malformed


class DecodeStream:
    """Made by `Tokenizer.decode_stream`. Not for several threads at once."""

    def __init__(
        self,
        decode: Callable[[Sequence[int]], str],
        is_silent: Callable[[int], bool],
        tail: TailRule | None = None,
        prompt: Iterable[int] = (),
    ) -> None:
        """`decode`: text of a list of ids. `is_silent`: ids that `decode` passes over wherever they stand. `prompt`:
        ids that came before; their text is not given, unless it ends in an unfinished character."""
        self._decode = decode
        self._is_silent = is_silent
        self._tail: TailRule = tail or NoTail()
        self._ids = [i for i in map(checked_id, prompt) if not is_silent(i)]
        for token_id in self._ids:
            self._tail.feed(token_id)
        # _given: text of the first _given_ids ids of _ids, already with the caller. _text: text of all of _ids, or of
        # none when it is only known to be unfinished.
        self._given, self._given_ids = "", 0
        self._text = decode(self._ids) if self._ids else ""
        self._unfinished = self._text.endswith(REPLACEMENT)

    def step(self, token_id: int) -> str | None:
        """Text that `token_id` completes, or None while there is none. Raises InvalidToken."""
        token_id = checked_id(token_id)
        if not self._given and self._ids and not self._unfinished:
            self._given, self._given_ids = self._text, len(self._ids)
        if self._is_silent(token_id):
            return None
        self._ids.append(token_id)
        self._tail.feed(token_id)
        if self._tail.unfinished(self._ids):
            self._unfinished = True
            return None
        text = self._decode(self._ids)
        self._text, self._unfinished = text, text.endswith(REPLACEMENT)
        if self._unfinished or not _longer(text, self._given):
            return None
        if self._tail.concatenates:
            # What comes next does not depend on these ids: they need not be decoded again.
            new = text[len(self._given) :]
            self._ids.clear()
            self._given, self._given_ids, self._text = "", 0, ""
            return new
        if text.startswith(self._given):
            new = text[len(self._given) :]
            del self._ids[: self._given_ids]
        else:
            del self._ids[: self._given_ids]
            new = self._decode(self._ids)
        self._given, self._given_ids = self._decode(self._ids), len(self._ids)
        self._text, self._unfinished = self._given, False
        return new


def _longer(text: str, than: str) -> bool:
    """Longer in UTF-8, as the reference counts."""
    if text.startswith(than):
        return len(text) > len(than)
    return len(text.encode()) > len(than.encode())
