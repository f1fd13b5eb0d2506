"""Which slots are held: not taken by prompts that share nothing with them while another slot can be had.

A slot earns it when a prefix of it was used again, or when its conversation came back after its slot had been taken.
Where conversations come in turn (`traffic`), it is worth the prefix that came back, by how many requests lie before it
is wanted again, which is furthest for the one used last. Where they come at random or in bursts, those used last are
worth most. At most all slots of an upstream but one are held.

A hold lapses when its conversation is overdue: not used for `OVERDUE` times the usual distance, or for a quarter of an
hour. Not here: what a slot that is not held costs to take (`decide`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

OVERDUE: Final = 2.0  # of conversations that return at random, one in seven comes later
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


def held(merits: Sequence[Merit], *, in_turn: bool = True) -> list[bool]:
    """For each slot of one upstream, in order. `in_turn`: conversations come in turn, not at random."""
    worth = [_worth(merit, len(merits), in_turn) for merit in merits]
    deserving = sorted((i for i, w in enumerate(worth) if w > 0), key=lambda i: (-worth[i], i))
    chosen = set(deserving[: len(merits) - 1])
    return [i in chosen for i in range(len(merits))]


def is_overdue(merit: Merit, slots: int) -> bool:
    lapse = max(OVERDUE * merit.distance, SHORTEST_LAPSE * slots)
    return merit.idle_requests > lapse or merit.idle_s > LONGEST_SECONDS


def _worth(merit: Merit, slots: int, in_turn: bool) -> float:
    if merit.reuses < 1 or is_overdue(merit, slots):
        return 0.0
    if not in_turn:
        return 1.0 / max(merit.idle_requests, 1)
    return merit.proven / max(merit.distance - merit.idle_requests, 1.0)
