"""Cuts of texts in the engine: named cases, each kind by name, and the plain form (`text_cuts.py`) as the oracle.
That cuts hold is a law: tests/laws/test_text_cuts_laws.py.
"""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from tests.support import tokenizer_maker as maker
from tests.support.text_cut_cases import CutCase, hostile_text
from toktier import _native
from toktier.errors import InvalidText
from toktier.program.compile import compile_tokenizer
from toktier.program.layout import CutKind


def cuts(document: maker.Document, text: str, *, continued: bool = False) -> list[str]:
    """The parts of a text at its cuts."""
    program = _native.Program(compile_tokenizer(maker.encoded(document)))
    positions, kinds = program.cuts(text, continued)
    assert len(positions) == len(kinds)
    data = text.encode()
    bars = [0, *positions, len(data)]
    return [data[a:b].decode() for a, b in itertools.pairwise(bars)]


def kinds(document: maker.Document, text: str) -> list[CutKind]:
    return [CutKind(k) for k in _native.Program(compile_tokenizer(maker.encoded(document))).cuts(text)[1]]


def with_token(content: str, **flags: bool) -> maker.Document:
    document = maker.small("gpt2_like")
    document["added_tokens"] = [maker.added(content, **flags)]
    document["pre_tokenizer"]["add_prefix_space"] = False
    document["normalizer"] = None
    return document


def without_regex(**changes: Any) -> maker.Document:
    return maker.changed(maker.minimal(), **changes)


def test_words() -> None:
    assert cuts(with_token("<x>"), "the end. of it") == ["the", " end", ".", " of", " it"]


def test_added_token_is_not_cut_through() -> None:
    assert cuts(with_token("e ("), "the (end) (1)") == ["the (", "end", ")", " (", "1", ")"]


@pytest.mark.parametrize(
    ("flags", "text", "expected"),
    [
        ({}, "a<x> b", ["a", "<x>", " b"]),
        ({"rstrip": True}, "a<x> b", ["a", "<x> b"]),
        ({"rstrip": True}, "a  b", ["a", "  b"]),
        ({}, "a  b", ["a", " ", " b"]),
        ({"lstrip": True}, "a <x> b", ["a", " <x>", " b"]),
        ({"single_word": True}, "a<x>b", ["a<x>b"]),
        ({"single_word": True}, "a. <x> b", ["a", ".", " <x>", " b"]),
    ],
)
def test_flags_of_added_tokens(flags: dict[str, bool], text: str, expected: list[str]) -> None:
    """Where a match takes in white space or looks at its neighbour there is no cut."""
    assert cuts(with_token("<x>", **flags), text) == expected


def test_a_segment_may_end_inside_the_context_of_a_triple() -> None:
    """Between two spaces there is a cut for the letter behind them; but not where that letter begins a match."""
    assert cuts(with_token("<x>"), "a  the") == ["a", " ", " the"]
    assert cuts(with_token("the"), "a  the") == ["a", "  the"]


def test_prefix_space_leaves_cuts_before_spaces_only() -> None:
    document = with_token("<x>")
    document["pre_tokenizer"]["add_prefix_space"] = True
    assert cuts(document, "the end. of") == ["the", " end.", " of"]
    assert cuts(document, "the end. of", continued=True) == ["the", " end", ".", " of"]
    assert cuts(document, "a<x>b", continued=True) == ["a", "<x>b"], "a segment may begin behind the token"


def test_prepend_leaves_none_but_continued_ones() -> None:
    prepend = without_regex(normalizer={"type": "Prepend", "prepend": "d"})
    assert cuts(prepend, "abcab") == ["abcab"]
    assert cuts(prepend, "abcab", continued=True) == ["abc", "ab"]


def test_marks_are_not_cut_off() -> None:
    document = with_token("<x>")
    document["normalizer"] = {"type": "NFC"}
    assert cuts(document, "no e\u0301 1 x") == ["no", " e\u0301 1", " x"]
    assert cuts(document, "a 1") == ["a", " 1"]
    assert cuts(document, "a1 b") == ["a", "1", " b"]
    assert cuts(document, "a1\u0301 b") == ["a1\u0301 b"]
    assert cuts(document, "a ") == ["a "], "a mark may follow"


def test_vocabulary_cuts_without_pre_tokenizer() -> None:
    document = without_regex()
    assert cuts(document, "abcabdda") == ["abc", "ab", "d", "d", "a"]
    assert set(kinds(document, "abcabdda")) == {CutKind.JOIN}
    assert cuts(document, "axa") == ["axa"], "a character without symbol vanishes"
    assert cuts(without_regex(model__ignore_merges=True), "abcabdda") == ["abcabdda"]


def test_images_are_what_is_looked_at() -> None:
    """c becomes d, which no merge joins with anything; b is still joined with it by its own name."""
    replaced = without_regex(normalizer={"type": "Replace", "pattern": {"String": "c"}, "content": "d"})
    assert cuts(replaced, "abca") == ["ab", "c", "a"]


def test_kinds_by_name() -> None:
    found: set[CutKind] = set()
    for name in ("cl100k_like", "o200k_like", "llama_like", "gemma_like"):
        case = CutCase(maker.small(name))
        for seed in range(40):
            text = hostile_text(case, random.Random(seed))
            for continued in (False, True):
                positions, got = case.program.cuts(text, continued)
                assert (list(positions), got) == case.oracle.cut_list(text, continued=continued), ascii(text)
                found |= {CutKind(k) for k in got}
    assert found == set(CutKind) - {CutKind.NONE}


@pytest.mark.parametrize("text", ["", "a", "中", "\U0001f600"])
def test_short_texts(text: str) -> None:
    assert _native.Program(compile_tokenizer(maker.encoded(maker.small("cl100k_like")))).cuts(text) == ([], b"")


def test_text_that_is_no_text() -> None:
    program = _native.Program(compile_tokenizer(maker.encoded(maker.small("cl100k_like"))))
    with pytest.raises(InvalidText):
        program.cuts("a\ud800")
    with pytest.raises(TypeError):
        program.cuts(None)  # type: ignore[arg-type]
