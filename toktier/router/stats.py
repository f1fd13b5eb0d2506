"""What the router did, as numbers: counters that only grow, histograms, and two series over time in bounded memory.

A request costs a few additions when it has ended; whoever asks pays for the document. Thread-safe. Not here: rows that
outlive the router (`records`), names for a scraper (`metrics`), what slots hold now (`rows`), who refused a request
that no upstream saw (`guards`).
"""

from __future__ import annotations

import math
import threading
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from toktier.labels import shown
from toktier.router.request_facts import RequestFacts
from toktier.router.vocabulary import Choice, Ids, Outcome, Reuse, Unrouted
from toktier.serving.tally import Histogram
from toktier.version import VERSION

SCHEMA: Final = "toktier.serve_stats"
SCHEMA_VERSION: Final = 1

FINE_STEP, FINE_COUNT = 10, 360  # seconds; an hour
COARSE_STEP, COARSE_COUNT = 600, 1008  # a week
COLUMNS: Final = ("requests", "measured", "hits", "soft_hits", "saved_tokens", "prefilled_tokens", "generated_tokens")

ANSWER_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
ROUTER_SECONDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)

MAX_ROUTES = 16  # of an application; what comes beyond them is counted as one
MAX_MISSING = 32
OTHER = "other"
_MAX_TOKENS = 1 << 32  # of one request: a count beyond is a lie of an upstream, and must not spoil sums
_MAX_SECONDS = 1e9


