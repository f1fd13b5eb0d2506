"""Character classes against plain membership, code point by code point at every edge."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.regex_oracle import contains
from toktier.program import unicode
from toktier.program.boundary_limits import MAX_CLASSES, MAX_SETS, Unsupported
from toktier.program.class_map import (
    LAST_CODE_POINT,
    ClassMap,
    CodePointSet,
    Complement,
    Intersection,
    Table,
    Union,
    classify,
    join_ranges,
    spans,
    table_ranges,
)

code_points = (
    st.integers(0, LAST_CODE_POINT) | st.integers(0, 0x300) | st.sampled_from((0xD7FF, 0xD800, 0xDFFF, 0xE000))
)
written = st.lists(st.tuples(code_points, code_points).map(lambda p: (min(p), max(p))), min_size=1, max_size=4).map(
    spans
)
tables = st.sampled_from(
    [Table("property", n) for n in ("L", "Lu", "M", "N", "P", "S", "Han", "C", "Cs")]
    + [Table("shorthand", "s"), Table("shorthand", "w"), Table("shorthand", "w", True), Table("posix", "alpha")]
    + [Table("char_set", "numeric"), Table("char_set", "punctuation")]
)
expressions: st.SearchStrategy[CodePointSet] = st.recursive(
    written | tables,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: Union(tuple(parts))),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: Intersection(tuple(parts))),
        inner.map(Complement),
    ),
    max_leaves=5,
)


def class_of(classes: ClassMap, code_point: int) -> int:
    return next(number for first, last, number in classes.ranges if first <= code_point <= last)


def is_surrogate(code_point: int) -> bool:
    return 0xD800 <= code_point < 0xE000


@settings(deadline=None, max_examples=60)
@given(st.lists(expressions, min_size=1, max_size=3), st.lists(code_points, max_size=10))
def test_law_classes_are_membership(sets: list[CodePointSet], more: list[int]) -> None:
    classes = classify(sets)
    edges = [c for first, last, _ in classes.ranges for c in (first, last)]
    sample = edges if len(edges) < 60 else random.Random(1).sample(edges, 60)
    for code_point in [*sample, *more]:
        if not is_surrogate(code_point):
            for chars, members in zip(sets, classes.members, strict=True):
                assert bool(members >> class_of(classes, code_point) & 1) == contains(chars, code_point)


@settings(deadline=None, max_examples=60)
@given(st.lists(expressions, max_size=3))
def test_law_classes_are_the_coarsest_and_numbered_by_smallest_code_point(sets: list[CodePointSet]) -> None:
    classes = classify(sets)
    signatures = {tuple(m >> c & 1 for m in classes.members) for c in range(classes.n_class)}
    assert len(signatures) == classes.n_class
    assert list(dict.fromkeys(number for _, _, number in classes.ranges)) == list(range(classes.n_class))
    assert classes.ranges[0][0] == 0
    assert classes.ranges[-1][1] == LAST_CODE_POINT
    for (_, last, number), (first, _, following) in pairwise(classes.ranges):
        assert first == last + 1
        assert number != following
    assert class_of(classes, 0xD800) == class_of(classes, 0xDFFF) == class_of(classes, 0xD7FF)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9)).map(lambda p: (p[0], p[0] + p[1])), max_size=8))
def test_law_spans_are_the_union_of_their_ranges(ranges: list[tuple[int, int]]) -> None:
    joined = spans(ranges).ranges
    assert {c for a, b in joined for c in range(a, b + 1)} == {c for a, b in ranges for c in range(a, b + 1)}
    assert all(b + 1 < a for (_, b), (a, _) in pairwise(joined))


def test_surrogates_make_no_class() -> None:
    assert classify([spans([(0xD800, 0xDFFF)])]).n_class == 1
    classes = classify([spans([(0xDC00, 0xE000)])])
    assert classes.ranges == ((0, 0xDFFF, 0), (0xE000, 0xE000, 1), (0xE001, LAST_CODE_POINT, 0))


def test_tables_are_the_probed_ones() -> None:
    assert table_ranges(Table("property", "lu")) == unicode.property_ranges("Lu")
    assert table_ranges(Table("char_set", "numeric")) == unicode.numeric()
    assert table_ranges(Table("shorthand", "w")) != table_ranges(Table("shorthand", "w", True))
    for absent in (Table("property", "Klingon"), Table("posix", "vowel"), Table("mood", "L")):
        with pytest.raises(KeyError):
            table_ranges(absent)


def test_join_ranges() -> None:
    assert join_ranges([(0, 3, 1), (4, 4, 1), (5, 6, 0)]) == ((0, 4, 1), (5, 6, 0))


def test_too_many_classes_are_refused() -> None:
    def singles(n: int) -> list[CodePointSet]:
        return [spans([(2 * c, 2 * c)]) for c in range(n)]

    assert classify(singles(MAX_CLASSES - 1)).n_class == MAX_CLASSES
    with pytest.raises(Unsupported, match="classes apart"):
        classify(singles(MAX_CLASSES))
    with pytest.raises(Unsupported, match="different sets"):
        classify(singles(MAX_SETS + 1))
    with pytest.raises(Unsupported, match="different sets"):
        classify([Union(tuple(singles(MAX_SETS + 1)))])
    nested = [Union((spans([(c, c + 20)]), spans([(5_000 + 7 * c, 5_000 + 7 * c)]))) for c in range(MAX_SETS // 2)]
    with pytest.raises(Unsupported, match="overlap in more than"):
        classify([Union(tuple(nested))])
