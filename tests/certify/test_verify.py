"""Evidence that is sound verifies; whatever was edited, contradicts itself or is of something else is refused."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.certify import tiny_suites
from tests.certify.tiny_suites import MINI, PlantedSubject, prepare, start
from tests.support.material import SMALL_DIR
from toktier.canonical import TAG_CERTIFY_PLAN, document_digest, evidence_digest
from toktier.certify.evidence import FILE_NAME, read_evidence, to_bytes
from toktier.certify.failures import read_failure
from toktier.certify.outcome import Outcome
from toktier.certify.replay import replay
from toktier.certify.runner import RunOptions, run
from toktier.certify.verify import sample, verify
from toktier.errors import ArtifactHashMismatch, ArtifactNotFound, EvidenceIncomplete, EvidenceInvalid, EvidenceStale

pytestmark = pytest.mark.unsanitized


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that passed; its suites are those of this installation."""
    monkeypatch.setattr("toktier.certify.suites.SUITES", tiny_suites.SUITES)
    prepared = prepare(tmp_path / "home")
    run(prepared, start(prepared, tmp_path / "run"), RunOptions(workers=1))
    return tmp_path / "run"


def subject(tmp_path: Path) -> PlantedSubject:
    return PlantedSubject(MINI, home=tmp_path / "home")


def edited(directory: Path, change: Callable[[dict[str, Any]], object], reseal: bool = True) -> Path:
    """A copy of the evidence, changed; `reseal`: with digests that fit, as a forger would."""
    document = copy.deepcopy(json.loads((directory / FILE_NAME).read_bytes()))
    change(document)
    if reseal:
        plan = {k: v for k, v in document["plan"].items() if k != "digest"}
        document["plan"]["digest"] = document_digest(TAG_CERTIFY_PLAN, plan)
        document["digest"] = evidence_digest(document)
    path = directory.parent / "edited.json"
    path.write_bytes(to_bytes(document))
    return path


def test_a_run_and_its_file_verify_and_a_sample_agrees(directory: Path, tmp_path: Path) -> None:
    assert verify(directory).outcome is Outcome.PASSED
    alone = tmp_path / "alone.json"
    shutil.copy(directory / FILE_NAME, alone)
    found = verify(alone)
    sample(found, subject(tmp_path), 5)
    assert len(found.sampled) == 5
    assert all(block["counts"]["mismatches"] == 0 for block in found.sampled)
    sample(found, subject(tmp_path), 1000)
    assert len(found.sampled) == 5 + tiny_suites.BLOCKS


def test_what_the_environment_says_is_no_part_of_it(directory: Path) -> None:
    path = edited(directory, lambda d: d["environment"].update(host="elsewhere"), reseal=False)
    assert verify(path).outcome is Outcome.PASSED


EDITS: list[Callable[[dict[str, Any]], object]] = [
    lambda d: d["totals"].update(documents=10**9),
    lambda d: d["suites"][0]["counts"].update(checks=10**9),
    lambda d: d["suites"][0].update(blocks_done=3),
    lambda d: d["suites"].pop(),
    lambda d: d["suites"][0].update(name="other"),
    lambda d: d["plan"]["suites"][1].update(blocks=80),
    lambda d: d.update(outcome="failed"),
    lambda d: d.update(reasons=[{"code": "mismatch", "suite": "words", "count": 1, "text": "1 checks differed"}]),
    lambda d: d.update(more=1),
    lambda d: d.pop("build"),
    lambda d: d["totals"].pop("ids"),
    lambda d: d["suites"][0].update(block_digests="xyz"),
    lambda d: d["plan"].update(level="thorough"),
]


@pytest.mark.parametrize("number", range(len(EDITS)))
@pytest.mark.parametrize("reseal", [True, False])
def test_what_was_edited_is_refused(directory: Path, number: int, reseal: bool) -> None:
    path = edited(directory, EDITS[number], reseal)
    with pytest.raises(EvidenceInvalid):
        verify(path)


