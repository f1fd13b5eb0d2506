"""Whether evidence is what it claims: its own rules, the installation that it speaks of, and a sample run again.

A document that was edited or contradicts itself is refused; one of another engine or reference version is stale: true
of what it names, and nothing about what is installed. Not here: whose evidence counts (`toktier.evidence`).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toktier.certify import checkpoint as checkpoints
from toktier.certify.evidence import BLOCK_DIGEST_CHARS, FILE_NAME, NOT_RUN, make_evidence, read_evidence
from toktier.certify.outcome import Outcome
from toktier.certify.plan import (
    Plan,
    Prepared,
    differences,
    installed_engine,
    installed_reference,
    make_plan,
)
from toktier.certify.suites import suite_named
from toktier.certify.workers import run_block
from toktier.errors import ArtifactHashMismatch, EvidenceIncomplete, EvidenceInvalid, EvidenceStale
from toktier.gpu.host_identity import host_identity
from toktier.labels import shown_path

if TYPE_CHECKING:
    from toktier.certify.subject import Subject

DIFFERENCES_NAMED = 3
CORPUS_SUITE = "corpus"


@dataclass
class Verified:
    """What was checked, in order, and what was found of the sample."""

    path: Path
    document: dict[str, Any]
    plan: Plan
    checks: list[str] = field(default_factory=list)
    sampled: list[dict[str, Any]] = field(default_factory=list)

    @property
    def outcome(self) -> Outcome:
        return Outcome(self.document["outcome"])


def verify(path: Path) -> Verified:
    """Of a file, or of a whole run directory. Raises EvidenceInvalid, EvidenceIncomplete, EvidenceStale."""
    directory = path if path.is_dir() else None
    if directory is not None:
        checkpoints.check_seal(directory)
        state = checkpoints.read(directory)
        if state.shard.count > 1:
            raise EvidenceIncomplete(
                f"{shown_path(directory)} is shard {state.shard} of a plan, and evidence speaks of the whole",
                details={"path": str(directory), "shard": str(state.shard)},
                remedy="toktier certify merge DIR..., with the directories of all shards",
            )
    document, plan = read_evidence(path / FILE_NAME if directory is not None else path)
    found = Verified(path, document, plan, ["schema", "digest", "plan digest", "sums", "outcome"])
    if directory is not None:
        found.checks.insert(0, "files of the run")
        again = make_evidence(state.plan, state.build, state.results, [], {})
        if again["digest"] != document["digest"]:
            raise EvidenceInvalid(
                f"{FILE_NAME} in {shown_path(directory)} is not what its blocks give",
                details={"expected": again["digest"], "found": document["digest"]},
                remedy="run it again",
            )
        found.checks.append("blocks")
    _require_current(plan, path)
    found.checks += ["engine identity", "reference version"]
    return found


def _require_current(plan: Plan, path: Path) -> None:
    """Raises EvidenceStale where the installation is not the one that was certified."""
    said = {"engine": plan.document["engine"], "reference": plan.document["reference"]["version"]}
    installed = {"engine": installed_engine(), "reference": installed_reference()}
    if "kernels" in plan.document:
        said["host side of the kernels"] = plan.document["kernels"]["host"]
        installed["host side of the kernels"] = host_identity()
    changed = differences(said, installed)
    if changed:
        raise EvidenceStale(
            f"{shown_path(path)} is of another installation: "
            + "; ".join(f"{c['path']} was {c['a']}, installed is {c['b']}" for c in changed),
            details={"differs": changed},
            remedy="toktier certify, with this installation",
        )


def require_same_plan(expected: Plan, prepared: Prepared, what: str) -> None:
    """Raises EvidenceStale naming what differs between a plan and the one that this installation makes."""
    changed = differences(expected.document, prepared.plan.document)
    if changed:
        named = ", ".join(entry["path"] for entry in changed[:DIFFERENCES_NAMED])
        raise EvidenceStale(
            f"{what} has another plan than this installation makes now: {named} differs",
            details={"differs": changed[:100]},
            remedy="run it anew, without --resume",
        )


def require_artifact(plan: Plan, subject: Subject) -> None:
    """Raises ArtifactHashMismatch unless the file is the one that the plan names."""
    if subject.sha256 != plan.document["artifact"]["sha256"]:
        raise ArtifactHashMismatch(
            f"{shown_path(subject.path)} is not the tokenizer.json of this evidence",
            details={"expected_sha256": plan.document["artifact"]["sha256"], "observed_sha256": subject.sha256},
            remedy="give the file that was certified with --file PATH",
        )


def sample(found: Verified, subject: Subject, number: int) -> None:
    """Runs `number` blocks again, drawn anew each time, and fills `sampled`. Plans first, so that facts are held
    against the evidence too. The suite of corpora is planned only when the subject has them. Raises EvidenceStale for
    another plan, EvidenceInvalid where an agreeing block has another digest."""
    plan = found.plan
    require_artifact(plan, subject)
    with_corpora = bool(subject.corpora) or not plan.document["corpora"]
    names = [suite.name for suite in plan.suites if with_corpora or suite.name != CORPUS_SUITE]
    prepared = make_plan(
        subject,
        [suite_named(name) for name in names],
        plan.level,
        plan.seed,
        plan.document["artifact"]["name"],
    )
    left_out = {"suites": [s for s in plan.document["suites"] if s["name"] in names]}
    if not with_corpora:
        left_out["corpora"] = []
    require_same_plan(Plan({**plan.document, **left_out}), prepared, shown_path(found.path))
    recorded = {suite["name"]: suite["block_digests"] for suite in found.document["suites"]}
    indices = range(prepared.plan.blocks)
    for index in sorted(random.SystemRandom().sample(indices, min(number, len(indices)))):
        suite, block = prepared.plan.locate(index)
        name = prepared.plan.suites[suite].name
        expected = recorded[name][block * BLOCK_DIGEST_CHARS : (block + 1) * BLOCK_DIGEST_CHARS]
        result = run_block(prepared, index)
        same = result.digest.startswith(expected)
        if expected != NOT_RUN and not same:
            raise EvidenceInvalid(
                f"block {block} of suite {name} gives another digest than {shown_path(found.path)} says",
                details={"suite": name, "block": block, "expected": expected, "found": result.digest},
                remedy="run toktier certify again",
            )
        found.sampled.append({"suite": name, "block": block, "counts": result.counts.to_dict()})
    found.checks.append("sample")
