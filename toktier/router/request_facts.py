"""What is kept of one request: codes, counts and times, never text and never token IDs.

Not here: where it is kept (`records`, `stats`).
"""

from __future__ import annotations

from dataclasses import dataclass

from toktier.router.vocabulary import Choice, Ids, Outcome, Reuse, Unrouted, reuse_of


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFacts:
    """`started`: seconds since the epoch; durations are milliseconds, None where it did not come to that.

    `predicted`: tokens that the slot table promised, `measured`: tokens that the upstream says it reused. `prompt_ms`,
    `generated_ms`: of the upstream's own clock. `first_byte_ms`: from the request's arrival to the first byte of the
    answer. `router_ms`: what the router itself took of that before the request went up (reading, encoding, choosing),
    without waiting for a slot or the upstream. `stale`: the slot held less than was promised.
    """

    id: str
    started: float
    route: str
    stream: bool
    upstream: int
    slot: int | None
    choice: Choice
    unrouted: Unrouted | None
    ids: Ids
    outcome: Outcome
    status: int | None
    prompt_tokens: int
    generated_tokens: int
    predicted: int
    measured: int | None
    stale: bool
    prompt_ms: float | None
    generated_ms: float | None
    first_byte_ms: float | None
    duration_ms: float
    router_ms: float | None = None

    @property
    def reuse(self) -> Reuse:
        return reuse_of(self.measured)
