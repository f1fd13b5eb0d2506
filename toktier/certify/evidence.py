"""The evidence of a certification: one canonical document, made from a plan and the results of its blocks.

Its digest leaves out `environment` (when, where, how fast), so that the same plan on the same build gives the same
digest on any day, in one run or in shards put together. Not here: who may be believed (`toktier.evidence`).
"""

from __future__ import annotations

import hashlib
import json
import platform
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from toktier import resources
from toktier.canonical import canonical_json, evidence_digest
from toktier.certify.checkpoint import BlockResult
from toktier.certify.outcome import Outcome, SuiteState, judge
from toktier.certify.plan import Plan, read_plan
from toktier.certify.run_files import read_at_most
from toktier.certify.tally import Counts
from toktier.certify.workers import BlockFault
from toktier.errors import EvidenceInvalid
from toktier.labels import shown_path

SCHEMA = "toktier.evidence"
FILE_NAME = "evidence.json"
MAX_EVIDENCE_BYTES = 64 << 20
MAX_FAILURES = 20  # named in the document; all are counted
BLOCK_DIGEST_CHARS = 16  # of each block: enough to hold a repeated block against
NOT_RUN = "-" * BLOCK_DIGEST_CHARS


def build_facts() -> dict[str, Any]:
    """What the native engine says of its own build: compiler, flags, dispatch level. Strings only."""
    from toktier.program import engine_identity

    facts = sorted(engine_identity.build_facts().items())
    facts = [fact for fact in facts if fact[0] != "gpu_host_digest"]  # bound by evidence of the GPU alone, in its plan
    return {key: value if isinstance(value, str) else ", ".join(map(str, value)) for key, value in facts}


def states_of(
    plan: Plan, results: Mapping[int, BlockResult], faults: Sequence[BlockFault] = (), within: range | None = None
) -> list[SuiteState]:
    """What was done of every suite, of the blocks in `within` (None: all)."""
    whole = range(plan.blocks) if within is None else within
    by_suite: dict[int, list[tuple[int, str]]] = {}
    for fault in sorted(faults, key=lambda f: f.index):
        suite, block = plan.locate(fault.index)
        by_suite.setdefault(suite, []).append((block, fault.reason))
    states = []
    for number, planned in enumerate(plan.suites):
        own = plan.range_of(number)
        own = range(max(own.start, whole.start), min(own.stop, whole.stop))
        counts, done = Counts(), 0
        for index in own:
            if index in results:
                counts.add(results[index].counts)
                done += 1
        states.append(SuiteState(planned.name, len(own), done, planned.why, counts, by_suite.get(number, ())))
    return states


def empty_corpora(plan: Plan) -> list[str]:
    return [c["sha256"][:12] for c in plan.document["corpora"] if not c["documents"] or not c["utf8_bytes"]]


def make_evidence(
    plan: Plan,
    build: Mapping[str, Any],
    results: Mapping[int, BlockResult],
    faults: Sequence[BlockFault],
    environment: Mapping[str, Any],
) -> dict[str, Any]:
    """The document. `results` may lack blocks: then it is incomplete, and says so."""
    states = states_of(plan, results, faults)
    outcome, reasons = judge(states, empty_corpora(plan))
    totals = Counts()
    suites: list[dict[str, Any]] = []
    for number, state in enumerate(states):
        totals.add(state.counts)
        digests = [results[i].digest if i in results else NOT_RUN for i in plan.range_of(number)]
        suites.append(
            {
                "name": state.name,
                "blocks_done": state.done,
                "counts": state.counts.to_dict(),
                "digest": hashlib.sha256("\n".join(digests).encode("ascii")).hexdigest(),
                "block_digests": "".join(digest[:BLOCK_DIGEST_CHARS] for digest in digests),
            }
        )
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "schema_version": 1,
        "plan": plan.document,
        "build": dict(build),
        "outcome": outcome.value,
        "reasons": [reason.to_dict() for reason in reasons],
        "suites": suites,
        "totals": totals.to_dict(),
        "failures": _named_failures(plan, results),
        "environment": dict(environment),
    }
    document["digest"] = evidence_digest(document)
    return document


