"""The slot table: what it knows of slots after each way a request can end. Figures are those of a real llama-server."""

from __future__ import annotations

import numpy as np
import pytest

from tests.router.slot_tables import Table
from tests.router.token_prompts import after, unrelated
from toktier.router.slots import SlotTable
from toktier.router.vocabulary import SlotState

A = unrelated(1, 100)
GENERATED = [1, 2, 3, 4, 5, 6, 7, 8]


def state(table: SlotTable, slot: int) -> SlotState:
    return next(row.state for row in table.rows(0.0) if row.slot == slot)


def reuses(table: SlotTable, slot: int) -> int:
    return next(row.reuses for row in table.rows(0.0) if row.slot == slot)


# What a prompt finds


def test_the_same_prompt_finds_all_but_its_last_token() -> None:
    """D2."""
    table = Table()
    assert table.view(A, 0).reusable == 0
    table.run(0, A)
    view = table.view(A, 0)
    assert (view.reusable, view.sure, view.length) == (99, 99, 107)
    assert table.view(A, 1).reusable == 0


def test_the_next_turn_finds_the_prompt_and_what_was_generated() -> None:
    """D3."""
    table = Table()
    table.run(0, A, GENERATED)
    assert table.view(after(A, GENERATED, range(500, 520)), 0).sure == 107


@pytest.mark.parametrize("shared", [0, 1, 5, 9, 10, 11, 50])
def test_a_common_beginning_is_found_to_the_token(shared: int) -> None:
    """D4, D5."""
    table = Table()
    table.run(0, A)
    assert table.view(after(A[:shared], unrelated(2, 60)), 0).reusable == shared


def test_a_shorter_prompt_truncates_what_the_slot_holds() -> None:
    """D6."""
    table = Table()
    table.run(0, A[:60])
    assert table.view(A[:30], 0).reusable == 29
    table.run(0, A[:30])
    assert table.content(0) == [*A[:30].tolist(), *GENERATED[:-1]]
    assert table.view(A[:60], 0).reusable == 30


def test_nothing_behind_an_insertion_is_reused() -> None:
    """D7."""
    table = Table()
    prompt = unrelated(1, 120)
    table.run(0, prompt)
    assert table.view(after(prompt[:40], [7, 8, 9], prompt[40:]), 0).reusable == 40


def test_a_prompt_of_one_token_or_none_finds_nothing() -> None:
    table = Table()
    table.run(0, A)
    assert [view.reusable for view in table.views(A[:1])] == [0] * 4
    assert [view.reusable for view in table.views(A[:0])] == [0] * 4


# Ends of requests


def test_a_client_that_left_leaves_what_was_seen() -> None:
    """D14: after 4 tokens of a stream the slot holds the prompt and at least 3 of them."""
    table = Table()
    prompt = unrelated(1, 87)
    reservation = table.reserve(0, 0, prompt)
    settled = table.settle(reservation, generated=GENERATED[:4], finished=False)
    assert settled == (0, False, False, True)
    assert table.is_idle()
    assert table.view(after(prompt, GENERATED[:3], [70, 71, 72]), 0).sure == 90
    assert table.audit(0, [94, 0, 0, 0]) == []  # more were generated than were seen
    assert table.view(after(prompt, GENERATED[:3], [70, 71, 72]), 0).sure == 90
    assert table.audit(0, [89, 0, 0, 0]) == [0]


def test_a_request_cut_short_before_its_first_token_may_have_changed_the_slot() -> None:
    table = Table()
    table.run(0, A)
    other = after(A[:40], unrelated(2, 200))
    table.settle(table.reserve(0, 0, other))
    view = table.view(other, 0)
    assert (view.reusable, view.sure) == (239, 40)
    assert table.view(A, 0).sure == 40
    # What an upstream says of a part that was no more than likely proves nothing.
    assert not table.run(0, other, measured=60).stale


def test_a_refused_prompt_leaves_the_slot_as_it_was() -> None:
    """D15: 1,500 tokens for a slot of 1,024."""
    table = Table()
    table.run(0, A)
    before = table.content(0)
    table.told.clear()
    reservation = table.reserve(0, 0, unrelated(2, 1500))
    assert table.view(A, 0).reusable == 99  # the next one will find it so
    table.settle(reservation, refused=True)
    assert (table.content(0), table.told) == (before, [])
    assert table.is_idle()


