"""How waiting for a turn ends otherwise: clients that leave or do not read, time-outs, lost upstreams, faults."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from tests.router.token_prompts import after, unrelated
from tests.router.turn_desk import ANSWER, Desk, run, settled
from toktier.errors import UpstreamLost
from toktier.router.decide import Decision
from toktier.router.refusals import Refused
from toktier.router.reservations import Reservation
from toktier.router.slot_view import View
from toktier.router.token_ids import as_ids
from toktier.router.turns import Request


def test_who_leaves_while_waiting_leaves_nothing() -> None:
    async def scene() -> None:
        desk = Desk()
        for number, name in enumerate("abc"):
            await desk.ask(name, unrelated(number, 100))
        desk.tasks["b"].cancel()
        await settled()
        assert (desk.turns.waiting, desk.turns.counts.left) == (1, 1)
        await desk.end("a")
        assert desk.served == ["a", "c"]

    run(scene)


def test_who_leaves_in_the_moment_of_its_turn_gives_it_on() -> None:
    async def scene() -> None:
        desk = Desk()
        for number, name in enumerate("abc"):
            await desk.ask(name, unrelated(number, 100))
        taken, _ = desk.running.pop("a")
        desk.table.settle(taken.reservation, generated=as_ids(ANSWER), finished=True)
        desk.turns.ended(taken.reservation, whole=True)
        desk.tasks["b"].cancel()  # it was given the slot, and has not run since
        await settled()
        assert desk.served == ["a", "c"]
        await desk.end("c")
        assert desk.table.is_idle()

    run(scene)


def test_who_was_cancelled_and_did_not_run_since_gets_no_turn() -> None:
    async def scene() -> None:
        desk = Desk()
        for number, name in enumerate("abc"):
            await desk.ask(name, unrelated(number, 100))
        desk.tasks["b"].cancel()
        await desk.end("a")
        assert desk.served == ["a", "c"]
        assert desk.tasks["b"].cancelled()

    run(scene)


def test_a_turn_that_does_not_come_is_refused() -> None:
    async def scene() -> None:
        desk = Desk()
        await desk.ask("a", unrelated(1, 100))
        views = desk.table.views(unrelated(2, 9))
        with pytest.raises(Refused, match=r"no slot came free within 0\.01 seconds"):
            await desk.turns.take(Request(unrelated(2, 9), lambda: views, _never, _no, seconds=0.01))
        assert (desk.turns.waiting, desk.turns.counts.left) == (0, 0)

    run(scene)


def _never(_: Decision) -> Reservation:
    raise AssertionError


def _no(_: int) -> bool:
    return False


def test_without_upstreams_nobody_waits() -> None:
    async def scene() -> None:
        desk = Desk()
        desk.table.set_usable(0, False)
        await desk.ask("a", unrelated(1, 100))
        assert desk.tasks["a"].result() is None

    run(scene)


@pytest.mark.parametrize("back", [True, False])
def test_an_upstream_that_is_lost_may_be_back_before_those_who_wait_are_refused(back: bool) -> None:
    """It is when one connection was lost, and nothing else."""

    async def scene() -> None:
        desk = Desk()
        await desk.ask("a", unrelated(1, 100))
        await desk.ask("b", unrelated(2, 100))
        desk.table.set_usable(0, False)
        await desk.end("a")
        desk.table.clock.now += 1.9
        desk.turns.look()
        await settled()
        assert not desk.tasks["b"].done()
        if back:
            desk.table.set_usable(0, True)
        else:
            desk.table.clock.now += 0.2
        desk.turns.look()
        await settled()
        assert (desk.tasks["b"].result() is not None) == back

    run(scene)


def test_while_requests_run_elsewhere_an_upstream_that_is_gone_is_gone() -> None:
    """One that may not go to the other one, which is busy all the time, is told."""

    async def scene() -> None:
        desk = Desk()
        await desk.ask("a", unrelated(1, 100))
        desk.table.open_upstream(1, 2, 1 << 14)
        busy = desk.table.reserve(1, 0, unrelated(3, 100))

        def views() -> list[View]:
            return [view for view in desk.table.views(unrelated(2, 100)) if view.upstream == 0]

        def reserve(_: object) -> Reservation:
            raise AssertionError("it has a turn")

        waiting = asyncio.create_task(desk.turns.take(Request(unrelated(2, 100), views, reserve, lambda _: False)))
        await settled()
        desk.table.set_usable(0, False)
        await desk.end("a")
        desk.table.clock.now += 2.1
        desk.turns.look()
        await settled()
        assert waiting.result() is None
        assert not busy.settled

    run(scene)


def test_while_requests_run_there_an_upstream_is_slow_and_not_gone() -> None:
    async def scene() -> None:
        desk = Desk()
        await desk.ask("a", unrelated(1, 100))
        await desk.ask("b", unrelated(2, 100))
        desk.table.set_usable(0, False)
        for _ in range(2):
            desk.table.clock.now += 60.0
            desk.turns.look()
            await settled()
        assert not desk.tasks["b"].done()
        await desk.end("a", whole=False)
        assert desk.tasks["b"].result() is None

    run(scene)


def test_prompts_that_are_refused_take_nobodys_turn() -> None:
    async def scene() -> None:
        desk = Desk(in_a_row=2)
        desk.rates(1000.0)
        await desk.ask("a1", unrelated(1, 2000))
        await desk.ask("b", unrelated(2, 2000))
        history = await desk.end("a1")
        for number in range(9):
            await desk.ask(f"too long {number}", np.zeros(1 << 15, dtype=np.uint32))
            await desk.end(f"too long {number}", whole=False, refused=True)
        await desk.ask("a2", after(history, [1]))
        assert (desk.served[-1], desk.turns.counts.let_pass) == ("a2", 1)  # its slot was kept all the same
        await desk.end("a2")
        assert desk.served[-1] == "b"

    run(scene)


def test_a_slot_whose_client_does_not_read_may_be_free() -> None:
    async def scene() -> None:
        desk = Desk()
        await desk.ask("a", unrelated(1, 100))
        await desk.ask("b", unrelated(2, 100))
        taken, _ = desk.running["a"]
        taken.reservation.sending_since = desk.table.clock.now
        desk.turns.look()
        await settled()
        assert desk.served == ["a"]
        desk.table.clock.now += 31.0  # however long what is not seen takes
        async with asyncio.timeout(180):  # nobody tells: it is seen at the next tick
            await desk.tasks["b"]
        assert desk.served == ["a", "b"]

    run(scene)


def test_a_slot_whose_client_does_not_read_is_not_taken_while_another_is_free() -> None:
    """The upstream may be generating for it as long as it likes."""

    async def scene() -> None:
        desk = Desk(3)
        for number in range(3):
            await desk.ask(f"{number}", unrelated(number, 100))
        for number in (1, 2):
            await desk.end(f"{number}")
        desk.running["0"][0].reservation.sending_since = desk.table.clock.now
        desk.table.clock.now += 31.0
        await desk.ask("a", unrelated(5, 100))
        await desk.ask("b", unrelated(6, 100))
        assert {desk.running[name][0].decision.slot for name in "ab"} == {1, 2}
        await desk.ask("c", unrelated(7, 100))
        assert desk.running["c"][0].decision.slot == 0

    run(scene)


def test_a_fault_of_one_is_not_that_of_who_gave_it_its_turn() -> None:
    async def scene() -> None:
        desk = Desk()
        await desk.ask("a", unrelated(1, 100))

        def lost(_: Decision) -> Reservation:
            raise UpstreamLost("it was lost")

        ids = unrelated(2, 100)
        broken = asyncio.create_task(desk.turns.take(Request(ids, lambda: desk.table.views(ids), lost, _no)))
        await settled()
        await desk.ask("c", unrelated(3, 100))
        await desk.end("a")
        with pytest.raises(UpstreamLost):
            await broken
        assert desk.served == ["a", "c"]

    run(scene)
