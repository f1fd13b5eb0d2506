"""Laws of the cuts of texts, all kinds together: the reference gives for the sides of a cut what it gives for the whole
(ids, and offsets before the post-processor), in hostile surroundings, for random tokenizers with added tokens of every
flag and normalizers of every kind; more text takes no cut away; the engine finds the cuts that the plain form finds.
"""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest

from tests.support import tokenizer_maker as maker
from tests.support.material import SHARED, Artifacts, corpora, lines, load_json, small_tokenizers
from tests.support.text_cut_cases import CutCase, Tally, hostile_text, random_case
from tests.support.tiers import blocks_of_seeds
from toktier.errors import ProgramUnsupported, UnsupportedConfig


def check_case(case: CutCase, texts: int, rng: random.Random, tally: Tally, oracle_every: int = 4) -> None:
    for k in range(texts):
        text = hostile_text(case, rng)
        case.check(text, tally, plain=k % 5 == 4)
        case.check_continued(text, tally)
        if k % oracle_every == 0:
            for continued in (False, True):
                found = case.program.cuts(text, continued)
                assert (list(found[0]), found[1]) == case.oracle.cut_list(text, continued=continued), ascii(text)


def compiled(seed: int) -> CutCase | None:
    with contextlib.suppress(ProgramUnsupported, UnsupportedConfig):
        return random_case(seed)
    return None


def check_random(seeds: range, texts: int) -> Tally:
    tally = Tally()
    for seed in seeds:
        case = compiled(seed)
        if case is not None:
            check_case(case, texts, random.Random(seed), tally)
    return tally


def test_law_sides_of_a_cut_of_random_tokenizers() -> None:
    tally = check_random(range(24), 12)
    assert set(tally.kinds) >= {"PAIR", "LEFT_TRIPLE", "RIGHT_TRIPLE", "JOIN", "PAIR+", "JOIN+"}
    assert tally.cuts > 2000
    assert tally.failed < tally.texts / 10


@pytest.mark.parametrize("block", blocks_of_seeds(6, in_ci=2))
def test_law_sides_of_a_cut_of_many_random_tokenizers(block: int) -> None:
    tally = check_random(range(20_000 + 100 * block, 20_100 + 100 * block), 60)
    assert tally.cuts > 20_000


@pytest.mark.parametrize("path", small_tokenizers(), ids=lambda path: path.stem)
def test_law_sides_of_a_cut_of_the_small_tokenizers(path: object) -> None:
    tally = Tally()
    case = CutCase(load_json(path))  # type: ignore[arg-type]
    check_case(case, 60, random.Random(1), tally)
    assert tally.cuts > 100


@pytest.mark.parametrize("seed", range(12))
def test_law_more_text_takes_no_cut_away(seed: int) -> None:
    rng = random.Random(seed)
    case = next(found for s in range(1000 + 50 * seed, 1050 + 50 * seed) if (found := compiled(s)))
    for _ in range(60):
        before, text, after = (hostile_text(case, rng, most) for most in (3, 8, 3))
        for continued in (False, True):
            alone, _ = case.program.cuts(text, continued)
            whole = set(case.program.cuts(before + text + after, continued)[0])
            shift = len(before.encode())
            assert {p + shift for p in alone} <= whole, (ascii(before), ascii(text), ascii(after))


REAL = [] if SHARED is None else Artifacts(SHARED, SHARED).names
IN_CI = (
    "claude",
    "deepseek_v3",
    "gemma3",
    "gptoss",
    "llama2",
    "llama3",
    "qwen3",
)  # no two of one pre-tokenizer and model


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.ci if name in IN_CI else pytest.mark.full) for name in REAL]
)
def test_law_sides_of_a_cut_of_real_tokenizers(name: str, artifacts: Artifacts, shared: Path) -> None:
    """Hostile texts, and documents of every corpus with the cuts of a stretch of them."""
    rng = random.Random(name)
    documents = [next(iter(lines(shared, corpus))) for corpus in corpora(shared)]
    case, tally = CutCase(load_json(artifacts.path(name))), Tally()
    check_case(case, 80, rng, tally, oracle_every=40)
    for document in documents:
        for _ in range(4):
            begin = rng.randrange(max(1, len(document) - 300))
            case.check(document[begin : begin + 300], tally)
            case.check_continued(document[begin : begin + 300], tally)
    assert tally.cuts > 2000, tally


def test_a_wrong_cut_is_found() -> None:
    """The checks of this file can fail: a program whose guards were emptied cuts through added tokens."""
    document = maker.small("gpt2_like")
    document["added_tokens"].append(maker.added("x 1"))
    case = CutCase(document)
    bare = CutCase(maker.small("gpt2_like"))
    case.program = bare.program
    with pytest.raises(AssertionError):
        case.check("ax 1b x 1 x 1", Tally())
