"""plan(): which backend serves, why none above it does, or why nothing may. A pure function of its arguments.

It picks by gates (`toktier.routing.gates`), and keeps them, so that `explain`, `inspect` and `doctor` print what was
decided instead of deciding again. Of a GPU the architecture, and with it the kernels, are known only when its driver is
asked, which the first long text does: the plan is then made again (`again`), with what was found. Of a third-party
engine, which is judged where a caller names it and nowhere else, a load makes it again (`without`) where the engine
refuses the file. Not here: the gates, looking at the machine (`probe`), running.
"""

from __future__ import annotations

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
from toktier.routing.gates import Gate, ProgramFacts, Request, judged
from toktier.routing.probe import OpenedGpu, ProbeFacts, Problem
from toktier.routing.vocabulary import (
    CERTIFIED_REFERENCE_VERSIONS,
    POLICIES,
    THIRD_PARTY,
    BackendId,
    Device,
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
        return self.request.wants_gpu

    @property
    def asked_third_party(self) -> BackendId | None:
        """The third-party engine that was asked for by name."""
        return self.request.third_party

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
    gates = tuple(judged(facts, request, program, admission))
    known = {gate.backend for gate in gates}  # of third-party engines the one that was asked for, or none
    open_backends = [b for b in BackendId if b in known and all(g.is_open for g in gates if g.backend is b)]
    chain = tuple(b for b in open_backends if b in _allowed(request))
    contradiction = _contradiction(request)
    if contradiction is not None or not chain:
        refusal = contradiction or _refusal(facts, request, program, admission, gates)
        return Plan(request, facts, program, admission, gates, None, (), refusal)
    return Plan(request, facts, program, admission, gates, chain[0], chain, None)


def _allowed(request: Request) -> frozenset[BackendId]:
    """Backends that may serve this request at all. Without fallback: nothing below what was asked for."""
    if request.wants_reference:
        return frozenset({BackendId.HF})
    third_party = request.third_party
    if third_party is not None and not request.fallback:
        return frozenset({third_party})
    allowed = set(BackendId)
    if not POLICIES[request.policy].reference_may_serve or not request.fallback:
        allowed.discard(BackendId.HF)
    if not request.fallback and request.wants_gpu:
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
        request.third_party is not None
        and policy is not RoutingPolicy.EXPERIMENTAL
        and (not request.fallback or not POLICIES[policy].reference_may_serve)
    ):
        text = f"the backend {backend} was asked for, which runs under no policy but experimental: it is {policy.value}"
        remedy = 'say policy="experimental" in code or --policy experimental, or name another backend'
    else:
        return None
    return ConfigInvalid(text, details={"policy": policy.value, "backend": backend}, remedy=remedy)


def _refusal(
    facts: ProbeFacts, request: Request, program: ProgramFacts, admission: Admission, gates: tuple[Gate, ...]
) -> ToktierError:
    """The error for "nothing may serve": told by the first closed gate of the backend that was meant to serve."""
    third_party = request.third_party
    if request.wants_reference:
        meant = BackendId.HF
    elif third_party is not None:
        meant = third_party
    else:
        meant = BackendId.GPU if request.wants_gpu and not request.fallback else BackendId.FAST_CPU
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
