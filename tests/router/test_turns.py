"""Whose turn it is: the order, who may pass and how often, slots that are kept, and what a busy slot is waited for."""

from __future__ import annotations

import asyncio

import pytest

from tests.router.token_prompts import after, unrelated
from tests.router.turn_desk import Desk, run, settled
from toktier.router.turns import WINDOW
from toktier.router.vocabulary import Choice


def test_a_free_slot_is_taken_at_once() -> None:
    async def scene() -> None:
        desk = Desk(2)
        await desk.ask("a", unrelated(1, 100))
        await desk.ask("b", unrelated(2, 100))
        assert desk.served == ["a", "b"]
        assert {taken.decision.slot for taken, _ in desk.running.values()} == {0, 1}
        assert desk.turns.counts.waited == 0

    run(scene)


def test_who_waited_longest_is_the_next() -> None:
    async def scene() -> None:
        desk = Desk()
        for number, name in enumerate("abcd"):
            await desk.ask(name, unrelated(number, 100))
        assert (desk.served, desk.turns.waiting, desk.turns.counts.waited) == (["a"], 3, 3)
        for name in "abcd":
            await desk.end(name)
        assert desk.served == list("abcd")
        assert desk.table.is_idle()

    run(scene)


def test_who_came_before_is_before() -> None:
    """One that was lost with its upstream comes again."""

    async def scene() -> None:
        desk = Desk()
        for number, (name, since) in enumerate((("a", 1.0), ("c", 3.0), ("d", 4.0), ("b", 2.0))):
            await desk.ask(name, unrelated(number, 100), since)
        for name in "abcd":
            await desk.end(name)
        assert desk.served == list("abcd")

    run(scene)


@pytest.mark.parametrize("in_a_row", [1, 2, 4])
def test_what_goes_on_passes_but_for_so_many_turns(in_a_row: int) -> None:
    """Others of a conversation come while it runs: they pass whoever waits, whose turn comes all the same."""

    async def scene() -> None:
        desk = Desk(in_a_row=in_a_row)
        begun = unrelated(1, 400)
        await desk.ask("first", begun)
        await desk.ask("stranger", unrelated(2, 400))
        for number in range(6):
            await desk.ask(f"more {number}", after(begun, [number]))
        for _ in range(7):
            await desk.end(desk.served[-1])
        assert desk.served.index("stranger") == in_a_row
        assert desk.turns.counts.let_pass == in_a_row - 1
        assert [name for name in desk.served if name.startswith("more")] == [f"more {n}" for n in range(6)]

    run(scene)


def test_a_turn_is_bound_when_it_comes() -> None:
    """By then it is known what the slots hold: the second prompt finds its beginning in the slot that is free later."""

    async def scene() -> None:
        desk = Desk(2)
        common = unrelated(1, 500)
        await desk.ask("other", unrelated(2, 100))
        await desk.ask("like it", after(common, [7]))
        await desk.ask("waits", after(common, [8]))
        await desk.end("like it")
        taken, _ = desk.running["waits"]
        assert (taken.decision.choice, taken.decision.predicted, taken.decision.slot) == (Choice.EXACT, 500, 1)

    run(scene)


def test_a_slot_is_kept_for_the_next_turn_of_its_conversation() -> None:
    async def scene() -> None:
        desk = Desk(in_a_row=3)
        desk.rates(1000.0)
        await desk.ask("a1", unrelated(1, 2000))
        await desk.ask("b", unrelated(2, 2000))
        for number in (1, 2):
            history = await desk.end(f"a{number}")
            assert desk.turns.waiting == 1  # for a moment nobody has the slot
            desk.table.clock.now += 0.004
            await desk.ask(f"a{number + 1}", after(history, [number]))
        assert desk.served == ["a1", "a2", "a3"]
        history = await desk.end("a3")
        assert desk.served[-1] == "b"
        await desk.ask("a4", after(history, [9]))
        await desk.end("b")
        assert desk.served == ["a1", "a2", "a3", "b"]  # kept for b, which does not come again
        desk.table.clock.now += 1.0
        desk.turns.look()
        await settled()
        assert desk.served == ["a1", "a2", "a3", "b", "a4"]
        counts = desk.turns.counts
        assert (counts.kept, counts.kept_in_vain, counts.let_pass) == (3, 1, 2)

    run(scene)


def test_a_moment_ends_by_itself() -> None:
    async def scene() -> None:
        desk = Desk()
        desk.rates(1000.0)
        await desk.ask("a", unrelated(1, 2000))
        await desk.ask("b", unrelated(2, 2000))
        await desk.end("a")
        assert desk.served == ["a"]
        desk.table.clock.now += 0.1  # the table's; the loop's own timer looks after 30 ms
        async with asyncio.timeout(180):
            await desk.tasks["b"]
        assert desk.served == ["a", "b"]

    run(scene)


