"""Whose turn it is: requests that find no free slot wait here, and one that comes free is given to one of them.

A request is bound to a slot when it can run, not when it arrives: by then it is known which slot holds what. Whoever
waited longest is asked first, and takes the slot that costs it least (`decide`), or waits on where that one is busy.

With more conversations than slots, that order alone would waste every prefix: the slot of a conversation is taken by
the next one before its answer was read. Two things bend it, within bounds. A request that *goes on* from what a free
slot holds passes those that wait for that slot, and the slot of a conversation that will most likely go on at once is
*kept* for it for a moment (`keeping`), also from those who come within it; both up to `in_a_row` turns of one
conversation in that slot. And nobody is passed more often than `in_a_row` times for each slot, be it because it waited
for a busy one: then it takes what is free, and nobody passes it any more.

Nobody waits for a busy slot while another is free for longer than evaluating takes there. A slot whose client does not
read may be free: the upstream generates on without it, and has the request. Prompts that fit no slot, and those for an
upstream that chooses slots itself, never wait. Not here: what slots hold (`slots`), how many requests are
let in at all (`admission`).
"""

from __future__ import annotations

import asyncio
import bisect
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Final, NamedTuple

from toktier.errors import ToktierError
from toktier.router.candidates import Candidate
from toktier.router.decide import Decision, Policy, decide
from toktier.router.keeping import Keeping
from toktier.router.refusals import Refusal, Refused, retry_after
from toktier.router.reservations import Reservation
from toktier.router.slot_view import Place, View
from toktier.router.slots import SlotTable
from toktier.router.token_ids import TokenIds

# Of those that wait, how many are compared when a slot comes free, and more only where none of them wants one: 0.5 ms
# for 4 slots, 2 for 16.
WINDOW: Final = 16
TICK: Final = 0.25  # seconds between two looks, where nobody tells: of clients that stopped reading, of time
# That those who wait give the last upstream that was lost, which may be back at once. While requests run there it
# is slow, not gone.
LOST_SECONDS: Final = 2.0
_UNMEASURED_PREFILL: Final = 1000.0  # tokens a second, of an upstream that said nothing yet


class Request(NamedTuple):
    """One that wants a slot. `views`: those of its prompt that it may have, as they are now; `reserve`: takes what was
    decided, in the same step of the loop; `chooses`: whether an upstream chooses the slot itself; `seconds`: that it
    waits at most; `since`: when it came, by any clock: one that was lost with its upstream is not the last again."""

    ids: TokenIds
    views: Callable[[], Sequence[View]]
    reserve: Callable[[Decision], Reservation]
    chooses: Callable[[int], bool]
    candidates: Sequence[Candidate[Place]] = ()
    seconds: float = 600.0
    since: float = 0.0


class Taken(NamedTuple):
    """`waited`: seconds for a slot to come free."""

    decision: Decision
    reservation: Reservation
    waited: float


@dataclass(slots=True)
class Counts:
    """`waited`: requests that had to, `left`: of these, whose clients went away meanwhile; `let_pass`: turns given to
    one that others were before; `kept`: slots kept free for a moment, `kept_in_vain`: of these, for a turn that did not
    come. They only grow."""

    waited: int = 0
    left: int = 0
    let_pass: int = 0
    kept: int = 0
    kept_in_vain: int = 0


@dataclass(slots=True)
class _Kept:
    """`wanted`: somebody waits because of it."""

    since: float
    until: float
    wanted: bool = False


@dataclass(eq=False, slots=True)
class _Waiting:
    """`passed`: turns that were given to one behind it. By the clock: `declined`, since when it waits for a busy slot
    while another is free; `lost`, since when there is no upstream."""

    request: Request
    outcome: asyncio.Future[Decision | None]
    reservation: Reservation | None = None
    passed: int = 0
    declined: float | None = None
    lost: float | None = None


class _Chance(NamedTuple):
    """What one of those that wait may have now. `behind`: how many wait longer."""

    behind: int
    waiting: _Waiting
    decision: Decision
    goes_on: bool

    @property
    def place(self) -> Place:
        return self.decision.place


