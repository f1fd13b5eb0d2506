"""How often prompts go on from earlier ones, and after how many requests: averages over the last ones.

Chats nearly all go on, questions about documents never do, and what a slot holds is worth accordingly. Not here: what
single slots hold (`slots`).
"""

from __future__ import annotations

from typing import Final

_WEIGHT: Final = 1 / 32  # of the newest request
IN_TURN: Final = 0.5  # of those that would come back soon at random
_UNKNOWN: Final = 0.5  # part that goes on, before anything was seen


class Traffic:
    def __init__(self) -> None:
        self.requests = 0  # number of the last one
        self.continued = _UNKNOWN  # part of the requests that go on from an earlier one
        self._distance: float | None = None
        self._near = 0.0  # part of those that go on whose slot nobody else could have taken

    def begins(self) -> int:
        """The number of a new request, from 1."""
        self.requests += 1
        return self.requests

    def ended(self, distance: float | None, slots: int) -> None:
        """A request went on from one so many requests before it, None: from none; there are `slots` slots."""
        self.continued += _WEIGHT * ((distance is not None) - self.continued)
        if distance is not None:
            usual = distance if self._distance is None else self._distance
            self._distance = usual + _WEIGHT * (distance - usual)
            self._near += _WEIGHT * ((distance <= slots) - self._near)

    def distance(self, slots: int) -> float:
        """Requests between two of one conversation; `slots`: of all upstreams, for a guess before any was seen."""
        return max(2.0 * slots, 1.0) if self._distance is None else self._distance

    def takes_turns(self, slots: int) -> bool:
        """Whether conversations come in turn rather than at random: then few come back soon, and what was used last
        is the last to be wanted."""
        return self._near < IN_TURN * min(slots / self.distance(slots), 1.0)

    def chance(self, idle_requests: int, distance: float) -> float:
        """That a prompt will go on from what was used so long ago, and once only."""
        return self.continued * distance / (distance + max(idle_requests - 1, 0))
