"""Whether a server is asked at all: not for a while after it failed, and then by one probe before anybody else.

Each failure without a look-up that was answered in between doubles the pause, so that a server that answers probes and
nothing else costs ever less. Knows neither clocks nor threads: times are given, and whoever shares one has the lock.
"""

from __future__ import annotations

FIRST_PAUSE = 5  # time-outs of a look-up: 0.1 s
LONGEST_PAUSE = 500  # 10 s


class Breaker:
    def __init__(self, timeout: float) -> None:
        """`timeout`: of a look-up, in seconds."""
        self._first = FIRST_PAUSE * timeout
        self._longest = LONGEST_PAUSE * timeout
        self._pause = self._first
        self._probe_at: float | None = None
        self.opened = 0  # times

    @property
    def is_open(self) -> bool:
        return self._probe_at is not None

    def failed(self, now: float) -> None:
        """Somebody's question failed. Those that failed with it, and come later, change nothing."""
        if self._probe_at is None:
            self.opened += 1
            self._probe_at = self._after_pause(now)

    def probe_failed(self, now: float) -> None:
        self.opened += self._probe_at is None
        self._probe_at = self._after_pause(now)

    def probe_answered(self) -> None:
        self._probe_at = None

    def answered(self) -> None:
        """A look-up was: the next pause is a first one."""
        self._pause = self._first

    def until_probe(self, now: float) -> float:
        """Seconds; 0: it is due. Only of an open one."""
        assert self._probe_at is not None
        return max(0.0, self._probe_at - now)

    def _after_pause(self, now: float) -> float:
        pause, self._pause = self._pause, min(2 * self._pause, self._longest)
        return now + pause
