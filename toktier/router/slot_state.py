"""One slot: what it holds, who uses it, and what it earned.

A prefix *earns* when it comes back: when a prompt goes on from the slot's content, when many begin alike, and when a
conversation whose slot had been taken returns. Not here: choosing among slots.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from toktier.router import holds
from toktier.router.reservations import Reservation, expected
from toktier.router.slot_content import Content
from toktier.router.vocabulary import MIN_REUSE_FOR_HIT, SlotState


@dataclass(slots=True)
class Slot:
    """`version`: changes with everything that may change the content. `last_use`: number of the request, 0: none;
    `last_use_s`: clock. `proven`: tokens of its prefix that came back, `reuses`: how often, `distance`: requests
    between, 0: not known."""

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

    def next_finds(self, n_ctx: int) -> tuple[Content | None, int, bool]:
        """Content, how much of it came back before, whether it is held: as the next request in turn will see it."""
        last = expected(self.in_flight, n_ctx)
        if last is None:
            return self.content, self.proven, self.held
        proven = last.predicted if last.goes_on else last.returned.tokens
        return last.prompt(n_ctx), proven, self.held and last.goes_on

    def may_be_free(self, now: float, stalled: float) -> bool:
        """Nothing is in flight but for clients that did not read for `stalled` seconds."""
        return all(one.is_stalled(now, stalled) for one in self.in_flight)

    def leaves(self, reservation: Reservation) -> None:
        self.in_flight.remove(reservation)
        self.version += 1

    def used(self, by: Reservation, shared: int, now: float) -> float | None:
        """By a prompt that shares so many tokens with its content. How many requests before it was the one that the
        prompt goes on from; None: from none."""
        since = float(max(by.number - self.last_use, 1))
        went_on: float | None = None
        if self.content is not None and self.content.is_continued_by(shared):
            went_on = since
            self.reuses += 1
            self.proven = shared
            self.distance = (self.distance + since) / 2 if self.distance else since
        elif by.returned.tokens > max(shared, MIN_REUSE_FOR_HIT):
            went_on = float(by.returned.requests)
            self.reuses, self.proven, self.distance = 1, by.returned.tokens, went_on
        elif shared >= max(self.proven, MIN_REUSE_FOR_HIT):
            self.reuses += 1
            self.proven, self.distance = shared, since
        else:
            self.earned_nothing()
        self.last_use = max(self.last_use, by.number)
        self.last_use_s = now
        return went_on

    def earned_nothing(self) -> None:
        self.proven = self.reuses = 0
        self.distance = 0.0

    def merit(self, requests: int, now: float, usual_distance: float) -> holds.Merit:
        """`requests`: the number of the last one."""
        return holds.Merit(
            self.proven,
            self.reuses,
            self.distance or usual_distance,
            requests - self.last_use,
            now - self.last_use_s,
        )
