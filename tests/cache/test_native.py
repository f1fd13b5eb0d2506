"""The native parts of the prefix cache beside another implementation of each: digests beside hashlib, the scan beside a
regular expression, the store beside a dict."""

from __future__ import annotations

import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cache.backends import Bytes, Remembering
from toktier import _native
from toktier.cache import PrefixCache, PrefixStorage
from toktier.cache.level import MAX_KEYS
from toktier.cache.overlaps import overlapping_pair

LENGTHS = sorted({n for block in (0, 64, 128, 192, 4096) for n in range(block - 9, block + 10) if n >= 0})


@pytest.mark.parametrize("instructions", [True, False])
def test_sha256_equals_hashlib_at_every_length_around_the_blocks(instructions: bool) -> None:
    for length in LENGTHS:
        data = bytes(i * 131 + length & 0xFF for i in range(length))
        assert _native.sha256(data, instructions) == hashlib.sha256(data).digest(), length


@given(st.binary(max_size=600), st.booleans())
def test_sha256_equals_hashlib(data: bytes, instructions: bool) -> None:
    assert _native.sha256(data, instructions) == hashlib.sha256(data).digest()


def key(name: bytes, flag: bool, prefix: bytes) -> bytes:
    return hashlib.sha256(len(name).to_bytes(8, "little") + name + bytes([flag]) + prefix).digest()


@given(st.binary(max_size=70), st.booleans(), st.lists(st.integers(0, 130), max_size=6))
def test_keys_are_digests_of_namespace_flag_and_prefix(name: bytes, flag: bool, gaps: list[int]) -> None:
    text = b"".join(b"x" * gap + b"<s>" for gap in gaps)
    index = _native.PrefixIndex(_native.PrefixStore(0, False), [b"<s>"], name)
    found = index.boundaries(text, flag)
    assert [end for end, _, _ in found] == [m.end() for m in re.finditer(b"<s>", text)]
    assert all(digest == key(name, flag, text[:end]) for end, _, digest in found)


# Few letters, so that strings nearly overlap; more than four first letters take the other way through a text.
STRINGS = st.lists(st.text("ab<|é", min_size=1, max_size=5), min_size=1, max_size=8, unique=True)


@given(STRINGS, st.lists(st.one_of(st.text("ab<|é", max_size=6), st.integers(0, 7)), max_size=12))
def test_the_scan_finds_what_a_regular_expression_finds(strings: list[str], pieces: list[str | int]) -> None:
    kept = [string for i, string in enumerate(strings) if overlapping_pair(strings[: i + 1]) is None]
    if not kept:
        kept = ["<|a|>"]
    text = "".join(piece if isinstance(piece, str) else kept[piece % len(kept)] for piece in pieces).encode()
    index = _native.PrefixIndex(_native.PrefixStore(0, False), [string.encode() for string in kept], b"")
    longest_first = sorted(kept, key=len, reverse=True)
    pattern = re.compile(b"|".join(re.escape(string.encode()) for string in longest_first))
    want = [(m.end(), m.group()) for m in pattern.finditer(text)]
    assert [(end, kept[which].encode()) for end, which, _ in index.boundaries(text)] == want


def test_sets_with_many_first_bytes_are_searched_too() -> None:
    specials = [f"{letter}|" for letter in "ABCDEFGH"]
    index = _native.PrefixIndex(_native.PrefixStore(0, False), [s.encode() for s in specials], b"")
    text = "xAA|B|C" + "|H|".replace("|H", "H") + "|zE|"
    want = [m.end() for m in re.finditer(r"[A-H]\|", text)]
    assert [end for end, _, _ in index.boundaries(text.encode())] == want


