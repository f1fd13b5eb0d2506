"""The engine's three ways of splitting, the one that encoding uses at every dispatch level, on the suites that reach
every entry of their tables and on all short class strings, against plain execution of the tables. No reference here:
that the tables are the reference's is shown in tests/program/test_coverage.py."""

from __future__ import annotations

import functools
import itertools
import json
import random
from typing import Any

import pytest

from tests.support.boundary_cases import SplitCase, random_classes, written_cases
from toktier import _native
from toktier.program.boundary import Stage, compile_boundaries
from toktier.program.compile import compile_tokenizer
from toktier.program.coverage import token_suite, w_suite
from toktier.program.interpret import run_two_pass
from toktier.program.token_automaton import build_token_automaton

Stages = tuple[tuple[str, str, bool], ...]

# Whether a piece starts after an "a" hangs on the fifth character behind: more than three positions may wait.
FAR_SIGHTED: Stages = ((r"a(?=[ab]{4}b)|[ab]a?", "Isolated", False),)


def byte_alphabet() -> list[str]:
    """The 256 characters that stand for bytes, in byte order."""
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = itertools.count(0x100)
    return [chr(b) if b in kept else chr(next(others)) for b in range(256)]


LEVELS: list[str] = _native.build_facts()["dispatch_levels"]


@functools.cache
def program_of(stages: Stages, level: str = LEVELS[-1]) -> _native.Program:
    return _native.Program(image_of(stages), level=level)


@functools.cache
def image_of(stages: Stages) -> bytes:
    splits = [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}
        for pattern, behavior, invert in stages
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    tokenizer: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*splits, byte_level]},
        "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": {c: i for i, c in enumerate(byte_alphabet())}, "merges": []},
    }
    return compile_tokenizer(json.dumps(tokenizer).encode())


def engine_split(program: _native.Program, text: str, form: str = "windows") -> tuple[list[int], list[bool]]:
    """`form`: two_pass, windows, or "" for the token automaton."""
    boundaries, dropped = program.split(text, **({form: True} if form else {}))
    return list(boundaries), [bool(d) for d in dropped]


def table_split(text: str, values: bytes) -> tuple[list[int], list[bool]]:
    at = list(itertools.accumulate((len(c.encode()) for c in text), initial=0))
    starts = [i for i, value in enumerate(values) if value]
    return [at[i] for i in starts if i], [values[i] == 2 for i in starts]


def check(case: SplitCase, strings: list[bytes], rng: random.Random | None) -> None:
    program = program_of(case.stages)
    levels = [program_of(case.stages, level) for level in LEVELS]
    for classes in strings:
        text = case.text(classes, rng)
        expected = table_split(text, run_two_pass(case.tables, classes))
        for form in ("", "two_pass"):
            assert engine_split(program, text, form) == expected, (text, form)
        for at_level in levels:
            assert engine_split(at_level, text) == expected, (text, at_level.level)


written = pytest.mark.parametrize("case", written_cases(), ids=lambda case: case.name)


@written
def test_all_forms_on_the_suites(case: SplitCase) -> None:
    automaton = build_token_automaton(case.tables)
    assert automaton is not None
    program = program_of(case.stages)
    assert program.info()["n_token"] == automaton.n_state, "the engine has the one-pass form"
    suite = [s for s in {*w_suite(case.tables), *token_suite(automaton)} if s]
    check(case, suite, None)


@written
def test_all_forms_on_long_texts_of_any_character(case: SplitCase) -> None:
    rng = random.Random(13)
    check(case, [random_classes(rng, case.tables.n_class, rng.randint(1, 3000)) for _ in range(40)], rng)


@written
def test_windows_on_all_short_class_strings(case: SplitCase) -> None:
    n = case.tables.n_class
    longest = 4 if n <= 8 else 3
    program = program_of(case.stages)
    for length in range(1, longest + 1):
        for letters in itertools.product(range(n), repeat=length):
            classes = bytes(letters)
            text = case.text(classes)
            expected = table_split(text, run_two_pass(case.tables, classes))
            assert engine_split(program, text) == expected, text


@written
def test_windows_at_every_place_of_a_block(case: SplitCase) -> None:
    """Behind 0 to 70 fillers of each class, so that every class stands at every place of a block of 64 bytes."""
    rng = random.Random(15)
    n = case.tables.n_class
    for fill in range(n):
        strings = [bytes([fill]) * k + random_classes(rng, n, 12) for k in range(71)]
        check(case, strings, rng if fill % 2 else None)


@written
def test_windows_at_their_edges(case: SplitCase) -> None:
    """Runs that end around the edge of a window of 4096 bytes, or go on for several windows."""
    rng = random.Random(16)
    n = case.tables.n_class
    strings = []
    for fill in range(n):
        width = len(chr(case.tables.representatives[fill]).encode())
        for beyond in (*range(-6, 7), 64, 4096, 9000):
            run = bytes([fill]) * max(1, (4096 + beyond) // width)
            strings.append(random_classes(rng, n, 5) + run + random_classes(rng, n, 9))
    check(case, strings, None)


def test_two_passes_serve_where_there_is_no_token_automaton() -> None:
    tables = compile_boundaries([Stage("pre_tokenizer", pattern=FAR_SIGHTED[0][0])])
    assert build_token_automaton(tables) is None
    case = SplitCase("far-sighted", FAR_SIGHTED, tables)
    assert program_of(FAR_SIGHTED).info()["n_token"] == 0
    rng = random.Random(14)
    check(case, w_suite(tables), None)
    check(case, [random_classes(rng, tables.n_class, rng.randint(1, 500)) for _ in range(50)], rng)
