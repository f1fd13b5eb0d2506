"""Every dispatch level does to text what the reference and Python do: transcoding, checking, added tokens, normalizers.

A byte-level model without merges makes one token of each byte, so that ids spell the text that reached the model. Texts
are longer than the 64 bytes that the engine looks at together, and what matters stands at every place of such a block.
"""

from __future__ import annotations

import functools
import random
from typing import Any

import pytest

from tests.support.engine_pair import BYTE_LEVEL, Pair, byte_alphabet
from tests.support.tokenizer_maker import added, changed, minimal
from toktier import _native
from toktier.errors import InvalidText

LEVELS: list[str] = _native.build_facts()["dispatch_levels"]
KINDS = {
    "ascii": "abc xyz\n\x00\x7f",
    "latin": "ab é\u0080ÿ",
    "two": "ab \u07ffжδ\u0100",
    "three": "a中文\u0800\uffffж",
    "four": "a\U0001f600\U0010ffff\U00010000中ж",
}


class Levels:
    """A tokenizer.json at every level, and the reference."""

    def __init__(self, document: dict[str, Any]) -> None:
        pair = Pair(document)
        self.encoders = {level: _native.EncoderBase(_native.Program(pair.image, level=level)) for level in LEVELS}
        self.reference = pair.reference

    def check(self, text: str) -> None:
        expected = self.reference(text)
        assert expected is not None
        for level, encoder in self.encoders.items():
            encoding = encoder.encode(text)
            assert encoding.backend == "fast_cpu"
            assert encoding.ids == expected[0], (level, ascii(text))
            assert encoding.offsets == expected[1], (level, ascii(text))


def first_malformed(data: bytes) -> int | None:
    try:
        data.decode()
    except UnicodeDecodeError as fault:
        return fault.start
    return None


def bytes_document(**changes: Any) -> dict[str, Any]:
    vocab = {character: byte for byte, character in enumerate(byte_alphabet())}
    return changed(minimal(), pre_tokenizer=BYTE_LEVEL, model__vocab=vocab, model__merges=[], **changes)


@functools.cache
def plain() -> Levels:
    return Levels(bytes_document())


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", KINDS)
def test_text_of_every_length_becomes_its_utf8(level: str, kind: str) -> None:
    encode = plain().encoders[level].encode
    generator = random.Random(kind)
    for length in (*range(100), 255, 256, 257, 1000):
        text = "".join(generator.choices(KINDS[kind], k=length))
        assert bytes(encode(text).ids) == text.encode(), ascii(text)
        assert bytes(encode(text.encode()).ids) == text.encode(), ascii(text)
    for place in range(80):  # one character among others of a shorter form
        text = "a" * place + KINDS[kind][-1] + "b" * (80 - place)
        assert bytes(encode(text).ids) == text.encode(), place


@pytest.mark.parametrize("level", LEVELS)
def test_the_first_surrogate_is_named_at_every_place(level: str) -> None:
    encode = plain().encoders[level].encode
    for place in range(70):
        for before, behind in (("a", "b"), ("中", "é"), ("\U0001f600", "a"), ("a", "\U0001f600")):
            text = before * place + "\udc80" + behind * (70 - place) + "\ud800"
            with pytest.raises(InvalidText) as error:
                encode(text)
            assert error.value.details["position"] == place


@pytest.mark.parametrize("level", LEVELS)
def test_the_first_malformed_byte_is_named_as_python_does(level: str) -> None:
    encode = plain().encoders[level].encode
    parts = [bytes([b]) for b in (0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF)]
    parts += [bytes([b]) for b in (0xE0, 0xE1, 0xED, 0xEF, 0xF0, 0xF1, 0xF4, 0xF5, 0xFF)]
    parts += [text.encode() for text in ("é", "中", "\U0001f600", "\uffff", "\U0010ffff")]
    generator = random.Random(level)
    for _ in range(4000):
        filler = generator.choice((b"a", "é".encode(), "中".encode(), "\U0001f600".encode()))
        data = filler * generator.randrange(66) + b"".join(generator.choices(parts, k=3))
        data += filler * generator.randrange(66)
        position = first_malformed(data)
        if position is None:
            assert bytes(encode(data).ids) == data
            continue
        with pytest.raises(InvalidText) as error:
            encode(data)
        assert error.value.details["position"] == position, data


def test_added_tokens_are_found_at_every_place() -> None:
    tokens = ["<|im_start|>", "<a>", "<", "\n", "\n\n", "▁▁", "[x]", "é", "zq", "Zq", "0", "\x00\x00", "中文", "中"]
    few = Levels(bytes_document(added_tokens=[added(t) for t in tokens[:1]]))
    many = Levels(bytes_document(added_tokens=[added(t) for t in tokens]))
    for levels in (few, many):
        for token in tokens:
            for place in (*range(70), 127, 128, 129):
                levels.check("a" * place + token)
                levels.check("a" * place + token + "b" * (130 - place))
                levels.check("中" * (place // 3) + token + token[:1])
        generator = random.Random(5)
        for _ in range(400):
            levels.check("".join(generator.choices([*tokens, *"<[ az▁\x00", "文", "中e", "word "], k=30)))


@pytest.mark.parametrize("form", ["NFC", "NFKC", "NFD", "NFKD"])
def test_forms_see_every_character_that_changes(form: str) -> None:
    levels = Levels(bytes_document(normalizer={"type": form}))
    marks = ["\u0301", "\u0323", "\u3099", "\u064e", "\u0651", "\u0e48", "\u1161", "\u11a8", "\u0344", "\U0001d165"]
    bases = [
        "e",
        "é",
        "か",
        "カ",
        "\u1100",
        "가",
        "ب",
        "ก",
        "\u212b",
        "ﬁ",
        "\uf900",
        "\U0002f800",
        "中",
        "“",
        "\U0001f600",
    ]
    for place in range(66):
        for mark in marks:
            levels.check("a" * place + mark + "b" * 66)
            levels.check("中" * (place // 2) + "e" + mark + "…" * 30)
        for base in bases:
            levels.check("a" * place + base + "\u0301" * 2)
    generator = random.Random(form)
    for _ in range(600):
        units = generator.choices(["word ", "文字", "жи", *bases, *marks], k=generator.randrange(60))
        levels.check("".join(units))


def test_literal_replacements_and_lower_case_change_every_place() -> None:
    for normalizer in (
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        {"type": "Replace", "pattern": {"String": "a"}, "content": "éx"},
        {"type": "Replace", "pattern": {"String": "a"}, "content": "b"},
        {"type": "Replace", "pattern": {"String": "a"}, "content": ""},
        {"type": "Lowercase"},
    ):
        levels = Levels(bytes_document(normalizer=normalizer))
        generator = random.Random(3)
        for length in (*range(90), 300, 1000):
            levels.check("".join(generator.choices(["a", " ", "b", "Z", "É", "文", "İ"], k=length)))
            levels.check("a" * length)
            levels.check(" " * length + "B" * 70)
