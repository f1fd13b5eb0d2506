"""Facts of finished requests and rows of upstreams and slots, as tests need them: plain ones, and any."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import strategies as st

from toktier.router.request_facts import RequestFacts
from toktier.router.rows import SlotRow, UpstreamRow
from toktier.router.vocabulary import Choice, Ids, Outcome, SlotState, Unrouted, UpstreamState

NOW = 1_800_000_000.0


def request(**changes: Any) -> RequestFacts:
    """A hit of 99 of 100 tokens."""
    plain: dict[str, Any] = {
        "id": "r1", "started": NOW, "route": "/v1/completions", "stream": False, "upstream": 0, "slot": 1,
        "choice": Choice.EXACT, "unrouted": None, "ids": Ids.SENT, "outcome": Outcome.DONE, "status": 200,
        "prompt_tokens": 100, "generated_tokens": 8, "predicted": 99, "measured": 99, "stale": False,
        "prompt_ms": 1.5, "generated_ms": 20.0, "first_byte_ms": 30.0, "duration_ms": 40.0, "router_ms": 0.3,
    }  # fmt: skip
    return RequestFacts(**(plain | changes))


# Small tables of characters: all of Unicode takes a second to draw from.
WORDS = st.text(st.sampled_from('ab/\x00\x1b\ud800é{}"<'), max_size=8)
DURATIONS = st.one_of(st.floats(0, 1e6), st.sampled_from([math.nan, math.inf, -math.inf, -1.0, 0.0, 1e300]))
MS = st.one_of(st.none(), DURATIONS)
COUNTS = st.one_of(st.integers(0, 5000), st.sampled_from([-(10**30), -1, 0, 2**32, 2**63, 10**30]))


@st.composite
def requests(draw: st.DrawFn) -> RequestFacts:
    """Any, with what a hostile upstream may say: counts beyond all bounds, durations that are none."""
    unrouted = draw(st.one_of(st.none(), st.sampled_from(list(Unrouted))))
    return request(
        id=draw(WORDS),
        route=draw(st.one_of(st.sampled_from(["/v1/completions", "/completion"]), WORDS)),
        stream=draw(st.booleans()),
        slot=draw(st.one_of(st.none(), st.integers(0, 7))),
        choice=draw(st.sampled_from(list(Choice))),
        unrouted=unrouted,
        ids=draw(st.sampled_from(list(Ids))),
        outcome=draw(st.sampled_from(list(Outcome))),
        status=draw(st.one_of(st.none(), st.integers(0, 10**20))),
        prompt_tokens=draw(COUNTS),
        generated_tokens=draw(COUNTS),
        predicted=draw(COUNTS),
        measured=draw(st.one_of(st.none(), COUNTS)),
        stale=draw(st.booleans()),
        prompt_ms=draw(MS),
        generated_ms=draw(MS),
        first_byte_ms=draw(MS),
        duration_ms=draw(DURATIONS),
        router_ms=draw(MS),
    )


def two_upstreams() -> list[UpstreamRow]:
    return [
        UpstreamRow(number=0, name="http://127.0.0.1:8080", state=UpstreamState.UP, model="tiny", restarts=1),
        UpstreamRow(
            number=1, name="http://127.0.0.1:8081", state=UpstreamState.DOWN, notes=["connection refused"], model=None
        ),
    ]


def three_slots() -> list[SlotRow]:
    return [
        SlotRow(upstream=0, slot=0, state=SlotState.KNOWN, tokens=107, sure=100, requests=2, held=True, reuses=5,
                last_use=NOW - 90),
        SlotRow(upstream=0, slot=1, state=SlotState.EMPTY),
        SlotRow(upstream=1, slot=0, state=SlotState.UNKNOWN, tokens=30, sure=30, reuses=1, last_use=NOW - 7000),
    ]  # fmt: skip
