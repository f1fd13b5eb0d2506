"""The suite of normalizers agrees with the reference on every form and step, and reports planted faults."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

import pytest

from tests.support.certify_runs import changed_file, faulty_subject, run_suite
from tests.support.material import small_tokenizers
from toktier.certify.levels import Level
from toktier.certify.subject import Subject
from toktier.certify.suites.normalization import CODE_POINTS, NormalizationSuite

SUITE = NormalizationSuite()
BASE = next(path for path in small_tokenizers() if path.stem == "cl100k_like")
REPLACE = {"type": "Replace", "pattern": {"String": "ab"}, "content": "c "}
STEPS: dict[str, Any] = {
    "NFC": {"type": "NFC"},
    "NFD": {"type": "NFD"},
    "NFKC": {"type": "NFKC"},
    "NFKD": {"type": "NFKD"},
    "Lowercase": {"type": "Lowercase"},
    "Strip": {"type": "Strip", "strip_left": True, "strip_right": True},
    "Prepend": {"type": "Prepend", "prepend": "▁"},
    "Replace": REPLACE,
    "Sequence": {"type": "Sequence", "normalizers": [REPLACE, {"type": "NFKC"}, {"type": "Lowercase"}]},
}


def normalizing(step: Any, target: Path) -> Path:
    return changed_file(BASE, target, lambda document: document.update(normalizer=step))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in ("NFC", "Strip") else pytest.mark.ci) for name in STEPS]
)
def test_every_step_agrees(tmp_path: Path, name: str) -> None:
    run = run_suite(SUITE, Subject(normalizing(STEPS[name], tmp_path / "t.json")))
    assert not run.failures
    assert (run.counts.mismatches, run.counts.routed) == (0, 0)
    assert run.counts.documents > 1_000
    assert run.plan.facts["code_points"] > 0x10000 + 60_000
    assert ("composing_pairs" in run.plan.facts) == (name.startswith("NF") or name == "Sequence")
    assert ("literals" in run.plan.facts) == (not name.startswith("NF"))


@pytest.mark.parametrize(
    ("step", "served"),
    [
        ("NFC", None),
        pytest.param("NFC", STEPS["NFD"], marks=pytest.mark.ci),
        pytest.param("NFKC", STEPS["NFC"], marks=pytest.mark.ci),
        ("Strip", {"type": "Strip", "strip_left": True, "strip_right": False}),
        pytest.param("Prepend", None, marks=pytest.mark.ci),
        ("Replace", {**REPLACE, "pattern": {"String": "abb"}}),
        pytest.param(
            "Sequence",
            {"type": "Sequence", "normalizers": [REPLACE, {"type": "NFC"}, {"type": "Lowercase"}]},
            marks=pytest.mark.ci,
        ),
    ],
)
def test_another_normalizer_is_reported(tmp_path: Path, step: str, served: Any) -> None:
    base, faulty = normalizing(STEPS[step], tmp_path / "base.json"), normalizing(served, tmp_path / "served.json")
    run = run_suite(SUITE, faulty_subject(base, faulty), until_mismatch=True)
    assert run.counts.mismatches > 0
    assert run.failures


def test_one_pair_that_is_not_composed_is_reported_singly(tmp_path: Path) -> None:
    """A replacement undoes what NFC makes of one pair: the single text of that pair fails at the standard level."""
    pair = "o\u031b"
    undo = {"type": "Replace", "pattern": {"String": unicodedata.normalize("NFC", pair)}, "content": pair}
    base = normalizing(STEPS["NFC"], tmp_path / "base.json")
    served = normalizing(
        {"type": "Sequence", "normalizers": [STEPS["NFC"], undo]},
        tmp_path / "served.json",
    )
    quick = run_suite(SUITE, faulty_subject(base, served), until_mismatch=True)
    assert quick.counts.mismatches > 0
    subject = faulty_subject(base, served)
    plan = SUITE.plan(subject, Level.STANDARD, 1)
    assert plan.facts["code_points"] == CODE_POINTS
    assert plan.facts["composing_pairs_singly"] == plan.facts["composing_pairs"]
    texts = plan.payload[0]
    assert pair in texts
    assert subject.encode(pair).ids != subject.reference.encode(pair, add_special_tokens=False).ids


def test_without_a_normalizer_nothing_is_planned_and_it_says_so() -> None:
    plan = SUITE.plan(Subject(BASE), Level.QUICK, 1)
    assert (plan.blocks, plan.why) == (0, "the tokenizer has no normalizer")


def test_plans_are_fixed_by_the_seed(tmp_path: Path) -> None:
    subject = Subject(normalizing(STEPS["NFC"], tmp_path / "t.json"))
    once, again = (SUITE.plan(subject, Level.QUICK, 7) for _ in range(2))
    assert once.payload == again.payload
    assert once.payload != SUITE.plan(subject, Level.QUICK, 8).payload
