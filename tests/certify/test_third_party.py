"""Certification of engines of others: what they answer is compared, what they get wrong is shortened, and no evidence
of it admits anything.

Stand-ins answer here. Offsets and tables that no such engine has are left out, and said to be.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import third_party_stand_in
from tests.support.certify_runs import run_suite
from tests.support.evidence_documents import evidence_document, sealed
from tests.support.material import SMALL_DIR
from tests.support.third_party_stand_in import VERSION, PanicException, StandIn
from toktier.certify.failures import failure_document
from toktier.certify.levels import Level
from toktier.certify.plan import make_plan, read_plan
from toktier.certify.subject import Subject
from toktier.certify.suites import SUITES, suite_named
from toktier.errors import BackendUnavailable, EvidenceInvalid
from toktier.evidence import document
from toktier.routing.vocabulary import THIRD_PARTY, Compared

pytestmark = pytest.mark.ci

FILE = SMALL_DIR / "cl100k_like.json"
NAMES = [backend.value for backend in THIRD_PARTY]


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def engine(name: str, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    return third_party_stand_in.install(monkeypatch, name)


@pytest.fixture
def subject(name: str, engine: StandIn, tmp_path: Path) -> Subject:
    return Subject(FILE, Compared(name), tmp_path)


def test_the_plan_names_engine_and_version_and_what_is_left_out(name: str, subject: Subject, engine: StandIn) -> None:
    prepared = make_plan(subject, list(SUITES), Level.QUICK, 0, "it")
    content = prepared.plan.document
    assert content["backend"] == name
    assert content["third_party"] == {"distribution": name, "version": VERSION}
    assert "kernels" not in content
    assert read_plan(content, "it").document == content
    why = {suite.name: suite.why for suite in prepared.plan.suites if suite.blocks == 0}
    assert {suite.name for suite in SUITES if suite.of_tables} | {"sessions"} <= set(why)
    assert ("decoding" in why) != THIRD_PARTY[subject.tokenizer.explain()["backend"]].decodes
    assert all(why.values())
    assert engine.calls == []  # in a process that forks


def test_what_agrees_agrees_without_offsets(name: str, subject: Subject, engine: StandIn) -> None:
    ran = run_suite(suite_named("cases"), subject, blocks=[0])
    assert (ran.failures, ran.counts.mismatches, ran.counts.routed) == ([], 0, 0)
    assert ran.counts.checks > 100
    assert len(engine.calls) > ran.counts.documents


def test_what_it_gets_wrong_is_shortened(name: str, subject: Subject, engine: StandIn) -> None:
    engine.wrong = lambda text, ids: [*ids[:-1], 0] if "é" in text else ids
    ran = run_suite(suite_named("cases"), subject, until_mismatch=True)
    assert ran.failures[0]["what"] == "ids"
    plan = make_plan(subject, [suite_named("cases")], Level.QUICK, 0, "it").plan
    shown = failure_document(plan, ran.failures[0], subject, {})
    assert shown["text"] == [ord("é")]
    assert shown["comparison"]["differs"] == "ids"
    assert shown["comparison"]["got_ids"][-1] == 0
    assert shown["comparison"]["served_by"] == name
    assert shown["comparison"]["got_offsets"] == []


def test_what_it_throws_is_routed_and_never_agreement(subject: Subject, engine: StandIn) -> None:
    _ = subject.tokenizer
    engine.fails = PanicException("index out of bounds")
    ran = run_suite(suite_named("cases"), subject, blocks=[0])
    assert ran.counts.mismatches == 0
    assert ran.counts.routed == ran.counts.checks


def test_a_file_that_it_refuses_cannot_be_certified(name: str, subject: Subject, engine: StandIn) -> None:
    engine.load_fails = ValueError("unsupported normalizer type")
    with (
        pytest.warns(UserWarning, match="unsupported normalizer"),
        pytest.raises(BackendUnavailable, match="unsupported normalizer"),
    ):
        make_plan(subject, [suite_named("cases")], Level.QUICK, 0, "it")


def test_its_evidence_admits_nothing(name: str) -> None:
    told = evidence_document()
    assert document.of_document(told, "it").passed
    told["plan"]["backend"] = name
    told = sealed({key: value for key, value in told.items() if key != "digest"})
    with pytest.raises(EvidenceInvalid, match="engine of others"):
        document.of_document(told, "it")
