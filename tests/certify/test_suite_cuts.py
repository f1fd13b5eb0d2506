"""The cuts suite: every kind agrees under the reference, all contexts are shown, planted faults of cuts and guards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support import tokenizer_maker as maker
from tests.support.certify_runs import changed_file, run_suite
from tests.support.material import small_tokenizers
from tests.support.planted_faults import MINI, TOKENIZERS, assert_agrees, plant
from toktier.certify.levels import Level
from toktier.certify.subject import Subject
from toktier.certify.suites.cuts import CONTEXTS, CutsSuite, cut_between, prefixes, unprefixed_reference
from toktier.program.file import read_program, write_program
from toktier.program.layout import CutKind

SUITE = CutsSuite()
BASE = next(path for path in small_tokenizers() if path.stem == "gpt2_like")
PROOFS = [0]  # the block of the proofs


@pytest.mark.parametrize("path", TOKENIZERS, ids=lambda path: path.stem)
def test_every_tokenizer_agrees(path: Path) -> None:
    run = run_suite(SUITE, Subject(path))
    assert_agrees(run)
    assert run.counts.checks > run.plan.facts["cuts"] > 5000


def test_every_context_is_shown() -> None:
    facts = SUITE.plan(Subject(MINI), Level.QUICK, 0).facts
    for name in CONTEXTS:
        assert facts[f"contexts_{name}"] > 0
        if name != "inner":  # a line feed is a token that joins what stands beside it, and the like
            assert facts[f"contexts_{name}_shown"] == facts[f"contexts_{name}"]
    assert {"cuts_pair", "cuts_left_triple", "cuts_right_triple", "cuts_join"} <= facts.keys()


def test_a_plan_is_deterministic() -> None:
    first, again = (SUITE.plan(Subject(MINI), Level.QUICK, 3) for _ in range(2))
    assert (first.facts, first.payload.bars) == (again.facts, again.payload.bars)


def hostile(document: Any) -> None:
    document["normalizer"] = {"type": "NFC"}
    for content, flags in (("x 1", {}), ("<w>", {"single_word": True}), ("<l>", {"lstrip": True, "rstrip": True})):
        document["added_tokens"].append(maker.added(content, **flags))


def test_guards_of_normalizer_and_added_tokens_hold(tmp_path: Path) -> None:
    subject = Subject(changed_file(BASE, tmp_path / "t.json", hostile))
    run = run_suite(SUITE, subject)
    assert_agrees(run)
    assert run.plan.facts["added_tokens_tried"] > 50
    assert run.plan.facts["normalizer_tried"] > 5000
    assert cut_between(subject, "ax", " 1b", False) is CutKind.NONE


@pytest.mark.parametrize("tag", ["GPAR", "GBYT"])
def test_a_guard_that_is_lost_is_a_mismatch(tmp_path: Path, tag: str) -> None:
    subject = Subject(changed_file(BASE, tmp_path / "t.json", hostile))
    section = bytes(subject.program_file.section(tag))
    plant(subject, tag, {place: 0 for place, value in enumerate(section) if value})
    run = run_suite(SUITE, subject)
    assert {failure["what"] for failure in run.failures} == {"cut"}


def test_a_pair_that_is_no_cut_is_a_mismatch_and_fails_the_proof() -> None:
    subject = Subject(MINI)
    assert subject.boundary is not None
    n = subject.boundary.n_class
    letters = [next(c for first, last, c in subject.boundary.class_ranges if first <= ord(x) <= last) for x in "ab"]
    place = letters[0] * n + letters[1]
    plant(subject, "CUT2", {place: 1})
    run = run_suite(SUITE, subject)
    assert {failure["what"] for failure in run.failures} == {"cut"}

    # The same program as the file of the subject: what a compiler with this fault would have written.
    file = Subject(MINI).program_file
    sections = {name: bytes(file.section(name)) for name in file.places}
    sections["CUT2"] = sections["CUT2"][:place] + b"\1" + sections["CUT2"][place + 1 :]
    other = Subject(MINI)
    other.__dict__["program_file"] = read_program(write_program(sections, file.artifact_sha256, file.fingerprint))
    run = run_suite(SUITE, other, blocks=PROOFS)
    (failure,) = run.failures
    assert failure["what"] == "proof"
    assert failure["subject"] == "CUT2 is what the tables give"
    assert failure["got"] == f"[{place}]"


def test_a_cut_that_is_not_used_is_a_fault_of_the_proof_only() -> None:
    file = Subject(MINI).program_file
    sections = {name: bytes(file.section(name)) for name in file.places}
    sections["CUT2"] = bytes(len(sections["CUT2"]))
    other = Subject(MINI)
    other.__dict__["program_file"] = read_program(write_program(sections, file.artifact_sha256, file.fingerprint))
    run = run_suite(SUITE, other)
    assert {failure["what"] for failure in run.failures} == {"proof"}


def test_parts_that_continue_are_compared_without_prefix() -> None:
    subject = Subject(next(path for path in TOKENIZERS if path.stem == "llama_like"))
    assert prefixes(subject)
    assert subject.reference.encode("a", add_special_tokens=False).ids != unprefixed_reference(subject).encode("a").ids
    run = run_suite(SUITE, subject)
    assert_agrees(run)
    assert run.plan.facts["cuts_join_continued"] > 5000


def test_a_prefix_space_is_taken_off_too(tmp_path: Path) -> None:
    def change(document: Any) -> None:
        document["pre_tokenizer"] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}

    subject = Subject(changed_file(BASE, tmp_path / "t.json", change))
    run = run_suite(SUITE, subject)
    assert_agrees(run)
    assert any(name.endswith("_continued") for name in run.plan.facts)
