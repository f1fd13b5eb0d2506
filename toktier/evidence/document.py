"""Reads evidence: the document that a certification writes, cut down to what admission and the registry ask of it.

Checked here: size, root digest, plan digest, types of what is read, and that "passed" follows from the counts. The
document is written, and held to its full schema, by `toktier.certify.evidence`; this reader is what a load can afford.
Not here: whether the engine and the reference that it names are those at hand (`admission`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from toktier.canonical import TAG_CERTIFY_PLAN, document_digest, evidence_digest
from toktier.errors import EvidenceInvalid
from toktier.evidence.kernels import Kernels, read_kernels
from toktier.routing.vocabulary import THIRD_PARTY, BackendId

SCHEMA = "toktier.evidence"
SCHEMA_VERSION = 1
MAX_BYTES = 16 << 20
COUNTS = ("documents", "utf8_bytes", "code_points", "ids", "checks", "mismatches", "routed")
LEVELS = ("quick", "standard", "exhaustive")
"""Levels of certification from the lowest up: `toktier.certify.levels`, which a load does not import."""
_HEX = re.compile(r"[0-9a-f]{64}", re.ASCII)
_WORD = re.compile(r"[A-Za-z0-9_.+-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Evidence:
    """One certification. `engine`: identity of what was compared with `reference_version`; `suites`: the names of those
    that had something to check; `readings`: sums over them; `dispatch_levels`: code paths that were taken; `kernels`:
    of a GPU, None for every other backend."""

    digest: str
    artifact_sha256: str
    artifact_name: str
    fingerprint: str
    backend: BackendId
    engine: str
    reference_version: str
    level: str
    suites: tuple[str, ...]
    passed: bool
    readings: Mapping[str, int]
    facts: Mapping[str, Mapping[str, Any]]
    dispatch_levels: tuple[str, ...]
    build: Mapping[str, str]
    kernels: Kernels | None = None


def version_key(reference_version: str, kernels: Kernels | None) -> str:
    """What a row of the registry has an entry for, and names of files hold: of a GPU also the compute capability."""
    return reference_version if kernels is None else f"{reference_version}+{kernels.place}"


def read(data: bytes, where: str) -> Evidence:
    """The evidence in the bytes of a file. `where` stands in messages. Raises EvidenceInvalid."""
    if len(data) > MAX_BYTES:
        raise _invalid(where, f"{len(data):,} bytes are more than the {MAX_BYTES:,} that evidence may have")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise _invalid(where, "it is no JSON") from None
    return of_document(document, where)


def of_document(document: Any, where: str) -> Evidence:
    """The evidence of a parsed document. Raises EvidenceInvalid."""
    try:
        return _read(document)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        problem = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise _invalid(where, problem) from None


def _read(document: Mapping[str, Any]) -> Evidence:
    _demand(document["schema"] == SCHEMA and document["schema_version"] == SCHEMA_VERSION, "it has another schema")
    _demand(document["digest"] == evidence_digest(dict(document)), "its digest is not that of its content")
    plan = document["plan"]
    content = {key: value for key, value in plan.items() if key != "digest"}
    _demand(plan["digest"] == document_digest(TAG_CERTIFY_PLAN, content), "the digest of its plan does not hold")
    artifact, reference = plan["artifact"], plan["reference"]
    for name, value in (
        ("artifact", artifact["sha256"]), ("fingerprint", artifact["fingerprint"]), ("engine", plan["engine"])
    ):  # fmt: skip
        _demand(_HEX.fullmatch(value) is not None, f"its {name} is no SHA-256")
    _demand(reference["package"] == "tokenizers", "its reference is another package")
    _demand(_WORD.fullmatch(reference["version"]) is not None, "its reference has no version")
    _demand(plan["level"] in LEVELS, f"its level is none of {', '.join(LEVELS)}")
    backend = BackendId(plan["backend"])  # evidence of the emulator ends here: it is of no backend
    _demand(backend not in THIRD_PARTY, "it is of an engine of others, which no evidence admits")
    _demand(("kernels" in plan) == (backend is BackendId.GPU), "it is of kernels, or names none")
    build = {str(key): str(value) for key, value in document["build"].items()}
    return Evidence(
        digest=str(document["digest"]),
        artifact_sha256=artifact["sha256"],
        artifact_name=str(artifact["name"]),
        fingerprint=artifact["fingerprint"],
        backend=backend,
        engine=plan["engine"],
        reference_version=reference["version"],
        level=plan["level"],
        suites=tuple(suite["name"] for suite in plan["suites"] if suite["blocks"] or suite["why"]),
        passed=_passed(document, plan),
        readings=_counts(document["totals"]),
        facts={suite["name"]: suite["facts"] for suite in plan["suites"] if suite["facts"]},
        dispatch_levels=tuple(sorted(_WORD.findall(build.get("dispatch_levels", "")))),
        build=build,
        kernels=read_kernels(plan["kernels"]) if backend is BackendId.GPU else None,
    )


def _passed(document: Mapping[str, Any], plan: Mapping[str, Any]) -> bool:
    """Whether the document says "passed", which its counts must then bear out."""
    if document["outcome"] != "passed":
        return False
    done, planned = document["suites"], plan["suites"]
    _demand([suite["name"] for suite in done] == [suite["name"] for suite in planned], "its suites are not the planned")
    sums = dict.fromkeys(COUNTS, 0)
    for suite, wanted in zip(done, planned, strict=True):
        counts = _counts(suite["counts"])
        whole = suite["blocks_done"] == wanted["blocks"] and (wanted["blocks"] == 0 or counts["checks"] > 0)
        served = wanted["blocks"] == 0 or counts["routed"] < counts["checks"]
        _demand(whole and served and counts["mismatches"] == 0, f"its suite {suite['name']} is no pass")
        for name in COUNTS:
            sums[name] += counts[name]
    _demand(sums == _counts(document["totals"]), "its totals are not the sums of its suites")
    _demand(not document["reasons"] and sums["checks"] > 0, "nothing was checked, or something speaks against it")
    return True


def _counts(given: Mapping[str, Any]) -> dict[str, int]:
    counts = {name: given[name] for name in COUNTS}
    _demand(all(type(value) is int and value >= 0 for value in counts.values()), "a count is no number")
    return counts


def _demand(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)


def _invalid(where: str, problem: str) -> EvidenceInvalid:
    return EvidenceInvalid(
        f"{where} is no evidence that can be believed: {problem}",
        details={"file": where, "problem": problem},
        remedy="run toktier certify again",
    )
