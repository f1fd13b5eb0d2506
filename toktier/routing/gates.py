"""The gates that a backend must pass, judged one by one: what was asked, what the file is, and each premise of each.

All are listed, open or closed, in one order, so that whoever prints them decides nothing again. What evidence says is
data (`toktier.evidence.admission`): while the registry has no row the gate says on which ground it is open. Not here:
who serves by them, and what is said where nobody may (`toktier.routing.plan`).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from toktier.evidence.admission import Admission
from toktier.routing.probe import OpenedGpu, ProbeFacts
from toktier.routing.vocabulary import (
    CERTIFIED_REFERENCE_VERSIONS,
    CERTIFYING,
    GPU_MIN_BYTES,
    POLICIES,
    THIRD_PARTY,
    BackendId,
    Device,
    GpuDelivery,
    Reason,
    RoutingPolicy,
    Status,
)

REGISTRY_ABSENT = "registry: absent, admission by compile-time proof and build suites"
# Without a registry the ground of admission is the proofs of the compiler and the suites of the build. They speak about
# the CPU engine; a GPU kernel binary is judged by evidence alone.
ADMITTED_WITHOUT_REGISTRY = frozenset({BackendId.FAST_CPU})


@dataclass(frozen=True)
class Request:
    """What the caller asked for, after precedence was applied. `backend` None: auto. `fallback` False: an error instead
    of a backend below the one asked for. `gpu_disabled`: switched off by configuration. `gpu_min_bytes`: of a text or a
    batch, from which on a GPU serves."""

    policy: RoutingPolicy = RoutingPolicy.CERTIFIED
    backend: BackendId | None = None
    device: Device = Device.AUTO
    fallback: bool = True
    gpu_disabled: bool = False
    gpu_min_bytes: int = GPU_MIN_BYTES
    gpu_delivery: GpuDelivery = GpuDelivery.AUTO

    @property
    def wants_gpu(self) -> bool:
        return self.backend is BackendId.GPU or (self.backend is None and self.device is Device.CUDA)

    @property
    def wants_reference(self) -> bool:
        return self.backend is BackendId.HF or self.policy is RoutingPolicy.REFERENCE

    @property
    def third_party(self) -> BackendId | None:
        """The third-party engine that was asked for by name."""
        return self.backend if self.backend in THIRD_PARTY else None


@dataclass(frozen=True)
class ProgramFacts:
    """What compiling gave. `unsupported`: path, component and message of the refusal when it did not compile.
    `unidentified`: why bytes that were asked for by a repository's name are not known to be a tokenizer of the tables;
    None for what is known, and for files that nobody named. `named`: what commands call it, a family or a path.
    `gpu_unsuitable`: which premise of the kernels it fails; None: none, or it was not looked for."""

    artifact_sha256: str
    fingerprint: str | None = None
    unsupported: tuple[str, str, str] | None = None
    decode_by_reference: bool = False
    unidentified: str | None = None
    named: str | None = None
    gpu_unsuitable: str | None = None

    @property
    def certify(self) -> str:
        """The command that compares this tokenizer with the reference on this host."""
        return f"toktier certify {'FILE' if self.named is None else shlex.quote(self.named)}"


@dataclass(frozen=True)
class Gate:
    """One premise of one backend. Closed when `reason` is set and `waived` is not."""

    backend: BackendId
    name: str
    summary: str
    reason: Reason | None = None
    waived: bool = False

    @property
    def is_open(self) -> bool:
        return self.reason is None or self.waived

    def to_dict(self) -> dict[str, Any]:
        return {
            "backend": self.backend.value,
            "gate": self.name,
            "open": self.is_open,
            "reason": None if self.reason is None else self.reason.value,
            "waived": self.waived,
            "summary": self.summary,
        }


def judged(facts: ProbeFacts, request: Request, program: ProgramFacts, admission: Admission) -> Iterator[Gate]:
    """Every gate of this package, of the third-party engine that was asked for, and of the reference."""
    native = [
        _policy_gate(BackendId.FAST_CPU, request),
        _selection_gate(BackendId.FAST_CPU, request),
        _program_gate(BackendId.FAST_CPU, program),
        _version_gate(BackendId.FAST_CPU, facts, request),
        _registry_gate(BackendId.FAST_CPU, request, program, admission),
    ]
    yield _policy_gate(BackendId.GPU, request)
    yield _selection_gate(BackendId.GPU, request)
    yield from _gpu_gates(facts, request)
    yield _program_gate(BackendId.GPU, program)
    yield _version_gate(BackendId.GPU, facts, request)
    yield _leaning_gate(native)
    yield from _kernel_gates(facts)
    yield _registry_gate(BackendId.GPU, request, program, admission)
    if facts.gpu is not None:
        if facts.gpu.self_tested or _closes(facts.gpu, "self_test"):
            yield _found(facts.gpu, "self_test", "the kernels give the ids of the CPU engine for the built-in texts")
        if _closes(facts.gpu, "execution"):
            yield _found(facts.gpu, "execution", "")
    yield from native
    yield from _third_party_gates(facts, request, program, admission)
    installed = facts.reference_version is not None
    yield Gate(
        BackendId.HF,
        "installed",
        f"tokenizers {facts.reference_version}" if installed else "tokenizers is not installed",
        None if installed else Reason.BACKEND_UNAVAILABLE,
    )


def _third_party_gates(
    facts: ProbeFacts, request: Request, program: ProgramFacts, admission: Admission
) -> Iterator[Gate]:
    """Of the one that was asked for. Whatever else is there, auto included, is not a question to them."""
    backend = request.third_party
    if backend is None:
        return
    yield _policy_gate(backend, request)
    yield _registry_gate(backend, request, program, admission)
    found = facts.third_party
    version = None if found is None else found.version
    if version is None:
        yield Gate(backend, "installed", f"{backend.value} is not installed", Reason.BACKEND_UNAVAILABLE)
        return
    yield Gate(backend, "installed", f"{backend.value} {version}")
    problem = None if found is None else found.problem
    if problem is not None:
        yield Gate(backend, problem.gate, problem.text, problem.reason)


def _policy_gate(backend: BackendId, request: Request) -> Gate:
    closed = request.policy is RoutingPolicy.REFERENCE
    return Gate(backend, "policy", f"policy {request.policy.value}", Reason.POLICY_REFERENCE if closed else None)


def _selection_gate(backend: BackendId, request: Request) -> Gate:
    """A named backend closes those above it, and the reference (named last) closes all."""
    asked = request.backend
    order = list(BackendId)
    closed = asked is not None and order.index(backend) < order.index(asked)
    summary = "backend auto" if asked is None else f"backend {asked.value} was asked for"
    return Gate(backend, "selection", summary, Reason.BACKEND_NOT_SELECTED if closed else None)


def _gpu_gates(facts: ProbeFacts, request: Request) -> Iterator[Gate]:
    off = request.gpu_disabled or request.device is Device.CPU
    summary = "switched off by configuration" if request.gpu_disabled else f"device {request.device.value}"
    yield Gate(BackendId.GPU, "enabled", summary, Reason.GPU_DISABLED if off else None)
    if not facts.gpu_backend:
        text = "this installation has no GPU backend"
        yield Gate(BackendId.GPU, "installed", text, Reason.BACKEND_UNAVAILABLE)
        return
    yield Gate(BackendId.GPU, "installed", "the GPU backend is installed")
    if off:
        return  # nobody looked for a device
    if not facts.gpu_count:
        yield Gate(BackendId.GPU, "device", "no usable GPU", Reason.NO_GPU_DETECTED)
    elif facts.gpu is None:
        yield Gate(BackendId.GPU, "device", f"{facts.gpu_count} NVIDIA device{'s' * (facts.gpu_count > 1)}")
    else:
        yield _found(facts.gpu, "device", f"{facts.gpu.name} ({facts.gpu.architecture})")


def _kernel_gates(facts: ProbeFacts) -> Iterator[Gate]:
    """Judged where there is a device: kernels for it are here or can be made, and are what they should be."""
    if not facts.gpu_count:
        return
    if facts.gpu_delivery is None:
        text = "no kernels came with this installation, and NVRTC is not installed"
        yield Gate(BackendId.GPU, "kernels", text, Reason.BACKEND_UNAVAILABLE)
    elif facts.gpu is None:
        yield Gate(BackendId.GPU, "kernels", f"delivery {facts.gpu_delivery.value}, when a text is long enough")
    elif facts.gpu.cubin is not None or _closes(facts.gpu, "kernels"):
        listed = "listed" if facts.gpu.listed else "not listed"
        text = f"delivery {facts.gpu_delivery.value}, cubin {(facts.gpu.cubin or '')[:12]}, {listed}"
        yield _found(facts.gpu, "kernels", text)


def _closes(gpu: OpenedGpu, name: str) -> bool:
    return gpu.problem is not None and gpu.problem.gate == name


def _found(gpu: OpenedGpu, name: str, summary: str) -> Gate:
    """A gate as it is after the driver was asked."""
    if _closes(gpu, name):
        assert gpu.problem is not None
        return Gate(BackendId.GPU, name, gpu.problem.text, gpu.problem.reason)
    return Gate(BackendId.GPU, name, summary)


def _leaning_gate(native: list[Gate]) -> Gate:
    """What a kernel leaves, and what is too short, is the CPU engine's: so it must be admitted itself."""
    closed = next((gate for gate in native if gate.name != "selection" and not gate.is_open), None)
    if closed is None:
        return Gate(BackendId.GPU, "fast_cpu", "the CPU engine is admitted, which redoes what kernels leave")
    return Gate(BackendId.GPU, "fast_cpu", f"the CPU engine is not admitted: {closed.summary}", closed.reason)


