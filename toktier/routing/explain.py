"""explain(): the plan and what happened since, as JSON-able dicts. Prints what was decided, decides nothing.

The backend that encodes and the one that decodes are fixed when a tokenizer is loaded, so that "the last call" needs no
record of its own: what served once serves always. Counting that it did is all that a call costs. Where a GPU takes long
texts, it notes how many texts the CPU engine had answered: more of them since, and that one was the last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from toktier.program import engine_identity
from toktier.routing.counters import Counters
from toktier.routing.plan import Plan
from toktier.routing.vocabulary import (
    CERTIFIED_REFERENCE_VERSIONS,
    POLICIES,
    REASON_MEANINGS,
    THIRD_PARTY,
    BackendId,
    Reason,
    Status,
)

_PATHS = {BackendId.HF: "reference", BackendId.FAST_CPU: "native", BackendId.GPU: "gpu"}
_PATHS |= dict.fromkeys(THIRD_PARTY, "third_party")


@dataclass(frozen=True, slots=True)
class Calls:
    """Texts that the engines answered. `native`, `native_bytes`: those of the CPU engine, of which `of_sessions` were
    changes of sessions and texts that a store knew the beginning of; `uncut`: changes of sessions that left a long text
    without a cut. `gpu`: those of the GPU;
    `fallen`: those that were long enough for it and came to the CPU engine, by reason; `gpu_last`: the last was its.
    `third_party_last`: who answered the last text of a tokenizer that such an engine serves, and why not the engine;
    `third_party_decoded`: the same of what was decoded. None before the first."""

    native: int
    native_bytes: int
    of_sessions: int = 0
    uncut: int = 0
    gpu: int = 0
    fallen: Mapping[Reason, int] = field(default_factory=dict)
    gpu_last: bool = False
    third_party_last: tuple[BackendId, Reason | None] | None = None
    third_party_decoded: tuple[BackendId, Reason | None] | None = None

    def below(self, plan: Plan) -> int:
        """Texts that were too short for the GPU that serves: whatever came to the CPU engine for no other reason."""
        if plan.serves is not BackendId.GPU:
            return 0
        return max(0, self.native - self.of_sessions - sum(self.fallen.values()))


def summarise(plan: Plan, counters: Counters, calls: Calls, program: dict[str, Any] | None) -> dict[str, Any]:
    """The headline. `program`: facts of the program's file."""
    if plan.serves is None:  # a GPU was asked for, nothing else, and it is gone
        assert plan.refusal is not None
        served = BackendId.GPU
    else:
        served = plan.serves
    below = BackendId.FAST_CPU if served is BackendId.GPU else served
    decoder = BackendId.HF if _decode_by_reference(plan) else below
    gate = plan.involuntary
    loaded = None if gate is None else gate.reason
    reason = loaded
    last: BackendId = served
    decoded_by: BackendId = decoder
    if served is BackendId.HF:
        encoded = counters.texts(served)
    elif served in THIRD_PARTY:
        encoded = int(calls.third_party_last is not None)
        last, reason = calls.third_party_last or (served, None)
    else:
        last = BackendId.GPU if calls.gpu_last else BackendId.FAST_CPU
        encoded = calls.native + calls.gpu
    decode_reason = loaded if decoder is below else Reason.DECODE_REFERENCE
    if calls.third_party_decoded is not None:
        decoded_by, decode_reason = calls.third_party_decoded
    decoded = counters.decodings(decoded_by)
    fallback = None if reason is None else reason.value
    return {
        "backend": served.value,
        "status": plan.status.value,
        "verdict": _verdict(plan),
        "policy": plan.request.policy.value,
        "reasons": [gate.reason.value for gate in plan.closed if gate.reason is not None],
        "artifact_sha256": plan.program.artifact_sha256,
        "fingerprint": plan.program.fingerprint,
        "last_execution_backend": last.value if encoded else None,
        "last_execution_path": _PATHS[last] if encoded else None,
        "last_execution_source": "text" if encoded else None,
        "last_execution_fallback": fallback if encoded else None,
        "last_decode_backend": decoded_by.value if decoded else None,
        "last_decode_path": _PATHS[decoded_by] if decoded else None,
        "last_decode_fallback": decode_reason.value if decoded and decode_reason is not None else None,
        "exact_id_guarantee": plan.exact_id_guarantee,
        "fallback_ever_occurred": bool(counters.reasons() or calls.fallen),
        "decode": _PATHS[decoder],
        "program": program,
    }


