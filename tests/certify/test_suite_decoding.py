"""Decoding of every id agrees with the reference, and one wrong token or row is reported."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.certify_runs import answered_by_the_reference, faulty_subject, run_suite
from tests.support.material import ROOT, SMALL_DIR, changed_tokenizer, load_json
from toktier.certify.levels import Level
from toktier.certify.subject import Subject
from toktier.certify.suites.decoding import BEYOND, DecodingSuite

MINI = ROOT / "tables" / "artifacts" / "toktier_mini" / "tokenizer.json"
SUITE = DecodingSuite()


@pytest.mark.parametrize("path", [MINI, SMALL_DIR / "llama_like.json"], ids=lambda path: path.parent.name + path.stem)
def test_every_id_agrees(path: Any) -> None:
    subject = Subject(path)
    run = run_suite(SUITE, subject)
    assert not run.failures
    assert run.plan.facts["ids"] == subject.native.n_ids + BEYOND
    # Alone without skipping, and in rows of at most twelve both ways.
    assert run.counts.checks > run.plan.facts["ids"] * (1 + 2 / 12)
    assert run.digests == run_suite(SUITE, Subject(path)).digests
    assert run.digests != run_suite(SUITE, subject, seed=2).digests


def test_levels_differ_in_rounds() -> None:
    quick, standard = (run_suite(SUITE, Subject(MINI), level) for level in (Level.QUICK, Level.STANDARD))
    assert quick.counts.checks < standard.counts.checks
    assert not standard.failures


def test_left_to_the_reference_is_said() -> None:
    run = run_suite(SUITE, Subject(SMALL_DIR / "gpt2_like.json"))
    assert (run.plan.blocks, run.plan.why) == (0, "decoding is left to the reference")


def test_a_wrong_token_is_reported(tmp_path: Any) -> None:
    added = load_json(MINI)["added_tokens"]
    added[-1]["content"] += "x"
    served = changed_tokenizer(MINI, tmp_path / "tokenizer.json", added_tokens=added)
    run = run_suite(SUITE, faulty_subject(MINI, served))
    token = added[-1]["id"]
    assert any(failure["subject"].startswith(f"[{token}] ") for failure in run.failures)
    assert run.counts.mismatches == 3  # alone, and in one row with and without special tokens


def test_what_the_reference_decodes_is_routed_and_no_agreement() -> None:
    subject = Subject(MINI)
    subject.__dict__["tokenizer"] = answered_by_the_reference(subject)
    run = run_suite(SUITE, subject)
    assert run.counts.routed == run.counts.checks > 0
    assert run.counts.mismatches == 0
