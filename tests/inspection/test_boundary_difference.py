"""The shortest class string on which two pre-tokenizers differ, beside trying all short texts."""

from __future__ import annotations

import itertools

import pytest

from toktier.inspection.boundary_difference import shortest_difference
from toktier.program.boundary import BoundaryTables, Stage, compile_boundaries
from toktier.program.interpret import run_two_pass

PATTERNS = [
    r"\p{N}{1,3}",
    r"\p{N}{1,2}",
    r"\p{N}{1,4}",
    r"\p{L}+|\p{N}+",
    r"\p{L}+",
    r"\s+(?!\S)|\s+",
    r"\s+",
    r"[a-c]+",
    r"[a-d]+",
]


def tables(pattern: str, behavior: str = "Isolated") -> BoundaryTables:
    return compile_boundaries([Stage("p", pattern=pattern, behavior=behavior)])


def split(machine: BoundaryTables, text: str) -> bytes:
    def class_of(character: str) -> int:
        return next(c for low, high, c in machine.class_ranges if low <= ord(character) <= high)

    return run_two_pass(machine, bytes(map(class_of, text)))


@pytest.mark.parametrize(("first", "second"), list(itertools.combinations(PATTERNS, 2)))
def test_it_is_a_difference_and_no_shorter_text_is_one(first: str, second: str) -> None:
    a, b = tables(first), tables(second)
    found = shortest_difference(a, b)
    assert found is not None
    before, after = ("".join(members[0] for members in part) for part in (found.before, found.after))
    place = len(before)
    assert split(a, before + after)[place] != split(b, before + after)[place]
    letters = [members[0] for members in found.alphabet]
    for length in range(1, min(len(before + after), 6)):
        for text in map("".join, itertools.product(letters, repeat=length)):
            assert split(a, text) == split(b, text)


def test_equal_functions_have_none_however_they_are_spelled() -> None:
    assert shortest_difference(tables(r"\p{N}|\p{L}+"), tables(r"[\p{N}]|\p{L}\p{L}*")) is None


def test_dropped_at_the_start_of_a_text_is_a_difference() -> None:
    found = shortest_difference(tables("a", "Isolated"), tables("a", "Removed"))
    assert found is not None
    assert (found.before, [members[0] for members in found.after]) == ([], ["a"])
