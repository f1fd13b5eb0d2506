"""Which slots are held: not taken by prompts that share nothing with them while another slot can be had.

A slot earns it when a prefix of it was used again, or when its conversation came back after its slot had been taken.
What it is worth is tokens spared for each request that passes: the prefix that came back, by how many requests lie
between two uses. At most all slots of an upstream but one are held, those worth most; one that is held already counts
half as much again, or conversations of like worth would take turns in holding, and none would profit. A hold lapses
when its conversation is overdue: not used for `OVERDUE` times the usual distance, or for a quarter of an hour. Not
here: what a slot that is not held costs to take (`decide`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

HELD_ALREADY: Final = 1.5
OVERDUE: Final = 2.0  # of conversations that return at random, one in seven comes later, and is held when it does
SHORTEST_LAPSE: Final = 2  # requests for each slot
LONGEST_SECONDS: Final = 900.0


class Merit(NamedTuple):
    """Of one slot. `proven`: tokens of its prefix that came back, `reuses`: how often; `distance`: requests between two
    uses; `idle_requests`, `idle_s`: since the last."""

    proven: int
    reuses: int
    distance: float
    idle_requests: int
    idle_s: float
    held: bool


def held(merits: Sequence[Merit]) -> list[bool]:
    """For each slot of one upstream, in order."""
    worth = [_worth(merit, len(merits)) for merit in merits]
    deserving = sorted((i for i, w in enumerate(worth) if w > 0), key=lambda i: (-worth[i], i))
    chosen = set(deserving[: len(merits) - 1])
    return [i in chosen for i in range(len(merits))]


def is_overdue(merit: Merit, slots: int) -> bool:
    lapse = max(OVERDUE * merit.distance, SHORTEST_LAPSE * slots)
    return merit.idle_requests > lapse or merit.idle_s > LONGEST_SECONDS


def _worth(merit: Merit, slots: int) -> float:
    if merit.reuses < 1 or is_overdue(merit, slots):
        return 0.0
    worth = merit.proven / max(merit.distance, merit.idle_requests, 1.0)
    return worth * HELD_ALREADY if merit.held else worth
