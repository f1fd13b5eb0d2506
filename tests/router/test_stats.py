"""What is counted of requests: hits by the measured count alone, sums that hold together, series in bounded memory."""

from __future__ import annotations

import json
import math
import threading
from collections import Counter

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cli.command import validator
from tests.router.finished_requests import NOW, request, requests
from toktier.router.records_faults import RECORDS_FAULT_MEANINGS, RecordsFault
from toktier.router.request_facts import RequestFacts
from toktier.router.stats import COARSE_COUNT, COLUMNS, FINE_COUNT, MAX_ROUTES, Series, Stats
from toktier.router.vocabulary import Choice, Ids, Outcome, Reuse, Unrouted

VOCABULARY = {"reuse": Reuse, "choice": Choice, "ids": Ids, "outcome": Outcome, "unrouted": Unrouted}


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now = 5000.0

    def __call__(self) -> float:
        return self.now


def stats(clock: Clock | None = None) -> Stats:
    return Stats(clock or Clock(), epoch=lambda: NOW)


def test_a_prompt_that_the_upstream_refused_was_not_evaluated() -> None:
    found = stats()
    found.add(request(outcome=Outcome.REFUSED_UPSTREAM, status=400, measured=None))
    assert found.counters()["tokens"]["prompt"] == found.counters()["tokens"]["unmeasured"] == 0
    assert found.counters()["outcome"]["refused_upstream"] == 1


def test_the_hit_rate_counts_hits_alone_and_tells_soft_hits_apart() -> None:
    found = stats()
    for measured in (0, 1, 5, 9, 10, 11, 50, None):
        found.add(request(measured=measured))
    counted = found.counters()
    assert counted["reuse"] == {"miss": 1, "soft_hit": 3, "hit": 3, "unmeasured": 1}
    assert counted["hit_rate"] == 3 / 7  # what was not measured says nothing of the rate
    assert counted["soft_hit_rate"] == 3 / 7
    assert counted["tokens"] == {
        "prompt": 800, "predicted": 8 * 99, "saved": 86, "prefilled": 614, "unmeasured": 100, "generated": 64,
    }  # fmt: skip
    assert counted["saved_share"] == 86 / 700


def test_a_promise_is_no_hit() -> None:
    """D18: the table promised 99 tokens, the upstream reused none."""
    found = stats()
    found.add(request(predicted=99, measured=0, stale=True))
    counted = found.counters()
    assert (counted["hit_rate"], counted["tokens"]["saved"], counted["stale"]) == (0, 0, 1)


def test_nothing_is_told_of_no_requests() -> None:
    counted = stats().counters()
    assert (counted["hit_rate"], counted["soft_hit_rate"], counted["saved_share"]) == (None, None, None)
    # Every word is there at 0: a scraper sees the first request too.
    for name, words in VOCABULARY.items():
        assert counted[name] == {word.value: 0 for word in words}


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(requests(), max_size=8))
def test_law_sums_hold_together_whatever_upstreams_say(facts: list[RequestFacts]) -> None:
    found = stats()
    for one in facts:
        found.add(one)
    document = found.document(guards={"running": 1, "refused_bad_request": 2}, kv_events={})
    json.dumps(document, allow_nan=False)
    validator("serve_stats").validate(document)
    count, tokens = len(facts), document["tokens"]
    assert document["requests"] == count
    for name in ("reuse", "choice", "ids", "outcome", "routes"):
        assert sum(document[name].values()) == count
    assert sum(document["unrouted"].values()) == sum(one.unrouted is not None for one in facts)
    assert tokens["prompt"] == tokens["saved"] + tokens["prefilled"] + tokens["unmeasured"]
    for series in document["series"].values():
        assert sum(series["requests"]) == count
        assert sum(series["hits"]) == document["reuse"]["hit"]
        assert sum(series["measured"]) == count - document["reuse"]["unmeasured"]
        assert sum(series["saved_tokens"]) == tokens["saved"]
        assert sum(series["prefilled_tokens"]) == tokens["prefilled"]
        assert sum(series["generated_tokens"]) == tokens["generated"]


