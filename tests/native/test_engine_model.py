"""Pieces to ids: small vocabularies of every kind against the reference, and the engine's paths against each other.

Paths: whole piece, cache, linear merging, heap, cuts inside a piece, alphabets with holes, fallback, unknown.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.support.engine_pair import BYTE_LEVEL, Pair, byte_alphabet
from tests.support.tiers import blocks_of_seeds
from tests.support.tokenizer_maker import changed, minimal, small
from toktier.errors import ProgramUnsupported

LETTERS = ("a", "b", "c", "é", "中", "😀", " ", "\n", "'", "1")
OTHERS = ("z", "<t>", "\u0085", "\u00a0", "ab", "\x00")


def mapped(text: str) -> str:
    alphabet = byte_alphabet()
    return "".join(alphabet[byte] for byte in text.encode())


def random_model(rng: random.Random) -> tuple[dict[str, Any], list[str]]:
    """A tokenizer over a few letters, and what its texts are made of."""
    byte_level = rng.random() < 0.5
    letters = rng.sample(LETTERS, rng.randrange(1, 8))
    symbols = sorted({s for c in letters for s in (mapped(c) if byte_level else c)})
    vocab = [s for s in symbols if rng.random() < 0.9] or symbols[:1]
    merges: list[list[str]] = []
    for _ in range(rng.randrange(14)):
        rule = [rng.choice(vocab), rng.choice(vocab)]
        if rule not in merges:
            merges.append(rule)
        if "".join(rule) not in vocab:
            vocab.append("".join(rule))
    rng.shuffle(merges)  # ranks need not follow the order in which tokens are made
    model: dict[str, Any] = {"ignore_merges": rng.random() < 0.4, "fuse_unk": rng.random() < 0.5}
    if byte_level:
        pre_tokenizer: Any = {**BYTE_LEVEL, "add_prefix_space": rng.random() < 0.3, "use_regex": rng.random() < 0.6}
    else:
        pre_tokenizer = None
        if rng.random() < 0.5:
            behavior = rng.choice(("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"))
            pattern = {"Regex": rng.choice((r"\s+", "a+", "中|\n"))}
            pre_tokenizer = {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": rng.random() < 0.3}
        if rng.random() < 0.5:
            model["unk_token"] = rng.choice(("<unk>", "?", "a?", *vocab[:1]))
            vocab.append(model["unk_token"])
        if rng.random() < 0.5:
            model["byte_fallback"] = True
            share = rng.choice((1.0, 0.5))
            vocab += [f"<0x{byte:02X}>" for byte in range(256) if rng.random() < share]
    vocab += [mapped(extra) if byte_level else extra for extra in ("aab", "中中", "b\n", "  ") if rng.random() < 0.3]
    document = changed(minimal(), pre_tokenizer=pre_tokenizer, model__merges=merges)
    document["model"]["vocab"] = {token: index for index, token in enumerate(dict.fromkeys(vocab))}
    document["model"].update(model)
    document["post_processor"] = rng.choice((None, {**BYTE_LEVEL, "add_prefix_space": rng.random() < 0.5}))
    return document, [*letters, *OTHERS]


def check_models(seeds: range) -> int:
    compiled = 0
    for seed in seeds:
        rng = random.Random(seed)
        document, letters = random_model(rng)
        try:
            pair = Pair(document)
        except ProgramUnsupported:
            continue
        compiled += 1
        for longest in (3, 14, 14, 14, 60, 300):
            for _ in range(4):
                pair.check("".join(rng.choices(letters, k=rng.randrange(longest))))
    return compiled


def test_law_small_vocabularies_equal_the_reference() -> None:
    assert check_models(range(60)) > 40


@pytest.mark.ordinary
@pytest.mark.parametrize("block", blocks_of_seeds(3, in_ci=1))
def test_law_small_vocabularies_equal_the_reference_at_length(block: int) -> None:
    assert check_models(range(60 + 480 * block, 540 + 480 * block)) > 300


@pytest.mark.parametrize(
    "name", ["cl100k_like", "gpt2_like", "o200k_like", "deepseek_like", "llama_like", "gemma_like"]
)
def test_linear_and_heap_merging_agree_at_every_length(name: str) -> None:
    """Pieces of 1 to 120 symbols: the engine changes its algorithm at 15, 31 and 48, the reference never."""
    document = small(name)
    document["pre_tokenizer"] = (
        {**BYTE_LEVEL, "use_regex": False} if "_like" in name and name[:2] not in ("ll", "ge") else None
    )
    pair = Pair(document)
    rng = random.Random(2)
    words = [
        "the",
        "quick",
        "international",
        "zoo",
        "aaaa",
        "banana",
        "====",
        "1234",
        "ééé",
        "中文中文",
        "tokenization",
    ]
    for length in range(1, 121):
        text = ""
        while len(text) < length:
            text += rng.choice(words) + rng.choice(("", " "))
        pair.check(text[:length])


def test_law_order_of_texts_does_not_matter() -> None:
    """What the caches hold from earlier texts never changes a result."""
    document = small("gpt2_like")
    document["model"]["ignore_merges"] = True
    pair = Pair(document)
    rng = random.Random(3)
    words = ["".join(rng.choices("abehilnorst é中'1 ", k=rng.randrange(1, 40))) for _ in range(3000)]
    first = [pair.encoder.encode(word).ids for word in words]
    order = list(range(len(words)))
    rng.shuffle(order)
    for index in order:
        assert pair.encoder.encode(words[index]).ids == first[index]
    assert [Pair(document).encoder.encode(word).ids for word in words[:50]] == first[:50]


def test_ignore_merges_entries_serve_whole_pieces_only() -> None:
    """A vocabulary entry that merges do not reach is one token as a piece, and not one as a part of a longer piece."""
    letters = byte_alphabet()
    vocab = {c: i for i, c in enumerate(letters)} | {"ab": 256, "abc": 257, "xyz" * 8: 258}
    document = changed(
        minimal(), pre_tokenizer=BYTE_LEVEL, model__vocab=vocab, model__merges=["a b"], model__ignore_merges=True
    )
    pair = Pair(document)
    assert pair.engine("abc") == ([257], [(0, 3)])
    for text in ("abc", "abcd", "abc" * 12, "xyz" * 8, "xyz" * 9, "abc" + "xyz" * 8, "q" * 40 + "abc", "abc"):
        pair.check(text)