def _named_failures(plan: Plan, results: Mapping[int, BlockResult]) -> list[dict[str, Any]]:
    """The first different failures in plan order, without their texts: a corpus need not be public."""
    named: dict[tuple[str, str], dict[str, Any]] = {}
    for failure in (failure for index in sorted(results) for failure in results[index].failures):
        kind, subject = ("text", failure["text"]) if "text" in failure else ("value", failure["subject"])
        digest = hashlib.sha256(str(subject).encode("utf-8")).hexdigest()
        if (kind, digest) in named:
            named[kind, digest]["times"] += failure["times"]
        elif len(named) < MAX_FAILURES:
            named[kind, digest] = {
                "suite": failure["suite"],
                "block": failure["block"],
                "what": failure["what"],
                "times": failure["times"],
                "of": kind,
                "sha256": digest,
            }
    return list(named.values())


def environment_of(seconds: float, workers: int, runs: int) -> dict[str, Any]:
    """When, on what kind of machine and how fast; never part of a digest. No host name: evidence is handed on."""
    return {
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "milliseconds": round(seconds * 1000),
        "workers": workers,
        "runs": runs,
    }


def to_bytes(document: Mapping[str, Any]) -> bytes:
    """Canonical JSON and a line end: what is written."""
    return canonical_json(dict(document)) + b"\n"


def read_evidence(path: Path) -> tuple[dict[str, Any], Plan]:
    """A document from a file, and its plan. Raises EvidenceInvalid for anything that its own rules contradict."""
    document = _parsed(path)
    _check_schema(document, path)
    if document["digest"] != evidence_digest(document):
        raise _edited(path, "its digest is not that of its content")
    plan = read_plan(document["plan"], str(path))
    check_sums(document, plan, path)
    return document, plan


def check_sums(document: Mapping[str, Any], plan: Plan, path: Path) -> None:
    """Whether the parts of a document agree: sums, numbers of blocks, and the outcome that follows from them."""
    if [suite["name"] for suite in document["suites"]] != [suite.name for suite in plan.suites]:
        raise _edited(path, "its suites are not those of its plan")
    totals, states = Counts(), []
    faults: dict[str, list[tuple[int, str]]] = {}
    for reason in document["reasons"]:
        if reason["code"] == "fault":
            block, _, text = reason["text"].removeprefix("block ").partition(": ")
            faults.setdefault(reason["suite"], []).append((int(block) if block.isdigit() else -1, text))
    for suite, planned in zip(document["suites"], plan.suites, strict=True):
        counts = Counts(**suite["counts"])
        totals.add(counts)
        parts = suite["block_digests"]
        done = sum(parts[at : at + BLOCK_DIGEST_CHARS] != NOT_RUN for at in range(0, len(parts), BLOCK_DIGEST_CHARS))
        if len(parts) != planned.blocks * BLOCK_DIGEST_CHARS or done != suite["blocks_done"]:
            raise _edited(path, f"the blocks of suite {planned.name} do not add up")
        if counts.mismatches + counts.routed > counts.checks or (counts.checks and not done):
            raise _edited(path, f"the counts of suite {planned.name} do not add up")
        states.append(SuiteState(planned.name, planned.blocks, done, planned.why, counts, faults.get(planned.name, ())))
    if totals.to_dict() != document["totals"]:
        raise _edited(path, "its totals are not the sums of its suites")
    outcome, reasons = judge(states, empty_corpora(plan))
    if outcome.value != document["outcome"] or [r.to_dict() for r in reasons] != document["reasons"]:
        raise _edited(path, f"its counts mean {outcome.value}, and it says {document['outcome']}")


def outcome_of(document: Mapping[str, Any]) -> Outcome:
    return Outcome(document["outcome"])


def _parsed(path: Path) -> dict[str, Any]:
    data = read_at_most(path, MAX_EVIDENCE_BYTES)
    try:
        document = None if data is None else json.loads(data)
        canonical = document is not None and canonical_json(document) + b"\n" == data
    except (ValueError, TypeError, RecursionError):
        document, canonical = None, False
    if not isinstance(document, dict) or not canonical:
        raise _edited(path, "it is not canonical JSON as it is written")
    return document


def _check_schema(document: dict[str, Any], path: Path) -> None:
    from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

    schema = json.loads((resources.tables_dir() / "schemas" / "evidence.schema.json").read_text("utf-8"))
    problem = next(iter(Draft202012Validator(schema).iter_errors(document)), None)
    if problem is not None:
        raise _edited(path, f"{'.'.join(map(str, problem.absolute_path)) or 'it'} does not fit the schema")


def _edited(path: Path, problem: str) -> EvidenceInvalid:
    return EvidenceInvalid(
        f"{shown_path(path)} is no evidence that toktier wrote: {problem}",
        details={"path": str(path), "problem": problem},
        remedy="bring it again from where it was made, or run toktier certify again",
    )
