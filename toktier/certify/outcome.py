"""Whether counts amount to a pass: one table of outcomes and of the reasons against, and the rule that gives them.

A mismatch fails, whatever else there is. A pass needs every planned block done, without a fault, and in every planned
suite something that the backend itself served: routed checks are counted apart and are never agreement, but they do not
fail a run, because what answered them is the reference. Zero checks are never a pass.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from toktier.certify.tally import Counts
from toktier.errors import ExitCode


class Outcome(enum.StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    INCOMPLETE = "incomplete"


OUTCOME_MEANINGS: dict[Outcome, str] = {
    Outcome.PASSED: "every planned block was run and nothing differed",
    Outcome.FAILED: "something differed from the reference",
    Outcome.INCOMPLETE: "nothing differed in what was run, and that was not all that was planned, or it was nothing",
}
EXIT_CODES: dict[Outcome, ExitCode] = {
    Outcome.PASSED: ExitCode.DONE,
    Outcome.FAILED: ExitCode.NO,
    Outcome.INCOMPLETE: ExitCode.INCOMPLETE,
}


class Against(enum.StrEnum):
    """Reasons against a pass."""

    MISMATCH = "mismatch"
    NOTHING_PLANNED = "nothing_planned"
    NOTHING_CHECKED = "nothing_checked"
    UNEXPLAINED = "unexplained"
    NOT_RUN = "not_run"
    FAULT = "fault"
    NOT_SERVED = "not_served"
    EMPTY_CORPUS = "empty_corpus"


AGAINST_MEANINGS: dict[Against, str] = {
    Against.MISMATCH: "checks of the suite differed",
    Against.NOTHING_PLANNED: "no suite had a block to run",
    Against.NOTHING_CHECKED: "the suite ran and made no check",
    Against.UNEXPLAINED: "the suite planned no block and did not say why",
    Against.NOT_RUN: "planned blocks of the suite were not run",
    Against.FAULT: "a block ended without a result",
    Against.NOT_SERVED: "the reference answered every check inside the backend under test",
    Against.EMPTY_CORPUS: "a corpus has no document, or none with a byte of text",
}


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason; `suite` None: of the whole. `count`: checks or blocks; `text`: what a person reads."""

    code: Against
    suite: str | None
    count: int
    text: str

    def to_dict(self) -> dict[str, object]:
        return {"code": self.code.value, "suite": self.suite, "count": self.count, "text": self.text}


@dataclass(frozen=True, slots=True)
class SuiteState:
    """What the rule looks at: of a suite, within the range that is judged."""

    name: str
    planned: int
    done: int
    why: str | None
    counts: Counts
    faults: Sequence[tuple[int, str]] = ()


def judge(
    states: Sequence[SuiteState], empty_corpora: Iterable[str] = (), *, whole: bool = True
) -> tuple[Outcome, list[Reason]]:
    """`whole` False: of a shard, where a suite may have no block, and what it has may be served by the reference."""
    reasons: list[Reason] = []

    def against(code: Against, suite: str | None, count: int, text: str) -> None:
        reasons.append(Reason(code, suite, count, text))

    for s in states:
        if s.counts.mismatches:
            against(Against.MISMATCH, s.name, s.counts.mismatches, f"{s.counts.mismatches:,} checks differed")
        for block, reason in s.faults:
            against(Against.FAULT, s.name, 1, f"block {block}: {reason}")
        left = s.planned - s.done - len(s.faults)
        if left > 0:
            against(Against.NOT_RUN, s.name, left, f"{left:,} of {s.planned:,} blocks were not run")
        if whole and not s.planned and not s.why:
            against(Against.UNEXPLAINED, s.name, 0, AGAINST_MEANINGS[Against.UNEXPLAINED])
        if whole and s.planned and s.done == s.planned:
            if not s.counts.checks:
                against(Against.NOTHING_CHECKED, s.name, 0, AGAINST_MEANINGS[Against.NOTHING_CHECKED])
            elif s.counts.routed == s.counts.checks:
                against(Against.NOT_SERVED, s.name, s.counts.routed, AGAINST_MEANINGS[Against.NOT_SERVED])
    if not any(s.planned for s in states):
        against(Against.NOTHING_PLANNED, None, 0, AGAINST_MEANINGS[Against.NOTHING_PLANNED])
    for name in empty_corpora:
        against(Against.EMPTY_CORPUS, None, 0, f"corpus {name} has no text")
    if any(reason.code is Against.MISMATCH for reason in reasons):
        return Outcome.FAILED, reasons
    return (Outcome.INCOMPLETE if reasons else Outcome.PASSED), reasons
