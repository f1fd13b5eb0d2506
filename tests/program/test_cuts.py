"""Static cuts: exactly those that a search of all surroundings leaves, exactly the published ones; and the renewal of
the machine at every piece start."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections import deque

import pytest

from tests.support.boundary_cases import SplitCase, parametrize_cases, random_tables
from toktier.program.boundary import BoundaryTables
from toktier.program.cuts import MAX_TRIPLE_CLASSES, Cuts, renewal_fault, static_cuts
from toktier.program.equivalence import (
    left_access,
    left_rows,
    matrix_rows,
    nonempty_access,
    right_access,
    right_rows,
)
from toktier.program.interpret import run_two_pass

# Pair and triple cuts by (classes, left, right) of the tables; the research's appendix A.
KNOWN_COUNTS = {
    (11, 11, 8): (55, 675, 653),
    (11, 12, 8): (54, 660, 610),
    (11, 13, 8): (54, 664, 642),
    (19, 17, 25): (134, 2862, 2855),
    (12, 15, 14): (106, 1319, 1313),
    (10, 9, 10): (47, 543, 520),
    (10, 10, 12): (44, 520, 494),
    (21, 18, 27): (212, 4894, 4815),
    (12, 12, 10): (73, 950, 949),
}

Context = tuple[tuple[int, ...], tuple[int, ...]]


def contexts(n: int) -> list[Context]:
    """In the order of Cuts: (a|b), (ab|c), (a|bc)."""
    return [
        *(((a,), (b,)) for a, b in itertools.product(range(n), repeat=2)),
        *(((a, b), (c,)) for a, b, c in itertools.product(range(n), repeat=3)),
        *(((a,), (b, c)) for a, b, c in itertools.product(range(n), repeat=3)),
    ]


def flat(cuts: Cuts) -> bytes:
    return cuts.pair + cuts.left_triple + cuts.right_triple


def breaks(tables: BoundaryTables, left: bytes, right: bytes) -> bool:
    """Whether the two halves apart give other values than the whole."""
    return run_two_pass(tables, left + right) != run_two_pass(tables, left) + run_two_pass(tables, right)


def counterexample(tables: BoundaryTables, u: tuple[int, ...], v: tuple[int, ...]) -> tuple[bytes, bytes] | None:
    """Surroundings (x, y) for which x·u and v·y apart give other values than x·u·v·y. A search of the products of two
    runs (whole against alone), with no notion of equivalent states: None proves that there are none.
    """
    return right_half_differs(tables, u, v) or left_half_differs(tables, u, v)


def right_half_differs(
    tables: BoundaryTables, u: tuple[int, ...], v: tuple[int, ...], *, at_bar: bool = True
) -> tuple[bytes, bytes] | None:
    """`at_bar`: what comes out at the bar itself counts."""
    lefts, rights, matrix = left_rows(tables), right_rows(tables), matrix_rows(tables)
    behind = right_access(tables)
    queue: deque[tuple[int, int, bytes, bytes]] = deque()  # left states whole and alone, x, what was read of v·y
    for state, x in left_access(tables).items():
        for c in u:
            state = lefts[state][c]
        queue.append((state, tables.left_start, x, b""))
    seen: set[tuple[int, int, int]] = set()
    while queue:
        whole, alone, x, read = queue.popleft()
        node = (min(len(read), len(v)), whole, alone)
        if node in seen:
            continue
        seen.add(node)
        for c in v[len(read) : len(read) + 1] or range(tables.n_class):
            for r, rest in behind.items():
                ahead = bytes((c, *v[len(read) + 1 :])) + rest  # the whole rest of the text
                for d in reversed(ahead[: len(ahead) - len(rest)]):
                    r = rights[r][d]
                if (at_bar or read) and matrix[whole][r] != matrix[alone][r]:
                    return x, (read + ahead)[len(v) :]
            queue.append((lefts[whole][c], lefts[alone][c], x, read + bytes((c,))))
    return None


def left_half_differs(tables: BoundaryTables, u: tuple[int, ...], v: tuple[int, ...]) -> tuple[bytes, bytes] | None:
    lefts, rights, matrix = left_rows(tables), right_rows(tables), matrix_rows(tables)
    before = left_access(tables)
    queue: deque[tuple[int, int, bytes, bytes]] = deque()  # right states whole and alone, y, what was read of x·u
    for state, y in right_access(tables).items():
        for c in reversed(v):
            state = rights[state][c]
        queue.append((state, tables.right_end, y, b""))
    seen: set[tuple[int, int, int]] = set()
    while queue:
        whole, alone, y, read = queue.popleft()
        node = (min(len(read), len(u)), whole, alone)
        if node in seen:
            continue
        seen.add(node)
        unread = u[: max(0, len(u) - len(read))]
        for c in unread[-1:] or range(tables.n_class):
            a, b = rights[whole][c], rights[alone][c]
            for state, text in before.items():
                ahead = text + bytes(unread[:-1])  # the whole text before c
                for d in unread[:-1]:
                    state = lefts[state][d]
                if matrix[state][a] != matrix[state][b]:
                    everything = ahead + bytes((c,)) + read
                    return everything[: len(everything) - len(u)], y
            queue.append((a, b, y, bytes((c,)) + read))
    return None


@parametrize_cases()
def test_counts_are_the_published_ones(case: SplitCase) -> None:
    tables, cuts = case.tables, static_cuts(case.tables)
    counts = (sum(cuts.pair), sum(cuts.left_triple), sum(cuts.right_triple))
    known = KNOWN_COUNTS.get((tables.n_class, tables.n_left, tables.n_right))
    if known is None:
        pytest.skip("no published count for this shape of tables")
    assert counts == known


@parametrize_cases(shared_only=True)
def test_cuts_equal_the_published_ones(case: SplitCase) -> None:
    cuts, n = static_cuts(case.tables), case.tables.n_class
    assert case.cuts is not None
    expected = {
        *(((a,), (b,)) for a, b in case.cuts[0]),
        *(((a, b), (c,)) for a, b, c in case.cuts[1]),
        *(((a,), (b, c)) for a, b, c in case.cuts[2]),
    }
    assert {context for context, cut in zip(contexts(n), flat(cuts), strict=True) if cut} == expected


@parametrize_cases()
def test_cuts_are_what_the_product_search_leaves(case: SplitCase) -> None:
    """Sampled over the contexts, since the search is slow; complete on small machines below."""
    tables, rng = case.tables, random.Random(1)
    everything = list(zip(contexts(tables.n_class), flat(static_cuts(tables)), strict=True))
    for (u, v), cut in rng.sample(everything, min(150, len(everything))):
        found = counterexample(tables, u, v)
        assert (found is None) == bool(cut), (u, v, found)
        if found is not None:
            x, y = found
            assert breaks(tables, x + bytes(u), bytes(v) + y), (u, v, found)


def test_cuts_are_exact_on_random_machines() -> None:
    rng = random.Random(2)
    cut_count = refused = 0
    for _ in range(250):
        tables = random_tables(rng)
        for (u, v), cut in zip(contexts(tables.n_class), flat(static_cuts(tables)), strict=True):
            found = counterexample(tables, u, v)
            assert (found is None) == bool(cut), (tables, u, v, found)
            if found is None:
                cut_count += 1
            else:
                refused += 1
                x, y = found
                assert breaks(tables, x + bytes(u), bytes(v) + y), (u, v, found)
    assert cut_count > 500
    assert refused > 500


def test_inner_cuts_are_exact_on_random_machines() -> None:
    """All but the bar itself comes out as it does for the two halves alone."""
    rng, cut_count, refused = random.Random(3), 0, 0
    for _ in range(250):
        tables = random_tables(rng)
        tables = dataclasses.replace(tables, matrix=bytes(value & 1 for value in tables.matrix))
        cuts = static_cuts(tables)
        for a, b in itertools.product(range(tables.n_class), repeat=2):
            found = right_half_differs(tables, (a,), (b,), at_bar=False) or left_half_differs(tables, (a,), (b,))
            assert (found is None) == bool(cuts.inner[a * tables.n_class + b]), (tables, a, b, found)
            cut_count += found is None
            refused += found is not None
        assert all(x <= y for x, y in zip(cuts.pair, cuts.inner, strict=True))
    assert cut_count > 300
    assert refused > 300


def test_no_inner_cuts_where_pieces_may_be_dropped() -> None:
    tables = BoundaryTables(1, 1, 1, bytes(1), bytes(1), b"\2", 0, 0, (), (97,))
    assert static_cuts(tables).inner == b""


@parametrize_cases()
def test_triples_contain_the_pairs(case: SplitCase) -> None:
    n, cuts = case.tables.n_class, static_cuts(case.tables)
    for a, b, c in itertools.product(range(n), repeat=3):
        assert cuts.left_triple[(a * n + b) * n + c] >= cuts.pair[b * n + c]
        assert cuts.right_triple[(a * n + b) * n + c] >= cuts.pair[a * n + b]


def test_many_classes_have_pairs_only() -> None:
    n = MAX_TRIPLE_CLASSES + 1
    tables = BoundaryTables(n, 1, 1, bytes(n), bytes(n), b"\1", 0, 0, (), tuple(range(n)))
    assert static_cuts(tables) == Cuts(bytes([1] * n * n), b"", b"", bytes([1] * n * n))
    fewer = dataclasses.replace(tables, n_class=n - 1, left=bytes(n - 1), right=bytes(n - 1))
    assert len(static_cuts(fewer).left_triple) == (n - 1) ** 3


def test_a_dropped_piece_is_cut_only_where_it_is_dropped_alone_too() -> None:
    """Class 1 is dropped, except at the start of a text: a position before it starts a piece always, yet is no cut."""
    tables = BoundaryTables(
        n_class=2,
        n_left=2,
        n_right=3,
        left=bytes([1, 1, 1, 1]),
        right=bytes([1, 2, 1, 2, 1, 2]),
        matrix=bytes([0, 1, 1, 0, 1, 2]),
        left_start=0,
        right_end=0,
        class_ranges=(),
        representatives=(97, 98),
    )
    assert run_two_pass(tables, bytes([0, 1, 1])) == bytes([1, 2, 2])
    assert run_two_pass(tables, bytes([1, 1])) == bytes([1, 2])
    assert static_cuts(tables).pair == bytes([1, 0, 1, 0])
    fault = renewal_fault(tables)
    assert fault is not None
    assert_fault(tables, *fault)


@parametrize_cases()
def test_every_piece_start_renews(case: SplitCase) -> None:
    assert renewal_fault(case.tables) is None


def assert_fault(tables: BoundaryTables, u: bytes, v: bytes) -> None:
    whole, alone = run_two_pass(tables, u + v), run_two_pass(tables, v)
    assert u
    assert v
    assert whole[len(u)] != 0, "a piece starts between the two"
    assert whole[len(u) :] != alone


def test_renewal_is_decided_exactly_on_random_machines() -> None:
    rng = random.Random(4)
    faults = renewing = 0
    for _ in range(200):
        tables = random_tables(rng, max_states=3)
        fault = renewal_fault(tables)
        if fault is not None:
            faults += 1
            assert_fault(tables, *fault)
            continue
        renewing += 1
        for length in range(2, 7):
            for text in itertools.product(range(tables.n_class), repeat=length):
                values = run_two_pass(tables, bytes(text))
                for i in range(1, length):
                    if values[i]:
                        assert values[i:] == run_two_pass(tables, bytes(text[i:])), (tables, text, i)
    assert faults > 30
    assert renewing > 10


def test_access_by_a_non_empty_text_leads_to_the_state() -> None:
    rng = random.Random(5)
    for _ in range(100):
        tables = random_tables(rng)
        lefts, rights = left_rows(tables), right_rows(tables)
        for state, text in nonempty_access(left_access(tables), lefts, backwards=False).items():
            reached = tables.left_start
            for c in text:
                reached = lefts[reached][c]
            assert (reached, bool(text)) == (state, True)
        for state, text in nonempty_access(right_access(tables), rights, backwards=True).items():
            reached = tables.right_end
            for c in reversed(text):
                reached = rights[reached][c]
            assert (reached, bool(text)) == (state, True)