def test_an_edit_without_new_digests_is_refused_wherever_it_is(directory: Path) -> None:
    with pytest.raises(EvidenceInvalid, match="its digest is not that of its content"):
        verify(edited(directory, lambda d: d["build"].update(compiler="another"), reseal=False))


def test_a_forged_block_is_found_by_the_sample(directory: Path, tmp_path: Path) -> None:
    def forge(document: dict[str, Any]) -> None:
        digests = document["suites"][0]["block_digests"]
        document["suites"][0]["block_digests"] = "0" * 16 + digests[16:]

    found = verify(edited(directory, forge))
    with pytest.raises(EvidenceInvalid, match="block 0 of suite words gives another digest"):
        sample(found, subject(tmp_path), 1000)


def test_forged_facts_are_found_by_the_sample(directory: Path, tmp_path: Path) -> None:
    found = verify(edited(directory, lambda d: d["plan"]["suites"][0]["facts"].update(words=11)))
    with pytest.raises(EvidenceStale, match=r"suites\.words\.facts\.words differs"):
        sample(found, subject(tmp_path), 1)


def test_evidence_in_a_run_that_is_not_of_its_blocks_is_refused(directory: Path) -> None:
    from toktier.certify import checkpoint

    shutil.copy(edited(directory, lambda d: d["suites"][0].update(digest="0" * 64)), directory / FILE_NAME)
    with pytest.raises(EvidenceInvalid, match="was changed"):
        verify(directory)
    checkpoint.seal(directory)
    with pytest.raises(EvidenceInvalid, match="not what its blocks give"):
        verify(directory)
    (directory / checkpoint.COMPLETE).unlink()
    with pytest.raises(EvidenceIncomplete):
        verify(directory)


def test_another_engine_or_reference_is_stale_and_says_what_differs(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toktier.certify.verify.installed_reference", lambda: "9.9.9")
    with pytest.raises(EvidenceStale, match=r"reference was .*, installed is 9\.9\.9") as stale:
        verify(directory)
    assert [entry["path"] for entry in stale.value.details["differs"]] == ["reference"]


def test_the_artifact_must_be_the_one(directory: Path, tmp_path: Path) -> None:
    other = PlantedSubject(SMALL_DIR / "llama_like.json", home=tmp_path / "home")
    with pytest.raises(ArtifactHashMismatch):
        sample(verify(directory), other, 1)


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"schema":"toktier.evidence"}\n']
)
def test_what_is_no_evidence_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "e.json"
    path.write_bytes(content)
    with pytest.raises(EvidenceInvalid):
        read_evidence(path)
    with pytest.raises(ArtifactNotFound):
        read_evidence(tmp_path / "absent")


def test_a_failure_replays_until_it_is_mended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toktier.certify.suites.SUITES", tiny_suites.SUITES)
    for fault in ("ids", "value"):
        monkeypatch.setenv("TINY_FAULT", fault)
        prepared = prepare(tmp_path / "home")
        report = run(prepared, start(prepared, tmp_path / fault), RunOptions(workers=1))
        document = read_failure(Path(report.failures[0][0]))
        again = replay(document, subject(tmp_path))
        assert again["differs"]
        if fault == "value":
            assert (again["got"], again["expected"]) == ("4", "3")
        else:
            assert again["comparison"] == document["comparison"]
        monkeypatch.setenv("TINY_FAULT", "")
        assert not replay(document, subject(tmp_path))["differs"]
        with pytest.raises(ArtifactHashMismatch):
            replay(document | {"artifact": {"sha256": "0" * 64}}, subject(tmp_path))


def test_what_is_no_failure_is_refused(tmp_path: Path, directory: Path) -> None:
    for content in (b"", b"{}", b"[1]", (directory / FILE_NAME).read_bytes(), b'{"schema":"toktier.certify_failure"}'):
        path = tmp_path / "f.json"
        path.write_bytes(content)
        with pytest.raises(EvidenceInvalid):
            read_failure(path)
