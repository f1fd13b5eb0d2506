"""A run from its plan to its files: blocks over processes into the checkpoint, then evidence, JUnit XML and a summary.

What a run leaves, however it ends: a checkpoint that goes on. A whole run leaves evidence; a shard leaves none, because
evidence speaks of the whole plan: `merge` makes it. COMPLETE is written when no block is missing.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toktier.certify import checkpoint as checkpoints
from toktier.certify.checkpoint import FAILURES, BlockResult, Checkpoint
from toktier.certify.evidence import FILE_NAME, empty_corpora, environment_of, make_evidence, states_of, to_bytes
from toktier.certify.failures import failure_documents
from toktier.certify.failures import to_bytes as failure_bytes
from toktier.certify.junit import junit
from toktier.certify.outcome import Outcome, Reason, SuiteState, judge
from toktier.certify.plan import Plan, Prepared, Shard
from toktier.certify.stop import listening
from toktier.certify.summary import summary
from toktier.certify.workers import BLOCK_SECONDS, BlockFault, default_workers, run_blocks
from toktier.labels import typed
from toktier.storage import atomic_write, make_directory

if TYPE_CHECKING:
    from toktier.certify.subject import Subject

JUNIT, SUMMARY = "junit.xml", "summary.md"
MAX_FAILURES = 20

Watch = Callable[[BlockResult | BlockFault], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """`time_budget` in seconds from `started` (time.monotonic()) on, None: no bound."""

    workers: int = 0  # 0: one a core
    time_budget: float | None = None
    started: float = 0.0
    block_seconds: float = BLOCK_SECONDS
    max_failures: int = MAX_FAILURES


@dataclass(frozen=True, slots=True)
class Report:
    """What became of a run, or of several put together. `evidence` is None for a shard."""

    directory: Path
    plan: Plan
    shard: Shard
    outcome: Outcome
    states: list[SuiteState]
    reasons: list[Reason]
    failures: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    evidence: dict[str, Any] | None = None
    out_of_time: bool = False

    @property
    def digest(self) -> str | None:
        return None if self.evidence is None else str(self.evidence["digest"])

    def junit(self) -> bytes:
        return junit(self.plan, self.states, self.reasons, self.failures)

    def summary(self) -> bytes:
        return summary(self.plan, self.outcome, self.states, self.reasons, self.failures, self.shard, self.digest)


def run(prepared: Prepared, state: Checkpoint, options: RunOptions, watch: Watch = lambda _: None) -> Report:
    """Runs what the checkpoint lacks. Raises Interrupted or Terminated after a signal, the checkpoint being good."""
    started = options.started or time.monotonic()
    workers = options.workers or default_workers(prepared.subject.on_device)
    end = None if options.time_budget is None else started + options.time_budget
    faults: list[BlockFault] = []

    def enough() -> bool:
        return end is not None and time.monotonic() >= end

    again = f"toktier certify --resume {typed(state.directory)}"
    with checkpoints.Writer(state) as writer:
        with listening() as stop:
            for answer in run_blocks(
                prepared, state.missing, workers, stop=stop, enough=enough, block_seconds=options.block_seconds
            ):
                if isinstance(answer, BlockResult):
                    writer.append(answer)
                else:
                    faults.append(answer)
                watch(answer)
        left = len(state.missing)
        if stop() and left:
            raise stop.error(f"interrupted: {left:,} of {len(state.planned):,} blocks are left", again)
        report = _report(prepared.subject, state, faults, options, time.monotonic() - started, workers)
    if not state.missing:
        checkpoints.seal(state.directory)
    return report


def _report(
    subject: Subject,
    state: Checkpoint,
    faults: Sequence[BlockFault],
    options: RunOptions,
    seconds: float,
    workers: int,
) -> Report:
    plan, directory = state.plan, state.directory
    whole = state.shard.count == 1
    evidence = None
    if whole:
        evidence = make_evidence(plan, state.build, state.results, faults, environment_of(seconds, workers, 1))
    states = states_of(plan, state.results, faults, state.planned)
    outcome, reasons = judge(states, empty_corpora(plan), whole=whole)
    failures = write_failures(
        directory, list(failure_documents(plan, state.results, subject, state.target, options.max_failures))
    )
    report = Report(
        directory,
        plan,
        state.shard,
        outcome,
        states,
        reasons,
        failures,
        evidence,
        out_of_time=bool(state.missing) and len(faults) < len(state.missing),
    )
    write_reports(report)
    return report


def write_failures(
    directory: Path, documents: Sequence[tuple[str, dict[str, Any]]]
) -> list[tuple[str, dict[str, Any]]]:
    """Replaces the failures of a directory; gives their paths with the documents."""
    shutil.rmtree(directory / FAILURES, ignore_errors=True)
    if documents:
        make_directory(directory / FAILURES)
    for name, document in documents:
        atomic_write(directory / FAILURES / name, failure_bytes(document))
    return [(str(directory / FAILURES / name), document) for name, document in documents]


def write_reports(report: Report) -> None:
    """Evidence, JUnit XML and summary into the directory of a report."""
    if report.evidence is not None:
        atomic_write(report.directory / FILE_NAME, to_bytes(report.evidence))
    atomic_write(report.directory / JUNIT, report.junit())
    atomic_write(report.directory / SUMMARY, report.summary())
