"""Effective ids, flags and matched contents of added tokens, beside those of the reference."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from tests.support import tokenizer_maker as maker
from tests.support.tokenizer_maker import Document, added, changed, minimal
from toktier.errors import ProgramUnsupported, UnsupportedConfig
from toktier.program.added_tokens import MAX_MATCHED_BYTES, PlacedToken
from toktier.program.layout import AddedFlag
from toktier.program.tokenizer_json import read_tokenizer


def placed(document: Document) -> tuple[PlacedToken, ...]:
    return read_tokenizer(maker.encoded(document)).added_tokens


CASES: dict[str, tuple[list[str], dict[str, int]]] = {
    "new ones follow the vocabulary": (["x", "y"], {}),
    "one of the vocabulary keeps its id": (["abc", "x", "a"], {}),
    "the vocabulary size counts, not its greatest id": (["x", "y"], {"a": 0, "b": 1, "z": 90}),
    "one of the vocabulary above the size does not count": (["z", "x", "y"], {"a": 0, "b": 1, "z": 90}),
    "nor does one below": (["a", "x"], {"a": 0, "b": 1, "z": 90}),
    "empty ones count for nothing": (["", "x"], {}),
    "repeated ones count once": (["x", "y", "x"], {}),
}


@pytest.mark.parametrize("case", CASES)
def test_ids_are_those_of_the_reference(case: str) -> None:
    contents, vocabulary = CASES[case]
    document = changed(minimal(), added_tokens=[added(content) | {"id": 77} for content in contents])
    if vocabulary:
        document = changed(document, model__vocab=vocabulary, model__merges=[])
    reference = Tokenizer.from_str(json.dumps(document))
    mine = {token.token.content: token.id for token in placed(document)}
    assert mine == {token.content: identity for identity, token in reference.get_added_tokens_decoder().items()}
    assert len(mine) == len({content for content in contents if content})


@given(
    st.lists(st.sampled_from(["a", "b", "abc", "q", "x", "y", "z", "", "é"]), max_size=7),
    st.dictionaries(st.sampled_from("abqxz"), st.integers(0, 12), min_size=1),
)
@settings(max_examples=150, deadline=None)
def test_law_ids_of_added_tokens(contents: list[str], vocabulary: dict[str, int]) -> None:
    document = changed(minimal(), model__vocab=vocabulary, model__merges=[], added_tokens=[added(c) for c in contents])
    reference = Tokenizer.from_str(json.dumps(document))
    expected = {content: reference.token_to_id(content) for content in contents if content}
    every = expected | {content: reference.token_to_id(content) for content in vocabulary}
    if len(set(every.values())) < len(every):
        with pytest.raises(ProgramUnsupported, match=r"which .* has too|two tokens of one id"):
            placed(document)
    else:
        assert {token.token.content: token.id for token in placed(document)} == expected


@pytest.mark.parametrize("flag", AddedFlag)
def test_each_flag_is_read(flag: AddedFlag) -> None:
    assert flag.name is not None
    (token,) = placed(changed(minimal(), added_tokens=[added("x", **{flag.name.lower(): True})]))
    assert token.token.flags == flag
    assert placed(changed(minimal(), added_tokens=[added("x")]))[0].token.flags == AddedFlag(0)


def test_only_normalized_tokens_are_matched_normalized() -> None:
    document = changed(
        minimal(),
        normalizer={"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, {"type": "NFC"}]},
        added_tokens=[added("e\u0301", normalized=True), added("E\u0301")],
    )
    assert [token.matched for token in placed(document)] == ["▁é", "E\u0301"]


def test_contents_that_would_make_matching_slow_are_declined() -> None:
    longest = "a" * (MAX_MATCHED_BYTES - 1) + "b"
    assert placed(changed(minimal(), added_tokens=[added(longest)]))[0].matched == longest
    for content, normalized in (("a" + longest, False), ("é" * 129, False), ("a" + longest, True)):
        with pytest.raises(ProgramUnsupported) as caught:
            placed(changed(minimal(), added_tokens=[added(content, normalized=normalized)]))
        assert caught.value.path == "added_tokens[0].content"


def test_many_tokens() -> None:
    tokens = [added(f"<|t{k}|>", special=bool(k % 2), normalized=bool(k % 3)) for k in range(50_000)]
    mine = placed(changed(minimal(), added_tokens=tokens))
    assert [token.id for token in mine] == list(range(7, 50_007))


def test_huge_tokens_that_collide_are_refused_and_not_served_by_the_reference() -> None:
    huge = "x" * 3_000_000  # two of them are beyond the bound on normalized contents
    tokens = [maker.added(huge, normalized=True), maker.added(huge.upper(), normalized=True)]
    document = maker.changed(maker.minimal(), normalizer={"type": "Lowercase"}, added_tokens=tokens)
    with pytest.raises(UnsupportedConfig, match="equal once normalized"):
        read_tokenizer(maker.encoded(document))
    tokens[1]["content"] = "Y" * 3_000_000
    with pytest.raises(ProgramUnsupported, match="normalized contents of more than"):
        read_tokenizer(maker.encoded(document))
