"""`_native.build_bpe`: which merge rules it keeps, what its tables hold, what it refuses.

The oracles are the plain encoder of tests/support/bpe_oracle.py and, where rules were dropped, the installed reference.
"""

from __future__ import annotations

import itertools
import json
import random
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models
from tokenizers import pre_tokenizers as pre

from tests.support.bpe_oracle import (
    ALPHABET,
    NONE,
    TO_CHARACTER,
    Model,
    Pair,
    find_in_lines,
    hash_pair,
    model_of,
    pair_place,
    piece_key,
    raw_of,
    table_inputs,
)
from tests.support.material import ROOT, Artifacts, small_tokenizers
from toktier import _native
from toktier.program.layout import TokenFlag
from toktier.program.pair_rows import live_rules


def words(data: bytes) -> list[int]:
    return list(array("I", data))


def build(
    model: Model, added: list[dict[str, Any]] | None = None
) -> tuple[dict[str, bytes], set[Pair], dict[str, Any]]:
    """Sections, live rules as pairs of strings, statistics."""
    sections, live, statistics = _native.build_bpe(**table_inputs(model, added or []))
    token = {i: t for t, i in model.vocab.items()}
    flat = words(live)
    pairs = [(token[a], token[b]) for a, b in zip(flat[::3], flat[1::3], strict=True)]
    assert all(token[p] == a + b for (a, b), p in zip(pairs, flat[2::3], strict=True))
    kept = set(pairs)
    assert pairs == [p for p in model.rules if p in kept], "live rules keep their order"
    assert statistics["live"] == len(pairs)
    assert statistics["merges"] == len(model.rules)
    return sections, kept, statistics


def grow(
    alphabet: str, picks: list[tuple[int, int]], limit: int, extra: tuple[str, ...] = ()
) -> tuple[dict[str, int], list[Pair]]:
    """A vocabulary and rules: each pick joins two tokens made so far, where the result stays within `limit`."""
    tokens = list(dict.fromkeys([*alphabet, *extra]))
    merges: list[Pair] = []
    for a, b in picks:
        left, right = tokens[a % len(tokens)], tokens[b % len(tokens)]
        if len(left + right) > limit or (left, right) in merges:
            continue
        merges.append((left, right))
        if left + right not in tokens:
            tokens.append(left + right)
    return {t: i for i, t in enumerate(tokens)}, merges


PICKS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=14)


@settings(deadline=None, max_examples=150)
@given(PICKS, st.randoms(use_true_random=False))
def test_live_rules_are_those_that_fire_in_some_text(picks: list[tuple[int, int]], rng: random.Random) -> None:
    """Every text up to the longest token is tried; ranks are shuffled, so that they need not be monotone."""
    vocab, merges = grow("abc", picks, limit=6)
    rng.shuffle(merges)
    model = Model(vocab, merges)
    fired: set[Pair] = set()
    reachable = set()
    for length in range(1, max(map(len, vocab)) + 1):
        for text in map("".join, itertools.product("abc", repeat=length)):
            ids = model.encode(text, fired)
            if len(ids) == 1 and vocab.get(text) == ids[0]:
                reachable.add(ids[0])
    sections, live, statistics = build(model)
    assert live == fired
    flags = sections["TFLG"]
    assert {i for i, f in enumerate(flags) if f & TokenFlag.REACHABLE} == reachable
    assert {i for i, f in enumerate(flags) if f & TokenFlag.WHOLE_PIECE} == reachable
    assert statistics["reachable"] == len(reachable)
    assert statistics["unreachable"] == len(vocab) - len(reachable)
    assert statistics["kept_unproved"] == 0


def reference(model: Model, rules: list[Pair]) -> Tokenizer:
    """The installed reference with these rules, one piece for the whole text."""
    bpe = models.BPE(
        vocab=model.vocab,
        merges=rules,
        unk_token=model.unk,
        fuse_unk=model.fuse_unk,
        byte_fallback=model.byte_fallback,
        ignore_merges=model.ignore_merges,
    )
    tokenizer = Tokenizer(bpe)
    if model.byte_level:
        tokenizer.pre_tokenizer = pre.ByteLevel(add_prefix_space=False, use_regex=False)
    return tokenizer


