"""Rules from ranks: joining by rules gives what joining by ranks gives, and rules beyond one a token never fire."""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toktier.conversion import rank_merges
from toktier.conversion.rank_merges import Rule, all_splits, last_pair, last_pairs

LETTERS = [b"a", b"b", b"c"]


def by_ranks(text: bytes, ranks: Mapping[bytes, int]) -> list[bytes]:
    """tiktoken's definition: join the neighbours whose bytes together rank lowest, the leftmost of them, until none."""
    parts = [text[i : i + 1] for i in range(len(text))]
    while True:
        found = [(ranks[a + b], i) for i, (a, b) in enumerate(pairwise(parts)) if a + b in ranks]
        if not found:
            return parts
        _, at = min(found)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]


def by_rules(text: bytes, rules: list[Rule]) -> list[bytes]:
    """The reference's definition: the neighbours whose rule comes first, the leftmost of them, until none."""
    order = {rule: place for place, rule in enumerate(rules)}
    parts = [text[i : i + 1] for i in range(len(text))]
    while True:
        found = [(order[p], i) for i, p in enumerate(pairwise(parts)) if p in order]
        if not found:
            return parts
        _, at = min(found)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]


def random_ranks(source: random.Random, size: int) -> dict[bytes, int]:
    """Tokens over three letters in any order of ranks: also such as no training would give."""
    tokens = {bytes(source.choices(b"abc", k=source.randint(2, 6))) for _ in range(size)}
    order = [*LETTERS, *sorted(tokens)]
    source.shuffle(order)
    return {token: rank for rank, token in enumerate(order)}


@given(seed=st.integers(0, 2**32), size=st.integers(0, 40), text=st.text("abc", max_size=24))
def test_joining_by_rules_is_joining_by_ranks(seed: int, size: int, text: str) -> None:
    ranks = random_ranks(random.Random(seed), size)
    expected = by_ranks(text.encode(), ranks)
    assert by_rules(text.encode(), last_pairs(ranks)) == expected
    assert by_rules(text.encode(), all_splits(ranks)) == expected


@given(seed=st.integers(0, 2**32), size=st.integers(0, 40))
def test_heap_and_scan_agree(seed: int, size: int) -> None:
    source = random.Random(seed)
    ranks = random_ranks(source, size)
    long = [bytes(source.choices(b"abc", k=source.randint(2, 90))) for _ in range(20)]
    ranks |= {token: 1000 + i for i, token in enumerate(dict.fromkeys(long)) if token not in ranks}
    for token in ranks:
        assert rank_merges._heap(token, ranks) == rank_merges._scan(token, ranks), token


def test_a_token_of_higher_parts_still_has_its_rule() -> None:
    """abc has a lower rank than ab, of which it is made: the rule is there, and comes first."""
    ranks = {b"a": 0, b"b": 1, b"c": 2, b"abc": 3, b"ab": 4}
    assert last_pairs(ranks) == [(b"ab", b"c"), (b"a", b"b")]
    assert by_ranks(b"abc", ranks) == [b"abc"]


def test_a_token_that_joining_never_makes_has_no_rule() -> None:
    ranks = {b"a": 0, b"b": 1, b"c": 2, b"abc": 3}
    assert last_pair(b"abc", ranks) is None
    assert last_pairs(ranks) == []


def test_all_splits_are_by_rank_then_place() -> None:
    ranks = {b"a": 0, b"aaa": 3, b"aa": 2}
    assert all_splits(ranks) == [(b"a", b"a"), (b"a", b"aa"), (b"aa", b"a")]
    assert last_pairs(ranks) == [(b"a", b"a"), (b"aa", b"a")]


@pytest.mark.parametrize("length", [4096])
def test_long_tokens_are_not_quadratic(length: int) -> None:
    """Twice the length is about twice the look-ups, not four times."""

    class Counting(dict[bytes, int]):
        looked_up = 0

        def get(self, key: bytes, default: int | None = None) -> int | None:  # type: ignore[override]
            type(self).looked_up += 1
            return super().get(key, default)

    def look_ups(n: int) -> int:
        ranks = Counting({b"a" * i: i for i in range(1, n + 1)})
        Counting.looked_up = 0
        assert last_pair(b"a" * n, ranks) is not None
        return Counting.looked_up

    assert look_ups(length) < 2.5 * look_ups(length // 2)
