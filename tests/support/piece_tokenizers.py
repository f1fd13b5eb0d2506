"""Vocabularies whose pre-tokenizer only cuts at bars, which it drops: a test says what each piece is. In the kernels,
under the emulator, and in the reference.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from tests.support import emulated_pipeline
from tests.support.emulated_pipeline import Document, Left
from tests.support.engine_pair import Pair, byte_alphabet
from tests.support.material import SMALL_DIR
from toktier import _native

BAR = "|"
_AT_BARS = {
    "type": "Sequence",
    "pretokenizers": [
        {"type": "Split", "pattern": {"String": BAR}, "behavior": "Removed", "invert": False},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
    ],
}
# Bytes of pieces around what a key, a thread, a warp and a word hold.
LENGTHS = (1, 2, 3, 7, 14, 15, 16, 17, 30, 31, 32, 33, 34, 63, 64, 65, 128, 255, 256, 257, 300)
LETTERS = [*"abcdeilnorst", *"  \n\t'.-019AZ", *"éßж中日のก\u0301😀\u2028"]


def at_bars(document: dict[str, Any], **model: Any) -> dict[str, Any]:
    """The vocabulary of a tokenizer.json, with another pre-tokenizer and nothing around it."""
    return {
        **document,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": _AT_BARS,
        "post_processor": None,
        "truncation": None,
        "padding": None,
        "model": {**document["model"], **model},
    }


def small(name: str, **model: Any) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((SMALL_DIR / f"{name}.json").read_text(encoding="utf-8"))
    return at_bars(loaded, **model)


class PieceTokenizer:
    def __init__(self, document: dict[str, Any]) -> None:
        self.pair = Pair(document)
        self.image = _native.device_tables(self.pair.program)
        self._vocab: dict[str, int] = document["model"]["vocab"]

    @cached_property
    def words(self) -> list[str]:
        """Tokens that are text without a bar."""
        byte_of = {character: byte for byte, character in enumerate(byte_alphabet())}
        texts = (
            bytes(byte_of[c] for c in token).decode(errors="ignore")
            for token in self._vocab
            if all(c in byte_of for c in token)
        )
        return sorted({text for text in texts if text and BAR not in text})

    def piece(self, rng: random.Random, size: int) -> str:
        """At most `size` bytes, mostly exactly: tokens one behind the other, few letters, or a pattern that repeats."""
        kind = rng.randrange(3)
        few = rng.choices(LETTERS if kind == 1 else self.words, k=rng.choice((1, 1, 2, 3)))
        parts: list[str] = []
        count = 0
        while count < size:
            parts.append(
                rng.choice(self.words) if kind == 0 else few[len(parts) % len(few)] if kind == 2 else rng.choice(few)
            )
            count += len(parts[-1].encode())
        return "".join(parts).encode()[:size].decode(errors="ignore") or "a"

    def documents(self, rng: random.Random, count: int, lengths: Sequence[int] = LENGTHS) -> list[str]:
        """Of pieces of these lengths; some documents are empty, some begin or end with bars."""
        made = []
        for _ in range(count):
            pieces = [self.piece(rng, rng.choice(lengths)) for _ in range(rng.choice((0, 1, 2, 5, 9)))]
            bars = (rng.choice(("", BAR, BAR * 3)), rng.choice((BAR, BAR, BAR * 2)), rng.choice(("", BAR, BAR * 40)))
            made.append(bars[0] + bars[1].join(pieces) + bars[2])
        return made

    def run(self, documents: Sequence[str], **options: Any) -> list[Document]:
        return emulated_pipeline.run(self.image, [text.encode() for text in documents], offsets=True, **options)

    def check(self, documents: Sequence[str], **options: Any) -> None:
        """The kernels leave nothing to the CPU, and give the ids and offsets of the reference."""
        for text, found in zip(documents, self.run(documents, **options), strict=True):
            assert found.flags == Left(0), ascii(text[:300])
            assert (found.ids, found.offsets) == self.pair.reference(text), ascii(text[:300])
