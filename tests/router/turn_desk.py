"""Turns over a slot table on a clock that tests set: who asks, who is served, and when one ends."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable

from tests.router.slot_tables import Table
from tests.router.token_prompts import after
from toktier.router.decide import Decision
from toktier.router.reservations import Reservation
from toktier.router.token_ids import TokenIds, as_ids
from toktier.router.turns import Request, Taken, Turns

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
    asyncio.run(asyncio.wait_for(scene(), 300))  # type: ignore[arg-type]
