"""Evidence of kernels counts for exactly those, on exactly that compute capability, and for nothing before a driver was
asked but hope."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.evidence_documents import evidence_document, gpu_evidence_document, sealed
from toktier.errors import EvidenceInvalid, RegistryInvalid
from toktier.evidence import admission as module
from toktier.evidence import document, local, registry, registry_entry
from toktier.evidence.admission import Finding, admission
from toktier.evidence.kernels import Kernels, KernelsHere, read_kernels
from toktier.evidence.registry import Registry
from toktier.program.engine_identity import build_facts, engine_identity
from toktier.routing.vocabulary import BackendId, Reason, Status

SHA, PRINT, OTHER = "ab" * 32, "cd" * 32, "0" * 64
KERNELS = Kernels("1" * 64, 1, "sm_90", "9.0", "2" * 64, "3" * 64)
EMPTY = registry.parse_registry(
    registry.sealed({"schema": registry.SCHEMA, "schema_version": 1, "engine_identity": None, "rows": []})
)


def finding(
    known: Registry = EMPTY,
    state: Path | None = None,
    kernels: Kernels | None = KERNELS,
    listed: bool = True,
    sha256: str = SHA,
    version: str | None = "0.23.3",
) -> Finding:
    here = None if kernels is None else KernelsHere(kernels, listed)
    return admission(sha256, PRINT, version, state, known, gpu=True, kernels=here).finding(BackendId.GPU)


def stored(state: Path, kernels: Kernels = KERNELS, **more: Any) -> dict[str, Any]:
    given = gpu_evidence_document(kernels.to_dict(), sha256=SHA, fingerprint=PRINT, **more)
    local.store(given, state)
    return given


def test_without_evidence_the_digest_decides() -> None:
    assert finding(kernels=None).status is Status.COMPILED_UNJUDGED
    found = finding()
    assert (found.status, found.reason) == (Status.COMPILED_UNJUDGED, Reason.SM_UNCERTIFIED)
    assert "9.0" in found.summary
    found = finding(listed=False)
    assert (found.status, found.reason) == (Status.EXPERIMENTAL, Reason.KERNEL_DIGEST_MISMATCH)
    assert finding(version=None, listed=False).status is Status.EXPERIMENTAL


def test_evidence_of_this_host_counts_for_what_it_names(tmp_path: Path) -> None:
    given = stored(tmp_path)
    found = finding(state=tmp_path)
    assert (found.status, found.source, found.basis) == (Status.LOCALLY_CERTIFIED, "local", "identical")
    assert (found.evidence, found.kernels) == (given["digest"], KERNELS)
    assert finding(state=tmp_path, sha256=OTHER).basis == "equivalent"
    assert finding(state=tmp_path, listed=False).status is Status.LOCALLY_CERTIFIED  # the digest is what it binds
    assert finding(state=tmp_path, version="0.22.2").status is Status.COMPILED_UNJUDGED


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"cubin": OTHER}, Reason.ENGINE_BINDING_MISMATCH),
        ({"host": OTHER}, Reason.ENGINE_BINDING_MISMATCH),
        ({"tables": OTHER}, Reason.ENGINE_BINDING_MISMATCH),
        ({"abi": 2}, Reason.ENGINE_BINDING_MISMATCH),
        ({"compute_capability": "8.6"}, Reason.SM_UNCERTIFIED),
    ],
)
def test_and_for_nothing_else(tmp_path: Path, change: dict[str, Any], reason: Reason) -> None:
    stored(tmp_path)
    found = finding(state=tmp_path, kernels=replace(KERNELS, **change))
    assert (found.status, found.reason) == (Status.COMPILED_UNJUDGED, reason)
    found = finding(state=tmp_path, kernels=replace(KERNELS, **change), listed=False)
    assert (found.status, found.reason) == (Status.EXPERIMENTAL, Reason.KERNEL_DIGEST_MISMATCH)


def test_another_engine_is_another_question(tmp_path: Path) -> None:
    stored(tmp_path, engine=OTHER)
    found = finding(state=tmp_path)
    assert (found.status, found.reason) == (Status.COMPILED_UNJUDGED, Reason.ENGINE_BINDING_MISMATCH)
    assert finding(state=tmp_path, kernels=None).status is Status.COMPILED_UNJUDGED


def test_before_the_driver_was_asked_evidence_is_a_hope(tmp_path: Path) -> None:
    stored(tmp_path)
    stored(tmp_path, replace(KERNELS, compute_capability="8.6", architecture="sm_86"))
    found = finding(state=tmp_path, kernels=None)
    assert found.status is Status.LOCALLY_CERTIFIED
    assert "sm_86, sm_90" in found.summary
    assert found.evidence is None


def test_each_compute_capability_has_a_file_of_its_own(tmp_path: Path) -> None:
    stored(tmp_path)
    other = replace(KERNELS, compute_capability="12.0", architecture="sm_120", cubin="5" * 64)
    stored(tmp_path, other)
    local.store(evidence_document(sha256=SHA, fingerprint=PRINT), tmp_path)
    names = sorted(path.name for path in (tmp_path / "evidence" / SHA).iterdir())
    assert names == ["fast_cpu.0.23.3.json", "gpu.0.23.3+sm_120.json", "gpu.0.23.3+sm_90.json"]
    assert finding(state=tmp_path, kernels=other).status is Status.LOCALLY_CERTIFIED
    assert finding(state=tmp_path).status is Status.LOCALLY_CERTIFIED
    assert len(local.of_artifact(tmp_path, SHA)) == 3
    assert local.remove(tmp_path, SHA) == 3
    assert finding(state=tmp_path).status is Status.COMPILED_UNJUDGED


def test_a_file_under_another_name_does_not_count(tmp_path: Path) -> None:
    stored(tmp_path)
    directory = tmp_path / "evidence" / SHA
    (directory / "gpu.0.23.3+sm_90.json").rename(directory / "gpu.0.23.3+sm_80.json")
    found = list(local.find_kernels(tmp_path, "0.23.3", SHA, None))
    assert [one.problem for one in found] == ["it is of something else than its name says"]


def test_evidence_of_the_emulator_is_none(tmp_path: Path) -> None:
    given = gpu_evidence_document(KERNELS.to_dict(), sha256=SHA, fingerprint=PRINT)
    given["plan"]["backend"] = "emulator"
    given = sealed({key: value for key, value in given.items() if key != "digest"})
    with pytest.raises(EvidenceInvalid, match="emulator"):
        local.store(given, tmp_path)
    path = tmp_path / "evidence" / SHA / "gpu.0.23.3+sm_90.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(json.dumps(given).encode())
    assert finding(state=tmp_path).status is Status.COMPILED_UNJUDGED


@pytest.mark.parametrize("backend", ["gpu", "fast_cpu"])
def test_evidence_names_kernels_where_it_is_of_a_gpu_and_nowhere_else(backend: str) -> None:
    given = gpu_evidence_document(KERNELS.to_dict()) if backend == "fast_cpu" else evidence_document()
    given["plan"]["backend"] = backend
    with pytest.raises(EvidenceInvalid, match="kernels"):
        document.of_document(sealed({key: value for key, value in given.items() if key != "digest"}), "it")


@pytest.mark.parametrize(
    "change",
    [{"cubin": "x"}, {"abi": "1"}, {"architecture": "x86"}, {"compute_capability": "9"}, {"host": None}, {"more": 1}],
)
def test_kernels_without_form_are_refused(change: Mapping[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        read_kernels({**KERNELS.to_dict(), **change})
    assert read_kernels(KERNELS.to_dict()) == KERNELS


def table(kernels: Any, root: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """A registry that certifies SHA on KERNELS, with evidence beside it."""
    name, data = "gpu-0.23.3+sm_90.json", b"{}"
    (root / "something").mkdir()
    (root / "something" / name).write_bytes(data)
    monkeypatch.setattr(registry_entry, "evidence_root", lambda: root)
    entry = {
        "status": "certified",
        "evidence": "e" * 64,
        "passed_now": "e" * 64,
        "level": "standard",
        "engine_identity": engine_identity(),
        "carried_from": None,
        "dispatch_levels": build_facts()["dispatch_levels"],
        "files": {name: "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"},
        "readings": {"documents": 1234},
        "note": None,
        "kernels": kernels,
    }
    artifact = {"name": "something", "family": None, "sha256": SHA, "fingerprint": PRINT}
    row = {"artifact": artifact, "backend": "gpu", "references": {"0.23.3+sm_90": entry}}
    given = {"schema": registry.SCHEMA, "schema_version": 1, "engine_identity": OTHER, "rows": [row]}
    return registry.parse_registry(registry.sealed(given))


def test_the_registry_certifies_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = table(KERNELS.to_dict(), tmp_path, monkeypatch)
    found = finding(known)
    assert (found.status, found.source, found.level) == (Status.CERTIFIED, "registry", "standard")
    assert finding(known, kernels=None).status is Status.CERTIFIED
    assert finding(known, kernels=replace(KERNELS, tables=OTHER)).status is Status.COMPILED_UNJUDGED
    assert finding(known, version="0.22.2").status is Status.COMPILED_UNJUDGED


@pytest.mark.parametrize("kernels", [None, {}, {**KERNELS.to_dict(), "cubin": "x"}])
def test_an_entry_without_kernels_certifies_nothing(
    kernels: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert finding(table(kernels, tmp_path, monkeypatch)).status is Status.COMPILED_UNJUDGED


def test_a_damaged_registry_leaves_kernels_to_who_takes_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged() -> Registry:
        raise RegistryInvalid("it is damaged")

    monkeypatch.setattr(module, "shipped_registry", damaged)
    found = admission(SHA, PRINT, "0.23.3", None, gpu=True, kernels=KernelsHere(KERNELS, True)).finding(BackendId.GPU)
    assert (found.status, found.reason) == (Status.EXPERIMENTAL, Reason.REGISTRY_INVALID)
