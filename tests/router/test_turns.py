"""Whose turn it is: order, who may pass and how often, slots that are kept, and those who leave while they wait."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.router.slot_tables import Table
from tests.router.token_prompts import after, unrelated
from toktier.errors import UpstreamLost
from toktier.router.decide import Decision, decide
from toktier.router.refusals import Refused
from toktier.router.reservations import Reservation
from toktier.router.token_ids import TokenIds, as_ids
from toktier.router.turns import WINDOW, Request, Taken, Turns
from toktier.router.vocabulary import Choice

ANSWER = (1, 2, 3, 4)


class Desk:
    """Turns over a table of one upstream, on a clock that stands still. `served`: names in the order of their turns."""

    def __init__(self, slots: int = 1, *, in_a_row: int = 3, n_ctx: int = 1 << 14) -> None:
        self.table = Table(slots, n_ctx)
        self.turns = Turns(self.table, self.table.clock, in_a_row=in_a_row)
        self.served: list[str] = []
        self.running: dict[str, tuple[Taken, TokenIds]] = {}
        self.tasks: dict[str, asyncio.Task[Taken | None]] = {}
        self.chooses = False

    async def ask(self, name: str, ids: TokenIds, since: float = 0.0) -> None:
        """It has its turn, or waits, when this returns."""

        def reserve(decision: Decision) -> Reservation:
            return self.table.reserve(decision.upstream, decision.slot, ids, decision.predicted, limit=len(ANSWER))

        async def asked() -> Taken | None:
            views = functools.partial(self.table.views, ids)
            request = Request(ids, views, reserve, lambda _: self.chooses, since=since)
            taken = await self.turns.take(request)
            if isinstance(taken, Taken):
                self.served.append(name)
                self.running[name] = (taken, ids)
            return taken

        self.tasks[name] = asyncio.create_task(asked())
        await settled()

    async def end(self, name: str, *, whole: bool = True, refused: bool = False) -> TokenIds:
        """The turn is over. Its next prompt without what is asked there."""
        taken, ids = self.running.pop(name)
        self.table.settle(
            taken.reservation,
            generated=as_ids(ANSWER),
            measured=taken.decision.predicted,
            actual_slot=taken.decision.slot,
            finished=whole,
            refused=refused,
        )
        self.turns.ended(taken.reservation, whole=whole)
        await settled()
        return after(ids, ANSWER)

    def rates(self, prefill: float) -> None:
        rates = self.table.rates(0)
        assert rates is not None
        rates.prefill = prefill


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def run(scene: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scene(), 60))  # type: ignore[arg-type]


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
        async with asyncio.timeout(20):
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
        async with asyncio.timeout(20):  # nobody tells
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
        async with asyncio.timeout(20):  # nobody tells: it is seen at the next tick
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


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.integers(0, 5), st.booleans()),
        st.tuples(st.just("end"), st.integers(0, 9), st.booleans()),
        st.tuples(st.just("leave"), st.integers(0, 9), st.booleans()),
        st.tuples(st.just("time"), st.sampled_from([0.004, 0.04, 0.4]), st.booleans()),
    ),
    max_size=60,
)


@settings(deadline=None)
@given(STEPS, st.integers(1, 3), st.integers(1, 4), st.sampled_from([10.0, 1000.0, 100_000.0]))
def test_law_no_slot_idles_none_is_shared_and_everybody_is_served(
    steps: Sequence[tuple[str, int | float, bool]], slots: int, in_a_row: int, prefill: float
) -> None:
    async def scene() -> None:
        desk = Desk(slots, in_a_row=in_a_row)
        desk.rates(prefill)
        histories = {number: unrelated(number, 300) for number in range(6)}
        asked = 0

        def check() -> None:
            free = [row.slot for row in desk.table.rows(0.0) if row.requests == 0]
            assert all(row.requests <= 1 for row in desk.table.rows(0.0))
            assert len(free) + len(desk.running) == slots
            kept = {slot for _, slot in desk.turns._kept}
            for waiting in desk.turns._waiting[:WINDOW]:
                decision = decide(len(waiting.request.ids), waiting.request.views())
                assert decision is None or decision.slot not in free or decision.slot in kept

        for what, which, flag in steps:
            if what == "ask":
                ids = histories[int(which)] if flag else unrelated(100 + asked, 50)
                await desk.ask(f"{asked} {which if flag else ''}", after(ids, [asked]))
                asked += 1
            elif what == "end" and desk.running:
                name = list(desk.running)[int(which) % len(desk.running)]
                history = await desk.end(name, whole=flag)
                if name.split(" ")[1]:
                    histories[int(name.split(" ")[1])] = history[:2000]
            elif what == "leave" and desk.turns.waiting:
                left = [task for task in desk.tasks.values() if not task.done()]
                left[int(which) % len(left)].cancel()
                await settled()
            elif what == "time":
                desk.table.clock.now += which
                desk.turns.look()
                await settled()
            check()
        while desk.running or desk.turns.waiting:
            if desk.running:
                await desk.end(next(iter(desk.running)))
            else:
                desk.table.clock.now += 1.0
                desk.turns.look()
                await settled()
            check()
        assert len(desk.served) + desk.turns.counts.left == asked
        assert desk.table.is_idle()

    run(scene)


@settings(deadline=None)
@given(st.integers(1, 3), st.integers(1, 5), st.integers(2, 8))
def test_law_nobody_is_passed_more_often_than_a_row_of_each_slot(slots: int, in_a_row: int, others: int) -> None:
    """Clients that never pause: between two turns of one lie its own, those that pass it, and those of all others."""

    async def scene() -> None:
        desk = Desk(slots, in_a_row=in_a_row)
        desk.rates(100.0)
        histories = {number: unrelated(number, 300) for number in range(slots + others)}
        turns = dict.fromkeys(histories, 0)
        for number, history in histories.items():
            await desk.ask(f"{number}", history)
        seen: list[int] = []
        for _ in range(12 * len(histories)):
            if not desk.running:
                desk.table.clock.now += 1.0
                desk.turns.look()
                await settled()
            name = next(iter(desk.running))
            seen.append(int(name))
            turns[int(name)] += 1
            history = after(await desk.end(name), [turns[int(name)]])
            await desk.ask(name, history)
        for number in histories:
            between = [at for at, name in enumerate(seen) if name == number]
            longest = max(b - a for a, b in zip([-1, *between], [*between, len(seen)], strict=True))
            assert longest <= in_a_row * slots + len(histories) + slots

    run(scene)
