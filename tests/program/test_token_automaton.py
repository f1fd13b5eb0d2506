"""The one-pass form: equal to the two passes on every text, as early as any could be, minimal, and refused where three
pending positions do not suffice."""

from __future__ import annotations

import dataclasses
import random
import struct
from collections.abc import Iterable
from typing import Any

import pytest

from tests.support.boundary_cases import SplitCase, parametrize_cases, random_classes, random_tables
from toktier.errors import InternalError
from toktier.program.boundary import BoundaryTables
from toktier.program.coverage import class_strings, token_suite
from toktier.program.equivalence import coarsest_partition
from toktier.program.interpret import run_token_automaton, run_two_pass
from toktier.program.token_automaton import MAX_TRANSITIONS, TokenAutomaton, build_token_automaton

# By (classes, left, right) of the tables: states and the most positions ever pending. Measured once; a change of either
# is a change of the engine's tables that somebody should have meant.
KNOWN_SIZES = {
    (11, 11, 8): (17, 2),
    (11, 12, 8): (18, 2),
    (11, 13, 8): (19, 2),
    (19, 17, 25): (24, 2),
    (12, 15, 14): (23, 2),
    (10, 9, 10): (11, 1),
    (10, 10, 12): (17, 2),
    (21, 18, 27): (25, 2),
    (12, 12, 10): (20, 2),
}


def built(tables: BoundaryTables) -> TokenAutomaton:
    automaton = build_token_automaton(tables)
    assert automaton is not None
    return automaton


def assert_two_passes(automaton: TokenAutomaton, tables: BoundaryTables, lengths: Iterable[int]) -> None:
    """Equal to the two passes on all class strings of these lengths."""
    for length in lengths:
        for classes in class_strings(tables.n_class, length):
            assert run_token_automaton(automaton, classes) == run_two_pass(tables, classes), classes


def rows_of(automaton: TokenAutomaton) -> list[tuple[int, ...]]:
    n = automaton.n_class
    flat = struct.unpack(f"<{automaton.n_state * n}H", automaton.next)
    return [flat[i * n : (i + 1) * n] for i in range(automaton.n_state)]


def look_ahead(distance: int, value: int = 1) -> BoundaryTables:
    """A piece starts at a position (after the first) iff the class `distance` further on is 1. Right state: the next
    `distance` + 1 classes as bits, nearest highest; beyond the end stand zeros.
    """
    size = 1 << (distance + 1)
    right = bytes((c << distance) | (r >> 1) for r in range(size) for c in (0, 1))
    matrix = bytes([1] * size) + bytes(value if r & 1 else 0 for r in range(size))
    return BoundaryTables(
        n_class=2,
        n_left=2,
        n_right=size,
        left=bytes([1, 1, 1, 1]),
        right=right,
        matrix=matrix,
        left_start=0,
        right_end=0,
        class_ranges=(),
        representatives=(ord("a"), ord("b")),
    )


@parametrize_cases()
def test_equals_two_passes_on_all_short_class_strings(case: SplitCase) -> None:
    assert_two_passes(built(case.tables), case.tables, range(4 if case.tables.n_class <= 14 else 3))


@pytest.mark.ci
@parametrize_cases()
def test_equals_two_passes_on_all_class_strings_of_length_four(case: SplitCase) -> None:
    assert_two_passes(built(case.tables), case.tables, [4])


@pytest.mark.full
@parametrize_cases()
def test_equals_two_passes_on_all_class_strings_of_length_five(case: SplitCase) -> None:
    if case.tables.n_class > 14:
        pytest.skip("millions of strings, in Python")
    assert_two_passes(built(case.tables), case.tables, [5])


@parametrize_cases()
def test_equals_two_passes_on_long_strings(case: SplitCase) -> None:
    rng = random.Random(1)
    automaton = built(case.tables)
    for _ in range(100):
        classes = random_classes(rng, case.tables.n_class, rng.randint(20, 400))
        assert run_token_automaton(automaton, classes) == run_two_pass(case.tables, classes), classes


@parametrize_cases()
def test_decides_as_early_as_every_continuation_agrees(case: SplitCase) -> None:
    automaton, tables = built(case.tables), case.tables
    for classes in class_strings(tables.n_class, 2 if tables.n_class > 14 else 3):
        state = automaton.start
        for c in classes:
            at = 2 * (state * automaton.n_class + c)
            state = int.from_bytes(automaton.next[at : at + 2], "little")
        assert automaton.pending[state] == waiting(tables, classes), classes