def test_another_slot_than_was_asked_is_the_one_that_changed() -> None:
    """D11."""
    table = Table()
    table.run(0, A)
    table.run(2, unrelated(3, 50))
    settled = table.settle(
        table.reserve(0, 0, unrelated(2, 80)), generated=[1, 2], measured=0, actual_slot=2, finished=True
    )
    assert (settled.moved, settled.stale) == (True, False)
    assert table.content(0) == [*A.tolist(), *GENERATED[:-1]]
    assert table.content(2) == [*unrelated(2, 80).tolist(), 1]
    assert table.is_idle()


def test_a_slot_that_does_not_exist_changes_nothing() -> None:
    table = Table()
    table.run(0, A)
    for slot in (-1, 4, 9, 2**70):
        settled = table.settle(table.reserve(0, 0, unrelated(2, 80)), measured=0, actual_slot=slot, finished=True)
        assert settled.moved
    assert table.content(0) == [*A.tolist(), *GENERATED[:-1]]
    assert len(table.rows(0.0)) == 4


def test_a_slot_that_moved_under_a_request_is_not_certain() -> None:
    """Whether the stranger came before it or behind is not known."""
    table = Table()
    reservation = table.reserve(0, 2, A)
    stranger = table.reserve(0, 0, after(A[:30], unrelated(2, 80)))
    table.settle(stranger, generated=[1, 2], measured=0, actual_slot=2, finished=True)
    table.settle(reservation, generated=GENERATED, measured=0, actual_slot=2, finished=True)
    assert (table.sure(2), table.content(2)) == (30, [*A.tolist(), *GENERATED[:-1]])


def test_fewer_reused_than_were_certain_is_stale() -> None:
    """D18."""
    table = Table()
    table.run(0, A)
    table.run(0, after(A, GENERATED, [9]))
    turn = after(A, GENERATED, [9], GENERATED, [10])
    assert reuses(table, 0) == 1
    settled = table.run(0, turn, measured=40)
    assert settled == (116, True, False, True)
    assert reuses(table, 0) == 0
    assert table.view(after(turn, GENERATED, [11]), 0).sure == len(turn) + 7  # it has been evaluated all the same


def test_more_reused_than_was_known_is_no_fault() -> None:
    table = Table()
    settled = table.run(0, A, measured=60)
    assert (settled.predicted, settled.stale) == (0, False)


def test_a_guessed_tail_makes_nothing_stale() -> None:
    table = Table()
    table.settle(table.reserve(0, 0, A), guessed=[50, 51, 52], count=3, measured=0, finished=True)
    turn = after(A, [50, 51, 52, 53])
    view = table.view(turn, 0)
    assert (view.reusable, view.sure) == (102, 100)
    assert not table.run(0, turn, measured=100).stale


def test_a_wrong_guess_shows_in_what_is_certain() -> None:
    table = Table()
    table.settle(table.reserve(0, 0, A), guessed=[50, 51, 52], measured=0, finished=True)
    assert table.run(0, after(A, [50, 51, 52, 53]), measured=99).stale  # the prompt itself was certain


def test_generated_tokens_with_a_gap_behind_them_are_no_account_of_the_length() -> None:
    table = Table()
    table.settle(table.reserve(0, 0, A), generated=[1, 2], count=5, measured=0, finished=True)
    assert table.audit(0, [104, 0, 0, 0]) == []
    assert table.sure(0) == 101
    table.settle(table.reserve(0, 1, A), generated=[1, 2], count=2, measured=0, finished=True)
    assert table.audit(0, [104, 104, 0, 0]) == [1]


def test_the_upstream_s_own_ids_are_never_certain() -> None:
    table = Table()
    table.settle(table.reserve(0, 0, A, sure=False), generated=GENERATED, measured=0, finished=True)
    view = table.view(after(A, GENERATED), 0)
    assert (view.reusable, view.sure) == (107, 0)
    assert table.told == [(0, 0, None)]
    assert not table.run(0, A, measured=3).stale
    table.run(1, A)
    settled = table.settle(table.reserve(0, 1, A, 99, sure=False), measured=3, finished=True)
    assert (settled.predicted, settled.stale) == (0, False)


