"""plan(): which backend serves, why none above it does, or why nothing may. A pure function of its arguments.

Every gate that a backend must pass is listed, open or closed, in one order, so that `explain`, `inspect` and `doctor`
print what was decided instead of deciding again. What evidence says is data (`toktier.evidence.admission`): while the
registry has no row the gate says on which ground it is open. Of a GPU the architecture, and with it the kernels, are
known only when its driver is asked, which the first long text does: the plan is then made again (`again`), with what
was found. Of a third-party engine, which is judged where a caller names it and nowhere else, a load makes it again
(`without`) where the engine refuses the file. Not here: looking at the machine (`probe`), running.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from toktier.errors import (
    BackendUnavailable,
    ConfigInvalid,
    CudaDriverTooOld,
    OracleVersionUnsupported,
    ProgramUnsupported,
    ToktierError,
    UncertifiedTokenizer,
)
from toktier.evidence.admission import Admission
from toktier.routing.probe import OpenedGpu, ProbeFacts, Problem
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

_REMEDIES: dict[Reason, str] = {
    Reason.GPU_DISABLED: "allow the GPU in the settings (toktier config show --origin)",
    Reason.NO_GPU_DETECTED: "make a device visible to this process (driver, container, CUDA_VISIBLE_DEVICES)",
    Reason.DRIVER_TOO_OLD: "install a newer driver",
    Reason.KERNEL_BUILD_FAILED: "run toktier gpu compile, which says what failed",
    Reason.KERNEL_DIGEST_MISMATCH: "install the listed build of nvidia-cuda-nvrtc",
    Reason.GPU_SELF_TEST_FAILED: "report it with the output of toktier doctor --json",
    Reason.EXEC_FAULT: "see the log of the driver, and load the tokenizer again",
}
"""What a person may do about a closed gate of the GPU."""
_BRING_KERNELS = "install cuda-python and nvidia-cuda-nvrtc"
_ALLOW_FALLBACK = "allow fallback (without --no-tokenizer-fallback, or tokenizer_fallback=True)"
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


@dataclass(frozen=True)
class Plan:
    """`serves` and `chain` (`serves` first), or `refusal` when nothing may serve. `gates` in the order of judgement."""

    request: Request
    facts: ProbeFacts
    program: ProgramFacts
    admission: Admission
    gates: tuple[Gate, ...]
    serves: BackendId | None
    chain: tuple[BackendId, ...]
    refusal: ToktierError | None

    @property
    def closed(self) -> tuple[Gate, ...]:
        """The first closed gate of every backend above the one that serves: the reasons in short."""
        seen: dict[BackendId, Gate] = {}
        for gate in self.gates:
            if not gate.is_open:
                seen.setdefault(gate.backend, gate)
        return tuple(seen.values())

    @property
    def waivers(self) -> tuple[Gate, ...]:
        """Those that the backend which serves needed, and of a GPU those of the CPU engine that it leans on."""
        if self.serves is None:
            return ()
        needed = {self.serves, BackendId.FAST_CPU} if self.serves is BackendId.GPU else {self.serves}
        return tuple(gate for gate in self.gates if gate.waived and gate.backend in needed)

    @property
    def asked_for_gpu(self) -> bool:
        return _wants_gpu(self.request)

    @property
    def asked_third_party(self) -> BackendId | None:
        """The third-party engine that was asked for by name."""
        return _third_party(self.request)

    @property
    def exact_id_guarantee(self) -> bool:
        """Whether what serves is known to give the ids of the reference: never of a third-party engine, nor where a
        premise was waived or kernels run on the caller's word."""
        unknown = self.serves is None or self.serves in THIRD_PARTY or self.status is Status.EXPERIMENTAL
        return not unknown and not self.waivers

    def again(self, gpu: OpenedGpu, admission: Admission) -> Plan:
        """The plan with what the driver of the GPU said, and what evidence says of the kernels at hand."""
        return plan(replace(self.facts, gpu=gpu), self.request, self.program, admission)

    def without(self, problem: Problem) -> Plan:
        """The plan with what keeps the third-party engine that was asked for from serving."""
        assert self.facts.third_party is not None
        third_party = replace(self.facts.third_party, problem=problem)
        return plan(replace(self.facts, third_party=third_party), self.request, self.program, self.admission)

    @property
    def involuntary(self) -> Gate | None:
        """The gate that made the reference serve although the caller did not ask for the reference; None otherwise."""
        asked = self.request.policy is RoutingPolicy.REFERENCE or self.request.backend is BackendId.HF
        if self.serves is not BackendId.HF or asked:
            return None
        return next(gate for gate in reversed(self.closed) if gate.backend is not BackendId.HF)

    @property
    def status(self) -> Status:
        """What is known about the backend that serves."""
        if self.serves in (None, BackendId.HF):
            return Status.REFERENCE_ONLY if self.serves else Status.UNSUPPORTED
        assert self.serves is not None
        return self.admission.status(self.serves)

    @property
    def mend(self) -> str | None:
        """What a caller types so that the reference need not stand in for another backend; None where nothing helps."""
        gate = self.involuntary
        if gate is not None and gate.backend in THIRD_PARTY:
            return _third_party_mend(gate)
        if gate is None or gate.name != "registry":
            return None
        return "install toktier again" if gate.reason is Reason.REGISTRY_INVALID else self.program.certify


