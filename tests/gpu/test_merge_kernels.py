"""Whole pieces, cuts and merges under the emulator: the three merging kernels beside tt_merge_small on tables of merges
that no tokenizer would have, and all steps from a piece to its ids beside the reference.
"""

from __future__ import annotations

import ctypes
import functools
import json
import random

import pytest

from tests.support import simt_build
from tests.support.emulated_pipeline import Left
from tests.support.material import ROOT, SHARED, Artifacts
from tests.support.piece_tokenizers import BAR, LENGTHS, PieceTokenizer, at_bars, small

NAMES = ("cl100k_like", "deepseek_like", "gpt2_like", "o200k_like")
REAL = Artifacts(SHARED, SHARED).names if SHARED else []
LANE_SEEDS = (1, 2, 3)
ASCENDING, SHUFFLED, WIDE = range(3)
KERNELS = {  # queue, longest piece
    "tt_merge_thread": (1, 32),
    "tt_merge_warp": (2, 256),
    "tt_merge_block": (3, 4096),
}


class MergeUnits(ctypes.Structure):
    """Of tests/simt/merge_units.h, as MergeCounts."""

    _fields_ = (
        ("seed", ctypes.c_uint64),
        ("lane_seed", ctypes.c_uint64),
        ("table", ctypes.c_uint32),
        ("letters", ctypes.c_uint32),
        ("rules", ctypes.c_uint32),
        ("pieces", ctypes.c_uint32),
        ("shortest", ctypes.c_uint32),
        ("longest", ctypes.c_uint32),
        ("kernel", ctypes.c_char_p),
        ("queue", ctypes.c_uint32),
    )


class MergeCounts(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint32) for name in ("pieces", "tokens", "merges", "interrupted"))


@functools.cache
def units(*plants: str) -> ctypes.CDLL:
    sources = (simt_build.SIMT / "merge_units.cpp", simt_build.TOKTIER, ROOT / "native" / "compile" / "pair_table.cpp")
    return ctypes.CDLL(
        str(simt_build.build_library("merge_units", sources, plants=plants, includes=(ROOT / "native",)))
    )


def merge(kernel: str, table: int, *plants: str, **given: int) -> tuple[str, MergeCounts]:
    """What the units report, which is nothing where every piece is right, and what they merged."""
    queue, longest = KERNELS[kernel]
    fields = {
        "seed": 1,
        "lane_seed": 1,
        "letters": 3,
        "rules": 60,
        "pieces": 500,
        "shortest": 1,
        "longest": longest,
        **given,
    }
    counts = MergeCounts()
    report = ctypes.create_string_buffer(4096)
    asked = MergeUnits(kernel=kernel.encode(), queue=queue, table=table, **fields)
    failed = units(*plants).merge_units_run(
        ctypes.byref(asked), ctypes.byref(counts), report, ctypes.c_uint64(len(report))
    )
    said = report.value.decode(errors="replace")
    assert (failed != 0) == (said != ""), said
    return said, counts


@pytest.mark.parametrize("table", [ASCENDING, SHUFFLED, WIDE])
@pytest.mark.parametrize(
    ("kernel", "pieces", "longest"),
    [("tt_merge_thread", 1500, 32), ("tt_merge_warp", 60, 256), ("tt_merge_block", 24, 400)],
)
def test_any_table(kernel: str, pieces: int, longest: int, table: int) -> None:
    for seed in range(1, 9):
        letters = 1 + seed % 4
        said, counts = merge(
            kernel,
            table,
            seed=seed,
            lane_seed=seed,
            letters=letters,
            rules=8 * seed,
            pieces=pieces // 8,
            longest=longest,
        )
        assert said == "", (seed, said)
        assert counts.pieces == pieces // 8
        assert counts.merges > counts.pieces
        if table != ASCENDING and letters > 1:
            assert counts.interrupted > 0


@pytest.mark.parametrize("lane_seed", LANE_SEEDS)
def test_long_pieces_in_a_block(lane_seed: int) -> None:
    for seed, letters, rules in ((1, 1, 6), (3, 3, 40)):
        given = {"seed": seed, "lane_seed": lane_seed, "letters": letters, "rules": rules}
        said, _ = merge("tt_merge_block", SHUFFLED, pieces=1, shortest=4090, **given)
        assert said == "", (seed, said)


@pytest.mark.ci
@pytest.mark.parametrize("seed", range(101, 105))
def test_thousands_of_pieces(seed: int) -> None:
    for kernel, pieces, longest in (
        ("tt_merge_thread", 4000, 32),
        ("tt_merge_warp", 150, 256),
        ("tt_merge_block", 60, 700),
    ):
        for table in (ASCENDING, SHUFFLED):
            for letters, rules in ((2, 30), (4, 200), (9, 900)):
                given = {"seed": seed, "lane_seed": seed, "letters": letters, "rules": rules}
                said, _ = merge(kernel, table, pieces=pieces, longest=longest, **given)
                assert said == "", (kernel, table, letters, said)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("plant", "table", "letters", "rules"), [("sweep_goes_on", SHUFFLED, 4, 200), ("every_place", ASCENDING, 2, 30)]
)
def test_a_wrong_sweep_is_found(plant: str, table: int, letters: int, rules: int) -> None:
    given = {"seed": 100, "letters": letters, "rules": rules, "pieces": 30, "longest": 600}
    assert merge("tt_merge_block", table, **given)[0] == ""
    assert "instead of" in merge("tt_merge_block", table, plant, **given)[0]


