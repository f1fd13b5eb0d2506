"""Laws of turns: whatever comes in whatever order, no slot idles, none is shared, nobody waits without end."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.router.token_prompts import after, unrelated
from tests.router.turn_desk import Desk, run, settled
from toktier.router.decide import decide
from toktier.router.turns import WINDOW

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
