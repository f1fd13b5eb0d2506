"""decode() of the engine: every operation of the decoder, special and unknown ids, malformed bytes."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.support.engine_pair import BYTE_LEVEL, Pair, byte_alphabet
from tests.support.tokenizer_maker import added, changed, minimal

TOKENS = (
    "a", "b", "▁", "▁a", "▁▁b", "a▁", "é", "中", "Ġ", "Ġa", "Ã", "©", "Ã©", "ä½", "ł", "☃", " ", "  a ", "\n",
    "<0x41>", "<0xC3>", "<0xA9>", "<0xff>", "<0xE4>", "<0xBD>", "<0xA0>",
    "<0x+F>", "<0x-F>", "<0xé>", "<0XFF>", "<0xFg>", "<0x4>",
)  # fmt: skip
REPLACE = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
FALLBACK, FUSE = {"type": "ByteFallback"}, {"type": "Fuse"}


def strip(start: int, stop: int) -> dict[str, Any]:
    return {"type": "Strip", "content": " ", "start": start, "stop": stop}


DECODERS: dict[str, Any] = {
    "none": None,
    "ByteLevel": BYTE_LEVEL,
    "ByteFallback": FALLBACK,
    "Fuse": FUSE,
    "Replace": REPLACE,
    "Replace by nothing": {"type": "Replace", "pattern": {"String": "a"}, "content": ""},
    "Replace two characters": {"type": "Replace", "pattern": {"String": "▁▁"}, "content": "-"},
    "Strip 1": strip(1, 0),
    "Strip 2": strip(2, 0),
    "as llama": {"type": "Sequence", "decoders": [REPLACE, FALLBACK, FUSE, strip(1, 0)]},
    "fallback then bytes": {"type": "Sequence", "decoders": [FALLBACK, BYTE_LEVEL]},
    "bytes then strip": {"type": "Sequence", "decoders": [BYTE_LEVEL, strip(1, 0)]},
}


@pytest.mark.parametrize("name", DECODERS)
def test_law_decoded_text_equals_the_reference(name: str) -> None:
    vocab = {token: index for index, token in enumerate(TOKENS)} | {"<gap>": 200}
    document = changed(minimal(), decoder=DECODERS[name], model__vocab=vocab, model__merges=[])
    document["added_tokens"] = [
        added("<s>", special=True),
        added("▁t"),
        added("<0x42>", special=True),
        added("Ġspecial"),
    ]
    pair = Pair(document)
    rng = random.Random(name)
    for _ in range(600):
        ids = [
            rng.randrange(len(TOKENS) + 6)
            if rng.random() < 0.95
            else rng.choice((199, 200, 201, 202, 203, 204, 2**32 - 1))
            for _ in range(rng.randrange(9))
        ]
        pair.check_decode(ids)


def test_law_malformed_bytes_decode_as_the_reference_decodes_them() -> None:
    """All runs of two bytes, and random longer ones made of what UTF-8 is sensitive to."""
    vocab = {character: byte for byte, character in enumerate(byte_alphabet())}
    pair = Pair(changed(minimal(), decoder=BYTE_LEVEL, pre_tokenizer=BYTE_LEVEL, model__vocab=vocab, model__merges=[]))
    for first in range(0x7E, 0x100):
        ids = [byte for second in range(0x7E, 0x100) for byte in (first, second, 0x41)]
        pair.check_decode(ids)
    rng = random.Random(4)
    edges = (
        0x41,
        0x7F,
        0x80,
        0x8F,
        0x90,
        0x9F,
        0xA0,
        0xBF,
        0xC1,
        0xC2,
        0xDF,
        0xE0,
        0xE1,
        0xED,
        0xEF,
        0xF0,
        0xF1,
        0xF4,
        0xF5,
        0xFF,
    )
    for _ in range(300):
        pair.check_decode(rng.choices(edges, k=60))