@settings(deadline=None)
@given(
    st.integers(1, 12),
    st.integers(1, 9),
    st.lists(st.tuples(st.one_of(st.floats(0, 40), st.floats(0, 2)), st.integers(0, 5)), max_size=40),
    st.floats(0, 200),
)
def test_law_a_series_is_the_sums_of_its_last_steps(
    step: int, count: int, events: list[tuple[float, int]], after: float
) -> None:
    series, at, model = Series(step, count), 0.0, Counter[int]()
    for wait, value in events:
        at += wait
        series.add(at, [value] * len(COLUMNS))
        model[int(at // step)] += value
    at += after
    last = int(at // step)
    told = series.to_dict(at)
    first = max(0, last + 1 - count)
    assert told["first_s"] == first * step
    for name in COLUMNS:
        assert told[name] == [model[number] for number in range(first, last + 1)]


def test_the_series_forget_and_their_memory_is_bounded() -> None:
    clock = Clock()
    found = stats(clock)
    found.add(request())
    clock.now += 3600
    found.add(request())
    series = found.document()["series"]
    assert len(series["fine"]["requests"]) == FINE_COUNT
    assert sum(series["fine"]["requests"]) == 1  # the first one was an hour ago
    assert series["coarse"]["requests"] == [1, 0, 0, 0, 0, 0, 1]
    clock.now += 10 * 365 * 86_400
    series = found.document()["series"]
    assert [len(s["hits"]) for s in series.values()] == [FINE_COUNT, COARSE_COUNT]
    assert not any(sum(s["requests"]) for s in series.values())
    assert found.document()["requests"] == 2


def test_a_clock_that_stands_still_or_goes_back_loses_nothing() -> None:
    clock = Clock()
    found = stats(clock)
    clock.now += 100
    found.add(request())
    clock.now -= 50
    found.add(request())
    assert found.document()["series"]["fine"]["requests"][-1] == 2


def test_names_of_routes_and_missing_parts_are_bounded() -> None:
    found = stats()
    for n in range(1000):
        found.add(request(route=f"/{n}"))
        found.refused(n)
    document = found.document(missing=["a sentence\x1b[2J" + "." * 5000] * 1000)
    assert len(document["routes"]) == MAX_ROUTES + 1
    assert document["routes"]["other"] == 1000 - MAX_ROUTES
    assert len(document["refused"]) == 500
    assert sum(document["refused"].values()) == 1000
    assert len(document["missing"]) == 32
    assert all(len(said) <= 400 and said.isprintable() for said in document["missing"])


def test_durations_are_counted_where_they_are_some() -> None:
    found = stats()
    found.add(request(first_byte_ms=None, router_ms=0.3))
    for ms in (math.nan, math.inf, -1.0):
        found.add(request(first_byte_ms=ms, router_ms=None, prompt_ms=ms))
    found.add(request(first_byte_ms=30.0, router_ms=None))
    latency = found.counters()["latency"]
    assert sum(latency["first_byte_s"]["counts"]) == 1
    assert latency["first_byte_s"]["sum"] == 0.03
    assert sum(latency["duration_s"]["counts"]) == 5
    counts, bounds = latency["router_s"]["counts"], latency["router_s"]["bounds"]
    assert counts[bounds.index(0.0005)] == sum(counts) == 1
    assert found.counters()["upstream_ms"]["prefill"] == 3.0


def test_many_threads_lose_no_request() -> None:
    found = stats()

    def serve() -> None:
        for _ in range(500):
            found.add(request())
            found.document()

    threads = [threading.Thread(target=serve) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found.counters()["requests"] == found.counters()["reuse"]["hit"] == 2000


def test_the_schema_lists_the_words_of_the_vocabulary() -> None:
    schema = validator("serve_stats").schema["properties"]
    for name, words in VOCABULARY.items():
        assert list(schema[name]["properties"]) == [word.value for word in words]
    faults = [fault.value for fault in RecordsFault]
    assert list(schema["records"]["properties"]["faults"]["properties"]) == faults
    assert schema["records"]["properties"]["fault"]["enum"] == [None, *faults]
    assert set(RECORDS_FAULT_MEANINGS) == set(RecordsFault)
