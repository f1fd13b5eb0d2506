"""The rule of outcomes, case by case."""

from __future__ import annotations

import pytest

from toktier.certify.outcome import AGAINST_MEANINGS, EXIT_CODES, OUTCOME_MEANINGS, Against, Outcome, SuiteState, judge
from toktier.certify.tally import Counts

GOOD = Counts(documents=2, checks=3)


@pytest.mark.parametrize(
    ("states", "corpora", "outcome", "codes"),
    [
        ([SuiteState("a", 1, 1, None, GOOD)], [], Outcome.PASSED, []),
        ([SuiteState("a", 1, 1, None, Counts(checks=3, routed=2))], [], Outcome.PASSED, []),
        ([SuiteState("a", 1, 1, None, GOOD), SuiteState("b", 0, 0, "why", Counts())], [], Outcome.PASSED, []),
        ([SuiteState("a", 1, 1, None, GOOD), SuiteState("b", 0, 0, None, Counts())], [], Outcome.INCOMPLETE,
         [Against.UNEXPLAINED]),
        ([SuiteState("a", 1, 1, None, Counts(checks=3, routed=3))], [], Outcome.INCOMPLETE, [Against.NOT_SERVED]),
        ([SuiteState("a", 1, 1, None, Counts())], [], Outcome.INCOMPLETE, [Against.NOTHING_CHECKED]),
        ([SuiteState("a", 2, 1, None, GOOD)], [], Outcome.INCOMPLETE, [Against.NOT_RUN]),
        ([SuiteState("a", 2, 1, None, GOOD, [(1, "x")])], [], Outcome.INCOMPLETE, [Against.FAULT]),
        ([SuiteState("a", 2, 1, None, Counts(checks=1, mismatches=1))], [], Outcome.FAILED,
         [Against.MISMATCH, Against.NOT_RUN]),
        ([], [], Outcome.INCOMPLETE, [Against.NOTHING_PLANNED]),
        ([SuiteState("a", 1, 1, None, GOOD)], ["empty"], Outcome.INCOMPLETE, [Against.EMPTY_CORPUS]),
    ],
)  # fmt: skip
def test_what_counts_mean(states: list[SuiteState], corpora: list[str], outcome: Outcome, codes: list[Against]) -> None:
    got, reasons = judge(states, corpora)
    assert got is outcome
    assert [reason.code for reason in reasons] == codes


def test_a_shard_may_lack_a_suite_and_be_routed() -> None:
    states = [SuiteState("a", 0, 0, None, Counts()), SuiteState("b", 1, 1, None, Counts(checks=1, routed=1))]
    assert judge(states, whole=False) == (Outcome.PASSED, [])


def test_each_has_a_meaning() -> None:
    assert set(EXIT_CODES) == set(OUTCOME_MEANINGS) == set(Outcome)
    assert set(AGAINST_MEANINGS) == set(Against)
    assert EXIT_CODES[Outcome.PASSED] == 0
