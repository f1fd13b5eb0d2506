"""The two kinds of tries: of byte strings (matchers of added tokens), and of code points (classes, symbols)."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toktier.program.byte_trie import ByteTrie, build_byte_trie
from toktier.program.code_point_trie import build_trie
from toktier.program.layout import NONE, TRIE_BLOCK, TRIE_SHIFT, TRIE_STAGE1


def words(data: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(data) // 4}I", data)


def strings_of(trie: ByteTrie) -> dict[bytes, int]:
    """Every string of the trie with its value, by walking all of it; the rules of the format are checked on the way."""
    first, children, terminals = words(trie.nf), words(trie.ec), words(trie.nt)
    nodes = len(terminals)
    assert len(first) == nodes + 1
    assert first[0] == 0
    assert first[-1] == len(children) == len(trie.eb) == nodes - 1
    found = {}
    stack = [(0, b"")]
    while stack:
        node, text = stack.pop()
        if terminals[node] != NONE:
            found[text] = terminals[node]
        labels = trie.eb[first[node] : first[node + 1]]
        assert list(labels) == sorted(set(labels))
        for edge in range(first[node], first[node + 1]):
            assert children[edge] > node
            stack.append((children[edge], text + trie.eb[edge : edge + 1]))
    return found


@given(st.dictionaries(st.binary(min_size=1, max_size=6), st.integers(0, 99), min_size=1))
def test_law_byte_trie_holds_exactly_its_strings(values: dict[bytes, int]) -> None:
    trie = build_byte_trie(values)
    assert trie is not None
    assert strings_of(trie) == values


def test_no_strings_no_trie() -> None:
    assert build_byte_trie({}) is None


def test_fifty_thousand_tokens() -> None:
    rng = random.Random(5)
    values = {f"<|reserved_{rng.randrange(10**9)}_{k}|>".encode(): k for k in range(50_000)}
    trie = build_byte_trie(values)
    assert trie is not None
    first, children, terminals = words(trie.nf), words(trie.ec), words(trie.nt)
    assert len(terminals) < sum(map(len, values))
    for string in rng.sample(sorted(values), 2000):
        node = 0
        for byte in string:
            node = children[trie.eb.index(byte, first[node], first[node + 1])]
        assert terminals[node] == values[string]
    assert sorted(terminal for terminal in terminals if terminal != NONE) == list(range(50_000))


def test_one_long_token_among_its_prefixes() -> None:
    values = {b"a" * n: n for n in range(1, 2000)}
    trie = build_byte_trie(values)
    assert trie is not None
    assert strings_of(trie) == values


@st.composite
def ranges(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    cuts = sorted(draw(st.sets(st.integers(0, 0x110000), max_size=12)))
    pairs = zip(cuts[::2], cuts[1::2], strict=False)
    return [(a, b - 1, draw(st.integers(0, 255))) for a, b in pairs]


@given(ranges(), st.integers(0, 255), st.sampled_from([1, 4]))
@settings(max_examples=30, deadline=None)
def test_law_trie_maps_every_code_point(rows: list[tuple[int, int, int]], default: int, size: int) -> None:
    stage1, stage2 = build_trie(rows, default, size)
    first = struct.unpack(f"<{TRIE_STAGE1}H", stage1)
    values = stage2 if size == 1 else words(stage2)
    assert len(values) == (max(first) + 1) * TRIE_BLOCK
    expected = [default] * 0x110000
    for a, b, value in rows:
        expected[a : b + 1] = [value] * (b + 1 - a)
    for cp in {c for a, b, _ in rows for c in (a - 1, a, a + 1, b - 1, b, b + 1, (a + b) // 2)} | {0, 0x10FFFF}:
        if 0 <= cp <= 0x10FFFF:
            assert values[first[cp >> TRIE_SHIFT] * TRIE_BLOCK + (cp & (TRIE_BLOCK - 1))] == expected[cp]
    blocks = {bytes(stage2[k : k + TRIE_BLOCK * size]) for k in range(0, len(stage2), TRIE_BLOCK * size)}
    assert len(blocks) * TRIE_BLOCK == len(values), "equal blocks are shared"


def test_equal_maps_give_equal_bytes() -> None:
    split = [(k, k, 7) for k in range(1000, 5000)]
    assert build_trie(split, 0, 1) == build_trie([(1000, 4999, 7)], 0, 1)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_an_empty_map_is_one_block(size: int) -> None:
    stage1, stage2 = build_trie([], 3, size)
    assert set(stage1) == {0}
    assert stage2 == (3).to_bytes(size, "little") * TRIE_BLOCK
