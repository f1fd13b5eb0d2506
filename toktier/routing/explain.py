"""explain(): the plan and what happened since, as JSON-able dicts. Prints what was decided, decides nothing."""

from __future__ import annotations

from typing import Any

from toktier.routing.counters import Counters
from toktier.routing.plan import Plan
from toktier.routing.vocabulary import CERTIFIED_REFERENCE_VERSIONS, POLICIES, REASON_MEANINGS, BackendId, Status

_PATHS = {BackendId.HF: "reference", BackendId.FAST_CPU: "native", BackendId.GPU: "gpu"}


def summarise(plan: Plan, counters: Counters, native_calls: int, program: dict[str, Any] | None) -> dict[str, Any]:
    """The headline. `native_calls`: encode calls that the native engine served; `program`: facts of its file."""
    assert plan.serves is not None
    calls = counters.calls(plan.serves) + (native_calls if plan.serves is BackendId.FAST_CPU else 0)
    fallback = plan.involuntary if calls else None
    return {
        "backend": plan.serves.value,
        "status": plan.status.value,
        "verdict": _verdict(plan),
        "policy": plan.request.policy.value,
        "reasons": [gate.reason.value for gate in plan.closed if gate.reason is not None],
        "artifact_sha256": plan.program.artifact_sha256,
        "fingerprint": plan.program.fingerprint,
        "last_execution_backend": plan.serves.value if calls else None,
        "last_execution_path": _PATHS[plan.serves] if calls else None,
        "last_execution_source": "text" if calls else None,
        "last_execution_fallback": None if fallback is None or fallback.reason is None else fallback.reason.value,
        "fallback_ever_occurred": bool(counters.reasons()),
        "decode": "reference" if _decode_by_reference(plan) else _PATHS[plan.serves],
        "program": program,
    }


def report(
    plan: Plan,
    counters: Counters,
    native: tuple[int, int],
    program: dict[str, Any] | None,
    resolution: dict[str, Any],
) -> dict[str, Any]:
    """Everything: the summary, the request, the facts, every gate, admission, waivers, counters. `native`: calls and
    bytes of the native engine; `resolution`: where the tokenizer.json came from."""
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
        "reason_meanings": {
            gate.reason.value: REASON_MEANINGS[gate.reason] for gate in plan.gates if gate.reason is not None
        },
        "probe": {
            "reference_version": plan.facts.reference_version,
            "reference_versions_certified": list(CERTIFIED_REFERENCE_VERSIONS),
            "gpu_backend": plan.facts.gpu_backend,
            "gpu_count": plan.facts.gpu_count,
        },
        "certification": {
            "registry": plan.admission.registry,
            "statuses": {b.value: plan.admission.status(b).value for b in BackendId if b is not BackendId.HF},
        },
        "gpu_backend": {"loaded": False},
        "experimental_waivers": [gate.to_dict() for gate in plan.waivers],
        "model_resolution": resolution,
        "counters": {
            "calls": {
                BackendId.FAST_CPU.value: native[0],
                BackendId.HF.value: counters.calls(BackendId.HF),
            },
            "native_bytes": native[1],
            "reasons": counters.reasons(),
        },
    }


def _decode_by_reference(plan: Plan) -> bool:
    return plan.serves is BackendId.HF or plan.program.decode_by_reference


def _verdict(plan: Plan) -> str:
    """One sentence for people."""
    assert plan.serves is not None
    if plan.serves is BackendId.HF:
        gate = plan.involuntary
        return "the reference serves, as asked" if gate is None else f"the reference serves: {gate.summary}"
    ground = next(g.summary for g in plan.gates if g.backend is plan.serves and g.name == "registry")
    text = f"{plan.serves.value} serves ({ground})"
    if plan.status is Status.EXPERIMENTAL or plan.waivers:
        text += ", experimental: equality is not shown"
    return text
