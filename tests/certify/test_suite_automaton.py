"""The automaton suite: agreement, the mutation score, its limits, and planted faults of every table."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.support.boundary_cases import random_tables
from tests.support.certify_runs import changed_file, run_suite
from tests.support.material import small_tokenizers
from tests.support.planted_faults import MINI, TOKENIZERS, assert_agrees, plant
from toktier import _native
from toktier.certify.boundaries import NO_PRE_TOKENIZER, SPLITS_BYTES
from toktier.certify.levels import Level
from toktier.certify.subject import Subject
from toktier.certify.suites import automaton
from toktier.certify.suites.automaton import AutomatonSuite, most_strings, two_pass_score
from toktier.program.coverage import token_suite, w_suite

SUITE = AutomatonSuite()
SPLITTING = [path for path in TOKENIZERS if path.stem not in ("gemma_like", "llama_like")]


@pytest.mark.parametrize("path", SPLITTING, ids=lambda path: path.stem)
def test_every_tokenizer_agrees_and_no_changed_entry_escapes(path: Path) -> None:
    run = run_suite(SUITE, Subject(path))
    assert_agrees(run)
    facts = run.plan.facts
    assert run.counts.documents == facts["texts"] > 300
    for form in ("two_pass", "one_pass"):
        assert facts[f"{form}_mutants_survived"] == 0
        assert facts[f"{form}_mutants_killed"] > 500
        assert facts[f"{form}_mutants_killed"] + facts[f"{form}_mutants_equivalent"] == facts[f"{form}_mutants"]


def test_a_plan_and_its_digests_are_deterministic_and_follow_the_seed() -> None:
    first, again = run_suite(SUITE, Subject(MINI)), run_suite(SUITE, Subject(MINI))
    assert (first.plan.facts, first.digests) == (again.plan.facts, again.digests)
    other = run_suite(SUITE, Subject(MINI), seed=2)
    assert other.plan.facts == first.plan.facts
    assert other.digests != first.digests


def test_standard_allows_one_more_state() -> None:
    subject = Subject(MINI)
    assert SUITE.plan(subject, Level.STANDARD, 0).facts["extra_states"] == 1
    quick, standard = (SUITE.plan(subject, level, 0).facts["strings"] for level in (Level.QUICK, Level.STANDARD))
    assert standard > 5 * quick


def test_beyond_the_limit_fewer_extra_states_are_asked_for_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject(MINI)
    assert subject.boundary is not None
    for extra in (0, 1):
        assert len(w_suite(subject.boundary, extra)) <= most_strings(subject.boundary, extra)
    monkeypatch.setattr(automaton, "MAX_STRINGS", most_strings(subject.boundary, 1))
    facts = SUITE.plan(subject, Level.EXHAUSTIVE, 0).facts
    assert facts["extra_states"] == 1
    assert facts["extra_2_not_run"].startswith(f"up to {most_strings(subject.boundary, 2)} strings")


@pytest.mark.parametrize(
    ("tag", "value"), [("TRAN", None), ("TACT", 0), ("BMAT", None), ("LEFT", None), ("RGHT", None)]
)
def test_a_planted_fault_is_a_mismatch(tag: str, value: int | None) -> None:
    """Every kind of table; entries are tried until the reader takes one."""
    subject = Subject(MINI)
    section = bytes(subject.program_file.section(tag))
    for place in range(len(section)):
        for new in range(3):
            if new == section[place]:
                continue
            try:
                plant(subject, tag, {place: new})
            except _native.ProgramError:
                continue
            run = run_suite(SUITE, subject)
            if run.counts.mismatches:
                one_pass = tag in ("TRAN", "TACT")
                assert {f["what"] for f in run.failures} & {"pieces" if one_pass else "two-pass pieces"}
                return
    pytest.fail("no change of the section was noticed")


def test_a_boundary_that_ids_hide_is_seen() -> None:
    """Of the boundary tables alone the fault is in no id: encoding goes by the one-pass form."""
    subject = Subject(MINI)
    tables = subject.boundary
    assert tables is not None
    place = next(i for i, v in enumerate(tables.matrix) if v == 1 and i // tables.n_right != tables.left_start)
    plant(subject, "BMAT", {place: 0})
    run = run_suite(SUITE, subject)
    assert {f["what"] for f in run.failures} == {"two-pass pieces"}


def test_a_subject_without_pre_tokenizer_has_nothing_to_say(tmp_path: Path) -> None:
    base = next(path for path in small_tokenizers() if path.stem == "llama_like")
    path = changed_file(base, tmp_path / "t.json", lambda document: document.update(pre_tokenizer=None))
    plan = SUITE.plan(Subject(path), Level.QUICK, 0)
    assert (plan.blocks, plan.why) == (0, NO_PRE_TOKENIZER)


def test_a_subject_that_splits_bytes_says_so(tmp_path: Path) -> None:
    def change(document: Any) -> None:
        steps = [
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True},
            {"type": "Digits", "individual_digits": True},
        ]
        document["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps}

    base = next(path for path in small_tokenizers() if path.stem == "gpt2_like")
    plan = SUITE.plan(Subject(changed_file(base, tmp_path / "t.json", change)), Level.QUICK, 0)
    assert (plan.blocks, plan.why) == (0, SPLITS_BYTES)


def test_a_prefix_space_is_no_part_of_the_boundaries(tmp_path: Path) -> None:
    def change(document: Any) -> None:
        document["pre_tokenizer"] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}

    base = next(path for path in small_tokenizers() if path.stem == "gpt2_like")
    assert_agrees(run_suite(SUITE, Subject(changed_file(base, tmp_path / "t.json", change))))


def test_random_tables_without_their_own_suite_are_not_fully_tested() -> None:
    """The score can be less than all: strings of one class alone notice few changes."""
    tables = random_tables(random.Random(3))
    facts = two_pass_score(tables, [b"\0", b"\0\0"])
    assert facts["two_pass_mutants_survived"] > 0
    assert "]=" in facts["two_pass_survivors_first"]


def test_the_one_pass_suite_is_needed() -> None:
    automaton_tables = Subject(MINI).automaton
    assert automaton_tables is not None
    a = automaton_tables
    arguments = (a.n_class, a.n_state, a.start, a.next, a.actions, a.eof, a.pending)
    few = _native.token_mutants(*arguments, token_suite(a)[: a.n_class])
    assert len(few["survivors"]) > 100
    with pytest.raises(ValueError, match="a class string has a class that is none"):
        _native.token_mutants(*arguments, [bytes((a.n_class,))])
