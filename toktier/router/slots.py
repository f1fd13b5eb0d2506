"""The slot table: what each slot of each upstream holds, who uses it and who waits for it, and what it was worth.

One event loop owns it; nothing here waits, locks or talks to anybody. A request is *reserved* when it is pinned, which
counts at once, and *settled* exactly once in the end, whatever became of it. While requests are in flight a slot is
seen as the next one will find it: with the prompt of the last of them. What an upstream measured always beats what is
known here; a slot that held less than was certain is *stale*, and everything earned by it is gone. Memory: at most
n_ctx IDs a slot and those of requests in flight. Not here: which slot to take (`decide`), which to hold (`holds`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from toktier.router import holds
from toktier.router.rates import Rates
from toktier.router.remembered import NO_RETURN, Remembered, Return
from toktier.router.slot_content import Content, Ids, after_request, as_ids, of_prompt, shared_prefix
from toktier.router.vocabulary import MIN_REUSE_FOR_HIT, SlotState

_RECENT = 1 / 32  # weight of the newest request in averages over the traffic
_NOTHING: Final[Ids] = np.zeros(0, dtype=np.uint32)


class View(NamedTuple):
    """One slot as a prompt finds it when its turn comes. Lengths and costs are tokens.

    `reusable`: the longest common prefix, at most the prompt less one token, which an upstream evaluates in any case;
    `sure`: how much of it is certain; `length`: what the slot holds; `proven`: how much of that came back before.
    `wait`: tokens of prefill until the slot is free, `waiting`: requests in flight on it; `load`: part of the slots of
    this upstream that are busy. `last_use`: number of the request that used it last, 0: none; `idle_requests`,
    `idle_s`: since then. `chance`: that what came back never so far will come back.
    """

    upstream: int
    slot: int
    state: SlotState
    reusable: int
    sure: int
    length: int
    proven: int
    held: bool
    wait: float
    waiting: int
    load: float
    last_use: int
    idle_requests: int
    idle_s: float
    reuses: int
    chance: float
    n_ctx: int


class SlotRow(NamedTuple):
    """One slot for people. `tokens`, `sure`: what it holds now; times in seconds."""

    upstream: int
    slot: int
    state: SlotState
    tokens: int
    sure: int
    held: bool
    in_flight: int
    reuses: int
    idle_s: float | None


class Settled(NamedTuple):
    """`predicted`: tokens that were certain when the request's turn came; `stale`: the upstream reused fewer;
    `moved`: it answered from another slot than was asked; `current`: False where the upstream was closed meanwhile,
    and nothing was learnt."""

    predicted: int
    stale: bool
    moved: bool
    current: bool


_VOID: Final = Settled(0, stale=False, moved=False, current=False)


@dataclass(slots=True, eq=False)
class Reservation:
    """A request that is pinned to a slot. `ids` None: its tokens are not known. `seen`: tokens generated so far, to be
    raised by whoever reads the answer."""

    upstream: int
    slot: int
    epoch: int
    number: int
    ids: Ids | None
    sure: bool
    predicted: int
    limit: int | None
    began: float | None
    returned: Return
    goes_on: bool  # from what the slot holds
    seen: int = 0
    settled: bool = False
    overtaken: bool = False  # a later one of the slot was settled before it


@dataclass(slots=True)
class _Slot:
    content: Content | None = None
    state: SlotState = SlotState.EMPTY
    in_flight: list[Reservation] = field(default_factory=list)
    version: int = 0
    last_use: int = 0
    last_use_s: float = 0.0
    proven: int = 0
    reuses: int = 0
    distance: float = 0.0
    held: bool = False


@dataclass(slots=True)
class _Upstream:
    n_ctx: int
    epoch: int
    slots: list[_Slot]
    rates: Rates
    usable: bool = True


class SlotTable:
    def __init__(
        self,
        clock: Callable[[], float],
        *,
        remembered: Remembered | None = None,
        on_change: Callable[[int, int, Ids | None], None] | None = None,
        on_clear: Callable[[int], None] | None = None,
    ) -> None:
        """`clock`: seconds, monotonic. `on_change(upstream, slot, ids)`: a slot certainly holds `ids` now, None:
        nothing is certain; `on_clear(upstream)`: none of its slots holds anything that is known."""
        self._clock = clock
        self._remembered = Remembered() if remembered is None else remembered
        self._on_change = on_change
        self._on_clear = on_clear
        self._upstreams: dict[int, _Upstream] = {}
        self._epochs = 0
        self._requests = 0
        self._continued = 0.5  # part of the requests that go on from an earlier one
        self._distance = 0.0  # requests between the two; 0: none was seen yet

    # Upstreams

    def open_upstream(self, upstream: int, slots: int, n_ctx: int, rates: Rates | None = None) -> None:
        """`n_ctx`: tokens that one slot can hold. Opened again it begins anew, with its rates."""
        known = self._upstreams.get(upstream)
        if known is not None:
            self.close_upstream(upstream)
            rates = known.rates if rates is None else rates
        self._epochs += 1
        fresh = [_Slot() for _ in range(slots)]
        self._upstreams[upstream] = _Upstream(n_ctx, self._epochs, fresh, Rates() if rates is None else rates)

    def close_upstream(self, upstream: int) -> None:
        """It was lost or restarted: whatever its slots held is gone, and its reservations settle to nothing."""
        gone = self._upstreams.pop(upstream, None)
        if gone is None:
            return
        for slot in gone.slots:
            self._remember(slot)
        if self._on_clear is not None:
            self._on_clear(upstream)

    def set_usable(self, upstream: int, usable: bool) -> None:
        """One that is not usable has no views, and keeps what it holds."""
        if upstream in self._upstreams:
            self._upstreams[upstream].usable = usable

    def rates(self, upstream: int) -> Rates | None:
        known = self._upstreams.get(upstream)
        return None if known is None else known.rates

    def n_slots(self, upstream: int) -> int:
        known = self._upstreams.get(upstream)
        return 0 if known is None else len(known.slots)

    # What a prompt finds

    def views(self, ids: Ids) -> list[View]:
        """Every slot of every usable upstream, in order."""
        now, most, usual = self._clock(), max(len(ids) - 1, 0), self._usual_distance()
        found: list[View] = []
        for number, upstream in self._upstreams.items():
            if not upstream.usable or not upstream.slots:
                continue
            load = sum(1 for slot in upstream.slots if slot.in_flight) / len(upstream.slots)
            for index, slot in enumerate(upstream.slots):
                content, proven, is_held, wait = slot.content, slot.proven, slot.held, 0.0
                if slot.in_flight:
                    content, proven, is_held = _expected(slot, upstream.n_ctx)
                    wait = self._wait(slot, upstream, now)
                shared = sure = length = 0
                if content is not None:
                    length = len(content.ids)
                    shared = min(shared_prefix(content.ids, ids), most)
                    sure = min(shared, content.sure)
                idle = self._requests - slot.last_use
                found.append(
                    View(
                        number,
                        index,
                        slot.state,
                        shared,
                        sure,
                        length,
                        min(proven, length),
                        is_held,
                        wait,
                        len(slot.in_flight),
                        load,
                        slot.last_use,
                        idle,
                        now - slot.last_use_s,
                        slot.reuses,
                        self._continued * usual / (usual + max(idle - 1, 0)),
                        upstream.n_ctx,
                    )
                )
        return found

    def _wait(self, slot: _Slot, upstream: _Upstream, now: float) -> float:
        total = 0.0
        for first, reservation in enumerate(slot.in_flight):
            prompt = 0 if reservation.ids is None else len(reservation.ids)
            elapsed = None if first or reservation.began is None else now - reservation.began
            todo = max(prompt - reservation.predicted, 1)
            total += upstream.rates.remaining(todo, reservation.limit, reservation.seen, elapsed)
        return total

    def _usual_distance(self) -> float:
        return self._distance or 2.0 * sum(len(upstream.slots) for upstream in self._upstreams.values())

    # One request

    def reserve(
        self,
        upstream: int,
        slot: int,
        ids: Ids | Sequence[int] | None,
        predicted: int = 0,
        *,
        sure: bool = True,
        limit: int | None = None,
    ) -> Reservation:
        """Pin a request. `ids` None: its tokens are not known; `sure` False: the upstream works on its own, which may
        differ; `limit`: the most tokens it may generate. Raises LookupError where there is no such slot: views, the
        decision and this belong into one step of the loop."""
        known = self._upstreams.get(upstream)
        if known is None or not 0 <= slot < len(known.slots):
            raise LookupError(f"upstream {upstream} has no slot {slot}")
        place = known.slots[slot]
        own = None if ids is None else as_ids(ids)
        self._requests += 1
        now = self._clock()
        goes_on = False
        if own is not None and place.content is not None:
            goes_on = place.content.is_continued_by(shared_prefix(place.content.ids, own))
        returned = NO_RETURN if own is None or goes_on else self._remembered.returned(own, self._requests)
        reservation = Reservation(
            upstream=upstream,
            slot=slot,
            epoch=known.epoch,
            number=self._requests,
            ids=own,
            sure=sure,
            predicted=predicted,
            limit=limit,
            began=None if place.in_flight else now,
            returned=returned,
            goes_on=goes_on,
        )
        place.in_flight.append(reservation)
        place.version += 1
        return reservation

    def settle(
        self,
        reservation: Reservation,
        *,
        generated: Sequence[int] | Ids = (),
        guessed: Sequence[int] | Ids = (),
        count: int | None = None,
        measured: int | None = None,
        actual_slot: int | None = None,
        finished: bool = False,
        reached_upstream: bool = True,
        refused: bool = False,
    ) -> Settled:
        """A request is over; a second call changes nothing.

        `generated`: tokens that the upstream named, from the first on and without a gap; `guessed`: those behind them
        that it did not name; `count`: how many it says there were, None: as many as `generated` has. `measured`: tokens
        it reused. `finished`: it generated to the end. `refused`: it answered with an error, and evaluated nothing.
        """
        upstream = self._upstreams.get(reservation.upstream)
        if reservation.settled:
            return _VOID
        reservation.settled = True
        if upstream is None or upstream.epoch != reservation.epoch:
            return _VOID
        slot = upstream.slots[reservation.slot]
        was_first = slot.in_flight[0] is reservation
        slot.in_flight.remove(reservation)
        if was_first and slot.in_flight:
            slot.in_flight[0].began = self._clock()
        slot.version += 1
        shared, promised = _promised(slot.content, reservation)
        if not reached_upstream or refused:
            return Settled(promised, stale=False, moved=False, current=True)
        if measured is not None:
            shared = min(shared, max(measured, 0))
        if finished:
            upstream.rates.finished(len(generated) + len(guessed) if count is None else count)
        answered = measured is not None or finished or len(generated) > 0 or len(guessed) > 0
        new: Content | None = None
        if answered and reservation.ids is not None:
            whole = finished and count in (None, len(generated))
            new = _after(reservation.ids, generated, guessed, reservation.sure, whole, upstream.n_ctx)
        elif reservation.ids is not None:
            if reservation.began is None:  # it waited for the slot and never had it
                return Settled(promised, stale=False, moved=False, current=True)
            # Cut short before its first token: the slot holds the old, or a part of the new behind what both share.
            fresh = of_prompt(reservation.ids, sure=reservation.sure, n_ctx=upstream.n_ctx)
            new = fresh.doubted(slot.content)
        if actual_slot is not None and actual_slot != reservation.slot:
            if 0 <= actual_slot < len(upstream.slots):
                other = upstream.slots[actual_slot]
                other.version += 1
                if other.in_flight and new is not None:  # before them or after: nobody knows
                    new = new.doubted(None)
                self._replace(reservation.upstream, actual_slot, new, reservation, 0)
            return Settled(promised, stale=False, moved=True, current=True)
        if reservation.overtaken:
            if slot.content is not None:
                self._store(reservation.upstream, reservation.slot, slot.content.doubted(new))
            return Settled(0, stale=False, moved=False, current=True)
        stale = False
        earlier = [r for r in slot.in_flight if r.number < reservation.number]
        if earlier:  # it ran behind them, or before: what both leave behind is certain, and of what it found, nothing
            promised = 0
            for one in earlier:
                one.overtaken = True
                before = None if one.ids is None else of_prompt(one.ids, sure=one.sure, n_ctx=upstream.n_ctx)
                new = None if new is None else new.doubted(before)
        elif measured is not None and measured < promised:
            stale = True
            slot.reuses = slot.proven = shared = 0
            slot.held = False
        self._replace(reservation.upstream, reservation.slot, new, reservation, shared)
        return Settled(promised, stale, moved=False, current=True)

    # What is learnt otherwise

    def versions(self, upstream: int) -> list[int]:
        """To be taken before an upstream is asked what its slots hold. Empty: there is no such upstream."""
        known = self._upstreams.get(upstream)
        return [] if known is None else [slot.version for slot in known.slots]

    def audit(self, upstream: int, held: Sequence[int | None], versions: Sequence[int] | None = None) -> list[int]:
        """`held`: tokens in each slot by the upstream's account, None: it is busy, or did not say. Slots that changed
        since `versions` are left alone. Returns those that hold something else than was thought."""
        known = self._upstreams.get(upstream)
        wrong: list[int] = []
        if known is None:
            return wrong
        for index, (slot, tokens) in enumerate(zip(known.slots, held, strict=False)):
            changed = versions is not None and (index >= len(versions) or versions[index] != slot.version)
            if tokens is None or slot.in_flight or changed:
                continue
            content = slot.content
            if content is None:
                if slot.state is SlotState.EMPTY and tokens > 0:
                    slot.state = SlotState.UNKNOWN
            elif tokens != len(content.ids) and (content.exact or tokens < content.sure or tokens <= 0):
                wrong.append(index)
                self.forget(upstream, index)
            elif tokens < len(content.ids):
                self._store(upstream, index, content.cut(tokens))
        return wrong

    def forget(self, upstream: int, slot: int) -> None:
        """A slot holds something that is not known."""
        known = self._upstreams.get(upstream)
        if known is None or not 0 <= slot < len(known.slots):
            return
        place = known.slots[slot]
        self._remember(place)
        place.version += 1
        place.reuses = place.proven = 0
        place.held = False
        self._store(upstream, slot, None)

    def slots(self) -> list[SlotRow]:
        now = self._clock()
        return [
            SlotRow(
                upstream=number,
                slot=index,
                state=slot.state,
                tokens=0 if slot.content is None else len(slot.content.ids),
                sure=0 if slot.content is None else slot.content.sure,
                held=slot.held,
                in_flight=len(slot.in_flight),
                reuses=slot.reuses,
                idle_s=now - slot.last_use_s if slot.last_use else None,
            )
            for number, upstream in self._upstreams.items()
            for index, slot in enumerate(upstream.slots)
        ]

    def in_flight(self, upstream: int) -> int:
        known = self._upstreams.get(upstream)
        return 0 if known is None else sum(len(slot.in_flight) for slot in known.slots)

    # Content changes

    def _replace(self, upstream: int, index: int, new: Content | None, reservation: Reservation, shared: int) -> None:
        """`reservation` ran in this slot, of whose content it shared `shared` tokens."""
        slot = self._upstreams[upstream].slots[index]
        old = slot.content
        goes_on = old is not None and old.is_continued_by(shared)
        if old is not None and not goes_on:
            self._remember(slot)
        distance = 0.0
        if goes_on:
            distance = float(max(reservation.number - slot.last_use, 1))
            slot.reuses += 1
            slot.proven = shared
            slot.distance = distance if not slot.distance else (slot.distance + distance) / 2
        elif reservation.returned.tokens > max(shared, MIN_REUSE_FOR_HIT):
            distance = float(reservation.returned.requests)
            slot.reuses, slot.proven, slot.distance = 1, reservation.returned.tokens, distance
        elif shared >= max(slot.proven, MIN_REUSE_FOR_HIT):  # a prefix that many begin with
            slot.reuses += 1
            slot.proven = shared
            slot.distance = float(max(reservation.number - slot.last_use, 1))
        else:
            slot.reuses, slot.proven, slot.distance = 0, 0, 0.0
        self._continued += _RECENT * ((distance > 0) - self._continued)
        if distance:
            usual = self._distance or distance
            self._distance = usual + _RECENT * (distance - usual)
        slot.last_use = max(slot.last_use, reservation.number)
        slot.last_use_s = self._clock()
        self._hold(upstream)
        self._store(upstream, index, new)

    def _hold(self, upstream: int) -> None:
        slots, now, usual = self._upstreams[upstream].slots, self._clock(), self._usual_distance()
        merits = [
            holds.Merit(
                slot.proven,
                slot.reuses,
                slot.distance or usual,
                self._requests - slot.last_use,
                now - slot.last_use_s,
                slot.held,
            )
            for slot in slots
        ]
        for slot, held in zip(slots, holds.held(merits), strict=True):
            slot.held = held

    def _store(self, upstream: int, index: int, content: Content | None) -> None:
        slot = self._upstreams[upstream].slots[index]
        slot.content = content
        slot.state = SlotState.UNKNOWN if content is None else SlotState.KNOWN
        if self._on_change is not None:
            self._on_change(upstream, index, content.ids[: content.sure] if content and content.sure else None)

    def _remember(self, slot: _Slot) -> None:
        if slot.content is not None:
            self._remembered.add(slot.content.ids, slot.content.prompt, slot.last_use)


def _expected(slot: _Slot, n_ctx: int) -> tuple[Content | None, int, bool]:
    """What the next request in turn will find in a busy slot: content, how much of it came back before, held."""
    for reservation in reversed(slot.in_flight):
        if reservation.overtaken:
            continue
        if reservation.ids is None:
            return None, 0, False
        if len(reservation.ids) < n_ctx:  # longer ones are refused, and leave the slot as it is
            proven = reservation.predicted if reservation.goes_on else reservation.returned.tokens
            content = of_prompt(reservation.ids, sure=reservation.sure, n_ctx=n_ctx)
            return content, proven, slot.held and reservation.goes_on
    return slot.content, slot.proven, slot.held


def _promised(content: Content | None, reservation: Reservation) -> tuple[int, int]:
    """Tokens of the slot's content that the prompt shares, and how many of them are certain."""
    if content is None or reservation.ids is None:
        return 0, 0
    shared = min(shared_prefix(content.ids, reservation.ids), max(len(reservation.ids) - 1, 0))
    return shared, min(shared, content.sure) if reservation.sure else 0


def _after(
    prompt: Ids, generated: Sequence[int] | Ids, guessed: Sequence[int] | Ids, sure: bool, whole: bool, n_ctx: int
) -> Content:
    try:
        named, unnamed = as_ids(generated), as_ids(guessed)
    except (OverflowError, TypeError, ValueError):  # an upstream may name what is no token
        return of_prompt(prompt, sure=sure, n_ctx=n_ctx)
    return after_request(prompt, named, unnamed, sure=sure, exact=whole, n_ctx=n_ctx)
