"""Digits and Punctuation after a ByteLevel: they split bytes, also inside characters, exactly as the reference does."""

from __future__ import annotations

import itertools
import json
import random
from bisect import bisect_right
from typing import Any

import pytest
from tokenizers import Tokenizer

from tests.support import tokenizer_maker as maker
from tests.support.slow_program import SlowProgram
from toktier.errors import ProgramUnsupported
from toktier.program import unicode
from toktier.program.boundary import Stage, compile_boundaries
from toktier.program.byte_runs import ByteRuns, byte_runs, stage_tree
from toktier.program.compile import compile_tokenizer
from toktier.program.interpret import run_two_pass

STEPS = [
    {"type": "Digits", "individual_digits": True},
    {"type": "Digits", "individual_digits": False},
    {"type": "Punctuation", "behavior": "Isolated"},
    {"type": "Punctuation", "behavior": "Contiguous"},
]
TABLES = {"Digits": unicode.numeric, "Punctuation": unicode.punctuation}
# Characters whose bytes are numeric (ò ù ² ½ ಲ 木) or punctuation (á § 。) once mapped, and others.
TEXT = [*"ab 1,", "ò", "ù", "²", "½", "á", "§", "。", "\u0cb2", "木", "é", "中", "\U0001f4b2", "٣", "12", "123", "\n"]


def runs_of(step: dict[str, Any]) -> ByteRuns:
    joined = step.get("behavior") == "Contiguous" or step.get("individual_digits") is False
    return byte_runs(TABLES[step["type"]](), joined=joined, path="p")


def document(*after: dict[str, Any], name: str = "cl100k_like", use_regex: bool = False) -> maker.Document:
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}
    return maker.changed(maker.small(name), pre_tokenizer={"type": "Sequence", "pretokenizers": [byte_level, *after]})


@pytest.mark.parametrize("step", STEPS, ids=str)
def test_splits_between_characters_are_those_of_their_bytes(step: dict[str, Any]) -> None:
    runs = runs_of(step)
    tables = compile_boundaries([Stage("p", tree=stage_tree(runs))])
    characters = [*TEXT[4:17], "\x00", "\x7f", "\u07ff", "\u0800", "\uffff", "\U00010000", "\U0010ffff"]
    characters = [character for character in characters if len(character) == 1]
    starts = [first for first, _, _ in tables.class_ranges]
    number = {x: tables.class_ranges[bisect_right(starts, ord(x)) - 1][2] for x in characters}
    for text in map("".join, itertools.product(characters, repeat=3)):
        classes = bytes(number[x] for x in text)
        values = run_two_pass(tables, classes)
        for i in (1, 2):
            last, first = text[i - 1].encode()[-1:], text[i].encode()[:1]
            assert bool(values[i]) == runs.splits(last + first), ascii(text)


CHAINS = [
    (STEPS[1:3], False),
    (STEPS[3:], True),
    *(pytest.param(steps, use, marks=pytest.mark.ci) for steps in (*zip(STEPS), STEPS[::3]) for use in (False, True)),
]


@pytest.mark.parametrize(("steps", "use_regex"), CHAINS, ids=str)
def test_ids_equal_the_reference(steps: list[dict[str, Any]], use_regex: bool) -> None:
    split = {"type": "Split", "pattern": {"Regex": "[0-9][0-9][0-9]"}, "behavior": "Isolated", "invert": False}
    data = maker.encoded(document(*steps, split, use_regex=use_regex))
    program, reference = SlowProgram(compile_tokenizer(data)), Tokenizer.from_buffer(data)
    rng = random.Random(8)
    for _ in range(300):
        text = "".join(rng.choices(TEXT, k=rng.randrange(10)))
        assert program.encode(text) == reference.encode(text, add_special_tokens=False).ids, ascii(text)


def test_a_rule_inside_a_character_is_taken_out() -> None:
    plain = maker.small("cl100k_like")
    model = plain["model"]
    to_byte = {character: byte for byte, character in enumerate(unicode.byte_alphabet())}
    broken = [t for t in model["vocab"] if runs_of(STEPS[1]).splits(bytes(to_byte[c] for c in t if c in to_byte))]
    assert broken, "the vocabulary has tokens that the step splits"
    program = SlowProgram(compile_tokenizer(maker.encoded(document(STEPS[1]))))
    pieces = set(program.pieces.values())
    assert pieces.isdisjoint(model["vocab"][token] for token in broken)


def test_parts_that_only_a_look_up_would_find_are_declined() -> None:
    """With ignore_merges the reference takes a part of a split character whole, merges or not."""
    alphabet = unicode.byte_alphabet()
    part = alphabet[0xC3] + alphabet[0xA1]  # "á" as bytes; 0xC3 0xA1, which no rule makes
    assert runs_of(STEPS[2]).splits(b"\xc3\xa1")
    inside = alphabet[ord("x")] + alphabet[0xC3]
    base = document(STEPS[2], name="o200k_like")
    vocabulary = base["model"]["vocab"]
    for token, declined in ((inside, True), (part, False)):
        extended = maker.changed(base, model__vocab=vocabulary | {token: len(vocabulary)}, added_tokens=[])
        extended = maker.changed(extended, post_processor=None, model__ignore_merges=True)
        if declined:
            reference = Tokenizer.from_str(json.dumps(extended))
            assert reference.encode("xá").ids[0] == len(vocabulary), "it does matter"
            with pytest.raises(ProgramUnsupported, match="part of a split character"):
                compile_tokenizer(maker.encoded(extended))
        else:
            compile_tokenizer(maker.encoded(extended))


@pytest.mark.parametrize("step", STEPS, ids=str)
def test_an_incomplete_byte_alphabet_is_declined(step: dict[str, Any]) -> None:
    """A byte without a symbol vanishes; its neighbours would meet across a split inside a character."""
    incomplete = maker.changed(document(step), added_tokens=[])
    del incomplete["model"]["vocab"][unicode.byte_alphabet()[0xFF]]
    with pytest.raises(ProgramUnsupported, match="byte alphabet that is not complete"):
        compile_tokenizer(maker.encoded(incomplete))


def test_a_table_with_lead_bytes_is_declined() -> None:
    with pytest.raises(ProgramUnsupported, match="first byte"):
        byte_runs(((0xC3, 0xC3),), joined=True, path="p")
