"""The classes suite: all strings, each once, bounded with honest counts; planted faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.certify_runs import run_suite
from tests.support.planted_faults import MINI, TOKENIZERS, assert_agrees, plant
from toktier.certify.levels import Level
from toktier.certify.subject import Subject
from toktier.certify.suites import classes
from toktier.certify.suites.classes import ClassesSuite
from toktier.program.engine_identity import build_facts

SUITE = ClassesSuite()


@pytest.mark.parametrize("path", TOKENIZERS, ids=lambda path: path.stem)
def test_every_tokenizer_agrees_or_has_no_classes(path: Path) -> None:
    subject = Subject(path)
    run = run_suite(SUITE, subject)
    if subject.boundary is None:
        assert run.plan.why
        return
    assert_agrees(run)
    n = subject.boundary.n_class
    length = run.plan.facts["length"]
    assert run.plan.facts["strings"] == sum(n**k for k in range(1, length + 1))
    forms = 2 + len(build_facts()["dispatch_levels"])  # both automata, and the splitter at each level
    assert run.counts.checks == forms * run.plan.facts["strings"]


def test_blocks_hold_every_string_once(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject(MINI)
    assert subject.boundary is not None
    monkeypatch.setattr(classes, "BLOCK", 40)
    plan = SUITE.plan(subject, Level.QUICK, 0)
    blocks, choices = plan.payload
    texts = [text for block in blocks for text in classes._texts(*block, [[members[0]] * 4 for members in choices])]
    assert len(texts) == len(set(texts)) == plan.facts["strings"]
    assert set(map(len, texts)) == set(range(1, plan.facts["length"] + 1))


def test_over_the_bound_the_length_is_less_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject(MINI)
    assert subject.boundary is not None
    n = subject.boundary.n_class
    monkeypatch.setitem(classes.MAX_STRINGS, Level.QUICK, n + n * n)
    facts = SUITE.plan(subject, Level.QUICK, 0).facts
    assert (facts["length"], facts["length_asked"]) == (2, 4)
    assert facts["strings"] + facts["strings_not_run"] == n + n**2 + n**3 + n**4
    monkeypatch.setitem(classes.MAX_STRINGS, Level.QUICK, n - 1)
    plan = SUITE.plan(subject, Level.QUICK, 0)
    assert plan.blocks == 0
    assert plan.why


def test_a_planted_fault_is_a_mismatch() -> None:
    subject = Subject(MINI)
    tables = subject.boundary
    assert tables is not None
    place = next(i for i, v in enumerate(tables.matrix) if v == 1 and i // tables.n_right != tables.left_start)
    plant(subject, "BMAT", {place: 0})
    run = run_suite(SUITE, subject)
    assert run.counts.mismatches > 0
    assert {f["what"] for f in run.failures} == {"two-pass pieces"}
