"""SharedTokenCache: geometry, what is stored and proposed, what is dropped, and that scopes never touch each other."""

from __future__ import annotations

import random

import pytest

from toktier.errors import ConfigInvalid, InvalidToken
from toktier.speculative import Scope, SharedTokenCache

A, B, D = Scope("m", "t", 0, "a"), Scope("m", "t", 0, "b"), Scope("m", "t", 0, "d")


def cache(key_len: int, budget: int = 1 << 20, scopes: int = 1) -> SharedTokenCache:
    return SharedTokenCache(budget, scopes, key_len)


@pytest.mark.parametrize(
    ("budget", "scopes", "key_len", "expected"),
    [
        (1 << 20, 1, 8, (65536, 131072, 1048576)),
        (1 << 24, 3, 8, (262144, 873813, 5592404)),
        (5 << 20, 16, 8, (16384, 49152, 327680)),
        (16384, 1, 3, (1024, 2048, 16384)),
        (65536, 2, 3, (2048, 4096, 32768)),
        (1 << 22, 1, 3, (262144, 524288, 4194304)),
        (64 << 20, 4, 8, (1048576, 2097152, 16777216)),
        (256 << 20, 4, 8, (4194304, 8388608, 67108864)),
        (6144, 1, 8, (256, 1024, 6144)),
        (8191, 1, 8, (256, 1535, 8188)),
        (8192, 1, 8, (512, 1024, 8192)),
    ],
)
def test_geometry(budget: int, scopes: int, key_len: int, expected: tuple[int, int, int]) -> None:
    made = SharedTokenCache(budget, scopes, key_len)
    assert (made.slots, made.ring_tokens, made.bytes_per_scope) == expected
    assert (made.budget_bytes, made.max_scopes, made.key_len) == (budget, scopes, key_len)
    assert made.stats()["bytes"] == 0, "memory is taken when a scope is created"
    made.insert(A, range(100))
    assert made.stats()["bytes"] == expected[2]