@settings(deadline=None, max_examples=80)
@given(
    PICKS,
    st.lists(st.text("abxyé<0>u", max_size=14), min_size=1, max_size=6),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_dropping_dead_rules_changes_no_encoding(
    picks: list[tuple[int, int]],
    texts: list[str],
    with_unk: bool,
    fuse: bool,
    fallback: bool,
    whole: bool,
    rng: random.Random,
) -> None:
    """Fallback and unknown symbols take part in rules here; characters without any symbol vanish."""
    extra = (("<u>",) if with_unk else ()) + (("<0xC3>", "<0xA9>", "<0x78>") if fallback else ())
    vocab, merges = grow("ab<0>u", picks, limit=16, extra=extra)
    rng.shuffle(merges)
    model = Model(
        vocab, merges, unk="<u>" if with_unk else None, fuse_unk=fuse, byte_fallback=fallback, ignore_merges=whole
    )
    _, live, _ = build(model)
    pruned = [p for p in model.rules if p in live]
    full_reference, pruned_reference = reference(model, model.rules), reference(model, pruned)
    for text in [*texts, *vocab]:
        fired: set[Pair] = set()
        expected = full_reference.encode(text).ids
        assert model.encode(text, fired) == expected, "the plain encoder is the reference's"
        assert pruned_reference.encode(text).ids == expected
        assert fired <= live


def test_rules_that_an_unknown_symbol_may_reach_are_kept() -> None:
    """The text of `<u>a` spelled by characters never becomes the token, yet the unknown symbol and `a` do."""
    vocab = {t: i for i, t in enumerate(["a", "b", "<u>", "<u>a", "<u>ab", "ab"])}
    merges = [("<u>", "a"), ("<u>a", "b"), ("a", "b")]
    model = Model(vocab, merges, unk="<u>")
    sections, live, statistics = build(model)
    assert live == set(merges)
    assert statistics["kept_unproved"] == 2
    assert statistics["join"] is None
    assert "JSYM" not in sections
    assert reference(model, model.rules).encode("?ab").ids == [vocab["<u>ab"]]


def test_a_token_with_a_character_that_has_no_symbol_is_never_made() -> None:
    vocab = {t: i for i, t in enumerate(["a", "az", "aza"])}
    model = Model(vocab | {"za": 3}, [("az", "a"), ("a", "za")])
    _, live, statistics = build(model)
    assert live == set()
    assert statistics["unreachable"] == 3
    assert reference(model, model.rules).encode("aza").ids == [0, 0]


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 200)), min_size=10, max_size=60),
    st.randoms(use_true_random=False),
)
def test_long_tokens_are_proved_as_short_ones(picks: list[tuple[int, int]], rng: random.Random) -> None:
    """Tokens beyond 64 symbols take the heap; the plain encoder decides."""
    vocab, merges = grow("ab", [*picks, *((-1, -1 - k % 3) for k in range(12))], limit=300)
    if rng.random() < 0.5:
        rng.shuffle(merges)
    model = Model(vocab, merges)
    sections, live, _ = build(model)
    for token, i in vocab.items():
        fired: set[Pair] = set()
        single = model.encode(token, fired) == [i]
        assert bool(sections["TFLG"][i] & TokenFlag.REACHABLE) == single
        assert fired <= live


def look_up(table: list[int], width: int, start: int, matches: Callable[[int], bool]) -> int | None:
    """Slot index by linear probing, as docs/program-format.md describes the tables of the wide form."""
    capacity = len(table) // width
    assert capacity & (capacity - 1) == 0
    for step in range(capacity):
        i = (start + step) % capacity
        if table[width * i] == NONE:
            return None
        if matches(i):
            return i
    raise AssertionError("no empty slot ends the probing")


def long_words(data: bytes) -> list[int]:
    return list(array("Q", data))