def remedy_of(gate: Gate) -> str | None:
    """What a person may do about a closed gate of the GPU; None where nothing is to be done on this host."""
    if gate.name == "kernels" and gate.reason is Reason.BACKEND_UNAVAILABLE:
        return _BRING_KERNELS
    return None if gate.reason is None else _REMEDIES.get(gate.reason)


def _third_party_mend(gate: Gate) -> str | None:
    if gate.name == "registry":
        return 'policy="experimental", or --policy experimental'
    return f"pip install {gate.backend.value}" if gate.name == "installed" else None


def plan(facts: ProbeFacts, request: Request, program: ProgramFacts, admission: Admission | None = None) -> Plan:
    """Judges every gate of every backend and picks the first backend of the chain whose gates are all open."""
    admission = admission or Admission()
    gates = tuple(_gates(facts, request, program, admission))
    judged = {gate.backend for gate in gates}  # of third-party engines the one that was asked for, or none
    open_backends = [b for b in BackendId if b in judged and all(g.is_open for g in gates if g.backend is b)]
    chain = tuple(b for b in open_backends if b in _allowed(request))
    contradiction = _contradiction(request)
    if contradiction is not None or not chain:
        refusal = contradiction or _refusal(facts, request, program, admission, gates)
        return Plan(request, facts, program, admission, gates, None, (), refusal)
    return Plan(request, facts, program, admission, gates, chain[0], chain, None)


def _wants_gpu(request: Request) -> bool:
    return request.backend is BackendId.GPU or (request.backend is None and request.device is Device.CUDA)


def _wants_reference(request: Request) -> bool:
    return request.backend is BackendId.HF or request.policy is RoutingPolicy.REFERENCE


def _third_party(request: Request) -> BackendId | None:
    return request.backend if request.backend in THIRD_PARTY else None


def _allowed(request: Request) -> frozenset[BackendId]:
    """Backends that may serve this request at all. Without fallback: nothing below what was asked for."""
    if _wants_reference(request):
        return frozenset({BackendId.HF})
    third_party = _third_party(request)
    if third_party is not None and not request.fallback:
        return frozenset({third_party})
    allowed = set(BackendId)
    if not POLICIES[request.policy].reference_may_serve or not request.fallback:
        allowed.discard(BackendId.HF)
    if not request.fallback and _wants_gpu(request):
        allowed = {BackendId.GPU}
    return frozenset(allowed)