class Turns:
    def __init__(
        self,
        table: SlotTable,
        clock: Callable[[], float],
        *,
        in_a_row: int,
        policy: Policy | None = None,
    ) -> None:
        """`clock`: seconds, monotonic; `in_a_row`: 1: strictly in order."""
        self.counts = Counts()
        self._table, self._clock, self._policy = table, clock, policy
        self._in_a_row = in_a_row
        self._keeping = Keeping()
        self._waiting: list[_Waiting] = []
        self._passed: dict[Place, int] = {}  # turns in a row that were let pass there
        self._kept: dict[Place, _Kept] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def counters(self) -> dict[str, int]:
        """Numbers that only grow, but for `waiting`."""
        return {"waiting": self.waiting, **asdict(self.counts)}

    async def take(self, request: Request) -> Taken | None:
        """Waits for its turn, and raises Refused where it does not come in time. None: there is no upstream.
        Whoever is cancelled leaves nothing behind."""
        if not request.views():
            return None
        waiting = _Waiting(request, asyncio.get_running_loop().create_future())
        place = bisect.bisect_right(self._waiting, request.since, key=lambda one: one.request.since)
        self._waiting.insert(place, waiting)
        began = self._clock()
        try:
            self._look(newest=place)
            if not waiting.outcome.done():
                self.counts.waited += 1
                async with asyncio.timeout(request.seconds):
                    await waiting.outcome
            outcome = waiting.outcome.result()
        except BaseException as error:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
                self.counts.left += not isinstance(error, TimeoutError)
            if waiting.reservation is not None:
                self._table.settle(waiting.reservation, reached_upstream=False)
            self.look()
            if isinstance(error, TimeoutError):
                raise self._too_long(request.seconds) from None
            raise
        if outcome is None:
            return None
        assert waiting.reservation is not None
        return Taken(outcome, waiting.reservation, self._clock() - began)

    def ended(self, reservation: Reservation, *, whole: bool) -> None:
        """A request was settled. `whole`: it was answered to the end, so that its conversation may go on."""
        place = (reservation.upstream, reservation.slot)
        if whole and self._may_pass(place):
            self._keep(place)
        self.look()

    def look(self) -> None:
        """Gives away what there is to give. To be called when anything changed."""
        self._look(newest=None)

    def _look(self, *, newest: int | None) -> None:
        """`newest`: nothing changed but that one more waits, at this place; what the others had the choice of they did
        not want."""
        now = self._clock()
        for place, kept in list(self._kept.items()):
            if now >= kept.until:
                newest = None
                del self._kept[place]
                self._keeping.ended(None)
                self.counts.kept_in_vain += kept.wanted
        if newest is not None:
            self._give_one(now, [newest])
        else:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            while self._waiting and self._table.has_free() and self._give_one(now, range(len(self._waiting))):
                pass
        if self._waiting:
            self._wake(min((kept.until - now for kept in self._kept.values()), default=TICK))

    def _give_one(self, now: float, places: Sequence[int]) -> bool:
        """`places`: in the queue, of those that are asked. True: one of them waits no more."""
        chances: list[_Chance] = []
        for asked, behind in enumerate(places):
            if asked >= WINDOW and chances:
                break
            waiting = self._waiting[behind]
            if waiting.outcome.done():  # it was cancelled, and did not come to say so
                self._waiting.remove(waiting)
                return True
            views = waiting.request.views()
            if not views:
                waiting.lost = now if waiting.lost is None else waiting.lost
                if now - waiting.lost < LOST_SECONDS or self._table.is_slow():
                    continue
                self._end(waiting, None)
                return True
            waiting.lost = None
            chance, is_due = self._chance(behind, waiting, views, now)
            if chance is not None:
                chances.append(chance)
                if is_due or chances[0].goes_on or not self._may_pass(chances[0].place):
                    break  # nobody passes it
        if not chances:
            return False
        first = chances[0]
        chosen = next((one for one in chances if one.goes_on and one.place == first.place), first)
        self._give(chosen, passes=chosen is not first or (first.behind > 0 and first.place in self._kept), now=now)
        return True

    def _chance(self, behind: int, waiting: _Waiting, views: Sequence[View], now: float) -> tuple[_Chance | None, bool]:
        """What it may have now, if anything, and whether it is its turn whatever comes."""
        request, size = waiting.request, len(waiting.request.ids)
        free = [view for view in views if view.waiting == 0 and size < view.n_ctx]
        is_due = bool(free) and self._is_due(waiting, views)
        decision = decide(size, free if is_due else views, request.candidates, self._policy)
        assert decision is not None
        view = _of(views, decision)
        if not decision.fits or request.chooses(decision.upstream):
            return _Chance(behind, waiting, decision, view.goes_on), is_due
        if not is_due and self._is_kept_from(view):
            # It says when somebody else may have the slot, not that another is better.
            return None, False
        if view.waiting and not view.may_be_free:
            unkept = [one for one in free if not self._is_kept_from(one)]
            other = decide(size, unkept, request.candidates, self._policy)
            if other is None or not self._waited_enough(waiting, other, size, now):
                return None, False
            decision, view = other, _of(views, other)
        return _Chance(behind, waiting, decision, view.goes_on), is_due

    def _waited_enough(self, waiting: _Waiting, other: Decision, size: int, now: float) -> bool:
        """For a busy slot: as long as evaluating takes in a free one. Whatever is to come, waiting for it then cost no
        more than twice what it had to."""
        if waiting.declined is None:
            waiting.declined = now
        rates = self._table.rates(other.upstream)
        prefill = _UNMEASURED_PREFILL if rates is None or rates.prefill is None else rates.prefill
        until = waiting.declined + (size - other.predicted) / prefill
        if now >= until:
            return True
        self._wake(until - now)
        return False

    def _give(self, chance: _Chance, *, passes: bool, now: float) -> None:
        waiting, decision = chance.waiting, chance.decision
        # What is refused there, or goes where the upstream likes, takes nobody's turn.
        if decision.fits and not waiting.request.chooses(decision.upstream):
            self._count(chance, passes=passes, now=now)
        try:
            waiting.reservation = waiting.request.reserve(decision)
        except ToktierError as error:  # which is this one's alone
            self._waiting.remove(waiting)
            waiting.outcome.set_exception(error)
        else:
            self._end(waiting, decision)

    def _count(self, chance: _Chance, *, passes: bool, now: float) -> None:
        place = chance.place
        self._passed[place] = self._passed.get(place, 0) + 1 if passes else 0
        self.counts.let_pass += passes
        for waiting in self._waiting[: chance.behind]:
            waiting.passed += 1
        if (kept := self._kept.pop(place, None)) is not None:
            if chance.goes_on:
                self._keeping.ended(now - kept.since)
            else:  # by one that is due, which says nothing of the conversation
                self.counts.kept_in_vain += kept.wanted

    def _end(self, waiting: _Waiting, outcome: Decision | None) -> None:
        self._waiting.remove(waiting)
        waiting.outcome.set_result(outcome)

    def _too_long(self, seconds: float) -> Refused:
        return Refused(
            Refusal.OVERLOADED,
            f"no slot came free within {seconds:g} seconds; {self.waiting:,} other requests wait for one",
            remedy="try again later, or start the router with larger --first-byte-seconds and --whole-seconds",
            headers=[retry_after(60)],
        )

    # Keeping

    def _is_due(self, waiting: _Waiting, views: Sequence[View]) -> bool:
        return waiting.passed >= self._in_a_row * len(views)

    def _may_pass(self, place: Place) -> bool:
        return self._passed.get(place, 0) + 1 < self._in_a_row

    def _keep(self, place: Place) -> None:
        """Also where nobody waits yet: whoever comes within the moment would take the slot."""
        rates = self._table.rates(place[0])
        if rates is None or (self._waiting and self._is_due(self._waiting[0], self._waiting[0].request.views())):
            return
        seconds = self._keeping.seconds(self._table.length(*place), rates.prefill)
        if seconds is not None:
            now = self._clock()
            self._kept[place] = _Kept(now, now + seconds)

    def _is_kept_from(self, view: View) -> bool:
        """What shares half of it or more may have it, though it does not go on from it."""
        kept = self._kept.get((view.upstream, view.slot))
        if kept is None or view.goes_on or 2 * view.reusable >= view.length:
            return False
        self.counts.kept += not kept.wanted
        kept.wanted = True
        return True

    def _wake(self, seconds: float) -> None:
        """Looks again after so long, or sooner."""
        loop, seconds = asyncio.get_running_loop(), min(seconds, TICK)
        if self._timer is not None:
            if self._timer.when() <= loop.time() + seconds:
                return
            self._timer.cancel()
        self._timer = loop.call_later(seconds, self._looks_again)

    def _looks_again(self) -> None:
        self._timer = None
        self.look()


def _of(views: Sequence[View], decision: Decision) -> View:
    return next(view for view in views if (view.upstream, view.slot) == decision.place)
