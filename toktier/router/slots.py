"""The slot table: what each slot of each upstream holds, who uses it and who waits for it, and what it was worth.

One event loop owns it; nothing here waits, locks or talks to anybody. A request is *reserved* when it is pinned, which
counts at once, and *settled* exactly once in the end, whatever became of it. While requests are in flight a slot is
seen as the next one will find it: with the prompt of the last of them. What an upstream measured always beats what is
known here; a slot that held less than was certain is *stale*, and everything earned by it is gone. Memory: at most
n_ctx IDs a slot and those of requests in flight. Not here: which slot to take (`decide`), which to hold (`holds`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from toktier.router import holds
from toktier.router.rates import Rates
from toktier.router.remembered import NO_RETURN, Remembered
from toktier.router.reservations import VOID, End, Reservation, Settled, earlier
from toktier.router.rows import SlotRow
from toktier.router.slot_content import Content
from toktier.router.slot_state import Slot
from toktier.router.slot_view import Known, View, shared_length
from toktier.router.token_ids import TokenIds, as_ids, shared_prefix
from toktier.router.traffic import Traffic
from toktier.router.vocabulary import SlotState

RUNS_ON: Final = 256  # tokens that may be generated until an upstream has seen that nobody reads them


@dataclass(slots=True)
class _Upstream:
    n_ctx: int
    epoch: int
    slots: list[Slot]
    rates: Rates
    usable: bool = True


class SlotTable:
    def __init__(
        self,
        clock: Callable[[], float],
        *,
        remembered: Remembered | None = None,
        on_change: Callable[[int, int, TokenIds | None], None] | None = None,
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
        self._traffic = Traffic()

    # Upstreams

    def open_upstream(self, upstream: int, slots: int, n_ctx: int, rates: Rates | None = None) -> None:
        """`n_ctx`: tokens that one slot can hold. Opened again it begins anew, with its rates."""
        known = self._upstreams.get(upstream)
        if known is not None:
            self.close_upstream(upstream)
            rates = known.rates if rates is None else rates
        self._epochs += 1
        fresh = [Slot() for _ in range(slots)]
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

    def views(self, ids: TokenIds, known: Known | None = None) -> list[View]:
        """Every slot of every usable upstream, in order. `known`: what was found for the same IDs before, which is not
        compared again while a slot holds the same; changed."""
        now, most, usual = self._clock(), max(len(ids) - 1, 0), self._traffic.distance(self._count())
        found: list[View] = []
        for number, upstream in self._upstreams.items():
            if not upstream.usable or not upstream.slots:
                continue
            load = sum(1 for slot in upstream.slots if slot.in_flight) / len(upstream.slots)
            for index, slot in enumerate(upstream.slots):
                content, proven, is_held = slot.next_finds(upstream.n_ctx)
                wait = self._wait(slot, upstream, now) if slot.in_flight else 0.0
                shared = sure = length = 0
                if content is not None:
                    length = len(content.ids)
                    shared = min(shared_length(content.ids, ids, (number, index), known), most)
                    sure = min(shared, content.sure)
                found.append(
                    View(
                        number,
                        index,
                        shared,
                        sure,
                        length,
                        min(proven, length),
                        is_held,
                        wait,
                        len(slot.in_flight),
                        load,
                        slot.last_use,
                        self._traffic.chance(self._traffic.requests - slot.last_use, usual),
                        upstream.n_ctx,
                        content is not None and not slot.in_flight and content.is_continued_by(shared),
                        bool(slot.in_flight) and slot.may_be_free(now, upstream.rates.stalled_seconds),
                    )
                )
        return found

    def length(self, upstream: int, slot: int) -> int:
        """Tokens that a slot is thought to hold while nothing is in flight on it; 0 where that is not known."""
        known = self._upstreams.get(upstream)
        if known is None or not 0 <= slot < len(known.slots):
            return 0
        place = known.slots[slot]
        return 0 if place.in_flight or place.content is None else len(place.content.ids)

    def has_free(self) -> bool:
        """Whether any slot may be had now; or there is no usable upstream at all, which somebody has to be told."""
        now = self._clock()
        usable = [upstream for upstream in self._upstreams.values() if upstream.usable and upstream.slots]
        return not usable or any(
            slot.may_be_free(now, upstream.rates.stalled_seconds) for upstream in usable for slot in upstream.slots
        )

    def is_slow(self) -> bool:
        """Whether anything is in flight on an upstream that is not usable: it may be back at once."""
        unusable = (upstream for upstream in self._upstreams.values() if not upstream.usable)
        return any(slot.in_flight for upstream in unusable for slot in upstream.slots)

    def _wait(self, slot: Slot, upstream: _Upstream, now: float) -> float:
        total = 0.0
        for first, reservation in enumerate(slot.in_flight):
            prompt = 0 if reservation.ids is None else len(reservation.ids)
            elapsed = None if first or reservation.began is None else now - reservation.began
            todo = max(prompt - reservation.predicted, 1)
            total += upstream.rates.remaining(todo, reservation.limit, reservation.seen, elapsed)
        return total

    def _count(self) -> int:
        return sum(len(upstream.slots) for upstream in self._upstreams.values())

    # One request

    def reserve(
        self,
        upstream: int,
        slot: int,
        ids: TokenIds | Sequence[int] | None,
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
        number = self._traffic.begins()
        goes_on = False
        if own is not None and place.content is not None:
            goes_on = place.content.is_continued_by(shared_prefix(place.content.ids, own))
        returned = NO_RETURN if own is None or goes_on else self._remembered.returned(own, number)
        reservation = Reservation(
            upstream=upstream,
            slot=slot,
            epoch=known.epoch,
            number=number,
            ids=own,
            sure=sure,
            predicted=predicted,
            limit=limit,
            began=None if place.in_flight else self._clock(),
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
        generated: Sequence[int] | TokenIds = (),
        guessed: Sequence[int] | TokenIds = (),
        count: int | None = None,
        whole: bool = True,
        measured: int | None = None,
        actual_slot: int | None = None,
        finished: bool = False,
        reached_upstream: bool = True,
        refused: bool = False,
    ) -> Settled:
        """A request is over; a second call changes nothing.

        `generated`: tokens that the upstream named, from the first on and without a gap; `guessed`: those behind them
        that it did not name; `count`: how many it says there were, None: as many as `generated` has, or, where it is
        not `whole`, that and perhaps more. `measured`: tokens it reused. `finished`: it generated to the end.
        `refused`: it answered with an error, and evaluated nothing.
        """
        upstream = self._upstreams.get(reservation.upstream)
        if reservation.settled or upstream is None or upstream.epoch != reservation.epoch:
            reservation.settled = True
            return VOID
        reservation.settled = True
        slot = upstream.slots[reservation.slot]
        was_first = slot.in_flight[0] is reservation
        slot.leaves(reservation)
        if was_first and slot.in_flight:
            slot.in_flight[0].began = self._clock()
        if not reached_upstream or refused:
            return Settled(reservation.promised(slot.content)[1])
        end = End(generated, guessed, count, measured, finished, whole)
        if finished and whole:
            upstream.rates.finished(end.tokens)
        if actual_slot is not None and actual_slot != reservation.slot:
            return self._moved(upstream, reservation, end, actual_slot)
        if not end.was_answered and reservation.ids is not None and reservation.began is None:
            return self._left_waiting(upstream, reservation)
        return self._ran(upstream, reservation, end)

    def _ran(self, upstream: _Upstream, reservation: Reservation, end: End) -> Settled:
        """In its slot, to some point."""
        slot = upstream.slots[reservation.slot]
        shared, promised = reservation.promised(slot.content)
        if end.was_answered:
            new = end.content(reservation, upstream.n_ctx)
        else:  # cut short: the slot holds what was there, or a part of the new behind what both share
            new = reservation.prompt(upstream.n_ctx)
            new = None if new is None else new.doubted(slot.content)
        if new is not None and reservation.most_sure is not None:
            new = new.at_most(reservation.most_sure)
        if new is not None and not end.finished and len(new.ids) + RUNS_ON > upstream.n_ctx:
            # Full, a server may discard tokens to make room (--context-shift), which only its last event tells.
            new = new.at_most(0)
        if reservation.overtaken:
            if slot.content is not None:
                self._store(reservation.upstream, reservation.slot, slot.content.doubted(new))
            return Settled(0)
        before = earlier(slot.in_flight, reservation)
        for one in before:  # that ran, and are not settled yet: what this one found is not known here
            one.overtaken = True
            new = None if new is None else new.doubted(one.prompt(upstream.n_ctx))
        if before:
            promised = 0
        if end.measured is not None:
            shared = min(shared, max(end.measured, 0))
        stale = end.measured is not None and end.measured < promised
        if stale:
            slot.earned_nothing()
            shared = 0
        self._replace(reservation.upstream, reservation.slot, new, reservation, shared)
        return Settled(promised, stale=stale)

    def _left_waiting(self, upstream: _Upstream, reservation: Reservation) -> Settled:
        """It was behind others, and most likely never had the slot."""
        slot = upstream.slots[reservation.slot]
        promised = reservation.promised(slot.content)[1]
        perhaps = reservation.prompt(upstream.n_ctx)
        if perhaps is not None:
            for one in earlier(slot.in_flight, reservation):
                one.may_be_followed_by(perhaps)
            if slot.content is not None:
                self._store(reservation.upstream, reservation.slot, slot.content.doubted(perhaps))
        return Settled(promised)

    def _moved(self, upstream: _Upstream, reservation: Reservation, end: End, actual_slot: int) -> Settled:
        """It ran in another slot: the planned one keeps what it had."""
        promised = reservation.promised(upstream.slots[reservation.slot].content)[1]
        if 0 <= actual_slot < len(upstream.slots):
            other = upstream.slots[actual_slot]
            other.version += 1
            new = end.content(reservation, upstream.n_ctx)
            if new is not None:  # before or behind whatever else ran there and runs: nobody knows
                for one in other.in_flight:
                    one.may_be_followed_by(new)
                new = new.at_most(0) if other.in_flight else new.doubted(other.content)
            self._replace(reservation.upstream, actual_slot, new, reservation, 0)
        return Settled(promised, moved=True)

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
            elif tokens < content.sure or (content.exact and tokens != len(content.ids)):
                wrong.append(index)
                self.forget(upstream, index)
            elif tokens <= 0:
                self.forget(upstream, index)
            elif tokens < len(content.ids):
                self._store(upstream, index, content.cut(tokens))
        return wrong

    def doubt(self, upstream: int, slot: int) -> None:
        """Somebody else used a slot, before requests that settled meanwhile or behind them: nothing in it is certain,
        nor will be what those in flight leave, which may be followed by it."""
        known = self._upstreams.get(upstream)
        if known is None or not 0 <= slot < len(known.slots):
            return
        place = known.slots[slot]
        place.version += 1
        for one in place.in_flight:
            one.most_sure = 0
        if place.content is not None:
            self._store(upstream, slot, place.content.at_most(0))

    def forget(self, upstream: int, slot: int) -> None:
        """A slot holds something that is not known."""
        known = self._upstreams.get(upstream)
        if known is None or not 0 <= slot < len(known.slots):
            return
        place = known.slots[slot]
        self._remember(place)
        place.version += 1
        place.earned_nothing()
        place.held = False
        self._store(upstream, slot, None)

    def rows(self, now: float) -> list[SlotRow]:
        """What is shown of each slot. `now`: seconds since the epoch."""
        epoch = now - self._clock()
        return [
            SlotRow(
                upstream=number,
                slot=index,
                state=slot.state,
                tokens=0 if slot.content is None else len(slot.content.ids),
                sure=0 if slot.content is None else slot.content.sure,
                requests=len(slot.in_flight),
                held=slot.held,
                reuses=slot.reuses,
                last_use=epoch + slot.last_use_s if slot.last_use else None,
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
        if slot.content is not None and not slot.content.is_continued_by(shared):
            self._remember(slot)
        now, count = self._clock(), self._count()
        self._traffic.ended(slot.used(reservation, shared, now), count)
        usual, in_turn = self._traffic.distance(count), self._traffic.takes_turns(count)
        slots = self._upstreams[upstream].slots
        merits = [one.merit(self._traffic.requests, now, usual) for one in slots]
        for one, held in zip(slots, holds.held(merits, in_turn=in_turn), strict=True):
            one.held = held
        self._store(upstream, index, new)

    def _store(self, upstream: int, index: int, content: Content | None) -> None:
        slot = self._upstreams[upstream].slots[index]
        slot.content = content
        slot.state = SlotState.UNKNOWN if content is None else SlotState.KNOWN
        if self._on_change is not None:
            self._on_change(upstream, index, content.ids[: content.sure] if content and content.sure else None)

    def _remember(self, slot: Slot) -> None:
        if slot.content is not None:
            self._remembered.add(slot.content.ids, slot.content.prompt, slot.last_use)
