"""Bets on the next turn of a conversation: when they are made, how long for, and what is learnt."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from toktier.router.keeping import LONGEST, PROBE, Keeping


def lost(bets: int) -> Keeping:
    keeping = Keeping()
    for _ in range(bets):
        keeping.ended(None)
    return keeping


def test_a_long_conversation_on_a_slow_upstream_is_worth_a_moment() -> None:
    assert Keeping().seconds(2000, 1000.0) == 0.03


def test_what_is_evaluated_faster_than_it_comes_is_not() -> None:
    assert Keeping().seconds(10, 10_000.0) is None


def test_nothing_is_kept_for_nothing_or_before_a_rate_is_known() -> None:
    assert Keeping().seconds(0, 1000.0) is None
    assert Keeping().seconds(2000, None) is None


def test_lost_bets_are_made_no_more_but_for_one_in_sixteen() -> None:
    keeping = lost(40)
    made = [keeping.seconds(2000, 1000.0) is not None for _ in range(5 * PROBE)]
    assert made.count(True) == 5
    assert made[PROBE - 1]


def test_a_probe_that_is_won_again_and_again_brings_bets_back() -> None:
    keeping = lost(40)
    for _ in range(4):
        keeping.ended(0.004)
    assert all(keeping.seconds(2000, 1000.0) is not None for _ in range(5))


def test_a_moment_that_was_too_short_grows() -> None:
    """Turns that come 50 ms later are found although the first moments end at 30."""
    keeping = Keeping()
    for _ in range(12):
        moment = keeping.seconds(10_000, 1000.0)
        assert moment is not None
        keeping.ended(0.05 if moment > 0.05 else None)
    assert keeping.won > 0.6
    assert moment > 0.1


@given(st.lists(st.none() | st.floats(0, 1e3)), st.integers(0, 1 << 20), st.none() | st.floats(1.0, 1e7))
def test_law_a_moment_is_bounded(ends: list[float | None], tokens: int, prefill: float | None) -> None:
    keeping = Keeping()
    for end in ends:
        keeping.ended(end)
    moment = keeping.seconds(tokens, prefill)
    assert moment is None or 0.005 <= moment <= LONGEST
