"""Whether a free slot is kept for a moment for the next turn of its conversation, from others who wait or come.

A bet: kept, the slot may do nothing until the turn comes or the moment is over; given away, the turn will have to be
evaluated from its beginning. It is made where the tokens at stake, by how often bets were won of late, are worth more
than the time at stake. Where clients think or run tools between turns bets are lost, and soon none is made but one in
`PROBE`, which finds out whether that is still so. Not here: who waits, and how many turns others may pass (`turns`).
"""

from __future__ import annotations

from typing import Final

LONGEST: Final = 0.25  # seconds; a client that takes longer is not asking at once
PROBE: Final = 16
_SHORTEST = 0.005
_GAPS = 3.0  # usual ones that are waited for
_WEIGHT = 1 / 8  # of the newest bet
_FIRST_GAP = 0.01  # seconds: a client on the same host, and a chat that an upstream has to render


class Keeping:
    """`won`: part of the last bets; `gap`: seconds until turns came that were waited for."""

    def __init__(self) -> None:
        self.won, self.gap = 0.5, _FIRST_GAP
        self._passed = 0  # bets that looked bad since one was made

    def seconds(self, tokens: int, prefill: float | None) -> float | None:
        """How long to keep a slot; None: not at all. `tokens`: that would have to be evaluated again, `prefill`: those
        an upstream evaluates in a second, None: not measured yet."""
        if prefill is None or tokens <= 0:
            return None
        moment, stake = min(max(_GAPS * self.gap, _SHORTEST), LONGEST), tokens / prefill
        if self.won * stake > self.won * self.gap + (1.0 - self.won) * moment:
            self._passed = 0
            return moment
        self._passed += stake > moment
        if self._passed < PROBE:
            return None
        self._passed = 0
        return moment

    def ended(self, seconds: float | None) -> None:
        """A bet is over: the turn came after so many seconds, None: it did not."""
        self.won += _WEIGHT * ((seconds is not None) - self.won)
        # Turns that come just behind the moment would never be seen: each one missed makes it longer.
        gap = 1.5 * self.gap if seconds is None else self.gap + (seconds - self.gap) / 4
        self.gap = min(gap, LONGEST / _GAPS)
