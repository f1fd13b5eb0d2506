"""When a server that failed is asked again, by given times."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from toktier.cache.second_level_breaker import FIRST_PAUSE, LONGEST_PAUSE, Breaker


def test_a_failure_opens_it_once_and_a_probe_that_is_answered_closes_it() -> None:
    breaker = Breaker(1.0)
    assert not breaker.is_open
    breaker.failed(100.0)
    breaker.failed(101.0)  # it was asked beside the first, and says no more
    assert breaker.is_open
    assert breaker.opened == 1
    assert breaker.until_probe(100.0) == FIRST_PAUSE
    assert breaker.until_probe(100.0 + FIRST_PAUSE) == breaker.until_probe(1000.0) == 0
    breaker.probe_answered()
    assert not breaker.is_open


def test_pauses_double_until_a_look_up_is_answered() -> None:
    breaker = Breaker(1.0)
    pauses = []
    for _ in range(3):  # probes are answered, look-ups are not
        breaker.failed(0.0)
        pauses.append(breaker.until_probe(0.0))
        breaker.probe_answered()
    breaker.failed(0.0)
    pauses.append(breaker.until_probe(0.0))
    breaker.probe_failed(0.0)
    pauses.append(breaker.until_probe(0.0))
    assert pauses == [FIRST_PAUSE * 2**k for k in range(5)]
    for _ in range(20):
        breaker.probe_failed(0.0)
    assert breaker.until_probe(0.0) == LONGEST_PAUSE
    breaker.probe_answered()
    breaker.answered()
    breaker.failed(0.0)
    assert breaker.until_probe(0.0) == FIRST_PAUSE


@settings(deadline=None)
@given(st.integers(-10, 3).map(lambda k: 2.0**k), st.integers(1, 10_000))
def test_law_a_server_that_answers_probes_alone_costs_ever_less(timeout: float, seconds: int) -> None:
    """Who asks it pays a time-out: for at most a sixth of the time, and in the end for one in 500."""
    breaker, now, asked, longest = Breaker(timeout), 0.0, 0, 0.0
    while now < seconds and asked < 100:
        now += timeout
        asked += 1
        breaker.failed(now)
        pause = breaker.until_probe(now)
        assert pause >= min(2 * longest, LONGEST_PAUSE * timeout) >= longest
        longest = pause
        now += pause
        breaker.probe_answered()
    assert asked * timeout <= now / (1 + FIRST_PAUSE)
    assert breaker.opened == asked