def test_a_slot_is_kept_from_who_comes_within_the_moment() -> None:
    async def scene() -> None:
        desk = Desk()
        desk.rates(1000.0)
        begun = unrelated(1, 2000)
        await desk.ask("a", begun)
        await desk.end("a")
        await desk.ask("stranger", unrelated(2, 2000))
        assert (desk.served, desk.turns.counts.kept) == (["a"], 1)
        await desk.ask("shares half", after(begun[:1500], [3]))  # which is no loss for a slot that holds it
        assert desk.served == ["a", "shares half"]
        await desk.end("shares half", whole=False)
        assert desk.served == ["a", "shares half", "stranger"]

    run(scene)


def test_a_moment_that_nobody_wanted_is_not_counted() -> None:
    async def scene() -> None:
        desk = Desk()
        desk.rates(1000.0)
        await desk.ask("a", unrelated(1, 2000))
        await desk.end("a")
        desk.table.clock.now += 1.0
        await desk.ask("b", unrelated(2, 2000))
        assert desk.served == ["a", "b"]
        assert (desk.turns.counts.kept, desk.turns.counts.kept_in_vain) == (0, 0)

    run(scene)


@pytest.mark.parametrize("why", ["cut short", "not measured", "short"])
def test_no_slot_is_kept_where(why: str) -> None:
    async def scene() -> None:
        desk = Desk()
        if why != "not measured":
            desk.rates(1000.0)
        await desk.ask("a", unrelated(1, 8 if why == "short" else 2000))
        await desk.ask("b", unrelated(2, 2000))
        await desk.end("a", whole=why != "cut short")
        assert desk.served == ["a", "b"]
        assert desk.turns.counts.kept == 0

    run(scene)


def test_who_wants_a_free_slot_is_not_held_up_by_many_who_want_a_busy_one() -> None:
    async def scene() -> None:
        desk = Desk(2)
        begun = unrelated(1, 4000)
        await desk.ask("first", begun)
        desk.running["first"][0].reservation.seen = 1
        await desk.ask("second", unrelated(2, 10))
        for number in range(2 * WINDOW):
            await desk.ask(f"like it {number}", after(begun, [number]))
        await desk.ask("stranger", unrelated(3, 10))
        await desk.end("second")
        assert desk.served == ["first", "second", "stranger"]
        await desk.end("stranger")
        await desk.ask("another", unrelated(4, 10))
        assert desk.served[-1] == "another"

    run(scene)


def test_a_busy_slot_is_waited_for_no_longer_than_evaluating_takes_in_a_free_one() -> None:
    async def scene() -> None:
        desk = Desk(2)
        desk.rates(1000.0)
        begun = unrelated(1, 4000)
        await desk.ask("first", begun)
        desk.running["first"][0].reservation.seen = 1  # it generates, and will have done so soon
        await desk.ask("like it", after(begun, [1]))
        desk.table.clock.now += 3.9
        desk.turns.look()
        await settled()
        assert desk.served == ["first"]
        desk.table.clock.now += 0.2
        async with asyncio.timeout(180):  # nobody tells
            await desk.tasks["like it"]
        assert desk.running["like it"][0].decision.slot == 1

    run(scene)


def test_whose_turn_it_is_gets_no_slot_that_is_too_small() -> None:
    async def scene() -> None:
        desk = Desk(1, in_a_row=1)
        desk.table.open_upstream(1, 1, 64)
        await desk.ask("busy", unrelated(1, 100))
        await desk.ask("long", unrelated(2, 100))
        for number in range(6):
            await desk.ask(f"short {number}", unrelated(3 + number, 30))
            await desk.end(f"short {number}")
        assert "long" not in desk.served
        await desk.end("busy")
        assert desk.running["long"][0].decision.fits

    run(scene)


def test_what_fits_no_slot_does_not_wait() -> None:
    """The upstream refuses it, whatever its slots do."""

    async def scene() -> None:
        desk = Desk(n_ctx=64)
        await desk.ask("a", unrelated(1, 30))
        await desk.ask("long", unrelated(2, 100))
        assert desk.served == ["a", "long"]

    run(scene)


def test_an_upstream_that_chooses_slots_itself_has_every_request() -> None:
    async def scene() -> None:
        desk = Desk()
        desk.chooses = True
        for number in range(5):
            await desk.ask(str(number), unrelated(number, 30))
        assert len(desk.served) == 5

    run(scene)
