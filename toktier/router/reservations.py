"""A request that is pinned to a slot, from the decision to its end, and what is certain while others come and go.

An upstream takes the requests of a slot in the order in which they were reserved. They need not end here in that order:
a reader may be slow, a client may leave while its request waits. What may have happened in the slot unseen bounds what
counts as certain. Not here: the table itself (`slots`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from toktier.router.remembered import Return
from toktier.router.slot_content import Content, after_request, of_prompt
from toktier.router.token_ids import TokenIds, as_ids, shared_prefix


@dataclass(slots=True, eq=False)
class Reservation:
    """`ids` None: its tokens are not known; `sure` False: the upstream may work on others. `predicted`: tokens that
    the decision counted on. `began`: when it came to be the first in its slot's queue. `seen`: tokens generated so
    far, `sending_since`: when its client was given a piece that it has not taken yet (by the table's clock); both are
    for whoever passes the answer on to keep."""

    upstream: int
    slot: int
    epoch: int
    number: int
    ids: TokenIds | None
    sure: bool
    predicted: int
    limit: int | None
    began: float | None
    returned: Return
    goes_on: bool  # from what the slot holds
    seen: int = 0
    sending_since: float | None = None
    evaluated: Content | None = None
    settled: bool = False
    overtaken: bool = False  # a later one of the slot was answered before it was settled
    most_sure: int | None = None  # tokens that stay certain behind it, where later ones may have touched the slot

    def prompt(self, n_ctx: int) -> Content | None:
        """What its slot holds once its prompt is evaluated: the same object each time."""
        if self.evaluated is None and self.ids is not None:
            self.evaluated = of_prompt(self.ids, sure=self.sure, n_ctx=n_ctx)
        return self.evaluated

    def is_stalled(self, now: float, seconds: float) -> bool:
        """Its client has not read for so long. The upstream generates on all the same, which nobody here sees."""
        return self.sending_since is not None and now - self.sending_since > seconds

    def promised(self, content: Content | None) -> tuple[int, int]:
        """Tokens that it shares with what its slot holds, but for its last one, and how many of them are certain."""
        if content is None or self.ids is None:
            return 0, 0
        shared = min(shared_prefix(content.ids, self.ids), max(len(self.ids) - 1, 0))
        return shared, min(shared, content.sure) if self.sure else 0

    def may_be_followed_by(self, content: Content) -> None:
        """`content`, or a part of it, may come into the slot behind this one, unseen."""
        sure = 0 if self.ids is None else min(content.sure, shared_prefix(self.ids, content.ids))
        self.most_sure = sure if self.most_sure is None else min(self.most_sure, sure)


class Settled(NamedTuple):
    """`predicted`: tokens that were certain when the request's turn came; `stale`: the upstream reused fewer;
    `moved`: it answered from another slot than was asked; `current`: False where the upstream was closed meanwhile,
    or the reservation settled before, and nothing was learnt."""

    predicted: int
    stale: bool = False
    moved: bool = False
    current: bool = True


VOID: Final = Settled(0, current=False)


@dataclass(frozen=True, slots=True)
class End:
    """How a request ended: the arguments of `SlotTable.settle`."""

    generated: Sequence[int] | TokenIds
    guessed: Sequence[int] | TokenIds
    count: int | None
    measured: int | None
    finished: bool
    whole: bool = True

    @property
    def was_answered(self) -> bool:
        """Its prompt was evaluated to the end."""
        return self.measured is not None or self.finished or len(self.generated) > 0 or len(self.guessed) > 0

    @property
    def tokens(self) -> int:
        return len(self.generated) + len(self.guessed) if self.count is None else max(self.count, 0)

    def content(self, reservation: Reservation, n_ctx: int) -> Content | None:
        """What its slot holds behind an answer."""
        if reservation.ids is None:
            return None
        exact = self.finished and self.whole and self.count in (None, len(self.generated))
        try:
            named, unnamed = as_ids(self.generated), as_ids(self.guessed)
        except (OverflowError, TypeError, ValueError):  # an upstream may name what is no token
            return reservation.prompt(n_ctx)
        return after_request(reservation.ids, named, unnamed, sure=reservation.sure, exact=exact, n_ctx=n_ctx)


def expected(in_flight: Sequence[Reservation], n_ctx: int) -> Reservation | None:
    """Whose prompt the next one in turn will find in the slot; None: that of nobody in flight."""
    if not in_flight:
        return None
    for reservation in reversed(in_flight):
        # Prompts that do not fit are refused, and leave the slot as it is.
        if not reservation.overtaken and (reservation.ids is None or len(reservation.ids) < n_ctx):
            return reservation
    return None


def earlier(in_flight: Iterable[Reservation], than: Reservation) -> list[Reservation]:
    return [reservation for reservation in in_flight if reservation.number < than.number]