@pytest.mark.parametrize("budget", ["payload", "resident"])
def test_the_budget_is_never_exceeded_and_nothing_leaks(budget: str) -> None:
    capacity = 20_000
    storage = PrefixStorage(capacity, budget=budget)
    held = "bytes" if budget == "payload" else "resident_bytes"
    caches = [PrefixCache(Bytes(), ["<s>"], namespace=str(i), storage=storage) for i in range(5)]
    for i in range(300):
        cache = caches[i % 5]
        text = "<s>".join(f"turn {k} {i % (k + 1)}" for k in range(i % 17 + 2))
        assert cache.encode(text) == list(text.encode())
        stats = storage.stats()
        assert stats[held] <= capacity
        for name in ("entries", "bytes", "resident_bytes"):
            assert stats[name] == sum(cache.stats()[name] for cache in caches)
    assert storage.stats()["evicted"] > 0
    storage.clear()
    assert [storage.stats()[name] for name in ("entries", "bytes", "resident_bytes")] == [0, 0, 0]


@pytest.mark.parametrize("budget", ["payload", "resident"])
def test_a_long_text_is_offered_to_a_full_store_but_once(budget: str) -> None:
    """Each further prefix has more ids of its own: to copy all of them for nothing would take quadratic time."""
    storage = PrefixStorage(60_000, budget=budget)
    cache = PrefixCache(Bytes(), ["<s>"], storage=storage)
    text = "<s>".join(f"turn {k}" for k in range(500))
    assert cache.encode(text) == list(text.encode())
    assert storage.stats()["refused"] == 1


def test_names_of_namespaces_count_as_held() -> None:
    """An entry of a few bytes under a name of a thousand takes a thousand."""
    storage = PrefixStorage(20_000, budget="resident")
    for i in range(50):
        cache = PrefixCache(Bytes(), ["<s>"], namespace=f"{i:01000}", storage=storage)
        assert cache.encode("a<s>b") == list(b"a<s>b")
    held = storage.stats()
    assert 5 < held["entries"] < 20
    assert held["resident_bytes"] > 1000 * held["entries"]


def test_many_small_entries_are_bounded_by_what_they_hold() -> None:
    """A payload of 8 bytes each would let entries of 300 bytes fill the memory."""
    cache = PrefixCache(Bytes(), ["a"], capacity=100_000)
    for i in range(4000):
        cache.encode("a" + chr(0x4E00 + i))
    for i in range(4000):
        cache.encode(chr(0x4E00 + i) + "a!")
    stats = cache.storage.stats()
    assert stats["bytes"] <= 100_000
    assert stats["resident_bytes"] <= 4 * 100_000 + 65_536


def test_what_is_asked_for_often_stays_while_much_passes_by() -> None:
    cache = PrefixCache(Bytes(), ["<s>"], capacity=40_000)
    often = "<s>" + "system prompt " * 20 + "<s>"
    for i in range(400):
        cache.encode(f"{often}user {i}")
        cache.encode("once " * 20 + f"{i}<s>tail")
    before = cache.stats()["hits"]
    cache.encode(f"{often}another")
    assert cache.stats()["hits"] == before + 1
    assert before > 390


def test_memory_of_a_conversation_is_linear_in_its_turns() -> None:
    sizes = []
    for turns in (50, 100, 200):
        cache = PrefixCache(Bytes(), ["<s>"], capacity=1 << 30)
        text = ""
        for i in range(turns):
            text += f"<s>a turn of a hundred bytes, number {i:60}"
            cache.encode(text)
        stats = cache.stats()
        sizes.append((stats["resident_bytes"], stats["bytes"]))
    (r50, _), (r100, _), (r200, b200) = sizes
    assert r200 - r100 < 2.1 * (r100 - r50)
    assert b200 > 10 * r200


def test_a_text_of_nothing_but_boundaries_keeps_the_deepest() -> None:
    inner, level = Bytes(), Remembering()
    cache = PrefixCache(inner, ["<s>"], capacity=1 << 20, second_level=level)
    text = "<s>" * 20_000 + "x"
    for _ in range(2):
        assert cache.encode(text) == list(text.encode())
    assert level.asked[0] == MAX_KEYS
    inner.arm()
    cache.encode("plain")
    assert inner.calls == ["plain"]
