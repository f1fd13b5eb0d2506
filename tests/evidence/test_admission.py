"""Statuses: evidence counts for the engine, the reference version and the code paths that it names, and no other."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from tests.support.evidence_documents import evidence_document
from toktier.certify.evidence import build_facts as facts_of_a_run
from toktier.errors import RegistryInvalid
from toktier.evidence import admission as module
from toktier.evidence import local, registry, registry_entry
from toktier.evidence.admission import Finding, admission
from toktier.evidence.registry import Registry
from toktier.program import engine_identity
from toktier.program.engine_identity import build_facts
from toktier.routing.vocabulary import BackendId, Reason, Status

SHA, PRINT, OTHER = "ab" * 32, "cd" * 32, "0" * 64
NAMES = ("something", "another")
FILE, RECORD = "fast_cpu-0.23.3.json", b'{"what": "a record of evidence"}'
EMPTY = registry.parse_registry(
    registry.sealed({"schema": registry.SCHEMA, "schema_version": 1, "engine_identity": None, "rows": []})
)


@pytest.fixture(autouse=True)
def evidence(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The evidence that entries of `table` name, in place of what is shipped."""
    root = tmp_path_factory.mktemp("evidence")
    for name in NAMES:
        (root / name).mkdir()
        (root / name / FILE).write_bytes(RECORD)
    monkeypatch.setattr(registry_entry, "evidence_root", lambda: root)
    return root


def entry_of(**changes: Any) -> dict[str, Any]:
    """An entry that certifies for the engine at hand, with some members changed."""
    return {
        "status": "certified",
        "evidence": "e" * 64,
        "passed_now": "e" * 64,
        "level": "standard",
        "engine_identity": engine_identity.engine_identity(),
        "carried_from": None,
        "dispatch_levels": build_facts()["dispatch_levels"],
        "files": {FILE: hashlib.sha256(RECORD).hexdigest()},
        "readings": {"documents": 1234},
        "note": None,
        **changes,
    }


def row_of(entry: Any, sha256: str = SHA, fingerprint: str = PRINT, name: str = NAMES[0]) -> dict[str, Any]:
    artifact = {"name": name, "family": None, "sha256": sha256, "fingerprint": fingerprint}
    return {"artifact": artifact, "backend": "fast_cpu", "references": {"0.23.3": entry}}


def table_of(*rows: dict[str, Any]) -> Registry:
    document = {"schema": registry.SCHEMA, "schema_version": 1, "engine_identity": OTHER, "rows": list(rows)}
    return registry.parse_registry(registry.sealed(document))


def table(**changes: Any) -> Registry:
    """A registry that certifies SHA for the engine at hand beside 0.23.3, with some members of the entry changed."""
    return table_of(row_of(entry_of(**changes)))


def finding(
    known: Registry = EMPTY,
    state: Path | None = None,
    sha256: str = SHA,
    fingerprint: str | None = PRINT,
    version: str | None = "0.23.3",
) -> Finding:
    return admission(sha256, fingerprint, version, state, known).finding(BackendId.FAST_CPU)


def test_a_row_of_the_engine_at_hand_certifies() -> None:
    found = finding(table())
    assert (found.status, found.source, found.basis, found.reason) == (Status.CERTIFIED, "registry", "identical", None)
    assert (found.level, found.readings, found.evidence) == ("standard", {"documents": 1234}, "e" * 64)
    assert "1,234 texts" in found.summary


def test_the_same_tokenizer_in_other_bytes_is_certified_as_equivalent() -> None:
    found = finding(table(), sha256=OTHER)
    assert (found.status, found.basis, found.artifact_sha256) == (Status.CERTIFIED, "equivalent", SHA)
    assert SHA[:12] in found.summary
    assert finding(table(), sha256=OTHER, fingerprint="1" * 64).status is Status.UNTESTED
    assert finding(table(), sha256=OTHER, fingerprint=None).status is Status.UNTESTED


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"engine_identity": OTHER}, Reason.ENGINE_BINDING_MISMATCH),
        ({"status": "untested", "note": "recertify"}, Reason.ENGINE_BINDING_MISMATCH),
        ({"dispatch_levels": ["other"]}, Reason.ENGINE_BINDING_MISMATCH),
        ({"dispatch_levels": []}, Reason.ENGINE_BINDING_MISMATCH),
    ],
)
def test_a_row_of_anything_else_does_not(changes: dict[str, Any], reason: Reason) -> None:
    found = finding(table(**changes))
    assert (found.status, found.reason) == (Status.UNTESTED, reason)


