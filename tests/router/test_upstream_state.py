"""Epochs: what tells a process from the one before it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from toktier.router.upstream_facts import SlotReport, UpstreamFacts
from toktier.router.upstream_state import MAX_NOTES, Standing
from toktier.router.vocabulary import UpstreamState

FACTS = UpstreamFacts(
    total_slots=2, n_ctx=64, model="m", model_path="/m", build="b1", process="<a>", shows_slots=True, n_vocab=9
)
OLDER = replace(FACTS, process=None)
SLOTS = [SlotReport(id=index, n_ctx=64, busy=False, tokens=5, id_task=7) for index in range(2)]


def admitted(facts: UpstreamFacts) -> Standing:
    standing = Standing()
    assert standing.answered(facts, SLOTS)
    assert standing.state is UpstreamState.DOWN  # until it is admitted
    standing.admitted(facts)
    assert (standing.state, standing.epoch, standing.why) == (UpstreamState.UP, 1, None)
    return standing


@pytest.mark.parametrize(
    "changed",
    [{"process": "<b>"}, {"build": "b2"}, {"model_path": "/n"}, {"total_slots": 3}, {"n_ctx": 32}, {"process": None}],
    ids=lambda changed: next(iter(changed)),
)
def test_another_identity_is_another_process(changed: dict[str, object]) -> None:
    standing = admitted(FACTS)
    standing.note("of the first")
    assert standing.answered(replace(FACTS, **changed), SLOTS)  # type: ignore[arg-type]
    assert standing.epoch == 2
    assert standing.notes == []
    assert standing.state is not UpstreamState.UP


def test_what_was_asked_after_admission_does_not_make_another_process() -> None:
    standing = admitted(FACTS)
    assert not standing.answered(replace(FACTS, n_vocab=None, model="alias"), SLOTS)
    assert standing.epoch == 1


def test_a_loss_is_a_restart_where_processes_have_no_name_and_none_where_they_have() -> None:
    for facts, epochs in ((FACTS, 1), (OLDER, 2)):
        standing = admitted(facts)
        standing.lost("reset")
        assert standing.state is UpstreamState.DOWN
        assert standing.answered(facts, SLOTS) is (epochs == 2)
        assert standing.epoch == epochs
        standing.admitted(facts)
        assert not standing.answered(facts, SLOTS)


@pytest.mark.parametrize(
    "now",
    [{"id_task": 6}, {"id_task": None}, {"tokens": None}],
    ids=["fewer tasks", "no task", "no tokens"],
)
def test_slots_that_have_gone_back_are_of_another_process_where_processes_have_no_name(now: dict[str, object]) -> None:
    for facts, epochs in ((FACTS, 1), (OLDER, 2)):
        standing = admitted(facts)
        slots = [SLOTS[0], replace(SLOTS[1], **now)]  # type: ignore[arg-type]
        assert standing.answered(facts, slots) is (epochs == 2)
        assert standing.epoch == epochs


def test_slots_that_go_on_are_of_the_same_process() -> None:
    standing = admitted(OLDER)
    assert not standing.answered(OLDER, [replace(SLOTS[0], tokens=0, id_task=9, busy=True), SLOTS[1]])
    assert not standing.answered(OLDER, [replace(SLOTS[0], tokens=2, id_task=9), replace(SLOTS[1], id_task=12)])
    assert standing.answered(OLDER, SLOTS)


def test_one_that_is_refused_stays_so_until_it_is_another() -> None:
    standing = admitted(FACTS)
    standing.refused("another family")
    assert not standing.answered(FACTS, SLOTS)
    assert (standing.state, standing.why) == (UpstreamState.REFUSED, "another family")


DISTURBANCES: dict[str, Callable[[Standing], None]] = {
    "silent": lambda standing: standing.lost("it was silent"),
    "loading": Standing.loading,
    "a wrong answer": lambda standing: standing.unusable("no JSON"),
}


@pytest.mark.parametrize("disturbed", DISTURBANCES.values(), ids=DISTURBANCES)
def test_law_whatever_came_between_a_process_is_what_its_admission_said(disturbed: Callable[[Standing], None]) -> None:
    """One that was refused is not used because it could not be reached, nor is one lost that answered wrongly once."""
    used, refused = admitted(FACTS), admitted(FACTS)
    refused.refused("another family")
    for _ in range(3):
        for standing in (used, refused):
            disturbed(standing)
            assert standing.state is not UpstreamState.UP
            assert not standing.answered(FACTS, SLOTS)
        assert (used.state, used.why, used.epoch) == (UpstreamState.UP, None, 1)
        assert (refused.state, refused.why) == (UpstreamState.REFUSED, "another family")
    assert refused.answered(replace(FACTS, process="<b>"), SLOTS)


def test_a_process_that_was_not_judged_to_the_end_is_judged_again_and_is_no_other() -> None:
    standing = Standing()
    for _ in range(3):
        assert standing.answered(FACTS, SLOTS)
        assert (standing.state, standing.epoch) == (UpstreamState.DOWN, 1)
        standing.lost("it was silent")
    assert standing.answered(FACTS, SLOTS)
    standing.admitted(FACTS)
    assert (standing.state, standing.epoch) == (UpstreamState.UP, 1)


def test_slots_that_were_not_told_are_compared_with_the_next_that_are() -> None:
    standing = admitted(OLDER)
    assert not standing.answered(OLDER, None)
    assert (standing.state, standing.slots) == (UpstreamState.UP, [])
    assert standing.answered(OLDER, [replace(slot, id_task=1) for slot in SLOTS])


def test_notes_are_printable_told_once_and_bounded() -> None:
    standing = admitted(FACTS)
    for number in range(100):
        standing.note("\x1b[2J twice")
        standing.note(f"number {number} {'x' * 10_000}")
    assert len(standing.notes) == MAX_NOTES
    assert all(note.isprintable() and len(note) < 2000 for note in standing.notes)
    assert len(set(standing.notes)) == MAX_NOTES
