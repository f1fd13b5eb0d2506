"""Requests that were left before their end: their slot counts as busy until the upstream shows it idle.

Whoever leaves closes a connection, and nothing else ends a generation. A llama-server sees the end of a stream with its
next token. After an answer in one piece it looks only when no result of any request came for a second, and questions
put that off as well, so it is asked less often than that. Meanwhile the next request of that conversation would find
the best prefix in a slot that works for nobody. Not here: how a request is settled (`exchange`, `slots`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from toktier.errors import UpstreamBroken, UpstreamLost, UpstreamRefused, UpstreamSilent
from toktier.router.vocabulary import UpstreamState

if TYPE_CHECKING:
    from toktier.router.reservations import Reservation
    from toktier.router.slots import SlotTable
    from toktier.router.upstream import Upstream

LOG: Final = logging.getLogger("toktier.router")
FIRST_LOOK_OF_STREAM: Final = 0.02  # seconds: a token or two; twice as long before each of the next ones
PAUSE: Final = 1.5  # seconds between two looks, at most
LEAST: Final = 5.0  # seconds that a slot is looked at, where requests usually end sooner


class LeftRequests:
    """For one event loop. Each is settled exactly once, at the latest by `close`."""

    def __init__(self, table: SlotTable) -> None:
        self._table = table
        self._tasks = set[asyncio.Task[None]]()

    def add(self, upstream: Upstream, reservation: Reservation, settle: Callable[[], None], *, stream: bool) -> None:
        """Settles at once where the upstream does not show its slots."""
        if upstream.facts is None or not upstream.facts.shows_slots:
            return settle()
        reservation.sending_since = time.monotonic()  # as one whose client does not read: the slot may be free
        pause = FIRST_LOOK_OF_STREAM if stream else PAUSE
        task = asyncio.get_running_loop().create_task(self._idle(upstream, reservation, pause))
        self._tasks.add(task)

        def ended(task: asyncio.Task[None]) -> None:  # also of one that was cancelled before it began
            self._tasks.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                LOG.error("a slot could not be looked at: %s", type(error).__name__)
            settle()

        task.add_done_callback(ended)
        return None

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _idle(self, upstream: Upstream, reservation: Reservation, pause: float) -> None:
        """Returns when the slot is idle, the process another one, or nobody would generate for so long."""
        rates, epoch = self._table.rates(reservation.upstream), upstream.epoch
        until = time.monotonic() + max(LEAST, 0.0 if rates is None else rates.stalled_seconds)
        while time.monotonic() < until:
            await asyncio.sleep(pause)
            pause = min(2 * pause, PAUSE)
            if upstream.state is not UpstreamState.UP or upstream.epoch != epoch:
                return
            try:
                slots = await upstream.slots()
            except UpstreamSilent:  # it evaluates
                continue
            except (UpstreamLost, UpstreamBroken, UpstreamRefused):
                return
            if reservation.slot >= len(slots) or not slots[reservation.slot].busy:
                return
