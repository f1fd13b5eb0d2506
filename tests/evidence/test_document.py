"""Evidence is believed as far as its digests, its counts and its form hold, and no further."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.evidence_documents import COUNTS, evidence_document, sealed
from toktier.certify.levels import Level
from toktier.errors import EvidenceInvalid
from toktier.evidence import document
from toktier.program.engine_identity import build_facts, engine_identity

Change = Callable[[dict[str, Any]], Any]


def test_what_is_read_is_what_was_written() -> None:
    given = evidence_document(level="standard", name="qwen3_8b")
    read = document.read(json.dumps(given).encode(), "x")
    assert read.passed
    assert (read.digest, read.engine, read.level) == (given["digest"], engine_identity(), "standard")
    assert (read.artifact_sha256, read.fingerprint, read.artifact_name) == ("ab" * 32, "cd" * 32, "qwen3_8b")
    assert (read.backend, read.reference_version) == ("fast_cpu", "0.23.3")
    assert read.readings == {key: 2 * value for key, value in COUNTS.items()}
    assert read.suites == ("one", "two")
    assert list(read.dispatch_levels) == build_facts()["dispatch_levels"]


def test_the_levels_are_those_of_certification() -> None:
    assert tuple(level.value for level in Level) == document.LEVELS


EDITS: list[tuple[str, Change]] = [
    ("outcome", lambda d: d.update(outcome="failed")),
    ("a count", lambda d: d["totals"].update(documents=1000)),
    ("engine", lambda d: d["plan"].update(engine="0" * 64)),
    ("reference", lambda d: d["plan"]["reference"].update(version="0.22.2")),
    ("artifact", lambda d: d["plan"]["artifact"].update(sha256="0" * 64)),
    ("build", lambda d: d["build"].update(flags="-O0")),
    ("a new member", lambda d: d.update(approved=True)),
]


@pytest.mark.parametrize("change", [change for _, change in EDITS], ids=[name for name, _ in EDITS])
def test_an_edit_is_seen(change: Change) -> None:
    given = copy.deepcopy(evidence_document())
    change(given)
    with pytest.raises(EvidenceInvalid, match="digest"):
        document.of_document(given, "x")


def test_time_and_host_may_change() -> None:
    given = evidence_document()
    assert document.of_document({**given, "environment": {"host": "elsewhere"}}, "x").digest == given["digest"]


# Edits with digests made anew: "passed" must follow from the counts.
FALSE_PASSES: list[tuple[str, Change]] = [
    ("a mismatch", lambda d: d["suites"][0]["counts"].update(mismatches=1)),
    ("a block missing", lambda d: d["suites"][1].update(blocks_done=1)),
    ("nothing checked", lambda d: d["suites"][0]["counts"].update(checks=0)),
    ("all routed", lambda d: d["suites"][0]["counts"].update(routed=12)),
    ("other sums", lambda d: d["totals"].update(ids=1)),
    ("a reason against", lambda d: d.update(reasons=[{"code": "fault"}])),
    ("a suite less", lambda d: d["suites"].pop()),
    ("no suite", lambda d: d.update(suites=[], totals=dict.fromkeys(COUNTS, 0), plan={**d["plan"], "suites": []})),
    ("a negative count", lambda d: d["totals"].update(ids=-1)),
    ("a count that is no number", lambda d: d["totals"].update(ids=True)),
]  # fmt: skip


@pytest.mark.parametrize("change", [change for _, change in FALSE_PASSES], ids=[name for name, _ in FALSE_PASSES])
def test_a_pass_that_its_counts_do_not_bear_out_is_refused(change: Change) -> None:
    given = copy.deepcopy(evidence_document())
    change(given)
    with pytest.raises(EvidenceInvalid):
        document.of_document(sealed(given), "x")


def test_a_failed_run_is_evidence_of_no_pass() -> None:
    given = evidence_document()
    given["outcome"] = "failed"
    assert not document.of_document(sealed(given), "x").passed


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(schema="toktier.other"),
        lambda d: d.update(schema_version=2),
        lambda d: d["plan"].update(level="some"),
        lambda d: d["plan"].update(engine="../x"),
        lambda d: d["plan"].update(backend="other"),
        lambda d: d["plan"]["reference"].update(version="../../x"),
        lambda d: d["plan"]["reference"].update(package="other"),
        lambda d: d["plan"].pop("artifact"),
        lambda d: d.update(plan={}),
        lambda d: d.update(suites=None),
        lambda d: d.update(build=None),
    ],
)
def test_another_form_is_refused(change: Change) -> None:
    given = copy.deepcopy(evidence_document())
    change(given)
    with pytest.raises(EvidenceInvalid, match="no evidence that can be believed"):
        document.of_document(sealed(given), "x")


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"null", b"{}", b"\xff", b"[" * 100_000, b'{"schema": "toktier.evidence"}']
)
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(EvidenceInvalid):
        document.read(data, "x")


def test_size_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "MAX_BYTES", 10)
    with pytest.raises(EvidenceInvalid, match="more than"):
        document.read(json.dumps(evidence_document()).encode(), "x")
