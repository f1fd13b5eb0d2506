"""Pieces beyond 96 symbols, which are merged in windows: runs, repetitions and random letters against the reference.

Vocabularies are small, of few letters, and their ranks are in any order, so that windows often have no token in common
and tokens grow longer than a window.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.support.engine_pair import BYTE_LEVEL, Pair, byte_alphabet
from tests.support.native_encoders import resident_bytes
from tests.support.tokenizer_maker import changed, minimal, small
from toktier.errors import ProgramUnsupported

UNCUT: dict[str, Any] = {**BYTE_LEVEL, "use_regex": False}


def check(pair: Pair, text: str) -> None:
    assert pair.engine(text) == pair.reference(text), (len(text), ascii(text[:200]))


def model(letters: str, merges: list[list[str]], *, byte_level: bool, **changes: Any) -> dict[str, Any]:
    """A tokenizer that takes its text for one piece."""
    vocab = [*byte_alphabet()] if byte_level else [*letters]
    vocab += ["".join(rule) for rule in merges]
    document = changed(minimal(), pre_tokenizer=UNCUT if byte_level else None, model__merges=merges)
    document["model"]["vocab"] = {token: index for index, token in enumerate(dict.fromkeys(vocab))}
    document["model"].update(changes)
    return document


def random_merges(rng: random.Random, letters: str, most: int, longest: int) -> list[list[str]]:
    tokens, merges = [*letters], []
    for _ in range(rng.randrange(2, most)):
        rule = [rng.choice(tokens), rng.choice(tokens)]
        if rule not in merges and len("".join(rule)) <= longest:
            merges.append(rule)
            tokens.append("".join(rule))
    if rng.random() < 0.7:
        rng.shuffle(merges)  # a token may have a lower rank than what it is made of
    return merges


def text_of(rng: random.Random, letters: str, size: int) -> str:
    """Runs, repeated words and random letters, one of them or all."""
    kinds = rng.choice((("run",), ("word",), ("letters",), ("run", "word", "letters")))
    parts: list[str] = []
    left = size
    while left > 0:
        kind, share = rng.choice(kinds), rng.randrange(1, left + 1) if len(kinds) > 1 else left
        if kind == "run":
            part = rng.choice(letters) * share
        elif kind == "word":
            word = "".join(rng.choices(letters, k=rng.randrange(1, 70)))
            part = (word * (share // len(word) + 1))[:share]
        else:
            part = "".join(rng.choices(letters, k=share))
        parts.append(part)
        left -= share
    return "".join(parts)


def check_models(seeds: range, texts: int) -> int:
    compiled = 0
    for seed in seeds:
        rng = random.Random(seed)
        letters = "abcd"[: rng.randrange(1, 5)]
        merges = random_merges(rng, letters, rng.choice((6, 20, 80)), rng.choice((4, 16, 64, 400)))
        extra = {"byte_fallback": True, "fuse_unk": True} if rng.random() < 0.3 else {}
        try:
            pair = Pair(model(letters, merges, byte_level=rng.random() < 0.6, **extra))
        except ProgramUnsupported:
            continue
        compiled += 1
        for _ in range(texts):
            check(pair, text_of(rng, letters, rng.choice((rng.randrange(90, 200), rng.randrange(90, 1500)))))
    return compiled


def test_law_any_order_of_ranks_equals_the_reference() -> None:
    assert check_models(range(40), 8) > 30


@pytest.mark.ci
@pytest.mark.ordinary
def test_law_any_order_of_ranks_equals_the_reference_at_length() -> None:
    assert check_models(range(40, 1200), 25) > 900


@pytest.mark.parametrize("name", ["cl100k_like", "deepseek_like", "llama_like", "gemma_like"])
def test_every_length_around_the_borders(name: str) -> None:
    """Lengths from heap to windows, and whole numbers of windows and of periods, one more and one less."""
    document = small(name)
    if name not in ("llama_like", "gemma_like"):
        document["pre_tokenizer"] = UNCUT
    pair = Pair(document)
    rng = random.Random(7)
    units = ["a", " ", "-", "the", "ab", "banana", "é", "中文", "etaoin shrdlu", "".join(rng.choices("etaoins", k=37))]
    for unit in units:
        for size in (*range(90, 150), 191, 192, 193, 383, 384, 385, 1000, 4096):
            text = (unit * (size // len(unit) + 1))[:size]
            check(pair, text)
            check(pair, "x" + text[: size // 2] + "q" + text[size // 2 :])


def test_tokens_wider_than_windows() -> None:
    """Tokens of 2 to 1024 symbols: a window grows until it has several, and what repeats has tails of many lengths."""
    merges, token = [], "a"
    while len(token) < 1024:
        merges.append([token, token])
        token += token
    for order in (1, -1):
        for byte_level in (True, False):
            pair = Pair(model("ab", merges[::order], byte_level=byte_level))
            for size in (95, 96, 97, 500, 1023, 1024, 1025, 5000, 9999):
                for text in ("a" * size, "b" + "a" * size, ("a" * size + "b") * 3, "b" * size + "a" * size):
                    check(pair, text)


def test_tokens_that_grow_from_the_right() -> None:
    """A letter behind a run decides all of it: a window that ends before has no token in common with the next."""
    chain = [["a", "a" * n + "b"] for n in range(200)]
    pairs = [["a", "a"], ["aa", "aa"]]
    for merges in (chain + pairs, pairs + chain, chain[::-1] + pairs):
        pair = Pair(model("ab", merges, byte_level=True))
        for size in range(1, 450, 23):
            check(pair, "a" * size + "b" + "a" * 200)
            check(pair, ("a" * size + "b") * (600 // size + 2))
            check(pair, "a" * 150 + "b" * size + "a" * size)


@pytest.mark.unsanitized  # a sanitizer keeps what was freed for a while
def test_memory_of_a_repeated_piece_is_that_of_its_ids() -> None:
    """Megabytes of one letter: no symbol is kept for each byte."""
    pair = Pair(model("ab", [["a", "a"], ["aa", "aa"], ["aaaa", "aaaa"]], byte_level=True))
    pair.encoder.count("a" * 1000)
    text = "a" * 4_000_000
    before = resident_bytes()
    assert pair.encoder.count(text) == 500_000
    assert resident_bytes() - before < 12_000_000
