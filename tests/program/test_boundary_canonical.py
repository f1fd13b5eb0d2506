"""Canonical form: nothing in the tables could be merged or numbered otherwise, and composing stages is associative. The
checks here are written apart from the compiler: pairs of states that a text tells apart, not partition refinement."""

from __future__ import annotations

import random
from itertools import combinations

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.support.boundary_cases import WRITTEN, random_tables
from tests.support.boundary_reference import class_numbers, pieces, texts_over
from tests.support.regex_strategies import LETTERS, stages, try_compile
from toktier.errors import ProgramUnsupported
from toktier.program.boundary import BoundaryTables, Stage, compile_boundaries
from toktier.program.boundary_limits import Budget
from toktier.program.canonical_tables import TwoSided, join_dropped, merge_classes, minimize
from toktier.program.compose import compose

law = settings(
    deadline=None, max_examples=80, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


def check_canonical(tables: BoundaryTables) -> None:
    n = tables.n_class
    left = [tables.left[i * n : i * n + n] for i in range(tables.n_left)]
    right = [tables.right[i * n : i * n + n] for i in range(tables.n_right)]
    rows = [tables.matrix[i * tables.n_right : (i + 1) * tables.n_right] for i in range(tables.n_left)]
    columns = [bytes(row[j] for row in rows) for j in range(tables.n_right)]
    assert len(left) == tables.n_left <= 255
    assert len(right) == tables.n_right <= 255
    assert len(tables.matrix) == tables.n_left * tables.n_right
    for step, outputs in ((left, rows), (right, columns)):
        assert all_distinct(step, outputs)
        assert breadth_first(step)
    assert len(set(zip(zip(*left, strict=True), zip(*right, strict=True), strict=True))) == n, "two classes do the same"

    assert tables.left_start == tables.right_end == 0
    assert set(columns[0]) == {0}, "the end of a text is no boundary"
    assert 0 not in rows[0][1:], "position 0 is a boundary"
    first_of: dict[int, int] = {}
    position = 0
    previous = None
    for first, last, number in tables.class_ranges:
        assert first == position <= last
        assert number != previous
        first_of.setdefault(number, first)
        position, previous = last + 1, number
    assert position == 0x110000
    assert list(first_of) == list(range(n)), "classes are numbered by smallest code point"
    for number, code_point in enumerate(tables.representatives):
        assert class_numbers(tables, chr(code_point)) == [number]
        assert code_point == first_of[number] or 0x20 <= code_point <= 0x7E


def all_distinct(step: list[bytes], outputs: list[bytes]) -> bool:
    """Whether every two states differ in output or in what some text leads to (table filling)."""
    apart = {pair for pair in combinations(range(len(step)), 2) if outputs[pair[0]] != outputs[pair[1]]}
    grows = True
    while grows:
        grows = False
        for i, j in combinations(range(len(step)), 2):
            if (i, j) not in apart and any((min(p), max(p)) in apart for p in zip(step[i], step[j], strict=True)):
                apart.add((i, j))
                grows = True
    return len(apart) == len(step) * (len(step) - 1) // 2


def breadth_first(step: list[bytes]) -> bool:
    """Whether states are numbered in the order in which a breadth-first walk from 0, in class order, meets them."""
    met = [0]
    for state in met:
        met += dict.fromkeys(target for target in step[state] if target not in met)
    return met == list(range(len(step)))


@pytest.mark.parametrize("case", WRITTEN.values(), ids=WRITTEN)
def test_tables_of_written_patterns_are_canonical(case: tuple[tuple[str, str, bool], ...]) -> None:
    check_canonical(compile_boundaries([Stage("s", pattern=p, behavior=b, invert=v) for p, b, v in case]))


@law
@given(st.lists(stages(), min_size=1, max_size=2))
def test_law_tables_are_canonical(chain: list[Stage]) -> None:
    tables = try_compile(chain)
    assume(tables is not None)
    assert tables is not None
    check_canonical(tables)


def test_check_of_canonical_form_can_fail() -> None:
    tables = compile_boundaries([Stage("s", pattern="a+b")])
    swapped = BoundaryTables(
        n_class=tables.n_class,
        n_left=tables.n_left + 1,
        n_right=tables.n_right,
        left=tables.left + tables.left[-tables.n_class :],
        right=tables.right,
        matrix=tables.matrix + tables.matrix[-tables.n_right :],
        left_start=0,
        right_end=0,
        class_ranges=tables.class_ranges,
        representatives=tables.representatives,
    )
    with pytest.raises(AssertionError):
        check_canonical(swapped)


@law
@given(stages(6), stages(6), stages(6))
def test_law_composition_is_associative(first: Stage, second: Stage, third: Stage) -> None:
    singles = [try_compile([stage]) for stage in (first, second, third)]
    assume(None not in singles)
    a, b, c = over_common_classes([tables for tables in singles if tables is not None])

    def finish(tables: TwoSided) -> TwoSided:
        return merge_classes(join_dropped(tables, Budget()))[0]

    from_left = finish(compose(compose(a, b, Budget()), c, Budget()))
    assert from_left == finish(compose(a, compose(b, c, Budget()), Budget()))
    whole = compile_boundaries([first, second, third])
    assert (len(from_left.left), len(from_left.right)) == (whole.n_left, whole.n_right)
    assert b"".join(from_left.matrix) == whole.matrix


def over_common_classes(singles: list[BoundaryTables]) -> list[TwoSided]:
    """The machines over classes that all of them can be read with, numbered by smallest code point."""
    starts = sorted({first for tables in singles for first, _, _ in tables.class_ranges})
    text = "".join(map(chr, starts))
    signatures = list(dict.fromkeys(zip(*(class_numbers(tables, text) for tables in singles), strict=True)))
    result = []
    for k, tables in enumerate(singles):
        own, n = [signature[k] for signature in signatures], tables.n_class
        result.append(
            TwoSided(
                tuple(tuple(tables.left[i * n + c] for c in own) for i in range(tables.n_left)),
                tuple(tuple(tables.right[i * n + c] for c in own) for i in range(tables.n_right)),
                tuple(tables.matrix[i * tables.n_right : (i + 1) * tables.n_right] for i in range(tables.n_left)),
            )
        )
    return result


@law
@given(stages(6))
def test_law_a_stage_in_front_of_one_piece_changes_nothing(stage: Stage) -> None:
    whole_piece = Stage("whole", pattern=r"[\s\S]+")
    tables = try_compile([stage])
    assume(tables is not None)
    assert compile_boundaries([stage, whole_piece]) == tables == compile_boundaries([whole_piece, stage])


def random_machine(rng: random.Random) -> TwoSided:
    tables = random_tables(rng, max_states=5)
    n = tables.n_class

    def reachable(table: bytes, start: int) -> list[int]:
        met = [start]
        for state in met:
            met += [t for t in dict.fromkeys(table[state * n : state * n + n]) if t not in met]
        return met

    lefts, rights = reachable(tables.left, tables.left_start), reachable(tables.right, tables.right_end)
    return TwoSided(
        tuple(tuple(lefts.index(t) for t in tables.left[i * n : i * n + n]) for i in lefts),
        tuple(tuple(rights.index(t) for t in tables.right[i * n : i * n + n]) for i in rights),
        tuple(bytes(tables.matrix[i * tables.n_right + j] for j in rights) for i in lefts),
    )


def value(tables: TwoSided, before: tuple[int, ...], behind: tuple[int, ...]) -> int:
    left = right = 0
    for c in before:
        left = tables.left[left][c]
    for c in reversed(behind):
        right = tables.right[right][c]
    return tables.matrix[left][right]


def test_minimize_keeps_the_function_and_leaves_nothing_to_merge() -> None:
    rng = random.Random(3)
    smaller = 0
    for _ in range(200):
        tables = random_machine(rng)
        small = minimize(tables, Budget())
        smaller += len(small.left) < len(tables.left) or len(small.right) < len(tables.right)
        columns = [bytes(column) for column in zip(*small.matrix, strict=True)]
        assert all_distinct([bytes(r) for r in small.left], list(small.matrix))
        assert all_distinct([bytes(r) for r in small.right], columns)
        for _ in range(40):
            before, behind = (tuple(rng.randrange(tables.n_class) for _ in range(rng.randrange(7))) for _ in range(2))
            assert value(small, before, behind) == value(tables, before, behind)
    assert smaller > 20


def test_join_dropped_keeps_what_is_kept() -> None:
    """Two neighbouring dropped pieces become one, kept pieces stay."""
    chain = [Stage("a", pattern="a", behavior="Isolated"), Stage("b", pattern="[ab]", behavior="Removed")]
    tables = compile_boundaries(chain)
    assert tables == compile_boundaries([Stage("s", pattern="[ab]+", behavior="Removed")])
    tables = compile_boundaries([Stage("s", pattern="a", behavior="Removed", invert=True)])
    assert pieces(tables, "baabb") == [(1, 2), (2, 3)]
    for text in texts_over(LETTERS, 4):
        values = boundary_values(tables, text)
        assert not any(a == 2 == b for a, b in zip(filter(None, values), [*filter(None, values)][1:], strict=False))


def boundary_values(tables: BoundaryTables, text: str) -> list[int]:
    numbers = class_numbers(tables, text)
    two = over_common_classes([tables])[0]
    return [value(two, tuple(numbers[:i]), tuple(numbers[i:])) for i in range(len(numbers))]


def test_the_refusal_names_the_stage_that_is_too_large() -> None:
    small, large = (
        Stage("pre_tokenizer.pretokenizers[0]", pattern="a"),
        Stage("pre_tokenizer.pretokenizers[1]", pattern="[ab]{200}c|[bc]{201}a"),
    )
    for chain in ([small, large], [large, small], [small, large, small]):
        with pytest.raises(ProgramUnsupported) as refused:
            compile_boundaries(chain)
        assert refused.value.path == chain[chain.index(large)].path
