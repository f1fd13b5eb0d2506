"""The scanner suite: its numbers are those of the sources, its texts have the shapes it claims, faults are reported."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from tests.support.certify_runs import run_suite
from tests.support.material import ROOT
from tests.support.planted_faults import MINI, TOKENIZERS, assert_agrees, plant
from toktier.certify.levels import Level
from toktier.certify.subject import Subject
from toktier.certify.suites import scanner
from toktier.certify.suites.scanner import EDGES, ScannerSuite

SUITE = ScannerSuite()


@pytest.mark.parametrize("path", TOKENIZERS, ids=lambda path: path.stem)
def test_every_tokenizer_agrees(path: Path) -> None:
    run = run_suite(SUITE, Subject(path))
    assert_agrees(run)
    assert run.counts.documents == run.plan.facts["texts"] > 8000


@pytest.mark.ci
def test_caches_that_overflow_agree() -> None:
    run = run_suite(SUITE, Subject(MINI), Level.STANDARD)
    assert_agrees(run)
    assert run.plan.facts["cache_texts"] == 5


def numbers(source: str, pattern: str) -> tuple[int, ...]:
    found = re.search(pattern, (ROOT / source).read_text())
    assert found, (source, pattern)
    return tuple(int(n) for group in found.groups() for n in re.findall(r"\d+", group))


def test_the_edges_are_those_of_the_sources() -> None:
    ahead = numbers("native/engine/piece_encoder.cpp", r"ahead = (\d+);")
    assert (
        ahead + numbers("native/engine/lanes/word_lanes.cpp", r"block = (\d+);") == EDGES["pieces looked up together"]
    )
    assert numbers("native/engine/word_encoder.h", r"full = (\d+);") == EDGES["pieces of a run"]
    assert numbers("native/engine/split_windows.h", r"window_bytes = (\d+);") == EDGES["bytes of a window"]
    assert (
        numbers("native/engine/lanes/merge_lanes.cpp", r"few = (\d+), most = (\d+);") == EDGES["words merged together"]
    )
    assert numbers("native/engine/splitter.h", r"boundary_lot = (\d+);") == EDGES["boundaries in a lot"]
    merged = numbers("native/engine/lanes/merge_lanes.h", r"longest_merged = (\d+);")
    assert merged + numbers("kernels/shared/bpe.h", r"TT_SMALL_PIECE = (\d+);") == EDGES["symbols of a small merge"]
    assert numbers("native/bind/bind.h", r"kReleaseGilFrom = (\d+);") == EDGES["bytes with the interpreter's lock held"]
    assert numbers("native/engine/encoder.cpp", r"kept_bytes = 1u << (\d+);") == (scanner.KEPT_BYTES.bit_length() - 1,)
    caches = re.findall(r"PieceCache<(\d+), (\d+), (\d+)>;", (ROOT / "native/engine/piece_cache.h").read_text())
    assert tuple(int(words) * 8 - 1 for words, _, _ in caches) == EDGES["bytes of cached pieces"]
    inline = numbers("native/engine/word_key.h", r"inline_ids = (\d+);")
    assert inline + tuple(int(ids) for _, ids, _ in caches) == EDGES["ids of cached pieces"]
    lines = numbers("native/engine/word_cache.h", r"most_lines = 1u << (\d+);")
    assert 2 << lines[0] == scanner.CACHED_PIECES


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
    """A boundary of the one-pass form becomes one of a dropped piece."""
    subject = Subject(MINI)
    tables, automaton = subject.boundary, subject.automaton
    assert tables is not None
    assert automaton is not None
    digit = next(c for first, last, c in tables.class_ranges if first <= ord("1") <= last)
    after_one = int.from_bytes(automaton.next[2 * digit : 2 * digit + 2], "little")
    place = after_one * tables.n_class + digit
    assert automaton.actions[place] == 1, "each digit is a piece of its own"
    plant(subject, "TACT", {place: 2})
    run = run_suite(SUITE, subject, until_mismatch=True)
    assert run.counts.mismatches > 0
    assert {failure["what"] for failure in run.failures} <= {"ids", "offsets"}
