"""What evidence says of one tokenizer on this installation: a status for each backend, its source, and why not more.

A row of the registry or a file of local evidence counts for the engine identity, the reference version and the code
paths that it names, and for no other. The same tokenizer is the same bytes or the same fingerprint; the latter is told
as `equivalent`, with the digest of the bytes that were certified. Of a GPU it counts for the kernels and the compute
capability that it names (`gpu_admission`). Not here: what a policy admits (`toktier.routing`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from toktier.errors import RegistryInvalid
from toktier.evidence import local, registry_entry
from toktier.evidence.kernels import Kernels, KernelsHere
from toktier.evidence.registry import Registry, shipped_registry
from toktier.program import engine_identity
from toktier.program.store import installed_engine
from toktier.routing.vocabulary import THIRD_PARTY, BackendId, Reason, Status


@dataclass(frozen=True, slots=True)
class Finding:
    """`summary`: one clause for people. `reason`: why the status is not a certified one, where more can be said than
    that no evidence is there. `source`: "registry" or "local"; `basis`: "identical" or "equivalent" to the artifact
    `artifact_sha256` that the evidence `evidence` (a digest) is about. `readings`: counts of what was compared."""

    status: Status
    summary: str
    reason: Reason | None = None
    source: str | None = None
    basis: str | None = None
    artifact_sha256: str | None = None
    evidence: str | None = None
    level: str | None = None
    engine: str | None = None
    reference_version: str | None = None
    readings: Mapping[str, int] | None = None
    carried_from: str | None = None
    kernels: Kernels | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "status": self.status.value,
            "summary": self.summary,
            "reason": None if self.reason is None else self.reason.value,
            "source": self.source,
            "basis": self.basis,
            "artifact_sha256": self.artifact_sha256,
            "evidence": self.evidence,
            "level": self.level,
            "engine_identity": self.engine,
            "reference_version": self.reference_version,
            "readings": None if self.readings is None else dict(self.readings),
            "carried_from": self.carried_from,
            "kernels": None if self.kernels is None else self.kernels.to_dict(),
        }


@dataclass(frozen=True)
class Admission:
    """`registry`: root digest of the table, None while it has no row; `findings` by backend."""

    registry: str | None = None
    findings: Mapping[BackendId, Finding] = field(default_factory=dict)

    def finding(self, backend: BackendId) -> Finding:
        found = self.findings.get(backend)
        if found is not None:
            return found
        if backend in THIRD_PARTY:
            return Finding(Status.EXPERIMENTAL, "it is an engine of others, which no evidence admits")
        gpu = backend is BackendId.GPU
        return Finding(Status.COMPILED_UNJUDGED if gpu else Status.UNTESTED, "no evidence speaks about this tokenizer")

    def status(self, backend: BackendId) -> Status:
        return self.finding(backend).status


def admission(
    sha256: str,
    fingerprint: str | None,
    reference_version: str | None,
    state_dir: Path | None,
    registry: Registry | None = None,
    *,
    programs_dir: Path | None = None,
    gpu: bool = False,
    kernels: KernelsHere | None = None,
) -> Admission:
    """What is known of the tokenizer with these digests. `fingerprint` None: it did not compile. `registry` None: the
    shipped one. Never raises: a damaged registry is a finding, and nothing is certified then; an entry of it that does
    not hold is one of that tokenizer alone. Evidence of this host mends neither. `programs_dir`: holds the note that
    spares a load the hashing of the engine (`toktier.program.installation`). `gpu`: there is a device to ask about;
    `kernels`: those at hand, None while its driver was not asked."""
    if registry is None:
        try:
            registry = shipped_registry()
        except RegistryInvalid as error:
            broken = Finding(Status.UNTESTED, error.message, Reason.REGISTRY_INVALID)
            # No policy but experimental takes kernels of which nothing can be known.
            unknown = replace(broken, status=Status.EXPERIMENTAL)
            return Admission("invalid", {BackendId.FAST_CPU: broken, BackendId.GPU: unknown})
    root = registry.root_digest if registry.rows else None
    findings: dict[BackendId, Finding] = {}
    if gpu:
        from toktier.evidence.gpu_admission import gpu_finding

        findings[BackendId.GPU] = gpu_finding(
            registry, state_dir, sha256, fingerprint, reference_version, installed_engine(programs_dir), kernels
        )
    if reference_version is None:
        return Admission(root, findings)
    backend = BackendId.FAST_CPU
    shipped = _shipped(registry, backend, sha256, fingerprint, reference_version, programs_dir)
    refused = shipped is not None and shipped.reason is Reason.REGISTRY_INVALID
    if not refused and (shipped is None or shipped.status is not Status.CERTIFIED):
        own = _local(state_dir, backend, sha256, fingerprint, reference_version, programs_dir)
        shipped = own if own is not None and (shipped is None or own.status is not Status.UNTESTED) else shipped
    if shipped is not None:
        findings[backend] = shipped
    return Admission(root, findings)


def _shipped(
    registry: Registry,
    backend: BackendId,
    sha256: str,
    fingerprint: str | None,
    version: str,
    programs_dir: Path | None,
) -> Finding | None:
    row = registry.row(backend, sha256, fingerprint)
    if row is None:
        return None
    references = row.get("references")
    if isinstance(references, Mapping) and version not in references:
        return Finding(Status.UNTESTED, f"the registry has no evidence of it beside tokenizers {version}")
    problem = registry_entry.form_problem(row, version) or registry_entry.evidence_problem(row, version)
    if problem is not None:
        summary = f"the registry's entry of it beside tokenizers {version} does not hold: {problem}"
        return Finding(Status.UNTESTED, summary, Reason.REGISTRY_INVALID, source="registry")
    entry = row["references"][version]
    about = {
        "source": "registry",
        "basis": "identical" if row["artifact"]["sha256"] == sha256 else "equivalent",
        "artifact_sha256": row["artifact"]["sha256"],
        "evidence": entry["evidence"],
        "level": entry["level"],
        "engine": entry["engine_identity"],
        "reference_version": version,
        "readings": entry["readings"],
        "carried_from": entry["carried_from"],
    }
    if entry["status"] != Status.CERTIFIED:
        return Finding(Status.UNTESTED, f"registry: {entry['note']}", Reason.ENGINE_BINDING_MISMATCH, **about)
    return _bound(Status.CERTIFIED, entry["dispatch_levels"], about, programs_dir)


def _local(
    state_dir: Path | None,
    backend: BackendId,
    sha256: str,
    fingerprint: str | None,
    version: str,
    programs_dir: Path | None,
) -> Finding | None:
    found = None if state_dir is None else local.find(state_dir, backend, version, sha256, fingerprint)
    if found is None:
        return None
    told = found.evidence
    if told is None:
        return Finding(Status.UNTESTED, f"evidence of this host does not count: {found.problem}", source="local")
    if not told.passed:
        return Finding(Status.UNTESTED, "evidence of this host is of a run that did not pass", source="local")
    about = {
        "source": "local",
        "basis": "identical" if told.artifact_sha256 == sha256 else "equivalent",
        "artifact_sha256": told.artifact_sha256,
        "evidence": told.digest,
        "level": told.level,
        "engine": told.engine,
        "reference_version": version,
        "readings": told.readings,
    }
    return _bound(Status.LOCALLY_CERTIFIED, told.dispatch_levels, about, programs_dir)


def _bound(status: Status, levels: Any, about: dict[str, Any], programs_dir: Path | None) -> Finding:
    """`status` where the evidence is of the engine at hand, on code paths that it takes; else untested."""
    where = "the registry" if about["source"] == "registry" else "this host"
    installed, facts = installed_engine(programs_dir), engine_identity.build_facts()
    if about["engine"] != installed:
        summary = f"evidence of {where} is of the engine {about['engine'][:12]}, "
        if facts["identity"] == installed:
            summary += f"installed is {installed[:12]}"
        else:
            summary += "and the native module here was built with other sources than lie beside it"
        return Finding(Status.UNTESTED, summary, Reason.ENGINE_BINDING_MISMATCH, **about)
    other = sorted(set(facts["dispatch_levels"]) - set(levels))
    if other:
        summary = f"evidence of {where} does not cover the code path {', '.join(other)}"
        return Finding(Status.UNTESTED, summary, Reason.ENGINE_BINDING_MISMATCH, **about)
    summary = f"evidence of {where}, level {about['level']}, {about['readings']['documents']:,} texts"
    if about["basis"] == "equivalent":
        summary += f", equivalent to {about['artifact_sha256'][:12]}"
    if about.get("carried_from"):
        summary += f", carried from engine {about['carried_from'][:12]}"
    return Finding(status, summary, **about)
