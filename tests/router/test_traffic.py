"""Averages over the traffic: how much goes on, after how long, and whether in turn."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toktier.router.traffic import Traffic


def after(distances: list[float | None], slots: int = 4) -> Traffic:
    traffic = Traffic()
    for distance in distances:
        traffic.begins()
        traffic.ended(distance, slots)
    return traffic


def test_requests_are_numbered_from_one() -> None:
    traffic = Traffic()
    assert [traffic.begins(), traffic.begins()] == [1, 2]
    assert traffic.requests == 2


def test_before_anything_was_seen_half_goes_on_within_two_rounds() -> None:
    traffic = Traffic()
    assert (traffic.continued, traffic.distance(4)) == (0.5, 8.0)
    assert traffic.takes_turns(4)


def test_questions_about_documents_never_come_back_and_chats_nearly_all() -> None:
    assert after([None] * 200).chance(1, 8.0) < 0.01
    assert after([8.0] * 200).chance(1, 8.0) > 0.99


def test_what_was_used_long_ago_comes_back_less_likely() -> None:
    traffic = after([8.0] * 200)
    chances = [traffic.chance(idle, 8.0) for idle in (0, 1, 2, 9, 100)]
    assert chances == sorted(chances, reverse=True)
    assert chances[3] == pytest.approx(0.5, abs=0.01)


def test_eight_in_turn_over_four_slots_take_turns_and_eight_at_random_do_not() -> None:
    assert after([8.0] * 100).takes_turns(4)
    order = random.Random(5)
    last, distances = dict.fromkeys(range(8), 0), list[float | None]()
    for now in range(1, 400):
        who = order.randrange(8)
        distances.append(float(now - last[who]))
        last[who] = now
    assert not after(distances).takes_turns(4)
    assert not after([1.0] * 100).takes_turns(4)  # one after the other


def test_habits_change() -> None:
    assert after([1.0] * 200 + [8.0] * 200).takes_turns(4)
    assert not after([8.0] * 200 + [1.0] * 200).takes_turns(4)


@given(st.lists(st.none() | st.floats(1, 1e9), max_size=50), st.integers(0, 10**9), st.integers(0, 512))
def test_a_chance_is_one(distances: list[float | None], idle: int, slots: int) -> None:
    traffic = after(distances, slots)
    assert 0 <= traffic.chance(idle, traffic.distance(slots) or 1.0) <= 1
    traffic.takes_turns(max(slots, 1))
