"""Evidence as a certification would write it, small and made up: for tests of what reads it."""

from __future__ import annotations

from typing import Any

from toktier.canonical import TAG_CERTIFY_PLAN, document_digest, evidence_digest
from toktier.program.engine_identity import build_facts, engine_identity

COUNTS = {
    "documents": 10,
    "utf8_bytes": 1000,
    "code_points": 900,
    "ids": 300,
    "checks": 12,
    "mismatches": 0,
    "routed": 0,
}


def sealed(document: dict[str, Any]) -> dict[str, Any]:
    """With digests that hold, whatever it says."""
    plan = document["plan"]
    plan["digest"] = document_digest(TAG_CERTIFY_PLAN, {k: v for k, v in plan.items() if k != "digest"})
    return {**document, "digest": evidence_digest(document)}


def evidence_document(
    *,
    sha256: str = "ab" * 32,
    fingerprint: str = "cd" * 32,
    name: str = "something",
    engine: str | None = None,
    reference: str = "0.23.3",
    level: str = "quick",
    suites: tuple[str, ...] = ("one", "two"),
) -> dict[str, Any]:
    """Evidence of a pass. `engine` None: the one at hand."""
    engine = engine or engine_identity()
    plan: dict[str, Any] = {
        "schema": "toktier.certify_plan",
        "schema_version": 1,
        "artifact": {"sha256": sha256, "size": 50, "name": name, "fingerprint": fingerprint},
        "backend": "fast_cpu",
        "engine": engine,
        "reference": {"package": "tokenizers", "version": reference},
        "level": level,
        "seed": 0,
        "suites": [{"name": n, "version": 1, "blocks": 2, "facts": {"covered": 7}, "why": None} for n in suites],
        "corpora": [],
    }
    return sealed(
        {
            "schema": "toktier.evidence",
            "schema_version": 1,
            "plan": plan,
            "build": {key: str(value) for key, value in {**build_facts(), "identity": engine}.items()},
            "outcome": "passed",
            "reasons": [],
            "suites": [
                {"name": n, "meaning": "?", "blocks_done": 2, "counts": dict(COUNTS), "digest": "0" * 64}
                for n in suites
            ],
            "totals": {key: value * len(suites) for key, value in COUNTS.items()},
            "failures": [],
            "environment": {"host": "somewhere"},
        }
    )


def gpu_evidence_document(kernels: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Evidence of a pass of these kernels."""
    document = evidence_document(**more)
    document["plan"] |= {"backend": "gpu", "kernels": kernels}
    return sealed({key: value for key, value in document.items() if key != "digest"})