def test_another_reference_version_is_another_question() -> None:
    found = finding(table(), version="0.22.2")
    assert (found.status, found.reason) == (Status.UNTESTED, None)
    assert "0.22.2" in found.summary
    assert finding(table(), version=None).status is Status.UNTESTED


def test_python_that_the_module_was_not_built_with_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {**engine_identity.python_digests(), "toktier/program/compile.py": OTHER}
    known = table()
    monkeypatch.setattr(engine_identity, "python_digests", lambda: files)
    monkeypatch.setattr(engine_identity, "engine_identity", engine_identity.engine_identity.__wrapped__)
    found = finding(known)
    assert (found.status, found.reason) == (Status.UNTESTED, Reason.ENGINE_BINDING_MISMATCH)
    assert "built with other sources" in found.summary


def test_a_carried_record_says_so() -> None:
    assert f"carried from engine {'9' * 12}" in finding(table(carried_from="9" * 64)).summary


def test_evidence_of_this_host_certifies_locally_until_engine_or_reference_change(tmp_path: Path) -> None:
    assert finding(state=tmp_path).status is Status.UNTESTED
    given = evidence_document(sha256=SHA, fingerprint=PRINT)
    local.store(given, tmp_path)
    found = finding(state=tmp_path)
    assert (found.status, found.source, found.evidence) == (Status.LOCALLY_CERTIFIED, "local", given["digest"])
    assert finding(state=tmp_path, sha256=OTHER).basis == "equivalent"
    assert finding(state=tmp_path, version="0.22.2").status is Status.UNTESTED
    local.store(evidence_document(sha256=SHA, fingerprint=PRINT, engine=OTHER), tmp_path)
    found = finding(state=tmp_path)
    assert (found.status, found.reason) == (Status.UNTESTED, Reason.ENGINE_BINDING_MISMATCH)


def test_shipped_evidence_goes_before_that_of_the_host_and_a_stale_row_after_it(tmp_path: Path) -> None:
    local.store(evidence_document(sha256=SHA, fingerprint=PRINT), tmp_path)
    assert finding(table(), tmp_path).status is Status.CERTIFIED
    assert finding(table(engine_identity=OTHER), tmp_path).status is Status.LOCALLY_CERTIFIED
    local.store(evidence_document(sha256=SHA, fingerprint=PRINT, engine="9" * 64), tmp_path)
    assert finding(table(engine_identity=OTHER), tmp_path).source == "registry"


def test_evidence_that_others_could_write_is_named_and_does_not_count(tmp_path: Path) -> None:
    local.store(evidence_document(sha256=SHA, fingerprint=PRINT), tmp_path).chmod(0o666)
    found = finding(state=tmp_path)
    assert found.status is Status.UNTESTED
    assert "somebody else could have written it" in found.summary


def test_a_damaged_registry_certifies_nothing_not_even_what_the_host_certified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged() -> Registry:
        raise RegistryInvalid("the support registry x is damaged: y")

    local.store(evidence_document(sha256=SHA, fingerprint=PRINT), tmp_path)
    monkeypatch.setattr(module, "shipped_registry", damaged)
    known = admission(SHA, PRINT, "0.23.3", tmp_path)
    found = known.finding(BackendId.FAST_CPU)
    assert (found.status, found.reason) == (Status.UNTESTED, Reason.REGISTRY_INVALID)
    assert known.registry is not None


