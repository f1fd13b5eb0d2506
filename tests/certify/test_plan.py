"""The plan: the same for the same, another for anything that changes what is checked, and shards that lose nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.certify.tiny_suites import BLOCKS, MINI, SUITES, Words, prepare
from tests.cli.command import validator
from toktier.canonical import TAG_CERTIFY_PLAN, document_digest
from toktier.certify.levels import Level
from toktier.certify.plan import Shard, differences, make_plan, parse_shard, read_plan
from toktier.certify.subject import Subject
from toktier.errors import EvidenceInvalid, UsageError


def test_the_same_plan_has_the_same_digest_and_fits_its_schema(tmp_path: Path) -> None:
    a, b = prepare(tmp_path / "a"), prepare(tmp_path / "b")
    assert a.plan.to_json() == b.plan.to_json()
    assert a.plan.blocks == BLOCKS
    validator("certify_plan").validate(a.plan.document)
    assert read_plan(a.plan.document, "here").digest == a.plan.digest


def test_whatever_changes_the_checks_changes_the_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = prepare(tmp_path).plan
    found = {plain.digest, prepare(tmp_path, seed=1).plan.digest, prepare(tmp_path, SUITES[:2]).plan.digest}
    subject = Subject(MINI, home=tmp_path)
    found.add(make_plan(subject, SUITES, Level.STANDARD, 0, "toktier_mini").plan.digest)
    (tmp_path / "c.txt").write_text("hello")
    with_corpus = Subject(MINI, home=tmp_path, corpora=(tmp_path / "c.txt",))
    planned = make_plan(with_corpus, SUITES, Level.QUICK, 0, "toktier_mini").plan
    assert [(c["documents"], c["utf8_bytes"]) for c in planned.document["corpora"]] == [(1, 5)]
    assert "c.txt" not in str(planned.document)
    found.add(planned.digest)
    monkeypatch.setattr(Words, "version", 2)
    found.add(prepare(tmp_path).plan.digest)
    monkeypatch.setattr("toktier.certify.plan.installed_engine", lambda: "0" * 64)
    found.add(prepare(tmp_path).plan.digest)
    monkeypatch.setattr("toktier.certify.plan.installed_reference", lambda: "0.0.1")
    changed = prepare(tmp_path).plan
    assert len(found | {changed.digest}) == 8
    assert {d["path"] for d in differences(plain.document, changed.document)} == {
        "engine", "reference.version", "suites.words.version"
    }  # fmt: skip


def test_an_edited_plan_is_refused(tmp_path: Path) -> None:
    document = prepare(tmp_path).plan.document
    for edited in (document | {"seed": 5}, document | {"suites": []}, {}, [], None, document | {"digest": "0" * 64}):
        with pytest.raises(EvidenceInvalid):
            read_plan(edited, "plan.json")


@pytest.mark.parametrize(
    "change",
    [
        {"seed": "0"},
        {"backend": "hf"},
        {"backend": 5},
        {"corpora": 5},
        {"artifact": {"sha256": "0" * 64}},
        {"engine": "\x1b[31m"},
        {"level": "deep"},
    ],
)
def test_a_plan_that_nobody_makes_is_refused_although_its_digest_holds(tmp_path: Path, change: dict[str, Any]) -> None:
    assert read_plan(resealed(tmp_path), "plan.json").blocks == 21
    with pytest.raises(EvidenceInvalid):
        read_plan(resealed(tmp_path, **change), "plan.json")


@pytest.mark.parametrize("change", [{"blocks": 10**15}, {"facts": None}, {"name": "a\nb"}, {"why": "\x1b[31m"}])
def test_a_suite_that_nobody_plans_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    suites = prepare(tmp_path).plan.document["suites"]
    with pytest.raises(EvidenceInvalid):
        read_plan(resealed(tmp_path, suites=[{**suites[0], **change}, *suites[1:]]), "plan.json")


def resealed(tmp_path: Path, **changes: Any) -> dict[str, Any]:
    content = {**prepare(tmp_path).plan.document, **changes}
    del content["digest"]
    return {**content, "digest": document_digest(TAG_CERTIFY_PLAN, content)}


def test_every_block_is_located_once(tmp_path: Path) -> None:
    plan = prepare(tmp_path).plan
    located = [plan.locate(index) for index in range(plan.blocks)]
    assert located == [(s, b) for s, suite in enumerate(plan.suites) for b in range(suite.blocks)]
    assert [list(plan.range_of(s)) for s in range(3)] == [list(range(13)), list(range(13, 21)), []]


@given(total=st.integers(0, 500), count=st.integers(1, 60))
def test_shards_are_the_whole_without_overlap(total: int, count: int) -> None:
    parts = [Shard(k, count).range_of(total) for k in range(1, count + 1)]
    assert [index for part in parts for index in part] == list(range(total))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "1/0", "a/b", "-1/3", "1/3/5", "", "1 /3"])
def test_what_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_shard(text)
    assert parse_shard("3/3") == Shard(3, 3)
