"""The code point suite: every code point once in documents, alone in every context; planted faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.boundary_cases import SplitCase, written_cases
from tests.support.certify_runs import run_suite
from tests.support.planted_faults import MINI, TOKENIZERS, assert_agrees, plant
from toktier.certify.levels import Level
from toktier.certify.subject import Subject
from toktier.certify.suites.code_points import (
    CodePointsSuite,
    _best_contexts,
    _documents,
    _in_documents,
    _Plan,
)
from toktier.program.coverage import separating_contexts
from toktier.program.interpret import run_two_pass

SUITE = CodePointsSuite()
FIRST = 0  # the block of the first 32,768 code points


@pytest.mark.parametrize("path", TOKENIZERS, ids=lambda path: path.stem)
def test_the_first_code_points_agree(path: Path) -> None:
    assert_agrees(run_suite(SUITE, Subject(path), blocks=[FIRST]))


@pytest.mark.ci
@pytest.mark.parametrize("path", TOKENIZERS, ids=lambda path: path.stem)
def test_each_block_agrees_under_one_tokenizer(path: Path) -> None:
    """The blocks of code points are dealt out among the tokenizers: all of them in turn, each under one."""
    subject = Subject(path)
    blocks = range(TOKENIZERS.index(path), SUITE.plan(subject, Level.QUICK, 0).blocks, len(TOKENIZERS))
    assert_agrees(run_suite(SUITE, subject, blocks=blocks))


@pytest.mark.full
@pytest.mark.parametrize("path", TOKENIZERS, ids=lambda path: path.stem)
def test_all_code_points_agree(path: Path) -> None:
    """As certification does it for every tokenizer that has evidence."""
    assert_agrees(run_suite(SUITE, Subject(path)))


def test_documents_hold_every_code_point_once() -> None:
    subject = Subject(MINI)
    plan = SUITE.plan(subject, Level.QUICK, 0)
    kept = plan.payload
    assert isinstance(kept, _Plan)
    assert sum(high - low for low, high in kept.ranges) == plan.facts["code_points"] == 0x110000 - 0x800
    for low, high in (kept.ranges[0], kept.ranges[-1]):
        text = "".join(_documents(subject, kept, low, high))
        assert len(text) > high - low
        assert set(map(chr, range(low, high))) <= set(text)


def test_above_quick_every_context_stands_alone() -> None:
    subject = Subject(MINI)
    assert subject.boundary is not None
    contexts = separating_contexts(subject.boundary)
    quick, standard = (SUITE.plan(subject, level, 0) for level in (Level.QUICK, Level.STANDARD))
    assert quick.facts["contexts"] == standard.facts["contexts"] == standard.facts["contexts_alone"] == len(contexts)
    assert standard.blocks == quick.blocks * (1 + len(contexts))
    run = run_suite(SUITE, subject, Level.STANDARD, blocks=[quick.blocks * k for k in range(1, 1 + len(contexts))])
    assert_agrees(run)
    # The canonical tables' pieces, and those of each dispatch level of this CPU, against the reference's.
    assert run.counts.checks == 0x8000 * len(contexts) * (1 + len(subject.native_levels))


@pytest.mark.parametrize("case", written_cases(), ids=lambda case: case.name)
def test_what_is_shown_in_a_document_stands_as_if_alone(case: SplitCase) -> None:
    """By the tables: the pieces of before·c·behind inside a document of all classes are those that it has alone."""
    tables = case.tables
    chosen, told = _best_contexts(tables, separating_contexts(tables))
    around, side_by_side = _in_documents(tables, chosen)
    assert 0 < told <= tables.n_class * (tables.n_class - 1)
    if side_by_side:
        assert case.name in ("removed", "only words", "merged-with-next")
        return
    classes = {chr(r): c for c, r in enumerate(tables.representatives)}
    units = [
        (before, behind, bytes(classes[x] for x in before + chr(tables.representatives[c]) + behind))
        for c, (before, behind) in enumerate(around)
    ]
    whole = run_two_pass(tables, b"".join(unit for _, _, unit in units * 2))
    at = 0
    for c, (_, _, unit) in enumerate(units * 2):
        before, behind = chosen[c % len(units)]
        alone = before + bytes((c % len(units),)) + behind
        begin = at + len(unit) - len(alone)
        values = run_two_pass(tables, alone)
        assert whole[begin + 1 : at + len(unit)] == values[1:]
        assert whole[begin] == values[0] or begin == 0
        at += len(unit)


@pytest.mark.parametrize(("level", "character"), [(Level.QUICK, "\u00e9"), (Level.STANDARD, "\u4e2d")])
def test_one_code_point_of_another_class_is_a_mismatch(level: Level, character: str) -> None:
    subject = Subject(MINI)
    assert subject.boundary is not None
    stage1 = bytes(subject.program_file.section("CLS1"))
    cp = ord(character)
    block = int.from_bytes(stage1[(cp >> 7) * 2 : (cp >> 7) * 2 + 2], "little")
    place = block * 128 + (cp & 127)
    space = next(c for first, last, c in subject.boundary.class_ranges if first <= ord(" ") <= last)
    plant(subject, "CLS2", {place: space})
    plan = SUITE.plan(subject, level, 0)
    kept = plan.payload
    at = next(k for k, (low, high) in enumerate(kept.ranges) if low <= cp < high)
    blocks = range(at, plan.blocks, len(kept.ranges)) if level is not Level.QUICK else [at]
    run = run_suite(SUITE, subject, level, blocks=blocks)
    assert run.counts.mismatches > 0
    shown = [failure.get("text", failure.get("subject", "")) for failure in run.failures]
    # Blocks of the trie are shared: other code points at the same place have the fault too.
    assert all(any(ord(c) & 127 == cp & 127 for c in text) for text in shown)


def test_without_a_pre_tokenizer_code_points_are_encoded_all_the_same() -> None:
    path = next(path for path in TOKENIZERS if path.stem == "llama_like")
    plan = SUITE.plan(Subject(path), Level.STANDARD, 0)
    assert plan.blocks > 0
    assert plan.facts["contexts"] == 0