def _program_gate(backend: BackendId, program: ProgramFacts) -> Gate:
    if program.unsupported is None:
        if backend is BackendId.GPU and program.gpu_unsuitable is not None:
            return Gate(backend, "program", program.gpu_unsuitable, Reason.GPU_PROGRAM_UNSUITABLE)
        return Gate(backend, "program", "compiled")
    path, component, _ = program.unsupported
    return Gate(backend, "program", f"not compiled: {path} = {component}", Reason.PROGRAM_UNSUPPORTED)


def _version_gate(backend: BackendId, facts: ProbeFacts, request: Request) -> Gate:
    """The reference's own version: IDs are equal to those of the certified versions, and nothing is known of others."""
    name, certified = "reference_version", ", ".join(CERTIFIED_REFERENCE_VERSIONS)
    if facts.reference_version in CERTIFIED_REFERENCE_VERSIONS:
        return Gate(backend, name, f"tokenizers {facts.reference_version}, certified: {certified}")
    seen = facts.reference_version or "none"
    waived = name in POLICIES[request.policy].waives
    return Gate(backend, name, f"tokenizers {seen}, certified: {certified}", Reason.ORACLE_MISMATCH, waived)


def _registry_gate(backend: BackendId, request: Request, program: ProgramFacts, admission: Admission) -> Gate:
    """Whether the policy admits what evidence says. A policy that waives this gate lists that nothing is shown."""
    rule, found = POLICIES[request.policy], admission.finding(backend)
    admitted = found.status in rule.statuses
    if program.unidentified is not None and not admitted:
        return Gate(backend, "registry", program.unidentified, Reason.UNCERTIFIED_ARTIFACT)
    text = f"status {found.status.value}, policy {request.policy.value}: {found.summary}"
    if found.status in CERTIFYING and admitted:
        return Gate(backend, "registry", text)
    reason = found.reason or Reason.UNCERTIFIED_ARTIFACT
    if admission.registry is None and backend in ADMITTED_WITHOUT_REGISTRY and found.status is Status.UNTESTED:
        return Gate(backend, "registry", REGISTRY_ABSENT)
    if admitted and "registry" in rule.waives:
        return Gate(backend, "registry", text, reason, waived=True)
    return Gate(backend, "registry", text, None if admitted else reason)