def waiting(tables: BoundaryTables, classes: bytes) -> int:
    """Positions that some continuation still changes, and known piece starts behind the first such one."""
    outcomes = []
    for rest in range(tables.n_right):
        values = run_two_pass(dataclasses.replace(tables, right_end=rest), classes)
        outcomes.append(values)
    count = 0
    for column in zip(*outcomes, strict=True):
        open_here = len(set(column)) > 1
        if open_here or (count and column[0]):
            count += 1
    return count


@parametrize_cases()
def test_is_minimal_and_numbered_breadth_first(case: SplitCase) -> None:
    automaton = built(case.tables)
    rows, n = rows_of(automaton), automaton.n_class
    outputs = [
        (automaton.actions[s * n : (s + 1) * n], automaton.eof[s], automaton.pending[s])
        for s in range(automaton.n_state)
    ]
    assert coarsest_partition(outputs, rows) == list(range(automaton.n_state)), "two states behave alike"
    seen = [automaton.start]
    for state in seen:
        seen.extend(t for t in dict.fromkeys(rows[state]) if t not in seen)
    assert seen == list(range(automaton.n_state))


@parametrize_cases()
def test_size_is_the_known_one(case: SplitCase) -> None:
    tables, automaton = case.tables, built(case.tables)
    shape = (tables.n_class, tables.n_left, tables.n_right)
    if shape in KNOWN_SIZES:
        assert (automaton.n_state, max(automaton.pending)) == KNOWN_SIZES[shape]
    assert len(automaton.next) == 2 * automaton.n_state * automaton.n_class
    assert len(automaton.actions) == automaton.n_state * automaton.n_class
    assert len(automaton.eof) == len(automaton.pending) == automaton.n_state


@parametrize_cases()
def test_the_suite_notices_changed_entries(case: SplitCase) -> None:
    notice_all(case, sample=150)


@pytest.mark.ci
@parametrize_cases()
def test_the_suite_notices_every_changed_entry(case: SplitCase) -> None:
    notice_all(case, sample=None)


def notice_all(case: SplitCase, sample: int | None) -> None:
    """Every other value of an entry of TRAN, TACT or TEOF breaks a rule of the format on a string of the suite, or
    gives that string other boundaries.
    """
    automaton = built(case.tables)
    suite = token_suite(automaton)
    expected = [run_two_pass(case.tables, classes) for classes in suite]
    assert [run_token_automaton(automaton, classes) for classes in suite] == expected
    # A changed entry can show only on strings that pass it.
    through: dict[tuple[str, int], list[int]] = {}
    for index, classes in enumerate(suite):
        state = automaton.start
        for c in classes:
            entry = state * automaton.n_class + c
            through.setdefault(("entry", entry), []).append(index)
            state = int.from_bytes(automaton.next[2 * entry : 2 * entry + 2], "little")
        through.setdefault(("eof", state), []).append(index)
    changes = [
        *(("next", e, v) for e in range(len(automaton.actions)) for v in range(automaton.n_state)),
        *(("actions", e, v) for e in range(len(automaton.actions)) for v in range(256)),
        *(("eof", s, v) for s in range(automaton.n_state) for v in range(64)),
    ]
    if sample is not None:
        changes = random.Random(2).sample(changes, sample)
    checked = 0
    for table, place, value in changes:
        changed = with_entry(automaton, table, place, value)
        if changed == automaton:
            continue
        checked += 1
        for index in through[("eof" if table == "eof" else "entry", place)]:
            try:
                if run_token_automaton(changed, suite[index]) != expected[index]:
                    break
            except InternalError:
                break
        else:
            pytest.fail(f"unnoticed: {table}[{place}] = {value}")
    assert checked > 100


def with_entry(automaton: TokenAutomaton, table: str, place: int, value: int) -> TokenAutomaton:
    data = bytearray(getattr(automaton, table))
    if table == "next":
        data[2 * place : 2 * place + 2] = value.to_bytes(2, "little")
    else:
        data[place] = value
    changed: dict[str, Any] = {table: bytes(data)}
    return dataclasses.replace(automaton, **changed)


