"""A tokenizer.json twice: compiled and run by the native engine, and loaded by the reference; and their comparison.

The engine is forced: its encoder has a program and no fallback, and every encoding must say that it served.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any

from tokenizers import Tokenizer

from toktier import _native
from toktier.errors import UnsupportedConfig
from toktier.program.compile import compile_tokenizer

Document = dict[str, Any]
Row = tuple[list[int], list[tuple[int, int]]]
ENCODE_OPTIONS = [(special, plain) for special in (False, True) for plain in (False, True)]


class Pair:
    """`document` in both engines. Raises what the compiler raises."""

    def __init__(self, document: Document) -> None:
        text = json.dumps(document, ensure_ascii=False)
        self.image = compile_tokenizer(text.encode())
        self.program = _native.Program(self.image)
        self.encoder = _native.EncoderBase(self.program)
        self._references = {plain: Tokenizer.from_str(text) for plain in (False, True)}
        self._references[True].encode_special_tokens = True

    def reference(self, text: str, special: bool = False, plain: bool = False) -> Row | None:
        """None where the reference fails on the text: its panics are no Exception."""
        with contextlib.suppress(BaseException):
            encoding = self._references[plain].encode(text, add_special_tokens=special)
            return list(encoding.ids), list(encoding.offsets)
        return None

    def engine(self, text: str, special: bool = False, plain: bool = False) -> Row | None:
        """None where the engine refuses the text. Ids are asked for with and without offsets, and as a count."""
        try:
            encoding = self.encoder.encode(text, special, plain=plain, offsets=True)
        except UnsupportedConfig:
            return None
        assert encoding.backend == "fast_cpu"
        ids = list(encoding.ids)
        assert self.encoder.encode(text, special, plain=plain).ids == ids
        assert self.encoder.count(text, special, plain=plain) == len(ids)
        return ids, [tuple(pair) for pair in encoding.offsets]

    def check(self, text: str) -> None:
        """Ids and offsets are equal with and without special tokens, and with special tokens as ordinary text."""
        for special, plain in ENCODE_OPTIONS:
            expected = self.reference(text, special, plain)
            assert self.engine(text, special, plain) == expected, (ascii(text), special, plain)

    def check_decode(self, ids: list[int]) -> None:
        for skip in (False, True):
            expected = self._references[False].decode(ids, skip_special_tokens=skip)
            assert self.program.decode(ids, skip) == expected, (ids, skip)


def byte_alphabet() -> list[str]:
    """The character of each byte, by GPT-2's rule; spelled out here to check the one that was probed."""
    itself = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = (b for b in range(256) if b not in itself)
    moved = {byte: 0x100 + n for n, byte in enumerate(others)}
    return [chr(moved.get(byte, byte)) for byte in range(256)]


BYTE_LEVEL: Document = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