def check_merges(model: Model, sections: dict[str, bytes], live: set[Pair], seed: int) -> None:
    """Each live rule at its place, and nothing else in the table."""
    v, entries = model.vocab, long_words(sections["MENT"])
    assert sections["PAIR"] == b""
    assert live_rules(lambda tag: sections[tag]) == [(v[a], v[b], v[a + b]) for a, b in model.rules if (a, b) in live]
    assert sum(entry != (1 << 64) - 1 for entry in entries) == len(live)
    products = [v[a + b] for a, b in model.rules if (a, b) in live]
    ascend = all(x < y for x, y in itertools.pairwise(products))
    assert words(sections["MPRD"]) == ([] if ascend else products)
    for rank, (a, b) in enumerate(p for p in model.rules if p in live):
        entry = entries[pair_place(seed, sections["MDIS"], len(entries), v[a], v[b])]
        assert entry == v[a] << 44 | v[b] << 24 | (v[a + b] if ascend else rank)


def check_tables(
    model: Model, sections: dict[str, bytes], live: set[Pair], strings: dict[str, int], seed: int = 0
) -> None:
    """Every entry is found by the documented probing, and nothing else is in the tables."""
    if live:
        check_merges(model, sections, live, seed)
    raw_offsets, raw = words(sections["RAWO"]), sections["RAWB"]
    texts = [raw[raw_offsets[i] : raw_offsets[i + 1]] for i in range(len(sections["TFLG"]))]
    plin, keys = words(sections["PLIN"]), long_words(sections["PKEY"])
    assert sections["PHSH"] == sections["VHSH"] == b""
    whole = {i for i, f in enumerate(sections["TFLG"]) if f & TokenFlag.WHOLE_PIECE}
    assert sorted(i & 0xFFFFF for i in plin if i != NONE) == sorted(whole)
    for i, text in enumerate(texts):
        assert tuple(keys[2 * i : 2 * i + 2]) == (piece_key(text) if i in whole else (0, 0))
        if text:
            assert (find_in_lines(plin, text, texts.__getitem__) == i) == (i in whole)

    offsets, data = words(sections["STRO"]), sections["STRB"]
    vlin = words(sections["VLIN"])
    assert {i & 0xFFFFF for i in vlin if i != NONE} == set(strings.values())
    for string, i in strings.items():
        assert data[offsets[i] : offsets[i + 1]] == string.encode()
        assert find_in_lines(vlin, string.encode(), lambda k: data[offsets[k] : offsets[k + 1]]) == i


def is_cut(sections: dict[str, bytes], model: Model, left: str, right: str) -> bool:
    """Whether JBYT or JSYM proves that no merge crosses between two characters."""
    if "JBYT" in sections:
        bit = ALPHABET[left] * 256 + ALPHABET[right]
        return not sections["JBYT"][bit >> 3] >> (bit & 7) & 1
    a, b = model.vocab.get(left), model.vocab.get(right)
    if "JSYM" not in sections or a is None or b is None:
        return False  # JSYM speaks of symbols: a character without one may fuse or vanish
    table = words(sections["JSYM"])
    return look_up(table, 2, hash_pair(a, b), lambda i: table[2 * i : 2 * i + 2] == [a, b]) is None


@settings(deadline=None, max_examples=60)
@given(
    PICKS,
    st.booleans(),
    st.booleans(),
    st.lists(st.text("abcdé", max_size=10), max_size=6),
    st.randoms(use_true_random=False),
)
def test_a_cut_inside_a_piece_splits_the_encoding(
    picks: list[tuple[int, int]], byte_level: bool, fuse: bool, texts: list[str], rng: random.Random
) -> None:
    """encode(left) + encode(right) == encode(left + right) at every cut; `d` and `é` have no symbol of their own."""
    extra = () if byte_level else ("<u>",)
    vocab, merges = grow("abc", picks, limit=8, extra=extra)
    if not byte_level:
        merges = [m for m in merges if "<u>" not in m[0] + m[1]]
    rng.shuffle(merges)
    model = Model(vocab, merges, byte_level=byte_level, unk=None if byte_level else "<u>", fuse_unk=fuse)
    sections, _, _ = build(model)
    texts = ["".join(TO_CHARACTER[b] for b in t.encode()) if byte_level else t for t in texts]
    for text in [*texts, *(v for v in vocab if v != "<u>"), "abcabcbacacbaabbcc"]:
        for i in range(1, len(text)):
            if is_cut(sections, model, text[i - 1], text[i]):
                assert model.encode(text[:i]) + model.encode(text[i:]) == model.encode(text)


