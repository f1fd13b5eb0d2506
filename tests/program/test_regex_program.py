"""Programs have the size that is foretold, an order that settles every point, and the values of the right automaton are
the answers of a plain backtracking matcher."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.support.regex_oracle import match
from tests.support.regex_strategies import LETTERS, patterns
from toktier.program.boundary_limits import MAX_POINTS, Budget, Unsupported
from toktier.program.class_map import classify, spans
from toktier.program.regex_program import MATCH_POINT, Op, Program, _size, compile_program
from toktier.program.regex_syntax import parse
from toktier.program.regex_tree import Node
from toktier.program.right_automaton import MATCHES, RightAutomaton, build_right_automaton

law = settings(
    deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


def parsed(pattern: str) -> Node:
    try:
        return parse(pattern)
    except Unsupported:
        assume(False)
        raise


@law
@given(patterns())
def test_law_sizes_are_foretold_and_orders_complete(pattern: str) -> None:
    tree = parsed(pattern)
    program = compile_program(tree)
    assert len(program.op) == _size(tree) + 1
    settled = {p for p, op in enumerate(program.op) if op in (Op.CHAR, Op.MATCH)}
    for point in program.order:
        assert point not in settled
        needs = [program.first[point]]
        if program.op[point] in (Op.SPLIT, Op.LOOK, Op.NOT_LOOK):
            needs.append(program.second[point])
        assert settled.issuperset(needs)
        settled.add(point)
    assert len(settled) == len(program.op)


@law
@given(patterns(), st.text(LETTERS, max_size=7))
def test_law_the_right_automaton_knows_where_a_match_starts(pattern: str, text: str) -> None:
    tree = parsed(pattern)
    program, right, class_of = automaton(tree)
    state = 0
    for at in range(len(text), -1, -1):
        if at < len(text):
            state = right.step[state][class_of(text[at])]
        found = match(tree, text, at, lambda end: end) is not None
        assert (right.values[state][program.start] == MATCHES) == found, (pattern, text, at)


def automaton(tree: Node) -> tuple[Program, RightAutomaton, Callable[[str], int]]:
    program = compile_program(tree)
    classes = classify(program.sets)
    right = build_right_automaton(program, classes.members, classes.n_class, Budget())

    def class_of(char: str) -> int:
        return next(number for first, last, number in classes.ranges if first <= ord(char) <= last)

    return program, right, class_of


def test_the_end_of_the_text_is_a_state_of_its_own() -> None:
    """Nothing matches at the end, nor in front of b: still two states."""
    _, right, class_of = automaton(parse("a"))
    assert right.values[0] == right.values[right.step[0][class_of("b")]]
    assert all(target != 0 for row in right.step for target in row)


@pytest.mark.parametrize(
    ("pattern", "ops"),
    [
        ("ab", [Op.MATCH, Op.CHAR, Op.CHAR]),
        ("a|b", [Op.MATCH, Op.CHAR, Op.CHAR, Op.SPLIT]),
        ("a+", [Op.MATCH, Op.SPLIT, Op.CHAR]),
        ("a{2}", [Op.MATCH, Op.CHAR, Op.CHAR]),
        ("a{2,}", [Op.MATCH, Op.SPLIT, Op.CHAR, Op.CHAR]),
        ("(?>a)", [Op.MATCH, Op.ATOM_END, Op.CHAR, Op.ATOMIC]),
        (r"a(?!b)\z", [Op.MATCH, Op.END, Op.CHAR, Op.NOT_LOOK, Op.CHAR]),
    ],
)
def test_programs(pattern: str, ops: list[Op]) -> None:
    program = compile_program(parse(pattern))
    assert program.op == ops
    assert program.op[MATCH_POINT] is Op.MATCH


def test_lazy_and_greedy_differ_in_their_preference_alone() -> None:
    greedy, lazy = (compile_program(parse(p)) for p in ("a{1,3}b", "a{1,3}?b"))
    splits = [p for p, op in enumerate(greedy.op) if op is Op.SPLIT]
    assert len(splits) == 2
    for p in splits:
        assert (greedy.first[p], greedy.second[p]) == (lazy.second[p], lazy.first[p])


def test_levels_are_those_of_atomic_groups() -> None:
    program = compile_program(parse("a(?>b(?>c)(?=d))"))
    chars = [p for p, op in enumerate(program.op) if op is Op.CHAR]
    level = {program.sets[program.second[p]]: program.level[p] for p in chars}
    assert level == {spans([(ord(c), ord(c))]): k for c, k in (("a", 0), ("b", 1), ("c", 2), ("d", 0))}


def test_the_size_is_bounded_before_the_program_is_built() -> None:
    assert len(compile_program(parse(f"a{{{MAX_POINTS - 1}}}")).op) == MAX_POINTS
    for pattern in (f"a{{{MAX_POINTS}}}", "(?:" * 20 + "a" + "){999}" * 20, "(?:a{0,500}b){500}"):
        with pytest.raises(Unsupported, match="program points"):
            compile_program(parse(pattern))
