"""Statuses: evidence counts for the engine, the reference version and the code paths that it names, and no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.evidence_documents import evidence_document
from toktier.errors import RegistryInvalid
from toktier.evidence import admission as module
from toktier.evidence import local, registry
from toktier.evidence.admission import Finding, admission
from toktier.evidence.registry import Registry
from toktier.program import engine_identity
from toktier.program.engine_identity import build_facts
from toktier.routing.vocabulary import BackendId, Reason, Status

SHA, PRINT, OTHER = "ab" * 32, "cd" * 32, "0" * 64
EMPTY = registry.parse_registry(
    registry.sealed({"schema": registry.SCHEMA, "schema_version": 1, "engine_identity": None, "rows": []})
)


def table(**changes: Any) -> Registry:
    """A registry that certifies SHA for the engine at hand beside 0.23.3, with some members of the entry changed."""
    entry = {
        "status": "certified",
        "evidence": "e" * 64,
        "level": "standard",
        "engine_identity": engine_identity.engine_identity(),
        "carried_from": None,
        "dispatch_levels": ["baseline"],
        "readings": {"documents": 1234},
        "note": None,
        **changes,
    }
    row = {"artifact": {"sha256": SHA, "fingerprint": PRINT}, "backend": "fast_cpu", "references": {"0.23.3": entry}}
    document = {"schema": registry.SCHEMA, "schema_version": 1, "engine_identity": OTHER, "rows": [row]}
    return registry.parse_registry(registry.sealed(document))


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


def test_a_gpu_is_unjudged_and_an_empty_registry_is_none() -> None:
    known = admission(SHA, PRINT, "0.23.3", None, EMPTY)
    assert known.registry is None
    assert known.status(BackendId.GPU) is Status.COMPILED_UNJUDGED
    assert table().root_digest == admission(SHA, PRINT, "0.23.3", None, table()).registry


def test_the_code_paths_here_are_those_that_evidence_of_this_host_names() -> None:
    assert build_facts()["dispatch_levels"] == ["baseline"]


def test_looking_writes_nothing(tmp_path: Path) -> None:
    local.store(evidence_document(sha256=SHA, fingerprint=PRINT), tmp_path)
    before = sorted((p, p.stat().st_mtime_ns) for p in tmp_path.rglob("*"))
    assert finding(state=tmp_path).status is Status.LOCALLY_CERTIFIED
    assert sorted((p, p.stat().st_mtime_ns) for p in tmp_path.rglob("*")) == before