def test_ids_that_are_not_known_leave_a_slot_that_is_not_known() -> None:
    table = Table()
    table.run(0, A)
    reservation = table.reserve(0, 0, None)
    assert table.view(A, 0).reusable == 0
    table.settle(reservation, generated=GENERATED, measured=0, finished=True)
    assert (state(table, 0), table.content(0)) == (SlotState.UNKNOWN, None)
    assert table.view(A, 0).length == 0


def test_what_is_no_token_leaves_the_prompt() -> None:
    table = Table()
    for generated in ([-1], [2**32], ["x"], [None]):
        table.settle(table.reserve(0, 0, A), generated=generated, measured=0, finished=True)  # type: ignore[arg-type]
        assert table.content(0) == A.tolist()
        assert table.audit(0, [107, 0, 0, 0]) == []  # it may hold more
    assert table.is_idle()


def test_a_request_that_never_left_gives_everything_back() -> None:
    table = Table()
    table.run(0, A)
    before = table.views(A)
    reservation = table.reserve(0, 0, unrelated(2, 50))
    assert table.view(A, 0).waiting == 1
    table.settle(reservation, reached_upstream=False)
    assert [view._replace(chance=0) for view in table.views(A)] == [view._replace(chance=0) for view in before]


def test_a_second_settlement_changes_nothing() -> None:
    table = Table()
    reservation = table.reserve(0, 0, A)
    assert table.settle(reservation, generated=GENERATED, measured=0, finished=True).current
    before = table.content(0)
    again = table.settle(reservation, generated=[9], measured=0, finished=True)
    assert (again.current, table.content(0)) == (False, before)
    assert table.is_idle()


# Several at once


def test_two_at_the_same_moment_see_each_other() -> None:
    """D12: the second finds the prefix, and that it would have to wait for it."""
    table = Table()
    prefix = unrelated(1, 300)
    assert table.view(prefix, 0).waiting == 0
    table.reserve(0, 0, after(prefix, [1, 2, 3]), limit=8)
    view = table.view(after(prefix, [4, 5, 6]), 0)
    assert (view.reusable, view.waiting) == (300, 1)
    assert view.wait == 303 + 8 * 8.0  # as long as nothing was measured
    assert view.load == 0.25
    assert table.view(prefix, 1).waiting == 0


def test_requests_in_turn_find_what_the_one_before_them_leaves() -> None:
    table = Table()
    first = table.reserve(0, 0, A)
    turn = after(A, GENERATED, [9])
    second = table.reserve(0, 0, turn, 100)
    assert table.settle(first, generated=GENERATED, measured=0, finished=True).predicted == 0
    settled = table.settle(second, generated=GENERATED, measured=107, finished=True)
    assert (settled.predicted, settled.stale) == (107, False)


def test_a_request_whose_forerunner_never_left_is_promised_what_was_there() -> None:
    table = Table()
    table.run(0, unrelated(2, 50))
    first = table.reserve(0, 0, A)
    second = table.reserve(0, 0, A, 99)
    table.settle(first, reached_upstream=False)
    assert table.settle(second, generated=GENERATED, measured=0, finished=True) == (0, False, False, True)


def test_an_answer_that_is_read_late_does_not_bring_back_what_was_replaced() -> None:
    table = Table()
    slow = table.reserve(0, 0, A)
    quick = table.reserve(0, 0, after(A[:40], unrelated(2, 50)))
    settled = table.settle(quick, generated=GENERATED, measured=40, finished=True)
    assert (settled.predicted, settled.stale) == (0, False)  # what it found was not known yet
    table.settle(slow, generated=GENERATED, measured=0, finished=True)
    assert table.content(0) == [*A[:40].tolist(), *unrelated(2, 50).tolist(), *GENERATED[:-1]]
    assert table.sure(0) == 40  # which of the two was the last is not certain
    assert table.is_idle()