def report(
    plan: Plan,
    counters: Counters,
    calls: Calls,
    program: dict[str, Any] | None,
    resolution: dict[str, Any],
    sessions: dict[str, Any],
    gpu_backend: dict[str, Any],
) -> dict[str, Any]:
    """Everything: the summary, the request, the facts, every gate, admission, waivers, counters. `resolution`: where
    the tokenizer.json came from; `sessions`: where they are kept, and what look-ups found; `gpu_backend`: what was
    opened."""
    request = plan.request
    reasons = _counted(plan, counters, calls, gpu_backend)
    others = [b for b in plan.chain if b in THIRD_PARTY]
    return {
        **summarise(plan, counters, calls, program),
        "chain": [backend.value for backend in plan.chain],
        "request": {
            "policy": request.policy.value,
            "policy_meaning": POLICIES[request.policy].meaning,
            "tokenizer": "auto" if request.backend is None else request.backend.value,
            "device": request.device.value,
            "tokenizer_fallback": request.fallback,
            "gpu_disabled": request.gpu_disabled,
            "gpu_min_bytes": request.gpu_min_bytes,
            "gpu_delivery": request.gpu_delivery.value,
        },
        "gates": [gate.to_dict() for gate in plan.gates],
        "reason_meanings": {reason.value: REASON_MEANINGS[reason] for reason in _reasons(plan, reasons)},
        "probe": {
            "reference_version": plan.facts.reference_version,
            "reference_versions_certified": list(CERTIFIED_REFERENCE_VERSIONS),
            "gpu_backend": plan.facts.gpu_backend,
            "gpu_count": plan.facts.gpu_count,
            "gpu_delivery": None if plan.facts.gpu_delivery is None else plan.facts.gpu_delivery.value,
            "third_party": _third_party(plan),
        },
        "certification": certification(plan),
        "gpu_backend": gpu_backend,
        "experimental_waivers": [gate.to_dict() for gate in plan.waivers],
        "model_resolution": resolution,
        "counters": {
            "calls": {
                BackendId.FAST_CPU.value: calls.native,
                BackendId.HF.value: counters.texts(BackendId.HF),
            }
            | ({BackendId.GPU.value: calls.gpu} if BackendId.GPU in plan.chain or calls.gpu else {})
            | {b.value: counters.texts(b) for b in others},
            "decode_calls": {b.value: counters.decodings(b) for b in (BackendId.FAST_CPU, *others, BackendId.HF)},
            "native_bytes": calls.native_bytes,
            "reasons": {reason.value: count for reason, count in reasons.items()},
        },
        "sessions": sessions,
    }


def _third_party(plan: Plan) -> dict[str, Any] | None:
    found = plan.facts.third_party
    return None if found is None else {"backend": found.backend.value, "version": found.version}


def status_of(plan: Plan, backend: BackendId) -> Status:
    """What is known of this tokenizer on a backend: of a GPU whose kernels cannot follow it, that alone."""
    if backend is BackendId.GPU and plan.program.gpu_unsuitable is not None:
        return Status.UNSUPPORTED
    return plan.admission.status(backend)


def certification(plan: Plan) -> dict[str, Any]:
    """The registry, the engine at hand, and for each backend of this package what evidence says of this tokenizer on
    it."""
    accelerated = [b for b in BackendId if b is not BackendId.HF and b not in THIRD_PARTY]
    return {
        "registry": plan.admission.registry,
        "engine_identity": engine_identity.engine_identity(),
        "engine_bound": engine_identity.is_bound(),
        "statuses": {b.value: status_of(plan, b).value for b in accelerated},
        "backends": {b.value: plan.admission.finding(b).to_dict() for b in accelerated},
    }


def _decode_by_reference(plan: Plan) -> bool:
    if plan.serves in THIRD_PARTY:
        return not THIRD_PARTY[plan.serves].decodes
    return plan.serves is BackendId.HF or plan.program.decode_by_reference


def _counted(plan: Plan, counters: Counters, calls: Calls, gpu_backend: dict[str, Any]) -> dict[Reason, int]:
    """How often each reason occurred, in code order: steps down the chain, and what is none of them but costs time."""
    counted = Counter({Reason(code): count for code, count in counters.reasons().items()})
    counted.update(calls.fallen)
    counted[Reason.SESSION_NO_SAFE_CUT] += calls.uncut
    counted[Reason.INPUT_BELOW_GPU_THRESHOLD] += calls.below(plan)
    if plan.serves is BackendId.GPU:
        counted[Reason.GPU_SESSION] += calls.of_sessions
    engine = gpu_backend.get("counters") or {"redone": {}, "fallen": 0}
    counted.update({Reason(code): count for code, count in engine["redone"].items()})
    counted[Reason.EXEC_FAULT] += engine["fallen"]
    return {reason: counted[reason] for reason in sorted(counted) if counted[reason]}


def _reasons(plan: Plan, counted: Iterable[Reason]) -> list[Reason]:
    """Every code that the report can hold: of the gates, and of what happened at run time."""
    reasons = [gate.reason for gate in plan.gates if gate.reason is not None]
    if plan.serves is not BackendId.HF and _decode_by_reference(plan):
        reasons.append(Reason.DECODE_REFERENCE)
    return list(dict.fromkeys([*reasons, *counted]))


def _verdict(plan: Plan) -> str:
    """One sentence for people."""
    if plan.serves is None:
        return "nothing serves" if plan.refusal is None else plan.refusal.message
    if plan.serves is BackendId.HF:
        gate = plan.involuntary
        return "the reference serves, as asked" if gate is None else f"the reference serves: {gate.summary}"
    ground = next(g.summary for g in plan.gates if g.backend is plan.serves and g.name == "registry")
    text = f"{plan.serves.value} serves ({ground})"
    if plan.serves is BackendId.GPU:
        text += f" from {plan.request.gpu_min_bytes:,} bytes on, fast_cpu below"
    if plan.admission.registry is None and plan.status is Status.UNTESTED:
        text += f", status {plan.status.value}: no registry speaks about any tokenizer yet"
    if not plan.exact_id_guarantee:
        text += ", experimental: equality is not shown"
    return text
