"""Prompts whose slot was taken: found again exactly, in fixed memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.router.token_prompts import after, unrelated
from toktier.router.remembered import SHORTEST, Remembered
from toktier.router.token_ids import TokenIds, as_ids, shared_prefix


def longest(remembered: Remembered, ids: TokenIds) -> int:
    """Tokens of the longest remembered prompt that `ids` begins with; 0: none."""
    return remembered.returned(ids, 0).tokens


def test_a_prompt_that_goes_on_is_found_with_its_distance() -> None:
    remembered = Remembered()
    content = after(unrelated(1, 100), range(7))
    remembered.add(content, 100, stamp=5)
    assert remembered.returned(after(content, [9, 9]), now=13) == (107, 8)
    assert remembered.returned(after(unrelated(1, 100), [4, 4]), now=13) == (100, 8)  # another answer
    assert longest(remembered, content[:100]) == 100
    assert longest(remembered, content[:99]) == 0
    assert longest(remembered, unrelated(2, 200)) == 0


def test_a_common_beginning_alone_is_no_return() -> None:
    remembered = Remembered()
    system = unrelated(1, 1000)
    remembered.add(after(system, range(50)), 1040, stamp=1)
    assert longest(remembered, after(system, range(100, 200))) == 0


def test_the_longest_is_found() -> None:
    remembered = Remembered()
    prompt = unrelated(1, 300)
    for stamp, length in enumerate((50, 200, 120)):
        remembered.add(prompt[:length], length, stamp)
    assert remembered.returned(prompt, now=10) == (200, 9)
    assert remembered.returned(prompt[:150], now=10) == (120, 8)


def test_what_is_remembered_again_takes_no_place() -> None:
    remembered = Remembered(capacity=4)
    remembered.add(unrelated(1, 100), 100, stamp=1)
    for stamp in range(2, 50):
        remembered.add(unrelated(2, 100), 100, stamp)
    assert len(remembered) == 2
    assert remembered.returned(unrelated(1, 100), now=50) == (100, 49)
    assert remembered.returned(unrelated(2, 100), now=50) == (100, 1)


def test_the_oldest_is_forgotten() -> None:
    remembered = Remembered(capacity=4)
    for number in range(6):
        remembered.add(unrelated(number, 100), 100, stamp=number)
    assert [longest(remembered, unrelated(number, 100)) for number in range(6)] == [0, 0, 100, 100, 100, 100]


def test_short_prompts_are_not_remembered() -> None:
    remembered = Remembered()
    remembered.add(unrelated(1, SHORTEST - 1), SHORTEST - 1, stamp=1)
    assert len(remembered) == 0
    remembered.add(unrelated(1, SHORTEST), SHORTEST, stamp=1)
    assert longest(remembered, unrelated(1, SHORTEST)) == SHORTEST
    assert longest(remembered, unrelated(1, 0)) == 0


def test_digests_depend_on_the_key_alone() -> None:
    key = bytes(range(24))
    ids = unrelated(1, 64)
    assert Remembered(key=key)._prefixes(ids).tolist() == Remembered(key=key)._prefixes(ids).tolist()
    assert Remembered()._prefixes(ids).tolist() != Remembered()._prefixes(ids).tolist()


@given(st.lists(st.lists(st.integers(0, 1), min_size=16, max_size=24), min_size=1, max_size=8), st.data())
def test_what_is_found_is_a_remembered_prompt(prompts: list[list[int]], data: st.DataObject) -> None:
    """Of two tokens, so that prompts share much; order and position of tokens matter."""
    remembered = Remembered()
    for stamp, prompt in enumerate(prompts):
        remembered.add(as_ids(prompt), len(prompt), stamp)
    asked = data.draw(st.sampled_from(prompts)) + data.draw(st.lists(st.integers(0, 1), max_size=8))
    if data.draw(st.booleans()):
        asked = asked[::-1]
    whole = [len(p) for p in prompts if shared_prefix(as_ids(p), as_ids(asked)) == len(p)]
    assert longest(remembered, as_ids(asked)) == max(whole, default=0)
