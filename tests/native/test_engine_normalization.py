"""Normalizers in the engine: ids and offsets on text that decomposes, reorders and composes.

A byte-level model without merges makes one token of each byte, so that ids spell the normalized text and every byte's
alignment shows as an offset.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.engine_pair import BYTE_LEVEL, Pair, byte_alphabet
from tests.support.tokenizer_maker import changed, minimal

FORMS = ("NFC", "NFKC", "NFD", "NFKD")

# Starters and marks of many classes, characters that decompose to several or to one other, reordering pairs, Hangul in
# all three states, composition across blocked marks and with starters as second half.
CHARACTERS = (
    *"aei x\n",
    "\u0301", "\u0300", "\u0323", "\u0327", "\u0308", "\u0345", "\u0340", "\u0344", "\u0338",
    "\u00e9", "\u1e69", "\u1e9b", "\u212b", "\u2126", "\u1eb9", "\u0226",
    "\u0628", "\u0651", "\u064e", "\u0650", "\u064b",
    "\u0f71", "\u0f72", "\u0f73", "\u0f74", "\u0f75", "\u0f81",
    "\uac00", "\uac01", "\u1100", "\u1161", "\u11a8", "\u11a7", "\u1112",
    "\ufb01", "\ufdfa", "\uff21", "\u00bd", "\u2000", "\u3000", "\u00a0",
    "\u0915", "\u093c", "\u0958", "\u1025", "\u102e", "\u09c7", "\u09be", "\u0b47", "\u0b56", "\u304b", "\u3099",
    "\U0001d15e", "\U0001d165", "\U0001d16d", "\U0001d158", "\U0002f800", "\u0130", "\u03a3", "\u1e9e",
)  # fmt: skip


def pair(normalizer: Any) -> Pair:
    vocab = {character: byte for byte, character in enumerate(byte_alphabet())}
    document = changed(minimal(), normalizer=normalizer, pre_tokenizer=BYTE_LEVEL, model__vocab=vocab, model__merges=[])
    return Pair(document)


PAIRS = {form: pair({"type": form}) for form in FORMS}
SEQUENCES = {
    form: pair(
        {
            "type": "Sequence",
            "normalizers": [
                {"type": "Lowercase"},
                {"type": form},
                {"type": "Replace", "pattern": {"String": "e\u0301"}, "content": "E\u0323"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
                {"type": "Strip", "strip_left": True, "strip_right": True},
                {"type": "Prepend", "prepend": "q "},
                {"type": form},
            ],
        }
    )
    for form in FORMS
}
TEXTS = st.lists(st.sampled_from(CHARACTERS), max_size=12).map("".join)


@pytest.mark.parametrize("form", FORMS)
@given(TEXTS)
@settings(max_examples=300, deadline=None)
def test_law_forms_equal_the_reference(form: str, text: str) -> None:
    PAIRS[form].check(text)


@pytest.mark.parametrize("form", FORMS)
@given(TEXTS)
@settings(max_examples=200, deadline=None)
def test_law_sequences_equal_the_reference(form: str, text: str) -> None:
    SEQUENCES[form].check(text)


@pytest.mark.parametrize("form", FORMS)
def test_rewritten_and_untouched_text_side_by_side(form: str) -> None:
    """Long inert stretches are skipped eight bytes at a time and copied whole: every length of them, both sides."""
    for length in range(20):
        for inert in ("plain ascii text as it comes", "文字列の中に何もない、これも"):
            stretch = inert[:length]
            for change in ("e\u0301", "\u0301", "\u1100\u1161\u11a8", "\ufb01", "a\u0323\u0301"):
                PAIRS[form].check(stretch + change + stretch)


@pytest.mark.parametrize("form", FORMS)
def test_long_runs_of_marks(form: str) -> None:
    """A run beyond the insertion sort's length is ordered stably too."""
    rng = random.Random(1)
    marks = [c for c in CHARACTERS if c in "\u0301\u0323\u0327\u0308\u0345\u0338\u0344\u0651\u064e\u0f71\u0f72\u0f74"]
    for length in (31, 32, 33, 34, 100, 400):
        PAIRS[form].check("a" + "".join(rng.choices(marks, k=length)) + "b")


@pytest.mark.parametrize(
    "normalizer",
    [
        {"type": "Replace", "pattern": {"String": "aa"}, "content": "b"},
        {"type": "Replace", "pattern": {"String": "a"}, "content": ""},
        {"type": "Replace", "pattern": {"String": "中"}, "content": "xyz"},
        {"type": "Prepend", "prepend": "▁"},
        {"type": "Strip", "strip_left": True, "strip_right": False},
        {"type": "Strip", "strip_left": False, "strip_right": True},
        {"type": "Lowercase"},
    ],
    ids=lambda normalizer: "-".join(str(value) for value in normalizer.values()),
)
def test_single_steps(normalizer: Any) -> None:
    both = pair(normalizer)
    for text in [
        "",
        " ",
        "a",
        "aa",
        "aaa",
        "aaaa",
        "baab",
        "中a中",
        " \t a\u3000\u00a0 ",
        "\u2003\u2003",
        "İI Σς ẞß ǅ",
        "é aé ",
    ]:
        both.check(text)