@pytest.mark.parametrize("path", small_tokenizers(), ids=lambda p: p.stem)
def test_tables_of_trained_tokenizers(path: Path) -> None:
    """Real shapes: every table entry; the pruned rules encode real words as the reference does with all of them."""
    document = json.loads(path.read_text(encoding="utf-8"))
    model = model_of(document)
    sections, live, statistics = build(model, document["added_tokens"])
    strings = dict(model.vocab)
    for token in document["added_tokens"]:
        strings[token["content"]] = model.vocab.get(token["content"], token["id"])
    check_tables(model, sections, live, strings, statistics["pair_seed"])
    assert statistics["max_piece"] == max(
        len(raw_of(model, t)) for t, i in model.vocab.items() if sections["TFLG"][i] & TokenFlag.WHOLE_PIECE
    )
    full, pruned = reference(model, model.rules), reference(model, [p for p in model.rules if p in live])
    rng = random.Random(7)
    found_cuts = 0
    for name in ("english", "languages", "code"):
        text = (ROOT / "tests" / "data" / "text" / f"{name}.txt").read_text(encoding="utf-8")
        for word in rng.sample(text.split(), 150):
            assert pruned.encode(word).ids == full.encode(word).ids
            piece = "".join(TO_CHARACTER[b] for b in word.encode()) if model.byte_level else word
            for i in range(1, len(piece)):
                if is_cut(sections, model, piece[i - 1], piece[i]):
                    found_cuts += 1
                    assert model.encode(piece[:i]) + model.encode(piece[i:]) == model.encode(piece)
    assert found_cuts > 0, "some words must have cuts, or the law above was never tried"


def test_added_token_wins_its_string() -> None:
    """An added token may repeat a string of the model under another id; look-ups give the added one."""
    inputs = table_inputs(Model({"a": 0, "b": 1}, []))
    inputs["strings"].append(b"a")
    inputs["raw"].append(b"")
    inputs["flags"] += bytes([TokenFlag.EXISTS | TokenFlag.ADDED])
    sections, _, _ = _native.build_bpe(**inputs)
    assert sorted(i & 0xFFFFF for i in words(sections["VLIN"]) if i != NONE) == [1, 2]


def test_ignore_merges_takes_every_model_token_for_a_whole_piece() -> None:
    model = Model({"a": 0, "b": 1, "ab": 2, "zz": 3}, [], ignore_merges=True)
    sections, _, _ = build(model)
    flags = sections["TFLG"]
    assert all(f & TokenFlag.WHOLE_PIECE for f in flags)
    assert [bool(f & TokenFlag.REACHABLE) for f in flags] == [True, True, False, False]
    check_tables(model, sections, set(), model.vocab)


def test_dead_rules_leave_no_trace_in_the_tables() -> None:
    """Two files that differ in dead rules alone give the same bytes, ranks included."""
    vocab = {t: i for i, t in enumerate(["a", "b", "c", "ab", "bc", "abc"])}
    lean = Model(vocab, [("a", "b"), ("ab", "c"), ("b", "c")])
    padded = Model(vocab, [("a", "b"), ("ab", "c"), ("a", "bc"), ("b", "c")])
    (first, live, _), (second, live_too, statistics) = build(lean), build(padded)
    assert first == second
    assert live == live_too
    assert statistics["dead"] == 1


@pytest.mark.parametrize(("order", "expected"), [((0, 1), True), ((1, 0), False)])
def test_monotone_ranks(order: tuple[int, int], expected: bool) -> None:
    merges = [("a", "b"), ("ab", "c")]
    _, live, statistics = build(Model({"a": 0, "b": 1, "c": 2, "ab": 3, "abc": 4}, [merges[i] for i in order]))
    assert live == set(merges)
    assert statistics["monotone"] is expected


