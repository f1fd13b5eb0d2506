"""Added tokens in the engine: every flag, overlaps after strip flags, both passes, special tokens as ordinary text."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from tests.support.engine_pair import BYTE_LEVEL, Pair, byte_alphabet
from tests.support.tiers import blocks_of_seeds
from tests.support.tokenizer_maker import added, changed, minimal
from toktier import _native
from toktier.errors import ProgramUnsupported, UnsupportedConfig

FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
UNITS = (
    "<t>",
    "<t",
    "t>",
    "ab",
    "a",
    "b",
    " ",
    "  ",
    "\t",
    "\n",
    "\u00a0",
    "\u3000",
    "é",
    "e\u0301",
    "中",
    "_",
    "-",
    "1",
    "\u0301",
    "Ab",
)


def document(tokens: list[Any], normalizer: Any = None) -> dict[str, Any]:
    vocab = {character: byte for byte, character in enumerate(byte_alphabet())}
    return changed(
        minimal(),
        normalizer=normalizer,
        pre_tokenizer=BYTE_LEVEL,
        post_processor=BYTE_LEVEL,
        model__vocab=vocab,
        model__merges=[],
        added_tokens=tokens,
    )


@pytest.mark.parametrize("flags", list(itertools.product((False, True), repeat=len(FLAGS))))
def test_every_combination_of_flags(flags: tuple[bool, ...]) -> None:
    token = added("<t>", **dict(zip(FLAGS, flags, strict=True)))
    pair = Pair(document([token], {"type": "NFC"}))
    for left, right in itertools.product(
        ("", " ", "a", "a \t", "\u00a0", "é", "\u0301", "-", "_", "<", "<t>", "<t> "), repeat=2
    ):
        pair.check(f"{left}<t>{right}")


def check_sets(seeds: range) -> tuple[int, int]:
    """Random sets of overlapping tokens; (texts that both encode, texts that both refuse)."""
    encoded = refused = 0
    contents = ("<t>", "<t", "t><", "ab", "abab", "b", " ", "\n", " b", "é", "aé", "中", "a b")
    for seed in seeds:
        rng = random.Random(seed)
        tokens = [
            added(c, **{f: rng.random() < 0.35 for f in FLAGS}) for c in rng.sample(contents, rng.randrange(1, 6))
        ]
        normalizer = rng.choice((None, {"type": "NFC"}, {"type": "Lowercase"}, {"type": "Prepend", "prepend": "b"}))
        try:
            pair = Pair(document(tokens, normalizer))
        except (UnsupportedConfig, ProgramUnsupported):
            continue
        for _ in range(40):
            text = "".join(rng.choices(UNITS, k=rng.randrange(12)))
            pair.check(text)
            if pair.engine(text) is None:
                refused += 1
            else:
                encoded += 1
    return encoded, refused


def test_law_overlapping_sets_equal_the_reference() -> None:
    encoded, refused = check_sets(range(50))
    assert encoded > 1000
    assert refused < encoded // 10


@pytest.mark.ordinary
@pytest.mark.parametrize("block", blocks_of_seeds(4, in_ci=1))
def test_law_overlapping_sets_equal_the_reference_at_length(block: int) -> None:
    encoded, refused = check_sets(range(50 + 300 * block, 350 + 300 * block))
    assert encoded > 5000
    assert refused > 0, "no text on which strip flags collide: that path was not reached"


def test_match_inside_white_space_that_was_taken_in() -> None:
    """After an rstrip token a token of white space is emitted whole, or dropped when nothing of it is left."""
    pair = Pair(document([added("x", rstrip=True), added("\n")]))
    for text in ("x \n a", "x\n\n\n", "x \n \n b", "x\nx\n"):
        pair.check(text)
    swallowed = Pair(document([added(" ", lstrip=True, rstrip=True)]))
    for text in ("a   b", "\u00a0  b", " ", "  ", "a \u3000 b"):
        swallowed.check(text)


def test_where_the_reference_fails_the_engine_refuses() -> None:
    pair = Pair(document([added("x", rstrip=True), added("\n", lstrip=True)]))
    assert pair.reference("x \n \u3000") is None
    with pytest.raises(UnsupportedConfig, match="white space"):
        pair.encoder.encode("x \n \u3000")
    pair.check("x\ny")


def test_many_tokens_with_one_beginning() -> None:
    """The longest of many wins; a candidate that leads nowhere costs its own length only."""
    tokens = [added(f"<|reserved_{n}|>", special=n % 2 == 0) for n in range(300)] + [added("<|"), added("<|reserved_")]
    pair = Pair(document(tokens))
    assert isinstance(pair.program, _native.Program)
    for text in (
        "<|reserved_12|>",
        "<|reserved_12",
        "<|reserved_299|><|reserved_300|>",
        "<|" * 20,
        "<<<|||reserved_",
        "a<|b",
    ):
        pair.check(text)
