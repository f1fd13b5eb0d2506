"""The algebra of code point sets is that of sets of integers."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from toktier.program.code_point_sets import (
    Ranges,
    complement,
    contains,
    difference,
    intersection,
    marks,
    size,
    union,
)


def ranges_of(members: set[int]) -> Ranges:
    """Sets the slow way."""
    out: list[tuple[int, int]] = []
    for c in sorted(members):
        if out and out[-1][1] == c - 1:
            out[-1] = (out[-1][0], c)
        else:
            out.append((c, c))
    return tuple(out)


UNIVERSE = set(range(40)) | {0x10FFFE, 0x10FFFF}
SETS = st.sets(st.sampled_from(sorted(UNIVERSE)))
MIDDLE = ranges_of(set(range(40, 0x10FFFE)))


@given(SETS, SETS)
def test_law_the_algebra_is_that_of_sets(a: set[int], b: set[int]) -> None:
    x, y = ranges_of(a), ranges_of(b)
    assert union(x, y) == ranges_of(a | b)
    assert intersection(x, y) == ranges_of(a & b)
    assert difference(x, y) == ranges_of(a - b)
    assert difference(complement(x), MIDDLE) == ranges_of(UNIVERSE - a)
    assert intersection(complement(x), MIDDLE) == MIDDLE
    assert size(x) == len(a)
    assert {c for c in UNIVERSE if contains(x, c)} == a


@given(SETS, SETS)
def test_law_de_morgan(a: set[int], b: set[int]) -> None:
    x, y = ranges_of(a), ranges_of(b)
    assert complement(complement(x)) == x
    assert complement(union(x, y)) == intersection(complement(x), complement(y))


@given(st.lists(st.tuples(st.integers(0, 39), st.integers(0, 5)), max_size=9))
def test_law_union_joins_ranges_in_any_order(drawn: list[tuple[int, int]]) -> None:
    ranges = tuple((first, first + more) for first, more in drawn)
    assert union(ranges, ()) == ranges_of({c for first, last in ranges for c in range(first, last + 1)})


@given(SETS, SETS)
def test_law_marks_say_in_which_of_two_sets_a_code_point_is(a: set[int], b: set[int]) -> None:
    rows = marks(ranges_of(a), ranges_of(b))
    marked = {c: mark for first, last, mark in rows for c in range(first, last + 1)}
    assert marked == {c: (c in a) + 2 * (c in b) for c in a | b}
    assert all(before[1] < after[0] for before, after in pairwise(rows))
