"""Waiting in tokens of prefill, whatever an upstream says of its speed."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toktier.router.rates import Rates


def of_machine(prefill: float, generation: float, generated: int) -> Rates:
    rates = Rates()
    rates.measured(prompt_tokens=1000, prompt_ms=1e6 / prefill, generated_tokens=1000, generated_ms=1e6 / generation)
    for _ in range(60):
        rates.finished(generated)
    return rates


def test_a_generated_token_costs_what_was_measured() -> None:
    rates = of_machine(2000, 50, 10)
    assert rates.ratio == pytest.approx(40)
    assert rates.remaining(300, None, 0, None) == pytest.approx(300 + 10 * 40, rel=0.01)


def test_a_limit_bounds_what_is_left() -> None:
    rates = of_machine(1000, 100, 500)
    assert rates.remaining(100, 8, 0, None) == pytest.approx(100 + 8 * 10)
    assert rates.remaining(100, 8, 5, 1.0) == pytest.approx(3 * 10)
    assert rates.remaining(100, 8, 9, 1.0) == 0


def test_prefill_is_done_with_time_and_with_the_first_token() -> None:
    rates = of_machine(1000, 100, 20)
    assert rates.remaining(1000, None, 0, 0.25) == pytest.approx(750 + 20 * 10, rel=0.01)
    assert rates.remaining(1000, None, 0, 5.0) == pytest.approx(20 * 10, rel=0.01)
    assert rates.remaining(1000, None, 1, 0.01) == pytest.approx(20 * 10, rel=0.01)


def test_time_tells_what_was_generated_where_nobody_else_does() -> None:
    rates = of_machine(1000, 100, 500)
    assert rates.remaining(1000, 50, 0, 1.0 + 0.3) == pytest.approx(20 * 10)


def test_newer_requests_count_more() -> None:
    rates = of_machine(1000, 100, 20)
    for _ in range(30):
        rates.measured(prompt_tokens=100, prompt_ms=1000.0, generated_tokens=100, generated_ms=2000.0)
    assert rates.ratio == pytest.approx(2, rel=0.01)


NUMBERS = st.floats(allow_nan=True, allow_infinity=True) | st.none()


@given(st.integers(-5, 2**40), NUMBERS, st.integers(-5, 2**40), NUMBERS, st.integers(-9, 2**40))
def test_whatever_an_upstream_says_waiting_is_a_number(
    prompt: int, prompt_ms: float | None, generated: int, generated_ms: float | None, count: int
) -> None:
    rates = Rates()
    rates.measured(prompt_tokens=prompt, prompt_ms=prompt_ms, generated_tokens=generated, generated_ms=generated_ms)
    rates.finished(count)
    for elapsed in (None, -1.0, 0.0, 1e9):
        wait = rates.remaining(100, None, 0, elapsed)
        assert math.isfinite(wait)
        assert wait >= 0


def test_who_does_not_read_is_waited_for_as_long_as_generating_usually_takes() -> None:
    rates = Rates()
    assert rates.stalled_seconds == 30.0  # nothing is known
    rates.generated, rates.generation = 100.0, 50.0
    assert rates.stalled_seconds == 4.0
    rates.generation = 1e6
    assert rates.stalled_seconds == 0.25
