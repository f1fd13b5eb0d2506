"""What evidence says of one tokenizer on the kernels and the device at hand.

Evidence counts where kernels, host side, device tables, compute capability, engine and reference are those that it
names. Without it, kernels whose digest is listed are *compiled_unjudged*: built reproducibly, run under the emulator,
judged on no device. Others are *experimental*. Before the driver was asked no kernels are at hand: then the finding is
provisional, and says whether there is evidence that could count. Not here: the CPU engine (`admission`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from toktier.evidence import local, registry_entry
from toktier.evidence.admission import Finding
from toktier.evidence.kernels import Kernels, KernelsHere, read_kernels
from toktier.evidence.registry import Registry
from toktier.routing.vocabulary import BackendId, Reason, Status


def gpu_finding(
    registry: Registry,
    state_dir: Path | None,
    sha256: str,
    fingerprint: str | None,
    reference_version: str | None,
    engine: str,
    here: KernelsHere | None,
) -> Finding:
    """The finding; never raises. `engine`: identity of the one that is installed."""
    known = list(_records(registry, state_dir, sha256, fingerprint, reference_version or "none"))
    current = [one for one in known if one.engine == engine and one.kernels is not None]
    if here is None:
        return _provisional(current, known)
    for one in current:
        assert one.kernels is not None
        if one.kernels.differs(here.kernels) is None:
            return one
    if not here.listed:
        text = f"the cubin {here.kernels.cubin[:12]} is none of those that the sources of this version give"
        return Finding(Status.EXPERIMENTAL, text, Reason.KERNEL_DIGEST_MISMATCH, kernels=here.kernels)
    text, reason = _why_not(here.kernels, engine, known)
    return Finding(Status.COMPILED_UNJUDGED, text, reason, kernels=here.kernels)


def _provisional(current: list[Finding], known: list[Finding]) -> Finding:
    if not current:
        text = "no evidence speaks about this tokenizer" if not known else known[0].summary
        return Finding(Status.COMPILED_UNJUDGED, text, None if not known else Reason.ENGINE_BINDING_MISMATCH)
    places = sorted({one.kernels.place for one in current if one.kernels is not None})
    best = min(current, key=lambda one: one.status is not Status.CERTIFIED)
    return Finding(best.status, f"there is evidence for {', '.join(places)}; a device is asked by the first long text")


def _why_not(here: Kernels, engine: str, known: list[Finding]) -> tuple[str, Reason]:
    same = [one for one in known if one.kernels is not None and one.kernels.place == here.place]
    if not same:
        return f"no evidence speaks about compute capability {here.compute_capability}", Reason.SM_UNCERTIFIED
    one = same[0]
    if one.engine != engine:
        return f"evidence of {one.source} is of the engine {(one.engine or '')[:12]}", Reason.ENGINE_BINDING_MISMATCH
    assert one.kernels is not None
    return f"evidence of {one.source} is of {here.differs(one.kernels)}", Reason.ENGINE_BINDING_MISMATCH


def _records(
    registry: Registry, state_dir: Path | None, sha256: str, fingerprint: str | None, reference_version: str
) -> Iterator[Finding]:
    """Of each record that holds: the finding as it is for exactly the engine and the kernels that it names."""
    row = registry.row(BackendId.GPU, sha256, fingerprint)
    references: Any = {} if row is None else row.get("references")
    for key in references if isinstance(references, dict) else ():
        if row is None or not key.startswith(f"{reference_version}+"):
            continue
        problem = registry_entry.form_problem(row, key) or registry_entry.evidence_problem(row, key)
        entry = references[key]
        if problem is None and entry["status"] == Status.CERTIFIED:
            yield _finding(
                Status.CERTIFIED,
                sha256,
                source="registry",
                artifact_sha256=row["artifact"]["sha256"],
                evidence=entry["evidence"],
                level=entry["level"],
                engine=entry["engine_identity"],
                reference_version=reference_version,
                readings=entry["readings"],
                kernels=read_kernels(entry["kernels"]),
            )
    for found in () if state_dir is None else local.find_kernels(state_dir, reference_version, sha256, fingerprint):
        told = found.evidence
        if told is not None and told.passed and told.kernels is not None:
            yield _finding(
                Status.LOCALLY_CERTIFIED,
                sha256,
                source="local",
                artifact_sha256=told.artifact_sha256,
                evidence=told.digest,
                level=told.level,
                engine=told.engine,
                reference_version=reference_version,
                readings=told.readings,
                kernels=told.kernels,
            )


def _finding(status: Status, sha256: str, **about: Any) -> Finding:
    where = "the registry" if about["source"] == "registry" else "this host"
    capability, texts = about["kernels"].compute_capability, about["readings"]["documents"]
    text = f"evidence of {where} on compute capability {capability}, level {about['level']}, {texts:,} texts"
    basis = "identical" if about["artifact_sha256"] == sha256 else "equivalent"
    if basis == "equivalent":
        text += f", equivalent to {about['artifact_sha256'][:12]}"
    return Finding(status, text, basis=basis, **about)
