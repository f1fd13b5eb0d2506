"""What follows the model: truncation, special tokens of a template, trimmed offsets, padding."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.support.engine_pair import BYTE_LEVEL, Pair, byte_alphabet
from tests.support.tokenizer_maker import added, changed, minimal
from toktier.errors import UnsupportedConfig

TEXTS = ("", "a", "ab", "abc", "abcdab", " ab ", "dcba" * 5)
TEMPLATE: dict[str, Any] = {
    "type": "TemplateProcessing",
    "single": [
        {"SpecialToken": {"id": "c", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": "d", "type_id": 0}},
    ],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {
        "c": {"id": "c", "ids": [2], "tokens": ["c"]},
        "d": {"id": "d", "ids": [3, 4], "tokens": ["d", "ab"]},
    },
}


@pytest.mark.parametrize("strategy", ["LongestFirst", "OnlyFirst", "OnlySecond"])
@pytest.mark.parametrize("direction", ["Left", "Right"])
@pytest.mark.parametrize("template", [None, TEMPLATE], ids=["plain", "template"])
def test_truncation(strategy: str, direction: str, template: Any) -> None:
    """Every length and stride around the room that special tokens leave, down to less than none."""
    for length, stride in itertools.product(range(7), range(5)):
        truncation = {"direction": direction, "max_length": length, "strategy": strategy, "stride": stride}
        pair = Pair(changed(minimal(), truncation=truncation, post_processor=template))
        for text in TEXTS:
            pair.check(text)


def test_refused_truncation_says_why() -> None:
    def pair(**changes: Any) -> Pair:
        truncation = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0, **changes}
        return Pair(changed(minimal(), truncation=truncation))

    with pytest.raises(UnsupportedConfig, match="stride"):
        pair(stride=3).encoder.encode("dcbadcba")
    with pytest.raises(UnsupportedConfig, match="second text"):
        pair(strategy="OnlySecond").encoder.encode("dcbadcba")
    assert pair(stride=3).encoder.encode("dcb").ids == [3, 2, 1]


@pytest.mark.parametrize("strategy", ["BatchLongest", {"Fixed": 0}, {"Fixed": 5}, {"Fixed": 8}], ids=str)
@pytest.mark.parametrize("direction", ["Left", "Right"])
@pytest.mark.parametrize("multiple", [None, 0, 1, 4])
def test_padding(strategy: Any, direction: str, multiple: int | None) -> None:
    padding = {
        "strategy": strategy,
        "direction": direction,
        "pad_to_multiple_of": multiple,
        "pad_id": 3,
        "pad_type_id": 0,
        "pad_token": "d",
    }
    for template in (None, TEMPLATE):
        pair = Pair(changed(minimal(), padding=padding, post_processor=template))
        for text in TEXTS:
            pair.check(text)


@pytest.mark.parametrize("prefix_space", [False, True])
@pytest.mark.parametrize("cut", [None, "Left", "Right"])
def test_trimmed_offsets(prefix_space: bool, cut: str | None) -> None:
    """White space at both ends of tokens, of the model's and of added ones, first in the text and after a cut."""
    vocab = {character: byte for byte, character in enumerate(byte_alphabet())}
    vocab |= {"ĠĠ": 256, "Ġa": 257, "aĠ": 258, "ĠĠĠĠ": 259, "Ċ": vocab["Ċ"]}
    truncation = cut and {"direction": cut, "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    pair = Pair(
        changed(
            minimal(),
            pre_tokenizer={**BYTE_LEVEL, "add_prefix_space": prefix_space, "use_regex": False},
            post_processor={**BYTE_LEVEL, "add_prefix_space": prefix_space},
            truncation=truncation,
            model__vocab=vocab,
            model__merges=["Ġ Ġ", "Ġ a", "a Ġ", "ĠĠ ĠĠ"],
            added_tokens=[added("<t>", lstrip=True, rstrip=True), added("\u3000x "), added("Ġ")],
        )
    )
    for units in itertools.product(("a", " ", "  ", "<t>", "\u3000x ", "Ġ", "\n"), repeat=4):
        pair.check("".join(units))
