"""Splitting as encoding does it, at every dispatch level, against the token automaton and the two passes: the
pre-tokenizers of the real artifacts, on hostile texts, on documents, and on runs across edges of blocks and windows.

The oracle here is the engine's own automaton, which other tests hold to the reference.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.material import SHARED, Artifacts, corpora, lines
from toktier import _native
from toktier.program.compile import compile_tokenizer

LEVELS: list[str] = _native.build_facts()["dispatch_levels"]
OF_EACH_KIND = ("gptoss", "llama3", "gemma3", "gemini", "deepseek_v3", "claude")
NAMES = [
    pytest.param(name, marks=() if name in OF_EACH_KIND else pytest.mark.ordinary)
    for name in (Artifacts(SHARED, SHARED).names if SHARED else [])
]


class Levels(NamedTuple):
    name: str
    programs: list[_native.Program]


# What the pre-tokenizers tell apart, and characters of two to four bytes whose neighbours are of another class.
HOSTILE = [*" \t\n\r\v\f  aAzZsStTrReElLdDmMvV0123459'.,/!-_\"()", *"’\u00a0\u0085\u2028\u3000\u200b\u200d\ufeff"]
HOSTILE += [
    *"éÉñßſК中日本語〇ひらカ゛゜\u3040かЖжЁёǅʰª²٣Ⅷ〆々ー가힣",
    *"\u0301\u20dd\ufe0f👍🏽🇩𝐀𠀀\U000e0100\U0010ffff",
]


@pytest.fixture(scope="module", params=NAMES)
def levels(request: pytest.FixtureRequest, artifacts: Artifacts) -> Levels:
    """An artifact at every level. Compiled once: pytest runs all tests of one before those of the next."""
    image = compile_tokenizer(artifacts.path(request.param).read_bytes())
    return Levels(request.param, [_native.Program(image, level=level) for level in LEVELS])


def check(levels: Levels, text: str | bytes) -> None:
    expected = levels.programs[0].split(text)
    for program in levels.programs:
        assert program.split(text, windows=True) == expected, (program.level, ascii(text))


def hostile(rng: random.Random) -> str:
    kind = rng.randrange(4)
    if kind == 0:
        return "".join(rng.choices(HOSTILE, k=rng.randrange(1, 90)))
    few = rng.sample(HOSTILE, 4)
    if kind == 1:
        return "".join(rng.choices(few, k=rng.randrange(1, 200)))
    longest = 7 if kind == 2 else 90
    return "".join(rng.choice(few) * rng.randint(1, longest) for _ in range(rng.randrange(1, 12)))


def test_hostile_texts(levels: Levels) -> None:
    rng = random.Random(levels.name)
    for _ in range(4000):
        text = hostile(rng)
        check(levels, text)
    for _ in range(200):
        text = hostile(rng)
        assert levels.programs[0].split(text) == levels.programs[0].split(text, two_pass=True)


def test_edges_of_blocks_and_windows(levels: Levels) -> None:
    rng = random.Random(levels.name)
    for fill in HOSTILE:
        for size in (*range(64), rng.randrange(4000, 4200), rng.randrange(8100, 8300)):
            check(levels, fill * (size // len(fill.encode())) + hostile(rng)[:20])


def test_nothing_is_read_behind_the_text(levels: Levels) -> None:
    """A part of a buffer is split as if nothing followed."""
    rng = random.Random(levels.name)
    for _ in range(300):
        text = hostile(rng).encode()
        buffer = memoryview(text + rng.choice(HOSTILE).encode())
        assert levels.programs[-1].split(buffer[: len(text)], windows=True) == levels.programs[0].split(text)


def test_documents(levels: Levels, shared: Path) -> None:
    for corpus in corpora(shared):
        for _, document in zip(range(6), lines(shared, corpus), strict=False):
            check(levels, document)