@functools.cache
def vocabulary(name: str) -> PieceTokenizer:
    return PieceTokenizer(small(name))


@pytest.mark.parametrize("seed", LANE_SEEDS)
@pytest.mark.parametrize("name", NAMES)
def test_pieces_of_every_length(name: str, seed: int) -> None:
    tokenizer = vocabulary(name)
    rng = random.Random(f"{name} {seed}")
    tokenizer.check(tokenizer.documents(rng, 40), seed=seed, resident_blocks=rng.choice((1, 2, 3)))


@pytest.mark.parametrize("name", ["cl100k_like", "o200k_like"])
def test_long_pieces(name: str) -> None:
    """Over several words and tiles, with cuts and in documents that begin anywhere."""
    tokenizer = vocabulary(name)
    rng = random.Random(name)
    unit = "".join(rng.choices([*"qzxjwvkQZXJWVK0123456789%$#@", "中", "é", " the"], k=500))
    for size in (1000, 2048, 3000, 9000):
        text = (unit * (size // len(unit) + 1))[:size]
        tokenizer.check(["a" * rng.randrange(40), text, "b", BAR + text + BAR + text], seed=size)


def test_pieces_that_begin_at_edges() -> None:
    tokenizer = vocabulary("cl100k_like")
    rng = random.Random(7)
    for edge in (32, 4096):
        for shift in (-33, -2, -1, 0, 1, 2):
            at = 3 * edge + shift
            tokenizer.check([BAR * at + tokenizer.piece(rng, 40) + BAR * 5 + tokenizer.piece(rng, 9)], seed=at)


def test_pieces_that_nothing_cuts_are_left_to_the_cpu() -> None:
    tokenizer = vocabulary("cl100k_like")
    run = "l"  # the vocabulary has "ll", so nothing cuts between
    assert "ll" in tokenizer.words
    documents = ["one", run * 4097, "two", run * 4096, run * 40_000, "x" + BAR + run * 4095 + BAR + "y"]
    found = tokenizer.run(documents)
    giant = {run * 4097, run * 40_000}
    assert [document.flags for document in found] == [Left.GIANT if text in giant else Left(0) for text in documents]
    for text, document in zip(documents, found, strict=True):
        if not document.flags:
            assert document.ids == tokenizer.pair.reference(text)[0]  # type: ignore[index]


@functools.cache
def with_entries() -> PieceTokenizer:
    """Entries that no merges make, for whole pieces (ignore_merges): short ones, and one that ends beyond 64 words."""
    document = json.loads(json.dumps(small("o200k_like")))
    vocab = document["model"]["vocab"]
    for entry in ("qz", "qzx", "q" * 20, "zq" * 30, "l" * 3000):
        vocab.setdefault(entry, len(vocab))
    return PieceTokenizer(document)


def test_an_entry_that_merges_do_not_make_is_for_whole_pieces() -> None:
    tokenizer = with_entries()
    entries = ["qz", "qzx", "q" * 20, "zq" * 30, "l" * 3000]
    around = ["", "a", "中", "...", "q"]
    texts = [before + entry + behind for entry in entries for before in around for behind in around]
    tokenizer.check([BAR.join(texts), *entries, *texts[:30]])
    assert tokenizer.run(["l" * 3000])[0].ids == [tokenizer.pair.reference("l" * 3000)[0][0]]  # type: ignore[index]


@pytest.mark.ci
@pytest.mark.parametrize("variant", ["tsan", "asan"])
def test_no_races_and_nothing_out_of_bounds(variant: str) -> None:
    tokenizer = vocabulary("o200k_like")
    rng = random.Random(variant)
    documents = [*tokenizer.documents(rng, 12), "ab" * 400 + BAR + "l" * 700, ("%$#q中" * 300)[:1500]]
    tokenizer.check(documents, variant=variant)


@pytest.mark.ci
@pytest.mark.parametrize("name", REAL)
def test_pieces_of_real_vocabularies(name: str, artifacts: Artifacts) -> None:
    document = json.loads(artifacts.path(name).read_bytes())
    if document["model"].get("byte_fallback"):
        pytest.skip("no byte-level model: it does not run on a device")
    tokenizer = PieceTokenizer(at_bars(document))
    rng = random.Random(name)
    tokenizer.check(tokenizer.documents(rng, 150, (*LENGTHS, *range(2, 60))), seed=rng.randrange(100))
    tokenizer.check(tokenizer.documents(rng, 3, (500, 1500, 4000)), seed=rng.randrange(100))
