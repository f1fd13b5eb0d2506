"""One slot as a prompt finds it: what a decision is made of.

Not here: how it is found out (`slots`), what follows from it (`decide`).
"""

from __future__ import annotations

from typing import NamedTuple

from toktier.router.token_ids import TokenIds, shared_prefix

Place = tuple[int, int]  # upstream and slot
Known = dict[Place, tuple[TokenIds, int]]  # of one prompt: what each slot held, and how much both share


def shared_length(held: TokenIds, ids: TokenIds, place: Place, known: Known | None) -> int:
    """Of their longest common prefix; not compared again while `place` holds the same array."""
    if known is None:
        return shared_prefix(held, ids)
    before = known.get(place)
    if before is None or before[0] is not held:
        before = known[place] = (held, shared_prefix(held, ids))
    return before[1]


class View(NamedTuple):
    """One slot as a prompt finds it when its turn comes. Lengths and costs are tokens.

    `reusable`: the longest common prefix, at most the prompt less one token, which an upstream evaluates in any case;
    `sure`: how much of it is certain; `length`: what the slot holds; `proven`: how much of that came back before.
    `wait`: tokens of prefill until the slot is free, `waiting`: requests in flight on it; `may_be_free`: no client of
    these reads, so that it is not seen what the upstream does; `load`: part of the slots of this upstream that are
    busy. `last_use`: number of the request that used it last, 0: none. `chance`: that what came back never so far will
    come back. `goes_on`: nothing is in flight on it, and the prompt continues what it holds.
    """

    upstream: int
    slot: int
    reusable: int
    sure: int
    length: int
    proven: int
    held: bool
    wait: float
    waiting: int
    load: float
    last_use: int
    chance: float
    n_ctx: int
    goes_on: bool = False
    may_be_free: bool = False

    def unshared(self) -> View:
        """For a prompt of which nothing may be reused."""
        return self._replace(reusable=0, sure=0, goes_on=False)