@pytest.mark.parametrize("value", [1, 2])
@pytest.mark.parametrize("distance", [0, 1, 2, 3])
def test_look_ahead_up_to_three_waits_as_long_as_it_must(distance: int, value: int) -> None:
    tables = look_ahead(distance, value)
    automaton = built(tables)
    assert max(automaton.pending) == distance
    assert_two_passes(automaton, tables, range(9))


def test_more_than_three_pending_positions_have_no_automaton() -> None:
    assert build_token_automaton(look_ahead(4)) is None


def test_unbounded_look_ahead_at_every_position_has_no_automaton() -> None:
    """A piece starts everywhere iff the text ends in class 1."""
    tables = BoundaryTables(
        n_class=2,
        n_left=2,
        n_right=3,
        left=bytes([1, 1, 1, 1]),
        right=bytes([1, 2, 1, 1, 2, 2]),
        matrix=bytes([1, 1, 1, 0, 0, 1]),
        left_start=0,
        right_end=0,
        class_ranges=(),
        representatives=(97, 98),
    )
    assert run_two_pass(tables, bytes([0, 0, 1])) == bytes([1, 1, 1])
    assert run_two_pass(tables, bytes([0, 1, 0])) == bytes([1, 0, 0])
    assert build_token_automaton(tables) is None


def test_unbounded_look_ahead_of_one_position_waits() -> None:
    """The second position starts a piece iff the text ends in class 1; no later one does."""
    tables = BoundaryTables(
        n_class=2,
        n_left=3,
        n_right=3,
        left=bytes([1, 1, 2, 2, 2, 2]),
        right=bytes([1, 2, 1, 1, 2, 2]),
        matrix=bytes([1, 1, 1, 0, 0, 1, 0, 0, 0]),
        left_start=0,
        right_end=0,
        class_ranges=(),
        representatives=(97, 98),
    )
    automaton = built(tables)
    assert max(automaton.pending) == 1
    assert_two_passes(automaton, tables, range(8))


def test_first_piece_can_wait_for_being_dropped() -> None:
    """One piece a text, dropped iff the text ends in class 1: position 0 is a candidate like any other."""
    tables = BoundaryTables(
        n_class=2,
        n_left=2,
        n_right=3,
        left=bytes([1, 1, 1, 1]),
        right=bytes([1, 2, 1, 1, 2, 2]),
        matrix=bytes([1, 1, 2, 0, 0, 0]),
        left_start=0,
        right_end=0,
        class_ranges=(),
        representatives=(97, 98),
    )
    automaton = built(tables)
    assert run_token_automaton(automaton, bytes([0, 0, 1])) == bytes([2, 0, 0])
    assert run_token_automaton(automaton, bytes([0, 1, 0])) == bytes([1, 0, 0])
    assert automaton.actions[0] == 3, "position 0 becomes pending"


def counting(n: int) -> BoundaryTables:
    """n classes, n left states that count modulo n; whether a piece starts depends on the parity of two classes."""
    return BoundaryTables(
        n_class=n,
        n_left=n,
        n_right=4,
        left=bytes((s + c) % n for s in range(n) for c in range(n)),
        right=bytes(2 * (c % 2) + r // 2 for r in range(4) for c in range(n)),
        matrix=bytes([1] * 4) + bytes(v for s in range(1, n) for v in (0, 1, 0, s % 2)),
        left_start=0,
        right_end=0,
        class_ranges=(),
        representatives=tuple(range(n)),
    )


def test_too_many_transitions_have_no_automaton() -> None:
    small = built(counting(20))
    assert small.n_state == 40, "two states for each left state, with and without a waiting position"
    assert 40 * 20 <= MAX_TRANSITIONS < 2 * 255 * 255
    assert build_token_automaton(counting(255)) is None


def test_random_machines_are_exact_or_refused_for_cause() -> None:
    rng = random.Random(3)
    built_count = refused = 0
    for _ in range(300):
        tables = random_tables(rng, max_states=3)
        automaton = build_token_automaton(tables)
        if automaton is None:
            refused += 1
            assert any(
                waiting(tables, classes) > 3
                for length in range(4, 9)
                for classes in class_strings(tables.n_class, length)
            ), "refused although no short text has more than three positions pending"
            continue
        built_count += 1
        assert_two_passes(automaton, tables, range(6))
    assert built_count > 50
    assert refused > 20
