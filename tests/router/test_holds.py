"""Which slots are held: what came back, at most all but one, and not for ever."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from toktier.router import holds
from toktier.router.holds import Merit


def merit(proven: int = 500, reuses: int = 1, distance: float = 8, idle: int = 1, idle_s: float = 1) -> Merit:
    return Merit(proven, reuses, distance, idle, idle_s)


NOTHING = merit(proven=0, reuses=0)


def test_what_never_came_back_is_not_held() -> None:
    assert holds.held([NOTHING] * 4) == [False] * 4


def test_one_slot_is_never_held() -> None:
    assert holds.held([merit()]) == [False]
    assert holds.held([merit(), merit(), merit(), merit()]).count(True) == 3


def test_those_worth_most_are_held() -> None:
    short, rare, best = merit(proven=100), merit(distance=80), merit(proven=600)
    assert holds.held([short, best, NOTHING]) == [True, True, False]
    assert holds.held([short, best]) == [False, True]
    assert holds.held([rare, short]) == [False, True]  # 500 tokens in 80 requests, 100 in 8


def test_in_turn_the_one_used_last_is_wanted_last() -> None:
    assert holds.held([merit(idle=5), merit(idle=1), merit(idle=3)]) == [True, False, True]
    assert holds.held([merit(idle=9), merit(idle=7)]) == [True, False]  # a little late
    assert holds.held([merit(proven=400, idle=6), merit(proven=2000, idle=1)]) == [False, True]


def test_where_conversations_come_at_random_the_last_used_are_held() -> None:
    merits = [merit(proven=900, idle=3), merit(proven=100, idle=1), merit(proven=500, idle=2), NOTHING]
    assert holds.held([*merits[:3]], in_turn=False) == [False, True, True]
    assert holds.held(merits, in_turn=False) == [True, True, True, False]
    assert holds.held([*merits[:3]]) == [True, False, True]


def test_a_hold_lapses_when_its_conversation_is_overdue() -> None:
    assert holds.held([merit(idle=16), NOTHING]) == [True, False]
    assert holds.held([merit(idle=17), NOTHING]) == [False, False]
    assert holds.held([merit(distance=1, idle=4), NOTHING]) == [True, False]  # two requests a slot
    assert holds.held([merit(distance=1, idle=5), NOTHING]) == [False, False]
    assert holds.held([merit(idle_s=901), NOTHING]) == [False, False]


MERITS = st.builds(
    Merit,
    st.integers(0, 10_000),
    st.integers(0, 5),
    st.floats(0, 1000),
    st.integers(0, 1000),
    st.floats(0, 2000),
)


@given(st.lists(MERITS, min_size=1, max_size=12), st.booleans())
def test_one_slot_at_least_stays_free_for_others(merits: list[Merit], in_turn: bool) -> None:
    chosen = holds.held(merits, in_turn=in_turn)
    assert len(chosen) == len(merits)
    assert chosen.count(True) <= len(merits) - 1
    for one, is_held in zip(merits, chosen, strict=True):
        if is_held:
            assert one.reuses > 0
            assert not holds.is_overdue(one, len(merits))