class Series:
    """Sums for each step of time, of the last `count` steps. `at`: seconds since the beginning, which never fall."""

    def __init__(self, step: int, count: int) -> None:
        self.step, self.count = step, count
        self._rings = [array("q", bytes(8 * count)) for _ in COLUMNS]
        self._last = 0  # number of the newest step

    def add(self, at: float, values: Sequence[int]) -> None:
        self._move(at)
        place = self._last % self.count
        for ring, value in zip(self._rings, values, strict=True):
            ring[place] += value

    def to_dict(self, at: float) -> dict[str, Any]:
        """Each column oldest first, up to the step that `at` is in; `first_s`: when the first of them began."""
        self._move(at)
        held = min(self._last + 1, self.count)
        place = (self._last + 1) % self.count
        columns = {
            name: (ring[place:] + ring[:place])[-held:].tolist()
            for name, ring in zip(COLUMNS, self._rings, strict=True)
        }
        return {"step_s": self.step, "first_s": (self._last + 1 - held) * self.step, **columns}

    def _move(self, at: float) -> None:
        now = int(at // self.step)
        for number in range(max(self._last, now - self.count) + 1, now + 1):
            for ring in self._rings:
                ring[number % self.count] = 0
        self._last = max(self._last, now)


class Stats:
    """All that is counted of finished requests. `clock` gives seconds that never fall, `epoch` those since 1970."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, epoch: Callable[[], float] = time.time) -> None:
        self._clock, self._began, self._started = clock, clock(), epoch()
        self._lock = threading.Lock()
        self._requests = self._streams = self._stale = 0
        # Every word is there from the start: a scraper sees a counter begin at nothing.
        self._reuse = dict.fromkeys(Reuse, 0)
        self._choice = dict.fromkeys(Choice, 0)
        self._ids = dict.fromkeys(Ids, 0)
        self._outcome = dict.fromkeys(Outcome, 0)
        self._unrouted = dict.fromkeys(Unrouted, 0)
        self._routes: dict[str, int] = {}
        self._refused: dict[int, int] = {}
        self._prompt = self._predicted = self._saved = self._prefilled = self._generated = 0
        self._prefill_ms = self._generation_ms = 0.0
        self._first_byte, self._duration = Histogram(ANSWER_SECONDS), Histogram(ANSWER_SECONDS)
        self._router = Histogram(ROUTER_SECONDS)
        self._fine, self._coarse = Series(FINE_STEP, FINE_COUNT), Series(COARSE_STEP, COARSE_COUNT)

    def add(self, facts: RequestFacts) -> None:
        """Counts one finished request. What an upstream says is believed within bounds only."""
        # A prompt that was refused (too long, a bad member) was never evaluated.
        refused = facts.outcome is Outcome.REFUSED_UPSTREAM and facts.status != 200
        prompt, generated = 0 if refused else _tokens(facts.prompt_tokens), _tokens(facts.generated_tokens)
        reuse = facts.reuse
        measured = facts.measured is not None
        saved = min(_tokens(facts.measured or 0), prompt)
        prefilled = prompt - saved if measured else 0
        values = (1, int(measured), reuse is Reuse.HIT, reuse is Reuse.SOFT_HIT, saved, prefilled, generated)
        with self._lock:
            at = self._clock() - self._began
            self._requests += 1
            self._streams += facts.stream
            self._stale += facts.stale
            self._reuse[reuse] += 1
            self._choice[facts.choice] += 1
            self._ids[facts.ids] += 1
            self._outcome[facts.outcome] += 1
            if facts.unrouted is not None:
                self._unrouted[facts.unrouted] += 1
            route = facts.route if facts.route in self._routes or len(self._routes) < MAX_ROUTES else OTHER
            self._routes[route] = self._routes.get(route, 0) + 1
            self._prompt += prompt
            self._predicted += _tokens(facts.predicted)
            self._saved += saved
            self._prefilled += prefilled
            self._generated += generated
            self._prefill_ms += 1000 * (_seconds(facts.prompt_ms) or 0.0)
            self._generation_ms += 1000 * (_seconds(facts.generated_ms) or 0.0)
            for histogram, ms in (
                (self._first_byte, facts.first_byte_ms),
                (self._duration, facts.duration_ms),
                (self._router, facts.router_ms),
            ):
                seconds = _seconds(ms)
                if seconds is not None:
                    histogram.observe(seconds)
            self._fine.add(at, values)
            self._coarse.add(at, values)

    def refused(self, status: int) -> None:
        """Counts a request that the router itself answered with this HTTP status: no request of an upstream."""
        status = status if 100 <= status < 600 else 500
        with self._lock:
            self._refused[status] = self._refused.get(status, 0) + 1

    def counters(self) -> dict[str, Any]:
        """Everything but the series, at one moment: members as the document has them."""
        with self._lock:
            return self._counters()

    def _counters(self) -> dict[str, Any]:
        measured = self._requests - self._reuse[Reuse.UNMEASURED]
        whole = self._saved + self._prefilled
        return {
            "uptime_s": round(self._clock() - self._began, 3),
            "requests": self._requests,
            "streams": self._streams,
            "reuse": _named(self._reuse),
            "choice": _named(self._choice),
            "ids": _named(self._ids),
            "outcome": _named(self._outcome),
            "unrouted": _named(self._unrouted),
            "routes": {shown(route): count for route, count in self._routes.items()},
            "refused": {str(status): count for status, count in sorted(self._refused.items())},
            "stale": self._stale,
            # Hits alone: a request that reused fewer tokens than a look-up is worth is none.
            "hit_rate": self._reuse[Reuse.HIT] / measured if measured else None,
            "soft_hit_rate": self._reuse[Reuse.SOFT_HIT] / measured if measured else None,
            "saved_share": self._saved / whole if whole else None,
            "tokens": {
                "prompt": self._prompt,
                "predicted": self._predicted,
                "saved": self._saved,
                "prefilled": self._prefilled,
                "unmeasured": self._prompt - whole,
                "generated": self._generated,
            },
            "upstream_ms": {"prefill": round(self._prefill_ms, 3), "generation": round(self._generation_ms, 3)},
            "latency": {
                "first_byte_s": self._first_byte.to_dict(),
                "duration_s": self._duration.to_dict(),
                "router_s": self._router.to_dict(),
            },
        }

    def document(
        self,
        *,
        records: Mapping[str, Any] | None = None,
        kv_events: Mapping[str, int] | None = None,
        guards: Mapping[str, int] | None = None,
        turns: Mapping[str, int] | None = None,
        missing: Sequence[str] = (),
    ) -> dict[str, Any]:
        """The answer to GET /toktier/stats (tables/schemas/serve_stats.schema.json). `records`: of `Records.state()`,
        None where none are kept; likewise counters of the publisher (`kv_events`), of what stands before the routes
        (`guards`) and of those that wait for a slot (`turns`); `missing`: sentences for people about what is switched
        off or does not work."""
        with self._lock:
            at = self._clock() - self._began
            series = {"fine": self._fine.to_dict(at), "coarse": self._coarse.to_dict(at)}
            counters = self._counters()
        return {
            "schema": SCHEMA,
            "schema_version": SCHEMA_VERSION,
            "version": VERSION,
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._started)),
            **counters,
            "series": series,
            "records": None if records is None else dict(records),
            "guards": None if guards is None else dict(guards),
            "turns": None if turns is None else dict(turns),
            "kv_events": None if kv_events is None else dict(kv_events),
            "missing": [shown(sentence, 400) for sentence in missing[:MAX_MISSING]],
        }


def _named(counts: Mapping[Any, int]) -> dict[str, int]:
    return {word.value: count for word, count in counts.items()}


def _tokens(count: int) -> int:
    return max(0, min(count, _MAX_TOKENS))


def _seconds(ms: float | None) -> float | None:
    """None for what is no duration: an upstream may say anything."""
    if ms is None or not math.isfinite(ms) or ms < 0:
        return None
    return min(ms / 1000, _MAX_SECONDS)
