"""The scanner suite: its numbers are those of the sources, its texts have the shapes it claims, faults are reported."""

from __future__ import annotations

import itertools
import random
import re
from pathlib import Path

import pytest

from tests.support.certify_runs import run_suite
from tests.support.material import ROOT
from tests.support.planted_faults import MINI, TOKENIZERS, assert_agrees, plant
from toktier.certify import engine_edges as edges
from toktier.certify.engine_edges import EDGES
from toktier.certify.levels import Level
from toktier.certify.subject import Subject
from toktier.certify.suites import scanner
from toktier.certify.suites.scanner import ScannerSuite

SUITE = ScannerSuite()


@pytest.mark.ci
@pytest.mark.parametrize("path", TOKENIZERS, ids=lambda path: path.stem)
def test_each_block_agrees_under_one_tokenizer(path: Path) -> None:
    """The blocks are dealt out among the tokenizers, from the last one on, which makes further calls."""
    subject = Subject(path)
    plan = SUITE.plan(subject, Level.QUICK, 1)
    assert plan.facts["texts"] > 8000
    blocks = range(plan.blocks - 1 - TOKENIZERS.index(path), -1, -len(TOKENIZERS))
    assert_agrees(run_suite(SUITE, subject, blocks=blocks))


@pytest.mark.full
@pytest.mark.parametrize("path", TOKENIZERS, ids=lambda path: path.stem)
def test_every_tokenizer_agrees(path: Path) -> None:
    """As certification does it for every tokenizer that has evidence."""
    run = run_suite(SUITE, Subject(path))
    assert_agrees(run)
    assert run.counts.documents == run.plan.facts["texts"] > 8000


@pytest.mark.ci
def test_caches_that_overflow_agree() -> None:
    """The blocks that are not of the quick level too, and the one that ends with its texts."""
    subject = Subject(MINI)
    quick, standard = (SUITE.plan(subject, level, 1) for level in (Level.QUICK, Level.STANDARD))
    assert standard.facts["cache_texts"] == 5
    blocks = range(quick.blocks - 2, standard.blocks)
    run = run_suite(SUITE, subject, Level.STANDARD, blocks=blocks)
    assert_agrees(run)
    assert run.counts.documents >= 5


def numbers(source: str, pattern: str) -> tuple[int, ...]:
    found = re.search(pattern, (ROOT / source).read_text())
    assert found, (source, pattern)
    return tuple(int(n) for group in found.groups() for n in re.findall(r"\d+", group))


