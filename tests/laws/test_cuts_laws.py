"""Laws of the derived forms. Cuts: the reference splits the two sides apart as it splits the whole, whatever surrounds
the cut. Token automaton: one read gives what two passes give. Each on every pattern at hand and on random machines."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.boundary_cases import (
    Span,
    SplitCase,
    parametrize_cases,
    random_classes,
    random_tables,
    reference_spans,
)
from tests.support.tiers import blocks_of_seeds
from toktier.program.cuts import Cuts, static_cuts
from toktier.program.equivalence import first_difference
from toktier.program.interpret import run_token_automaton, run_two_pass
from toktier.program.token_automaton import build_token_automaton

seeds = st.integers(0, 2**32 - 1)


def kinds_of_cut(cuts: Cuts, n: int, classes: bytes, i: int) -> list[str]:
    """Which contexts make position i (0 < i < len) of the class string a cut."""
    kinds = []
    b, c = classes[i - 1], classes[i]
    if cuts.pair[b * n + c]:
        kinds.append("pair")
    if i >= 2 and cuts.left_triple[(classes[i - 2] * n + b) * n + c]:
        kinds.append("left")
    if i + 1 < len(classes) and cuts.right_triple[(b * n + c) * n + classes[i + 1]]:
        kinds.append("right")
    return kinds


def hostile_surroundings(case: SplitCase, cuts: Cuts, count: int, rng: random.Random) -> list[tuple[bytes, int]]:
    """Every cut context, in turn, between runs, alternations and noise of any length from 0; and its position."""
    n = case.tables.n_class
    contexts = [
        *((bytes(t), 1) for t, cut in zip(itertools.product(range(n), repeat=2), cuts.pair, strict=True) if cut),
        *((bytes(t), 2) for t, cut in zip(itertools.product(range(n), repeat=3), cuts.left_triple, strict=True) if cut),
        *(
            (bytes(t), 1)
            for t, cut in zip(itertools.product(range(n), repeat=3), cuts.right_triple, strict=True)
            if cut
        ),
    ]
    rng.shuffle(contexts)
    result = []
    for (context, bar), _ in zip(itertools.cycle(contexts), range(count), strict=False):
        before, after = (random_classes(rng, n, rng.choice([0, 1, 2, 3, 8, 25])) for _ in range(2))
        result.append((before + context + after, len(before) + bar))
    return result


def check_cuts_against_reference(case: SplitCase, count: int, seed: int) -> None:
    rng, cuts = random.Random(seed), static_cuts(case.tables)
    assert any(cuts.pair), "a pattern without any cut proves nothing here"
    texts = [(case.text(classes, rng), i) for classes, i in hostile_surroundings(case, cuts, count, rng)]
    reference = case.reference()
    whole = reference_spans(reference, [text for text, _ in texts])
    left = reference_spans(reference, [text[:i] for text, i in texts])
    right = reference_spans(reference, [text[i:] for text, i in texts])
    for (text, i), pieces, before, after in zip(texts, whole, left, right, strict=True):
        assert pieces == before + moved(after, i), (text[:i], text[i:])


def moved(pieces: list[Span], distance: int) -> list[Span]:
    return [(begin + distance, end + distance) for begin, end in pieces]


@parametrize_cases()
def test_law_reference_splits_the_sides_of_a_cut_as_it_splits_the_whole(case: SplitCase) -> None:
    check_cuts_against_reference(case, count=6_000, seed=11)


@pytest.mark.parametrize("seed", blocks_of_seeds(3, in_ci=1))
@parametrize_cases()
def test_law_reference_splits_the_sides_of_a_cut_as_it_splits_the_whole_at_length(case: SplitCase, seed: int) -> None:
    check_cuts_against_reference(case, count=10_000, seed=seed)


@parametrize_cases()
def test_law_reference_may_be_cut_at_every_cut_of_a_text_at_once(case: SplitCase) -> None:
    """All cuts of one text together: what threads and tiles do."""
    rng, cuts, n = random.Random(12), static_cuts(case.tables), case.tables.n_class
    reference, parts, texts, begins = case.reference(), [], [], []
    kinds: set[str] = set()
    for _ in range(150):
        classes = random_classes(rng, n, rng.randint(2, 120))
        found = {i: kinds_of_cut(cuts, n, classes, i) for i in range(1, len(classes))}
        kinds.update(*found.values())
        bars = [0, *(i for i, kind in found.items() if kind), len(classes)]
        texts.append(case.text(classes, rng))
        begins.append(bars[:-1])
        parts.append([texts[-1][a:b] for a, b in itertools.pairwise(bars)])
    assert kinds == {"pair", "left", "right"}
    whole = reference_spans(reference, texts)
    pieces = iter(reference_spans(reference, [part for row in parts for part in row]))
    for expected, offsets in zip(whole, begins, strict=True):
        assert expected == [span for offset in offsets for span in moved(next(pieces), offset)]


@settings(max_examples=150, deadline=None)
@given(seed=seeds)
def test_law_a_cut_of_any_machine_holds_in_any_surroundings(seed: int) -> None:
    rng = random.Random(seed)
    tables = random_tables(rng)
    cuts, n = static_cuts(tables), tables.n_class
    for _ in range(20):
        classes = random_classes(rng, n, rng.randint(2, 30))
        values = run_two_pass(tables, classes)
        for i in range(1, len(classes)):
            if kinds_of_cut(cuts, n, classes, i):
                assert values == run_two_pass(tables, classes[:i]) + run_two_pass(tables, classes[i:]), (tables, i)


@settings(max_examples=150, deadline=None)
@given(seed=seeds)
def test_law_token_automaton_equals_two_pass(seed: int) -> None:
    rng = random.Random(seed)
    tables = random_tables(rng)
    automaton = build_token_automaton(tables)
    if automaton is None:  # refused for cause: tests/program/test_token_automaton.py
        return
    for _ in range(20):
        classes = random_classes(rng, tables.n_class, rng.randint(0, 40))
        assert run_token_automaton(automaton, classes) == run_two_pass(tables, classes)


@settings(max_examples=100, deadline=None)
@given(seed=seeds)
def test_law_first_difference_is_one_and_none_means_equal(seed: int) -> None:
    rng = random.Random(seed)
    a = random_tables(rng, max_states=3)
    b = random_tables(rng, max_states=3)
    if a.n_class != b.n_class:
        with pytest.raises(ValueError, match="cannot be compared"):
            first_difference(a, b)
        b = a
    found = first_difference(a, b)
    if found is not None:
        u, v = found
        assert v
        assert run_two_pass(a, u + v)[len(u)] != run_two_pass(b, u + v)[len(u)]
        return
    for length in range(1, 6):
        for text in itertools.product(range(a.n_class), repeat=length):
            assert run_two_pass(a, bytes(text)) == run_two_pass(b, bytes(text))