def test_one_that_left_while_it_waited_may_have_touched_the_slot() -> None:
    table = Table()
    first = table.reserve(0, 0, A)
    waiting = table.reserve(0, 0, after(A[:70], unrelated(2, 50)))
    table.settle(waiting)
    table.settle(first, generated=GENERATED, measured=0, finished=True)
    assert table.content(0) == [*A.tolist(), *GENERATED[:-1]]
    assert table.sure(0) == 70


def test_waiting_shrinks_with_time_and_tokens() -> None:
    table = Table()
    rates = table.rates(0)
    assert rates is not None
    rates.measured(prompt_tokens=1000, prompt_ms=1000.0, generated_tokens=100, generated_ms=1000.0)
    reservation = table.reserve(0, 0, unrelated(1, 600), limit=10)
    table.reserve(0, 0, unrelated(2, 50), limit=10)
    assert table.view(A, 0).wait == 600 + 100 + 50 + 100
    table.clock.now += 0.5
    assert table.view(A, 0).wait == pytest.approx(100 + 100 + 50 + 100)
    reservation.seen = 6
    assert table.view(A, 0).wait == pytest.approx(40 + 50 + 100)
    table.settle(reservation, generated=GENERATED, measured=0, finished=True)
    assert table.view(A, 0).wait == pytest.approx(50 + 100)
    table.clock.now += 0.02
    assert table.view(A, 0).wait == pytest.approx(30 + 100)


# Upstreams that go, come back and are audited


def test_a_restart_drops_everything() -> None:
    """D17."""
    table = Table()
    table.run(0, A)
    reservation = table.reserve(0, 1, unrelated(2, 50))
    table.told.clear()
    table.close_upstream(0)
    assert table.views(A) == []
    table.open_upstream(0, 2, 512)
    assert table.told == [(0, None, None)]
    assert [(view.reusable, view.waiting, view.n_ctx) for view in table.views(A)] == [(0, 0, 512)] * 2
    settled = table.settle(reservation, generated=GENERATED, measured=0, finished=True)
    assert (settled.current, settled.stale) == (False, False)
    assert [row.state for row in table.rows(0.0)] == [SlotState.EMPTY] * 2
    assert table.run(0, A, measured=0) == (0, False, False, True)


def test_opening_again_is_a_restart_that_keeps_the_rates() -> None:
    table = Table()
    table.run(0, A)
    rates = table.rates(0)
    table.open_upstream(0, 4, 1024)
    assert table.view(A, 0).length == 0
    assert table.rates(0) is rates


def test_there_is_no_slot_of_an_upstream_that_is_closed() -> None:
    table = Table()
    for upstream, slot in ((1, 0), (0, 4), (0, -1)):
        with pytest.raises(LookupError):
            table.reserve(upstream, slot, A)
    table.close_upstream(7)
    table.forget(7, 0)
    table.set_usable(7, False)
    assert (table.audit(7, [1]), table.versions(7), table.rates(7), table.n_slots(7), table.in_flight(7)) == (
        [],
        [],
        None,
        0,
        0,
    )


def test_an_upstream_that_is_not_usable_keeps_what_it_holds() -> None:
    table = Table()
    table.run(0, A)
    table.set_usable(0, False)
    assert table.views(A) == []
    table.set_usable(0, True)
    assert table.view(A, 0).reusable == 99


def test_an_audit_finds_what_others_did() -> None:
    table = Table()
    for slot in range(3):
        table.run(slot, unrelated(slot, 50))
    busy = table.reserve(0, 2, A)
    assert table.audit(0, [57, 30, 3, 12]) == [1]
    assert [row.state for row in table.rows(0.0)] == [
        SlotState.KNOWN,
        SlotState.UNKNOWN,
        SlotState.KNOWN,
        SlotState.UNKNOWN,
    ]
    assert table.told[-1] == (0, 1, None)
    table.settle(busy, reached_upstream=False)
    assert table.audit(0, [None, None, None]) == []
    assert table.audit(0, [57]) == []
    assert table.audit(0, []) == []