@pytest.mark.parametrize(
    ("budget", "scopes", "key_len", "named"),
    [
        (6143, 1, 8, "budget_bytes"),
        (4096, 1, 8, "budget_bytes"),
        (0, 1, 8, "budget_bytes"),
        (-1, 1, 8, "budget_bytes"),
        (1 << 20, 512, 8, "budget_bytes"),
        (1 << 20, 0, 8, "max_scopes"),
        (1 << 20, 1, 0, "key_len"),
        (1 << 20, -3, 8, "max_scopes"),
        (6144, 1, 1023, "key_len"),
        (1 << 62, 1, 8, "budget_bytes"),
    ],
)
def test_what_cannot_be_is_refused_with_its_remedy(budget: int, scopes: int, key_len: int, named: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        SharedTokenCache(budget, scopes, key_len)
    assert str(caught.value).startswith(named)
    if 0 <= budget < 1 << 62 and named == "budget_bytes":
        assert "larger budget_bytes" in (caught.value.remedy or "")
        assert "fewer max_scopes" in (caught.value.remedy or "")


def test_every_budget_from_the_least_on_gives_a_ring_of_1024_tokens() -> None:
    for budget in [*range(6144, 70000, 7), *((1 << n) + d for n in range(13, 32) for d in (-1, 0, 1))]:
        assert SharedTokenCache(budget, 1, 3).ring_tokens >= 1024, budget


def test_the_longest_key_that_the_ring_can_hold() -> None:
    made = cache(1022, budget=6144)
    assert made.insert(A, range(1023)) == 1024
    assert made.propose(A, range(1022), 9) == [1022]


def test_a_copy_ends_with_max_len_or_the_document() -> None:
    made = cache(3)
    assert made.insert(A, [9, 1, 2, 3, 40, 41, 42, 43]) == 9
    assert made.propose(A, [5, 5, 1, 2, 3], 3) == [40, 41, 42]
    assert made.propose(A, [5, 5, 1, 2, 3], 100) == [40, 41, 42, 43]
    assert made.propose(A, [1, 2, 3], 1) == [40]
    assert made.stored(A) == 9
    assert made.propose(A, [0, 2, 3], 3) is None
    assert made.propose(A, [2, 3], 3) is None
    assert made.propose(A, [1, 2, 3], 0) is None
    assert made.propose(A, [1, 2, 3], 1 << 70) == [40, 41, 42, 43]


def test_the_latest_occurrence_wins() -> None:
    made = cache(2)
    made.insert(A, [1, 2, 3, 3, 3])
    assert made.stored(A) == 6
    made.insert(A, [8, 1, 2, 4, 4])
    assert made.stored(A) == 12
    assert made.propose(A, [1, 2], 2) == [4, 4]
    assert made.propose(A, [3, 3], 5) == [3]


def test_a_document_no_longer_than_the_key_is_nothing() -> None:
    made = cache(3)
    assert made.insert(A, [1, 2, 3]) == 0
    assert made.stats()["scopes"] == 0
    assert made.stored(A) == 0
    assert A not in made
    assert made.insert(A, [1, 2, 3, 4]) == 5
    assert made.stored(A) == 5
    assert made.propose(A, [1, 2, 3], 9) == [4]


def test_a_copy_stops_at_the_end_of_its_document() -> None:
    made = cache(2)
    made.insert(A, [1, 2, 3])
    made.insert(A, [4, 5, 6])
    assert made.propose(A, [1, 2], 10) == [3]


def test_what_is_sent_again_costs_nothing() -> None:
    made, base = cache(4), list(range(500))
    stored = []
    for document in (base, base, base + list(range(1000, 1100))):
        made.insert(A, document)
        stored.append(made.stored(A))
    assert stored == [501, 501, 606]
    assert made.propose(A, [496, 497, 498, 499], 3) == [1000, 1001, 1002]
    assert made.propose(A, [1096, 1097, 1098, 1099], 3) is None
    assert made.propose(A, [0, 1, 2, 3], 1000) == list(range(4, 500))


@pytest.mark.parametrize(("n", "stored", "copied"), [(35, 79, 35), (36, 85, 35), (40, 89, 35), (34, 77, 34)])
def test_a_run_ends_after_32_known_tokens(n: int, stored: int, copied: int) -> None:
    made, base = cache(4), list(range(n))
    made.insert(A, base)
    assert made.stored(A) == n + 1
    made.insert(A, [1000, 1001, 1002, 1003, 1004, *base, 3000, 3001])
    assert made.stored(A) == stored
    tail = [3000, 3001] if n <= 35 else []
    assert made.propose(A, [1001, 1002, 1003, 1004], 100) == [*range(copied), *tail]


def test_a_copy_from_a_run_that_was_ended() -> None:
    made = cache(4)
    made.insert(A, range(100))
    assert made.stored(A) == 101
    made.insert(A, [*range(1000, 1010), *range(100), *range(2000, 2010)])
    assert made.stored(A) == 162
    assert made.propose(A, [1006, 1007, 1008, 1009], 200) == list(range(35))
    assert made.propose(A, [96, 97, 98, 99], 20) == list(range(2000, 2010))
    assert made.propose(A, [0, 1, 2, 3], 200) == list(range(4, 35))


def test_documents_that_part_after_a_common_beginning() -> None:
    made = cache(3)
    made.insert(A, [1, 2, 3, 10, 11])
    made.insert(A, [1, 2, 3, 20, 21])
    assert made.propose(A, [1, 2, 3], 9) == [20, 21]
    assert made.propose(A, [2, 3, 10], 9) == [11]
    assert made.propose(A, [2, 3, 20], 9) == [21]


def test_the_ring_forgets_its_oldest_token_first() -> None:
    made = cache(3, budget=16384)
    made.insert(A, [1, 2, 3, 4, 5])
    for document in range(410):
        first = 1000 + 4 * document
        made.insert(A, [first, first + 1, first + 2, first + 3])
        expected = [4, 5] if made.stored(A) <= 2046 else None
        assert made.propose(A, [1, 2, 3], 2) == expected, made.stored(A)
    assert made.stored(A) > 2051


def test_the_ring_forgets_long_documents() -> None:
    made = cache(3, budget=16384)
    made.insert(A, [1, 2, 3, 4, 5])
    for document in range(1, 12):
        assert made.propose(A, [1, 2, 3], 2) == [4, 5]
        made.insert(A, range(1000 * document, 1000 * document + 200))
    assert made.stored(A) == 2217
    assert made.propose(A, [1, 2, 3], 2) is None


def test_of_a_document_longer_than_the_ring_the_end_is_kept() -> None:
    made = cache(3, budget=16384)
    made.insert(A, range(5000))
    assert made.stored(A) == 2048
    assert made.stats()["held_tokens"] == 2048
    assert made.propose(A, [4990, 4991, 4992], 100) == list(range(4993, 5000))
    assert made.propose(A, [100, 101, 102], 100) is None
    assert made.propose(A, [2953, 2954, 2955], 1) == [2956], "the first n-gram of the last 2,047 tokens"
    assert made.propose(A, [2952, 2953, 2954], 1) is None


def test_the_least_recently_used_scope_is_dropped_whole() -> None:
    made = cache(2, scopes=2)
    made.insert(A, [1, 2, 3])
    made.insert(B, [1, 2, 4])
    made.propose(A, [1, 2], 9)
    made.insert(D, [1, 2, 5])
    assert made.stats()["scopes"] == 2
    assert made.stats()["dropped_scopes"] == 1
    assert (made.propose(A, [1, 2], 9), made.propose(B, [1, 2], 9), made.propose(D, [1, 2], 9)) == ([3], None, [5])


def test_a_proposal_in_an_unknown_scope_creates_none() -> None:
    made = cache(2, scopes=2)
    made.insert(A, [1, 2, 3])
    made.insert(B, [1, 2, 4])
    assert made.propose(D, [1, 2], 9) is None
    assert D not in made
    made.insert(A, [7, 8, 9])
    made.insert(D, [1, 2, 5])
    assert B not in made
    assert made.propose(A, [1, 2], 9) == [3]
    assert made.propose(A, [7, 8], 9) == [9]


def test_a_proposal_that_finds_nothing_is_a_use() -> None:
    made = cache(2, scopes=2)
    made.insert(A, [1, 2, 3])
    made.insert(B, [1, 2, 4])
    assert made.propose(A, [9, 9], 9) is None
    made.insert(D, [1, 2, 5])
    assert B not in made
    assert made.propose(A, [1, 2], 9) == [3]


def test_looking_at_a_scope_is_no_use_and_neither_is_a_short_document() -> None:
    made = cache(2, scopes=2)
    made.insert(A, [1, 2, 3])
    made.insert(B, [1, 2, 4])
    assert A in made
    made.stored(A)
    made.insert(A, [1, 2])
    made.insert(D, [1, 2, 5])
    assert A not in made


def test_a_short_document_drops_nothing() -> None:
    made = cache(2, scopes=2)
    made.insert(A, [1, 2, 3])
    made.insert(B, [1, 2, 4])
    made.insert(D, [1, 2])
    assert (made.propose(A, [1, 2], 9), made.propose(B, [1, 2], 9), made.propose(D, [1, 2], 9)) == ([3], [4], None)


def test_scopes_that_differ_in_one_part_see_nothing_of_each_other() -> None:
    made, first = cache(3, scopes=8), (1, 2, 0, 7)
    made.insert(first, [1, 2, 3, 4, 5, 6])
    for other in ((9, 2, 0, 7), (1, 9, 0, 7), (1, 2, 9, 7), (1, 2, 0, 9)):
        assert made.propose(other, [1, 2, 3], 3) is None
        made.insert(other, [1, 2, 3, 66, 66, 66])
        assert made.propose(other, [1, 2, 3], 3) == [66, 66, 66]
        assert made.propose(first, [1, 2, 3], 3) == [4, 5, 6]
        assert made.stored(other) == made.stored(first) == 7


def test_one_token_repeated() -> None:
    made = cache(3)
    made.insert(A, [7] * 10)
    assert made.stored(A) == 11
    made.insert(A, [7] * 100)
    assert made.stored(A) == 11
    assert made.propose(A, [7, 7, 7], 50) == [7]


def test_more_ngrams_than_slots() -> None:
    made = cache(8)
    made.insert(A, range(100000))
    assert made.stored(A) == 100001
    assert made.stats()["bytes"] == made.bytes_per_scope == 1 << 20
    found = 0
    for end in range(8, 100000, 97):
        copy = made.propose(A, range(end - 8, end), 8)
        assert copy is None or copy == list(range(end, min(end + 8, 100000)))
        found += copy is not None
    assert found > 1000 * 65536 // 100000 * 9 // 10, "nearly every slot holds an n-gram"
    assert made.propose(A, range(99991, 99999), 9) == [99999]


def test_a_full_ring_is_known_but_for_some_of_its_oldest_third() -> None:
    made, length = cache(8, budget=1 << 18), 200
    documents = [range(n * length, (n + 1) * length) for n in range(4 * made.ring_tokens // length)]
    for document in documents:
        made.insert(A, document)
    asked = lost = 0
    position = made.stored(A) + 1
    for document in reversed(documents):
        position -= length + 1  # of the document's first token
        if position < made.stored(A) - made.ring_tokens:
            break
        for end in range(8, length, 3):
            found = made.propose(A, document[end - 8 : end], 1)
            assert found in (None, [document[end]])
            asked += 1
            lost += found is None
            assert found or position < made.stored(A) - made.ring_tokens * 2 // 3
    assert asked > made.ring_tokens // 4
    assert lost < asked // 20


@pytest.mark.parametrize("seed", range(8))
def test_a_conversation_that_is_sent_again_as_it_grows_stays_at_the_bound(seed: int) -> None:
    made, generator = cache(8, budget=4 << 20), random.Random(seed)
    conversation: list[int] = []
    for turn in range(10):
        conversation += [generator.randrange(150_000) for _ in range(100)]
        made.insert(A, conversation)
        assert made.stored(A) == 101 + 109 * turn
    assert made.stored(A) == 1082


@pytest.mark.parametrize("key_len", [1, 2, 3, 4])
def test_whatever_is_proposed_was_inserted(key_len: int) -> None:
    made, generator = cache(key_len, budget=16384), random.Random(key_len)
    documents: list[list[int]] = []
    hits = 0
    for _ in range(80):
        documents.append([generator.randrange(6) for _ in range(80)])
        made.insert(A, documents[-1])
        for _ in range(8):
            history = [generator.randrange(6) for _ in range(10)]
            copy = made.propose(A, history, generator.randrange(1, 12))
            if copy is None:
                continue
            hits += 1
            wanted = history[-key_len:] + copy
            assert any(d[i : i + len(wanted)] == wanted for d in documents for i in range(len(d))), (history, copy)
    assert hits > 50


def run_of_calls() -> list[object]:
    made, generator = cache(2, budget=40000, scopes=2), random.Random(5)
    results: list[object] = []
    for _ in range(200):
        scope = (0, 0, 0, generator.randrange(3))
        tokens = [generator.randrange(5) for _ in range(generator.randrange(60))]
        results.append(made.insert(scope, tokens) if generator.random() < 0.5 else made.propose(scope, tokens, 8))
    return [*results, made.stats()]


def test_the_same_calls_give_the_same_results() -> None:
    assert run_of_calls() == run_of_calls()


def test_the_marker_is_no_token() -> None:
    made = cache(2)
    with pytest.raises(InvalidToken) as caught:
        made.insert(A, [1, 2, 3, 0xFFFFFFFF, 4, 5, 6])
    assert caught.value.details == {"index": 3}
    assert A not in made, "all or nothing"
    made.insert(A, [1, 2, 3])
    assert made.propose(A, [1, 0xFFFFFFFF], 3) is None
    assert made.propose(A, [3, 0xFFFFFFFF], 3) is None
    assert made.propose(A, [1, 2], 3) == [3]


def test_counts() -> None:
    made = cache(2, scopes=2)
    made.insert(A, [1, 2, 3, 4])
    made.insert(B, [1, 2])
    made.propose(A, [1, 2], 9)
    made.propose(A, [9, 9], 9)
    made.propose(B, [1, 2], 9)
    assert made.stats() == {
        "scopes": 1,
        "bytes": made.bytes_per_scope,
        "stored_tokens": 5,
        "held_tokens": 5,
        "dropped_scopes": 0,
        "inserts": 1,
        "inserted_tokens": 4,
        "proposals": 3,
        "copies": 1,
        "proposed_tokens": 2,
    }


def test_removing_and_clearing() -> None:
    made = cache(2, scopes=3)
    for scope in (A, B, D):
        made.insert(scope, [1, 2, 3])
    assert made.remove(A) is True
    assert made.remove(A) is False
    assert made.propose(A, [1, 2], 3) is None
    assert made.propose(B, [1, 2], 3) == [3]
    made.clear()
    assert made.stats()["scopes"] == made.stats()["bytes"] == 0
    assert made.insert(A, [1, 2, 3]) == 4, "nothing is left of what was"