def test_an_empty_vocabulary_gives_empty_tables() -> None:
    sections, live, statistics = _native.build_bpe([], [], b"", b"", True, array("I", [NONE] * 256), b"", False, None)
    assert live == b""
    tables = ("PAIR", "MDIS", "MENT", "MPRD", "PLIN", "PKEY", "PHSH", "VLIN", "VHSH", "JCHR", "JFRG")
    assert {tag: sections[tag] for tag in tables} == dict.fromkeys(tables, b"")
    assert statistics["tokens"] == 0
    assert sections["JBYT"] == b"\xff" * 8192, "a byte without symbol is never next to a cut"


HOSTILE: dict[str, tuple[dict[str, Any], str]] = {
    "id out of range": ({"merges": array("I", [0, 1, 99])}, "no token of the model"),
    "none as a side": ({"merges": array("I", [0, NONE, 2])}, "no token of the model"),
    "half a row": ({"merges": array("I", [0, 1])}, "rows of left, right, product"),
    "not 32-bit": ({"merges": b"\0" * 13}, "32-bit"),
    "product is other text": ({"merges": array("I", [1, 0, 2])}, "not its two sides joined"),
    "pair twice": ({"merges": array("I", [0, 1, 2, 0, 1, 2])}, "resolve duplicates"),
    "raw is other text": ({"raw": [b"a", b"b", b"xx"]}, "not its two sides joined"),
    "initial is other text": ({"initial": array("I", [97, 1])}, "whose text is another"),
    "initial twice": ({"initial": array("I", [97, 0, 97, 0])}, "twice"),
    "initial out of range": ({"initial": array("I", [97, 77])}, "no token of the model"),
    "initial a surrogate": ({"initial": array("I", [0xD800, 0])}, "no character"),
    "initial beyond unicode": ({"initial": array("I", [0x110000, 0])}, "no character"),
    "initial odd": ({"initial": array("I", [97])}, "rows of code point, id"),
    "byte-level without 256 symbols": ({"byte_level": True}, "256 entries"),
    "fallback without 256 symbols": ({"byte_fallback": array("I", [0])}, "256 entries"),
    "fallback out of range": ({"byte_fallback": array("I", [9] * 256)}, "no token of the model"),
    "unknown out of range": ({"unk_id": 3}, "no token of the model"),
    "lists of unlike lengths": ({"raw": [b"a", b"b"]}, "one entry for each id"),
    "computed flags given": ({"flags": bytes([3, 3, 19])}, "computed here"),
    "model token that does not exist": ({"flags": bytes([3, 3, 2])}, "does not exist"),
    "string not UTF-8": ({"strings": [b"a", b"\xff", b"ab"]}, "UTF-8"),
    "character across strings": ({"strings": [b"\xc3", b"\xa9", b"ab"]}, "UTF-8"),
    "raw not UTF-8": ({"raw": [b"a", b"\xff", b"ab"]}, "UTF-8"),
    "same string twice": ({"strings": [b"a", b"b", b"a"], "merges": b""}, "same"),
    "same text twice": ({"raw": [b"a", b"b", b"a"], "merges": b""}, "same text"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_input_is_refused_in_one_sentence(name: str) -> None:
    changes, message = HOSTILE[name]
    inputs = table_inputs(Model({"a": 0, "b": 1, "ab": 2}, [("a", "b")]))
    _native.build_bpe(**inputs)
    inputs.update(changes)
    with pytest.raises(ValueError, match=message) as caught:
        _native.build_bpe(**inputs)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["raw", "strings"])
def test_wrong_types_are_type_errors(name: str) -> None:
    inputs = table_inputs(Model({"a": 0}, []))
    for wrong in (["a"], [None], "a", None):
        with pytest.raises(TypeError):
            _native.build_bpe(**(inputs | {name: wrong}))


def test_a_fallback_symbol_in_a_cycle_of_rules_ends() -> None:
    """Rules with an empty side make a token from itself: the closure over rules must end."""
    vocab = {"<0x61>": 0, "": 1, "b": 2, "<0x61>b": 3}
    model = Model(vocab, [("<0x61>", ""), ("<0x61>", "b"), ("", "b")], byte_fallback=True)
    _, live, statistics = build(model)
    assert ("<0x61>", "b") in live
    assert statistics["kept_unproved"] == 2


def colliding_pairs(symbols: int, capacity: int, wanted: int) -> list[tuple[int, int]]:
    """Pairs of symbols whose slots all lie in one place of a table."""
    left, right = np.meshgrid(np.arange(symbols, dtype=np.uint64), np.arange(symbols, dtype=np.uint64), indexing="ij")
    h = (left << np.uint64(32) | right) * np.uint64(0x9E3779B97F4A7C15)
    h ^= h >> np.uint64(32)
    h *= np.uint64(0xD6E8FEB86659FD93)
    h ^= h >> np.uint64(29)
    chosen = np.argwhere((h & np.uint64(capacity - 1)) < 4)[:wanted]
    pairs = [(int(a), int(b)) for a, b in chosen]
    assert len(pairs) == wanted
    assert hash_pair(*pairs[-1]) & (capacity - 1) < 4, "the vectorised hash is the documented one"
    return pairs


def test_a_vocabulary_made_to_collide_is_refused() -> None:
    """The hash is not keyed: a hostile file could make every look-up walk through all of its rules."""
    symbols, rules = 2000, 1500
    characters = [chr(0x4E00 + i) for i in range(symbols)]
    pairs = [(characters[a], characters[b]) for a, b in colliding_pairs(symbols, 4096, rules)]
    vocab = {t: i for i, t in enumerate([*characters, *(a + b for a, b in pairs)])}
    with pytest.raises(ValueError, match="made to be slow"):
        build(Model(vocab, pairs))
    harmless = [(characters[i], characters[i + 1]) for i in range(rules)]
    vocab = {t: i for i, t in enumerate([*characters, *(a + b for a, b in harmless)])}
    assert build(Model(vocab, harmless))[2]["live"] == rules


FIGURES = {  # name: merges, live, tokens that merges cannot make
    "qwen3": (151387, 151387, 0),
    "llama3": (280147, 127156, 588),
    "llama3_2": (280147, 127156, 588),
    "gptoss": (446189, 199742, 0),
    "deepseek_v3": (127741, 127741, None),
    "claude": (64739, 64739, None),
}


@pytest.mark.ci
@pytest.mark.parametrize("name", FIGURES)
def test_figures_of_real_vocabularies(name: str, artifacts: Artifacts) -> None:
    """Rules that can fire, as found before by an independent prototype."""
    document = json.loads(artifacts.path(name).read_bytes())
    model = model_of(document)
    _, live, statistics = _native.build_bpe(**table_inputs(model, document["added_tokens"]))
    merges, expected, unreachable = FIGURES[name]
    assert (statistics["merges"], statistics["live"]) == (merges, expected)
    assert len(live) == 12 * expected
    if unreachable is not None:
        assert statistics["unreachable"] == unreachable


@pytest.mark.ci
@pytest.mark.parametrize("name", ["llama3", pytest.param("gemini", marks=pytest.mark.ordinary), "llama2"])
def test_pruned_rules_encode_real_text(name: str, artifacts: Artifacts) -> None:
    """The reference with the live rules alone equals the one with all, on many scripts and random words."""
    document = json.loads(artifacts.path(name).read_bytes())
    model = model_of(document)
    _, live, _ = build(model)
    document["added_tokens"] = []
    full = Tokenizer.from_str(json.dumps(document))
    document["model"]["merges"] = [list(p) for p in model.rules if p in live]
    pruned = Tokenizer.from_str(json.dumps(document))
    rng = random.Random(11)
    texts = [
        (ROOT / "tests" / "data" / "text" / f"{n}.txt").read_text(encoding="utf-8")
        for n in ("english", "languages", "code")
    ]
    tokens = list(model.vocab)
    texts += ["".join(rng.choices(tokens, k=40)) for _ in range(2000)]
    texts += [
        "".join(chr(rng.choice([rng.randrange(32, 127), rng.randrange(0x3040, 0x9FFF)])) for _ in range(30))
        for _ in range(500)
    ]
    for text in texts:
        assert pruned.encode(text).ids == full.encode(text).ids