INVALID = {
    "an unknown status": {"status": "certain"},
    "a status of another kind": {"status": ["certified"]},
    "an unknown level": {"level": "thorough"},
    "no digest of evidence": {"evidence": "e" * 63},
    "no digest of the newest record": {"passed_now": None},
    "no identity": {"engine_identity": "A" * 64},
    "no digest of what is carried": {"carried_from": "yes"},
    "no list of code paths": {"dispatch_levels": "baseline"},
    "code paths that are no names": {"dispatch_levels": [1]},
    "no counts": {"readings": {"documents": "many"}},
    "a count below zero": {"readings": {"documents": -1}},
    "no readings": {"readings": None},
    "a note that is no text": {"note": 5},
    "not certified without a reason": {"status": "untested"},
    "no files": {"files": {}},
    "a file that is not the record": {"files": {"other.json": "0" * 64}},
    "a path out of the directory": {"files": {FILE: hashlib.sha256(RECORD).hexdigest(), "../x": "0" * 64}},
    "another digest of the file": {"files": {FILE: "0" * 64}},
    "a file that is not there": {"files": {FILE: hashlib.sha256(RECORD).hexdigest(), "more.json": "0" * 64}},
}  # fmt: skip


@pytest.mark.parametrize("changes", INVALID.values(), ids=INVALID)
def test_an_entry_that_does_not_hold_is_refused_and_the_others_are_believed(changes: Any, tmp_path: Path) -> None:
    sound = row_of(entry_of(), OTHER, "1" * 64, NAMES[1])
    local.store(evidence_document(sha256=SHA, fingerprint=PRINT), tmp_path)
    known = table_of(row_of(entry_of(**changes)), sound)
    found = finding(known, tmp_path)
    assert (found.status, found.reason) == (Status.UNTESTED, Reason.REGISTRY_INVALID)
    assert "does not hold" in found.summary
    assert finding(known, sha256=OTHER, fingerprint="1" * 64).status is Status.CERTIFIED


@pytest.mark.parametrize("member", sorted(entry_of()))
def test_an_entry_that_lacks_a_member_is_refused(member: str) -> None:
    entry = entry_of()
    del entry[member]
    found = finding(table_of(row_of(entry)))
    assert (found.status, found.reason) == (Status.UNTESTED, Reason.REGISTRY_INVALID)


@pytest.mark.parametrize("entry", [None, 5, [], "certified", {}])
def test_what_is_no_entry_is_refused(entry: Any) -> None:
    assert finding(table_of(row_of(entry))).reason is Reason.REGISTRY_INVALID


@pytest.mark.parametrize("references", [None, 5, [], "0.23.3"])
def test_a_row_without_entries_is_refused(references: Any) -> None:
    known = table_of({**row_of(entry_of()), "references": references})
    assert finding(known).reason is Reason.REGISTRY_INVALID


@pytest.mark.parametrize("fault", ["edited", "missing", "directory", "longer"])
def test_evidence_that_is_not_what_the_row_was_made_from_takes_its_own_row_and_no_other(
    evidence: Path, fault: str
) -> None:
    known = table_of(row_of(entry_of()), row_of(entry_of(), OTHER, "1" * 64, NAMES[1]))
    assert finding(known).status is Status.CERTIFIED
    path = evidence / NAMES[0] / FILE
    if fault == "edited":
        path.write_bytes(RECORD.replace(b"a record", b"A record"))
    elif fault == "longer":
        path.write_bytes(RECORD + b" ")
    else:
        path.unlink()
    if fault == "directory":
        path.mkdir()
    found = finding(known)
    assert (found.status, found.reason) == (Status.UNTESTED, Reason.REGISTRY_INVALID)
    assert FILE in found.summary
    assert finding(known, sha256=OTHER, fingerprint="1" * 64).status is Status.CERTIFIED


def test_a_gpu_is_unjudged_and_an_empty_registry_is_none() -> None:
    known = admission(SHA, PRINT, "0.23.3", None, EMPTY)
    assert known.registry is None
    assert known.status(BackendId.GPU) is Status.COMPILED_UNJUDGED
    assert table().root_digest == admission(SHA, PRINT, "0.23.3", None, table()).registry


def test_the_code_paths_here_are_those_that_evidence_of_this_host_names() -> None:
    assert facts_of_a_run()["dispatch_levels"] == ", ".join(build_facts()["dispatch_levels"])


def test_looking_writes_nothing(tmp_path: Path) -> None:
    local.store(evidence_document(sha256=SHA, fingerprint=PRINT), tmp_path)
    before = sorted((p, p.stat().st_mtime_ns) for p in tmp_path.rglob("*"))
    assert finding(state=tmp_path).status is Status.LOCALLY_CERTIFIED
    assert sorted((p, p.stat().st_mtime_ns) for p in tmp_path.rglob("*")) == before
