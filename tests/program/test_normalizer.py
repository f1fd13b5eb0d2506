"""The slow normalizer and the sections beside it: equal to the reference, step by step."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tokenizers import Regex, normalizers

from tests.support import tokenizer_maker as maker
from toktier.program import unicode
from toktier.program.normalizer import normalize, normalizer_sections, read_normalizer

STEPS: dict[str, tuple[dict[str, Any], Any]] = {
    "NFC": ({"type": "NFC"}, normalizers.NFC()),
    "NFKC": ({"type": "NFKC"}, normalizers.NFKC()),
    "NFD": ({"type": "NFD"}, normalizers.NFD()),
    "NFKD": ({"type": "NFKD"}, normalizers.NFKD()),
    "Lowercase": ({"type": "Lowercase"}, normalizers.Lowercase()),
    "Strip left": ({"type": "Strip", "strip_left": True, "strip_right": False}, normalizers.Strip(right=False)),
    "Strip right": ({"type": "Strip", "strip_left": False, "strip_right": True}, normalizers.Strip(left=False)),
    "Strip": ({"type": "Strip", "strip_left": True, "strip_right": True}, normalizers.Strip()),
    "Prepend": ({"type": "Prepend", "prepend": "▁x"}, normalizers.Prepend("▁x")),
    "Replace": (
        {"type": "Replace", "pattern": {"String": "aa"}, "content": "▁"},
        normalizers.Replace("aa", "▁"),
    ),
    "Replace by nothing": (
        {"type": "Replace", "pattern": {"String": "é"}, "content": ""},
        normalizers.Replace("é", ""),
    ),
    "Replace, a regex that is a literal": (
        {"type": "Replace", "pattern": {"Regex": "e/-#"}, "content": "\\1"},
        normalizers.Replace(Regex("e/-#"), "\\1"),
    ),
    "Sequence": (
        {
            "type": "Sequence",
            "normalizers": [
                {"type": "Replace", "pattern": {"String": " "}, "content": "a"},
                {"type": "Sequence", "normalizers": [{"type": "Lowercase"}, {"type": "NFKC"}]},
            ],
        },
        normalizers.Sequence([normalizers.Replace(" ", "a"), normalizers.Lowercase(), normalizers.NFKC()]),
    ),
}
MARKS = [0x0301, 0x0327, 0x0323, 0x064E, 0x0651, 0x05B0, 0x0F71, 0x0F72, 0x1112, 0x1161, 0x11AB, 0x302A, 0x0345]


@pytest.mark.parametrize("case", STEPS)
def test_slow_normalizer_equals_the_reference(case: str) -> None:
    document, reference = STEPS[case]
    steps = read_normalizer(document)
    rng = random.Random(case)
    alphabet = [*maker.HOSTILE, "aaa", "e/-#", *map(chr, MARKS)]
    for _ in range(400):
        text = "".join(rng.choices(alphabet, k=rng.randrange(12)))
        assert normalize(steps, text) == reference.normalize_str(text), ascii(text)


@pytest.mark.parametrize("form", ["NFC", "NFKC", "NFD", "NFKD"])
def test_marks_of_every_class_are_ordered_and_composed(form: str) -> None:
    tables = unicode.normalization(form)
    steps, reference = read_normalizer({"type": form}), getattr(normalizers, form)()
    rng = random.Random(form)
    one_a_class = list({ccc: cp for cp, ccc in tables.ccc.items()}.values())
    bases = [cp for cp in tables.decompositions if cp < 0x3000] + [0x61, 0xAC00, 0x1100, 0x0915]
    for _ in range(1500):
        cps = [
            rng.choice(bases),
            *rng.choices(one_a_class, k=rng.randrange(5)),
            *rng.choices(bases, k=rng.randrange(2)),
        ]
        text = "".join(map(chr, cps))
        assert normalize(steps, text) == reference.normalize_str(text), ascii(text)


def test_a_form_twice_is_laid_out_once() -> None:
    steps = read_normalizer({"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "NFC"}]})
    sections = normalizer_sections(steps)
    assert len(sections["NOPS"]) == 2 * 5 * 4
    assert {tag: data for tag, data in sections.items() if tag != "NOPS"} == {
        tag: data for tag, data in normalizer_sections(steps[:1]).items() if tag != "NOPS"
    }


def test_no_normalizer_no_sections() -> None:
    assert normalizer_sections(read_normalizer(None)) == {}
    assert normalizer_sections(read_normalizer({"type": "Sequence", "normalizers": []})) == {}
    assert read_normalizer({"type": "Strip", "strip_left": False, "strip_right": False}) == ()
