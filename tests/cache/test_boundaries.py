"""Behind which tokens a text may be cut: each reason against it, with a text of the reference that shows it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, models, normalizers
from tokenizers import Tokenizer as Reference

from tests.cache.backends import word_level
from toktier.cache.boundaries import choose
from toktier.cache.facts import Added, Facts, facts_of_reference

VOCABULARY = {"<s>": 1, "hello": 2, "world": 3, "END": 4, "orl": 5, "<s> ": 6, "<s": 7, "> ": 8}


def reason(tokenizer: Reference, token: str) -> str | None:
    chosen = choose([token], facts_of_reference(tokenizer))
    return chosen.dropped.get(token) or chosen.disabled


def cut_changes(tokenizer: Reference, before: str, behind: str) -> bool:
    def ids(text: str) -> list[int]:
        found: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
        return found

    return ids(before + behind) != ids(before) + ids(behind)


def special(content: str, **flags: bool) -> AddedToken:
    return AddedToken(content, **{"normalized": False, **flags})


@pytest.mark.parametrize(
    ("tokens", "parts", "before", "behind", "why"),
    [
        ([special("<s>", rstrip=True)], {}, "<s>", " world", "rstrip"),
        ([special("<s>", single_word=True)], {}, "<s>", "world", "single_word"),
        ([special("<s>", normalized=True)], {"normalizer": normalizers.NFC()}, "<s>", "\u0338", "normalized"),
        ([special("<s>", normalized=True)], {"normalizer": normalizers.Strip()}, "<s>", " world", "normalized"),
        ([special("END"), special("hey", single_word=True)], {}, "END", "hey", "word character"),
        ([special("<e\u0301"), special("hey", single_word=True)], {}, "<e\u0301", "hey", "word character"),
        ([special("<\u200d"), special("hey", single_word=True)], {}, "<\u200d", "hey", "word character"),
        ([special("<\u203f"), special("hey", single_word=True)], {}, "<\u203f", "hey", "word character"),
        ([special("<\u24d0"), special("hey", single_word=True)], {}, "<\u24d0", "hey", "word character"),
        (
            [special("\u0391\u03a3", normalized=True), special("\u03b1\u03c3x", normalized=True)],
            {"normalizer": normalizers.Lowercase()},
            *("\u0391\u03a3", "x", "not of ASCII alone"),  # a final sigma to Python, not to the reference
        ),
        ([special("<s>"), special("> ")], {}, "<s>", " ", "overlaps the added token '> '"),
        ([special("<s>"), special("<s>x")], {}, "<s>", "x", "overlaps the added token '<s>x'"),
    ],
)
def test_a_token_that_must_go(
    tokens: list[AddedToken], parts: dict[str, Any], before: str, behind: str, why: str
) -> None:
    tokenizer = word_level(VOCABULARY, *tokens, **parts)
    assert why in (reason(tokenizer, before) or "")
    shown_by_the_reference = cut_changes(tokenizer, before, behind)
    assert shown_by_the_reference or "> " in why  # of two that overlap, the first found wins there


@given(st.characters(exclude_categories=["Cs"]))
@settings(max_examples=400)
def test_law_what_may_end_a_word_ends_no_boundary_beside_a_single_word(character: str) -> None:
    tokenizer = word_level({}, special("hey", single_word=True))
    if len(tokenizer.encode(f"{character}hey", add_special_tokens=False).ids) == 1:  # no token of its own
        tokenizer.add_special_tokens([special(f"<{character}")])
        assert "word character" in (reason(tokenizer, f"<{character}") or "")


def test_a_model_that_leaves_out_merges_at_random_is_not_cached() -> None:
    vocabulary = {"a": 0, "b": 1, "ab": 2}
    for dropout, disabled in ((0.5, True), (None, False)):
        tokenizer = Reference(models.BPE(vocabulary, [("a", "b")], dropout=dropout))
        tokenizer.add_special_tokens([special("<s>")])
        assert (choose(["<s>"], facts_of_reference(tokenizer)).disabled is not None) == disabled


def test_a_token_beside_one_that_strips_keeps_its_white_space() -> None:
    tokenizer = word_level(VOCABULARY, special("<r>", rstrip=True), special(" <s>"))
    assert "white space at an end" in (reason(tokenizer, " <s>") or "")


@pytest.mark.parametrize("token", ["<x>", "hello"])
def test_what_is_no_special_token_of_the_tokenizer_is_no_boundary(token: str) -> None:
    tokenizer = word_level(VOCABULARY, special("<s>"))
    tokenizer.add_tokens([AddedToken("<x>", normalized=False)])
    assert "no special added token" in (reason(tokenizer, token) or "")


def test_the_others_stay_when_one_goes() -> None:
    tokenizer = word_level(VOCABULARY, special("<s>"), special("<r>", rstrip=True))
    chosen = choose(["<s>", "<r>"], facts_of_reference(tokenizer))
    assert chosen.tokens == ("<s>",)
    assert list(chosen.dropped) == ["<r>"]
    assert chosen.disabled is None


def test_normalized_tokens_may_overlap_when_lower_cased_alone() -> None:
    added = (Added(1, "<S", normalized=True), Added(2, "s>", normalized=True))
    chosen = choose(["<S", "s>"], Facts(added, ("Lowercase",)))
    assert chosen.disabled is not None
    assert "lower-cased" in chosen.disabled
    assert choose(["<S", "s>"], Facts(added)).tokens == ("<S", "s>")