def test_the_edges_are_those_of_the_sources() -> None:
    lanes = "native/engine/lanes"
    vector = re.findall(r"define TOKTIER_BYTE_VECTOR (\d+)", (ROOT / lanes / "byte_vector.h").read_text())
    assert max(map(int, vector)) == 64
    (block,) = numbers(f"{lanes}/scan_lanes.cpp", r"block = (\d+);")
    (blocks,) = numbers(f"{lanes}/scan_lanes.cpp", r"size - i >= (\d+) \* block")
    assert (block, blocks * block) == EDGES["bytes of a block"]
    steps = re.findall(r"for \(; n - i >= (\w+); i \+= \1\)", (ROOT / lanes / "transcode_lanes.cpp").read_text())
    (four,) = numbers(f"{lanes}/transcode_lanes.cpp", r"lanes_of_four = (\d+);")
    assert {four if step == "lanes_of_four" else int(step) for step in steps} == set(EDGES["units of a register"])
    ahead = numbers("native/engine/piece_encoder.cpp", r"ahead = (\d+);")
    few = numbers("native/engine/word_encoder.h", r"few = (\d+);")
    assert ahead + few + numbers(f"{lanes}/word_lanes.cpp", r"block = (\d+);") == EDGES["pieces looked up together"]
    assert numbers("native/engine/word_encoder.h", r"full = (\d+);") == EDGES["pieces of a run"]
    assert numbers("native/engine/split_windows.h", r"window_bytes = (\d+);") == EDGES["bytes of a window"]
    assert numbers(f"{lanes}/long_lanes.cpp", r"block = (\d+);") == EDGES["words made together"]
    assert numbers("native/engine/word_encoder.h", r"batch = (\d+);") == EDGES["words made together"]
    assert numbers(f"{lanes}/word_lanes.h", r"most_found = (\d+);") == EDGES["words made together"][-1:]
    turns = numbers(f"{lanes}/merge_lanes.cpp", r"lanes = (\d+);")
    few, most = numbers(f"{lanes}/merge_lanes.cpp", r"few = (\d+), most = (\d+);")
    (groups,) = numbers(f"{lanes}/merge_lanes.cpp", r"at < n; at \+= (\d+)")
    assert (*turns, few, groups // 2, groups, most) == EDGES["words merged together"]
    assert numbers("native/engine/splitter.h", r"boundary_lot = (\d+);") == EDGES["boundaries in a lot"]
    merged = numbers(f"{lanes}/merge_lanes.h", r"longest_merged = (\d+);")
    (small,) = numbers("kernels/shared/bpe.h", r"TT_SMALL_PIECE = (\d+);")
    (times,) = numbers("native/engine/long_piece.h", r"shortest = (\d+) \* narrowest;")
    assert (*merged, small, times * small) == EDGES["symbols of a small merge"]
    assert numbers("native/engine/normalizer.cpp", r"lowered\[(\d+)\];") == EDGES["bytes lowered together"]
    assert numbers("native/bind/bind.h", r"kReleaseGilFrom = (\d+);") == EDGES["bytes with the interpreter's lock held"]


def test_the_caches_are_those_of_the_sources() -> None:
    assert numbers("native/engine/encoder.cpp", r"kept_bytes = 1u << (\d+);") == (edges.KEPT_BYTES.bit_length() - 1,)
    caches = re.findall(r"PieceCache<(\d+), (\d+), (\d+)>;", (ROOT / "native/engine/piece_cache.h").read_text())
    assert tuple(int(words) * 8 - 1 for words, _, _ in caches) == EDGES["bytes of cached pieces"]
    assert numbers("native/engine/word_key.h", r"longest_word = (\d+);") == EDGES["bytes of cached pieces"][:1]
    inline = numbers("native/engine/word_key.h", r"inline_ids = (\d+);")
    longer = numbers("native/engine/long_key.h", r"most_long_ids = (\d+);")
    assert inline + longer + tuple(int(ids) for _, ids, _ in caches) == EDGES["ids of cached pieces"]
    assert numbers("native/engine/long_key.h", r"longest_long_word = (\d+);") == EDGES["bytes of cached pieces"][1:2]
    first, most = numbers("native/engine/word_cache.h", r"first_lines = 1u << (\d+), most_lines = 1u << (\d+);")
    assert (2 << first, 2 << most) == (edges.FIRST_WORDS, edges.CACHED_WORDS)
    assert 1 << numbers("native/engine/word_cache.h", r"ring_size = 1u << (\d+);")[0] == edges.RING_IDS
    longest = numbers("native/engine/long_words.h", r"longest = (\d+);")
    assert longest == EDGES["bytes of a remembered word"]
    assert (1 << numbers("native/engine/long_words.h", r"places = 1u << (\d+);")[0]) // 2 == edges.LONG_PAIRS
    threads = numbers("native/bind/batch_call.h", r"kLongText = 1 << (\d+);")
    assert 1 << threads[0] == edges.LONG_TEXT
    assert numbers("native/engine/cuts.cpp", r"most_looks = (\d+);") == (edges.LOOKS,)


def test_every_straddler_lies_at_every_place_of_an_edge() -> None:
    for straddler in edges.STRADDLERS:
        for period in (64, 4096):
            encoded = straddler.encode()
            (_, text, *_) = edges.straddles([straddler], [period])
            data, places = text.encode(), set[int]()
            at = data.find(encoded)
            while at >= 0:
                places.add((at + 32) % period - 32)
                at = data.find(encoded, at + 1)
            assert places >= set(range(-3, 4)), (straddler, period)


def test_what_is_longer_than_a_block_straddles_too() -> None:
    token = "▁" * 31
    made = next(iter(edges.straddles([token], [64]))).encode()
    places = {(at + 93) % 64 for at in range(len(made)) if made.startswith(token.encode(), at)}
    assert len(places) == 64


def test_what_is_to_overflow_does() -> None:
    """Ids of words that an entry cannot hold, and words that share a place."""
    subject = Subject(MINI)
    *texts, again = edges.overflows(random.Random(0))
    assert texts[0].startswith(again)
    assert max(map(len, texts)) < edges.LONG_TEXT
    words = {word for text in texts for word in text.split()}
    assert len(words) > 1.7 * edges.FIRST_WORDS
    ids = [len(subject.expected(word).ids) for word in random.Random(1).sample(sorted(words), 100)]
    assert sum(n for n in ids if n > 3) / len(ids) * len(words) > 1.5 * edges.RING_IDS
    longs = list(edges.long_texts(random.Random(0), ["<|x|>"]))
    kinds = [1 if text <= "\xff" or text.isascii() else 2 if max(text) <= "\uffff" else 4 for text in longs]
    assert {1, 2, 4} <= set(kinds)
    assert sum(len(text) * kind >= edges.LONG_TEXT for text, kind in zip(longs, kinds, strict=True)) == len(longs) - 1


def test_a_refusal_elsewhere_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the block that does more than compare texts; what it does with long ones is left out."""
    subject = Subject(MINI)
    for name in ("check_batch", "check_count"):
        monkeypatch.setattr(scanner, name, lambda *_, **__: None)
    last = SUITE.plan(subject, Level.QUICK, 1).blocks - 1
    assert_agrees(run_suite(SUITE, subject, blocks=[last]))
    monkeypatch.setattr(scanner, "broken_bytes", lambda: [b"a\xff"])
    monkeypatch.setattr(scanner, "_refusal", lambda subject, text: 0)
    run = run_suite(SUITE, subject, blocks=[last])
    assert {failure["what"] for failure in run.failures} == {"malformed bytes", "lone surrogate"}


def test_piece_counts_surround_blocks_and_lots() -> None:
    subject = Subject(MINI)
    counts = {len(subject.native.split(text)[1]) for text in scanner._piece_counts()}
    assert {31, 32, 33, 63, 64, 65, 1023, 1024, 1025, 2047, 2048, 2049} <= counts


def test_pieces_and_alignments_surround_their_edges() -> None:
    subject = Subject(MINI)
    sizes: set[int] = set()
    for text in scanner._runs(subject, 0):
        bounds, _ = subject.native.split(text)
        ends = [0, *bounds, len(text.encode())]
        sizes.update(b - a for a, b in itertools.pairwise(ends))
    for edge in (*EDGES["bytes of cached pieces"], *EDGES["symbols of a small merge"]):
        assert {edge - 1, edge, edge + 1} <= sizes
    places = {(text.encode().find("😀".encode()) % 64) for text in scanner._alignments() if text.count("😀") == 3}
    assert places == set(range(64))
    bytes_at = {(i % 64, b) for text in scanner._alignments() for i, b in enumerate(text.encode()) if b < 128}
    assert len(bytes_at) == 64 * 128


def test_a_planted_fault_is_a_mismatch() -> None:
    """One of the first merges makes the token of the next one."""
    subject = Subject(MINI)
    entries = memoryview(subject.program_file.section("MENT")).cast("Q")
    rules = sorted((entry & 0xFFFFFF, place) for place, entry in enumerate(entries) if entry != 2**64 - 1)
    order, place = next(rule for rule in rules if rule[0] % 2 == 0)
    plant(subject, "MENT", {8 * place: order & 0xFF | 1})
    run = run_suite(SUITE, subject, until_mismatch=True)
    assert run.counts.mismatches > 0
    assert {failure["what"] for failure in run.failures} <= {"ids", "offsets", "ids without offsets"}
