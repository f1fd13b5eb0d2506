"""Reading pre-tokenizers: stages in order, and the two places where text and mapped bytes could differ."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tokenizers import Regex, pre_tokenizers

from tests.support import tokenizer_maker as maker
from toktier.errors import ProgramUnsupported
from toktier.program.boundary import BoundaryTables, Stage, compile_boundaries
from toktier.program.interpret import run_two_pass
from toktier.program.pre_tokenizer import BYTE_LEVEL_PATTERN, PreTokenizer, read_pre_tokenizer

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def split_by(tables: BoundaryTables, text: str) -> list[str]:
    """Pieces of the text, dropped ones left out."""
    classes = bytes(next(c for a, b, c in tables.class_ranges if a <= ord(x) <= b) for x in text)
    pieces: list[str] = []
    kept: list[bool] = []
    for character, value in zip(text, run_two_pass(tables, classes), strict=True):
        if value:
            pieces.append("")
            kept.append(value == 1)
        pieces[-1] += character
    return [piece for piece, keep in zip(pieces, kept, strict=True) if keep]


def sequence(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "pretokenizers": list(steps)}


def test_stages_come_in_order_with_their_places() -> None:
    steps = sequence(
        {"type": "Split", "pattern": {"String": "a"}, "behavior": "Removed", "invert": True},
        sequence({"type": "Digits", "individual_digits": False}, {"type": "Punctuation"}),
        {"type": "Split", "pattern": {"Regex": "a+"}, "behavior": "MergedWithNext", "invert": False},
        BYTE_LEVEL | {"use_regex": True},
    )
    inner = "pre_tokenizer.pretokenizers"
    assert read_pre_tokenizer(steps) == PreTokenizer(
        (
            Stage(f"{inner}[0].pattern.String", literal="a", behavior="Removed", invert=True),
            Stage(f"{inner}[1].pretokenizers[0]", char_set="numeric", behavior="Contiguous"),
            Stage(f"{inner}[1].pretokenizers[1]", char_set="punctuation", behavior="Isolated"),
            Stage(f"{inner}[2].pattern.Regex", pattern="a+", behavior="MergedWithNext"),
            Stage(f"{inner}[3]", pattern=BYTE_LEVEL_PATTERN),
        ),
        byte_level=True,
    )


def test_none_and_empty_are_no_stages() -> None:
    assert read_pre_tokenizer(None) == read_pre_tokenizer(sequence()) == PreTokenizer()
    assert read_pre_tokenizer(BYTE_LEVEL) == PreTokenizer(byte_level=True)


def test_byte_level_splits_by_default_and_may_add_a_space() -> None:
    step = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False}
    read = read_pre_tokenizer(sequence(sequence(), step))
    assert read.prefix_space
    assert [stage.pattern for stage in read.stages] == [BYTE_LEVEL_PATTERN]


def test_the_pattern_of_byte_level_is_that_of_the_reference() -> None:
    tables = compile_boundaries([Stage("p", pattern=BYTE_LEVEL_PATTERN)])
    reference = pre_tokenizers.ByteLevel(add_prefix_space=False)
    rng = random.Random(2)
    for _ in range(2000):
        text = maker.random_text(rng, 10)
        expected = [text[a:b] for _, (a, b) in reference.pre_tokenize_str(text)]
        assert split_by(tables, text) == expected, ascii(text)


AFTER = (
    {"String": "19"},
    {"String": "'s"},
    {"Regex": "[0-9][0-9][0-9]"},
    {"Regex": "(?:[a-z]+|[A-Z]0{1,2})"},
    {"Regex": "sS?|t+"},
)


@pytest.mark.parametrize("pattern", AFTER, ids=str)
@pytest.mark.parametrize("behavior", ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"])
def test_patterns_of_plain_ascii_do_the_same_after_the_mapping(pattern: dict[str, str], behavior: str) -> None:
    """The reference maps first; the program never maps. Their pieces, mapped back, are equal."""
    step = {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": False}
    tables = compile_boundaries(read_pre_tokenizer(sequence(BYTE_LEVEL | {"use_regex": True}, step)).stages)
    (kind, text) = next(iter(pattern.items()))
    native = Regex(text) if kind == "Regex" else text
    names = {"Removed": "removed", "Isolated": "isolated", "Contiguous": "contiguous"}
    names |= {"MergedWithPrevious": "merged_with_previous", "MergedWithNext": "merged_with_next"}
    reference = pre_tokenizers.Sequence(
        [pre_tokenizers.ByteLevel(add_prefix_space=False), pre_tokenizers.Split(native, names[behavior])]
    )
    to_byte = {c: bytes([b]) for b, c in enumerate(_alphabet())}
    rng = random.Random(3)
    for _ in range(400):
        sample = maker.random_text(rng, 10)
        pieces = [b"".join(to_byte[c] for c in piece).decode() for piece, _ in reference.pre_tokenize_str(sample)]
        assert split_by(tables, sample) == pieces, ascii(sample)


def _alphabet() -> str:
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return "".join(chr(b) if b in printable else chr(next(others)) for b in range(256))


@pytest.mark.parametrize(
    "pattern",
    [{"String": " "}, {"String": "é"}, {"String": "aÃ"}, {"Regex": "."}, {"Regex": r"\d"}, {"Regex": "[^a]"}]
    + [{"Regex": p} for p in ("a(?=b)", "(?!a)b", "(?i:a)", r"\p{L}", "[!-~]", "a b", "é", "[a-é]", "^a", "a$")],
    ids=str,
)
def test_other_patterns_after_the_mapping_are_declined(pattern: dict[str, str]) -> None:
    step = {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}
    with pytest.raises(ProgramUnsupported, match="after ByteLevel"):
        read_pre_tokenizer(sequence(BYTE_LEVEL, step))