def _contradiction(request: Request) -> ToktierError | None:
    """Requests whose parts exclude each other. Harmless ones (policy reference with a named backend and fallback) are
    served; these would have to ignore a demand."""
    policy, backend, remedy = request.policy, request.backend, "drop one of the two"
    if policy is RoutingPolicy.REQUIRE_ACCELERATED and backend is BackendId.HF:
        text = "policy require_accelerated excludes the backend hf that was asked for"
    elif policy is RoutingPolicy.REFERENCE and not request.fallback and backend not in (None, BackendId.HF):
        text = f"policy reference excludes the backend {backend} that was asked for without fallback"
    elif backend is BackendId.GPU and request.device is Device.CPU and not request.fallback:
        text = "device cpu excludes the backend gpu that was asked for without fallback"
    elif (
        _third_party(request) is not None
        and policy is not RoutingPolicy.EXPERIMENTAL
        and (not request.fallback or not POLICIES[policy].reference_may_serve)
    ):
        text = f"the backend {backend} was asked for, which runs under no policy but experimental: it is {policy.value}"
        remedy = 'say policy="experimental" in code or --policy experimental, or name another backend'
    else:
        return None
    return ConfigInvalid(text, details={"policy": policy.value, "backend": backend}, remedy=remedy)


def _gates(facts: ProbeFacts, request: Request, program: ProgramFacts, admission: Admission) -> Iterator[Gate]:
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
    backend = _third_party(request)
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


def _refusal(
    facts: ProbeFacts, request: Request, program: ProgramFacts, admission: Admission, gates: tuple[Gate, ...]
) -> ToktierError:
    """The error for "nothing may serve": told by the first closed gate of the backend that was meant to serve."""
    third_party = _third_party(request)
    if _wants_reference(request):
        meant = BackendId.HF
    elif third_party is not None:
        meant = third_party
    else:
        meant = BackendId.GPU if _wants_gpu(request) and not request.fallback else BackendId.FAST_CPU
    gate = next(g for g in gates if g.backend is meant and not g.is_open)
    details: dict[str, Any] = {
        "backend": meant.value,
        "gate": gate.name,
        "reason": None if gate.reason is None else gate.reason.value,
    }
    allow = "allow the reference to serve: policy certified, and fallback not switched off"
    if meant is BackendId.GPU:
        below = plan(facts, replace(request, fallback=True), program, admission).serves
        if below is not None:
            allow = f"{_ALLOW_FALLBACK}: {below} then serves"
    if meant in THIRD_PARTY:
        install = f"pip install {meant.value}, or " if gate.name == "installed" else ""
        allow = f"{install}name another backend, or {_ALLOW_FALLBACK}: the reference then serves"
    if gate.reason is Reason.PROGRAM_UNSUPPORTED:
        assert program.unsupported is not None
        return ProgramUnsupported(*program.unsupported)
    if gate.reason is Reason.ORACLE_MISMATCH:
        details |= {"installed": facts.reference_version, "certified": list(CERTIFIED_REFERENCE_VERSIONS)}
        return OracleVersionUnsupported(
            f"tokenizers {facts.reference_version or 'is not installed'}: {meant.value} serves beside the versions "
            f"{', '.join(CERTIFIED_REFERENCE_VERSIONS)} only",
            details=details,
            remedy=f"install tokenizers=={CERTIFIED_REFERENCE_VERSIONS[-1]}, or {allow}",
        )
    if gate.name == "registry" and meant not in THIRD_PARTY:
        mend = "install toktier again" if gate.reason is Reason.REGISTRY_INVALID else program.certify
        if meant is BackendId.GPU and gate.reason is not Reason.REGISTRY_INVALID:
            mend += " --backend gpu"
        return UncertifiedTokenizer(
            f"{meant.value} is not admitted: {gate.summary}",
            details=details,
            remedy=f"{mend}, or policy supported, or {allow}",
        )
    error = CudaDriverTooOld if gate.reason is Reason.DRIVER_TOO_OLD else BackendUnavailable
    mend = f"install tokenizers=={CERTIFIED_REFERENCE_VERSIONS[-1]}" if meant is BackendId.HF else allow
    opens = remedy_of(gate)
    if opens is not None:
        mend = f"{opens}, or {mend}"
    return error(f"backend {meant.value} cannot serve: {gate.summary}", details=details, remedy=mend)
