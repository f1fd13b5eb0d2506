"""explain(): the plan and what happened since, as JSON-able dicts. Prints what was decided, decides nothing.

The backend that encodes and the one that decodes are fixed when a tokenizer is loaded, so that "the last call" needs no
record of its own: what served once serves always. Counting that it did is all that a call costs.
"""

from __future__ import annotations

from typing import Any

from toktier.program import engine_identity
from toktier.routing.counters import Counters
from toktier.routing.plan import Plan
from toktier.routing.vocabulary import (
    CERTIFIED_REFERENCE_VERSIONS,
    POLICIES,
    REASON_MEANINGS,
    BackendId,
    Reason,
    Status,
)

_PATHS = {BackendId.HF: "reference", BackendId.FAST_CPU: "native", BackendId.GPU: "gpu"}


def summarise(plan: Plan, counters: Counters, native_calls: int, program: dict[str, Any] | None) -> dict[str, Any]:
    """The headline. `native_calls`: texts that the native engine encoded or counted; `program`: facts of its file."""
    assert plan.serves is not None
    decoder = BackendId.HF if _decode_by_reference(plan) else plan.serves
    encoded = native_calls if plan.serves is BackendId.FAST_CPU else counters.texts(plan.serves)
    decoded = counters.decodings(decoder)
    gate = plan.involuntary
    fallback = None if gate is None or gate.reason is None else gate.reason.value
    decode_fallback = fallback if decoder is plan.serves else Reason.DECODE_REFERENCE.value
    return {
        "backend": plan.serves.value,
        "status": plan.status.value,
        "verdict": _verdict(plan),
        "policy": plan.request.policy.value,
        "reasons": [gate.reason.value for gate in plan.closed if gate.reason is not None],
        "artifact_sha256": plan.program.artifact_sha256,
        "fingerprint": plan.program.fingerprint,
        "last_execution_backend": plan.serves.value if encoded else None,
        "last_execution_path": _PATHS[plan.serves] if encoded else None,
        "last_execution_source": "text" if encoded else None,
        "last_execution_fallback": fallback if encoded else None,
        "last_decode_backend": decoder.value if decoded else None,
        "last_decode_path": _PATHS[decoder] if decoded else None,
        "last_decode_fallback": decode_fallback if decoded else None,
        "fallback_ever_occurred": bool(counters.reasons()),
        "decode": _PATHS[decoder],
        "program": program,
    }


def report(
    plan: Plan,
    counters: Counters,
    native: tuple[int, int],
    program: dict[str, Any] | None,
    resolution: dict[str, Any],
    sessions: dict[str, Any],
    uncut: int,
) -> dict[str, Any]:
    """Everything: the summary, the request, the facts, every gate, admission, waivers, counters. `native`: texts and
    bytes of the native engine; `resolution`: where the tokenizer.json came from; `sessions`: where they are kept, and
    what look-ups found; `uncut`: changes of sessions that left a long text without a cut."""
    request = plan.request
    return {
        **summarise(plan, counters, native[0], program),
        "chain": [backend.value for backend in plan.chain],
        "request": {
            "policy": request.policy.value,
            "policy_meaning": POLICIES[request.policy].meaning,
            "tokenizer": "auto" if request.backend is None else request.backend.value,
            "device": request.device.value,
            "tokenizer_fallback": request.fallback,
            "gpu_disabled": request.gpu_disabled,
        },
        "gates": [gate.to_dict() for gate in plan.gates],
        "reason_meanings": {reason.value: REASON_MEANINGS[reason] for reason in _reasons(plan)},
        "probe": {
            "reference_version": plan.facts.reference_version,
            "reference_versions_certified": list(CERTIFIED_REFERENCE_VERSIONS),
            "gpu_backend": plan.facts.gpu_backend,
            "gpu_count": plan.facts.gpu_count,
        },
        "certification": certification(plan),
        "gpu_backend": {"loaded": False},
        "experimental_waivers": [gate.to_dict() for gate in plan.waivers],
        "model_resolution": resolution,
        "counters": {
            "calls": {
                BackendId.FAST_CPU.value: native[0],
                BackendId.HF.value: counters.texts(BackendId.HF),
            },
            "decode_calls": {b.value: counters.decodings(b) for b in (BackendId.FAST_CPU, BackendId.HF)},
            "native_bytes": native[1],
            "reasons": counters.reasons() | ({Reason.SESSION_NO_SAFE_CUT.value: uncut} if uncut else {}),
        },
        "sessions": sessions,
    }


def certification(plan: Plan) -> dict[str, Any]:
    """The registry, the engine at hand, and for each accelerated backend what evidence says of this tokenizer on it."""
    accelerated = [b for b in BackendId if b is not BackendId.HF]
    return {
        "registry": plan.admission.registry,
        "engine_identity": engine_identity.engine_identity(),
        "engine_bound": engine_identity.is_bound(),
        "statuses": {b.value: plan.admission.status(b).value for b in accelerated},
        "backends": {b.value: plan.admission.finding(b).to_dict() for b in accelerated},
    }


def _decode_by_reference(plan: Plan) -> bool:
    return plan.serves is BackendId.HF or plan.program.decode_by_reference


def _reasons(plan: Plan) -> list[Reason]:
    """Every code that the report can hold: of the gates, and of decoding at run time."""
    reasons = [gate.reason for gate in plan.gates if gate.reason is not None]
    if plan.serves is not BackendId.HF and plan.program.decode_by_reference:
        reasons.append(Reason.DECODE_REFERENCE)
    return reasons


def _verdict(plan: Plan) -> str:
    """One sentence for people."""
    assert plan.serves is not None
    if plan.serves is BackendId.HF:
        gate = plan.involuntary
        return "the reference serves, as asked" if gate is None else f"the reference serves: {gate.summary}"
    ground = next(g.summary for g in plan.gates if g.backend is plan.serves and g.name == "registry")
    text = f"{plan.serves.value} serves ({ground})"
    if plan.admission.registry is None and plan.status is Status.UNTESTED:
        text += f", status {plan.status.value}: no registry speaks about any tokenizer yet"
    if plan.status is Status.EXPERIMENTAL or plan.waivers:
        text += ", experimental: equality is not shown"
    return text