def test_an_audit_is_not_of_slots_that_changed_meanwhile() -> None:
    table = Table()
    versions = table.versions(0)
    table.run(0, A)
    assert table.audit(0, [0, 0, 0, 0], versions) == []
    assert table.audit(0, [0, 0, 0, 0], table.versions(0)) == [0]


def test_an_audit_cuts_a_guessed_tail() -> None:
    table = Table()
    table.settle(table.reserve(0, 0, A), guessed=range(50, 60), measured=0, finished=True)
    assert table.view(after(A, range(50, 60)), 0).length == 109
    assert table.audit(0, [104, 0, 0, 0]) == []
    view = table.view(after(A, range(50, 60)), 0)
    assert (view.length, view.sure) == (104, 100)
    assert table.audit(0, [99, 0, 0, 0]) == [0]


def test_a_forgotten_slot_counts_as_empty() -> None:
    table = Table()
    table.run(0, A)
    table.forget(0, 0)
    table.forget(0, 9)
    view = table.view(A, 0)
    assert (state(table, 0), view.reusable, view.length) == (SlotState.UNKNOWN, 0, 0)


# What is told, shown and kept


def test_changes_are_told_with_what_is_certain() -> None:
    table = Table()
    table.run(1, A, GENERATED)
    table.settle(table.reserve(0, 2, A), guessed=[9, 9], measured=0, finished=True)
    table.forget(0, 1)
    assert table.told == [(0, 1, [*A.tolist(), *GENERATED[:-1]]), (0, 2, A.tolist()), (0, 1, None)]


def test_a_slot_keeps_no_more_than_its_context() -> None:
    table = Table(n_ctx=64)
    table.settle(table.reserve(0, 0, A), generated=range(5000), measured=0, finished=True)
    content = table.content(0)
    assert content is not None
    assert len(content) == 64


def test_a_caller_s_buffer_may_change() -> None:
    table = Table()
    buffer = np.array(A)
    reservation = table.reserve(0, 0, buffer)
    buffer[:] = 0
    table.settle(reservation, measured=0, finished=True)
    assert table.content(0) == A.tolist()


def test_rows_say_what_is_there() -> None:
    table = Table(slots=2)
    table.run(1, A)
    table.clock.now += 5
    reservation = table.reserve(0, 0, A)
    rows = table.rows(now=1000.0)
    assert [(row.slot, row.state, row.tokens, row.sure, row.requests) for row in rows] == [
        (0, SlotState.EMPTY, 0, 0, 1),
        (1, SlotState.KNOWN, 107, 107, 0),
    ]
    assert (rows[0].last_use, rows[1].last_use) == (None, 995.0)
    table.settle(reservation, reached_upstream=False)


# What a slot earns


def test_a_conversation_that_goes_on_is_held() -> None:
    table = Table()
    table.run(0, A, GENERATED)
    assert not table.view(A, 0).held
    table.run(0, after(A, GENERATED, [9]))
    view = table.view(A, 0)
    assert (view.held, view.proven, reuses(table, 0)) == (True, 107, 1)


def test_a_conversation_that_comes_back_is_held_at_once() -> None:
    table = Table(slots=2)
    table.run(0, A, GENERATED)
    table.run(0, unrelated(2, 100))
    turn = after(A, GENERATED, [9])
    table.run(1, turn)
    view = table.view(turn, 1)
    assert (view.held, view.proven, reuses(table, 1)) == (True, 107, 1)
    assert not table.view(turn, 0).held


def test_a_prefix_that_many_begin_with_is_held_for_its_own_length() -> None:
    table = Table(slots=2)
    system = unrelated(1, 200)
    for number in range(2, 5):
        table.run(0, after(system, unrelated(number, 100)))
    view = table.view(system, 0)
    assert (view.held, view.proven, reuses(table, 0)) == (True, 200, 2)


def test_whoever_takes_a_slot_does_not_inherit_what_it_earned() -> None:
    table = Table()
    table.run(0, A, GENERATED)
    table.run(0, after(A, GENERATED, [9]))
    table.run(0, after(A[:20], unrelated(2, 100)))
    view = table.view(A, 0)
    assert (view.held, view.proven, reuses(table, 0)) == (False, 0, 0)
