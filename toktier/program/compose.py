"""Two stages of a pre-tokenizer → the tables of both: the second sees every piece of the first as a text of its own.

Where the first stage has a boundary the second starts afresh, on both sides of it. Which boundaries the first has is
not known from one side alone, so the composite left state is (left state of the first, the second's left state for
every right state of the first), and the right state likewise. A piece that the first stage drops is not seen by the
second: its left state is then the *dropped* one, which has no boundaries. Not here: what one stage does
(`toktier.program.left_automaton`).
"""

from __future__ import annotations

from toktier.program.boundary_limits import Budget, check_raw_states
from toktier.program.canonical_tables import DROPPED, TwoSided, minimize


def compose(first: TwoSided, second: TwoSided, budget: Budget) -> TwoSided:
    """The minimal tables of `first` and then `second`, both over the same classes."""
    left_states, left = _left_automaton(first, second, budget)
    right_states, right = _right_automaton(first, second, budget)
    budget.spend(len(left_states) * len(right_states))
    matrix = []
    for left_first, left_second in left_states:
        row = bytearray()
        for right_first, right_second in right_states:
            value = first.matrix[left_first][right_first]
            if value == 0:
                place = left_second[right_first]
                value = 0 if place == len(second.left) else second.matrix[place][right_second[left_first]]
            elif value != DROPPED:
                value = second.matrix[0][right_second[left_first]]
            row.append(value)
        matrix.append(bytes(row))
    return minimize(TwoSided(left, right, tuple(matrix)), budget)


_States = list[tuple[int, tuple[int, ...]]]
_Steps = tuple[tuple[int, ...], ...]


def _left_automaton(first: TwoSided, second: TwoSided, budget: Budget) -> tuple[_States, _Steps]:
    """States (left of first, for every right state of first at this position: left of second, boundary here not yet
    taken into account). The second's left state len(second.left) is the dropped one."""
    n_right, n_class = len(first.right), first.n_class
    dropped = len(second.left)
    second_left = (*second.left, (dropped,) * n_class)
    sources = [[row[c] for row in first.right] for c in range(n_class)]
    states: _States = [(0, (0,) * n_right)]
    number = {states[0]: 0}
    step: list[tuple[int, ...]] = []
    for left_first, left_second in states:
        check_raw_states(len(states))
        budget.spend(n_right * n_class)
        here = [
            place if value == 0 else dropped if value == DROPPED else 0
            for place, value in zip(left_second, first.matrix[left_first], strict=True)
        ]
        row = []
        for c in range(n_class):
            target = (first.left[left_first][c], tuple(second_left[here[r]][c] for r in sources[c]))
            if target not in number:
                number[target] = len(states)
                states.append(target)
            row.append(number[target])
        step.append(tuple(row))
    return states, tuple(step)


def _right_automaton(first: TwoSided, second: TwoSided, budget: Budget) -> tuple[_States, _Steps]:
    """States (right of first, for every left state of first at this position: right of second, boundary here not yet
    taken into account)."""
    n_left, n_class = len(first.left), first.n_class
    columns = [bytes(column) for column in zip(*first.matrix, strict=True)]
    targets = [[row[c] for row in first.left] for c in range(n_class)]
    states: _States = [(0, (0,) * n_left)]
    number = {states[0]: 0}
    step: list[tuple[int, ...]] = []
    for right_first, right_second in states:
        check_raw_states(len(states))
        budget.spend(n_left * n_class)
        here = [0 if value else state for state, value in zip(right_second, columns[right_first], strict=True)]
        row = []
        for c in range(n_class):
            target = (first.right[right_first][c], tuple(second.right[here[t]][c] for t in targets[c]))
            if target not in number:
                number[target] = len(states)
                states.append(target)
            row.append(number[target])
        step.append(tuple(row))
    return states, tuple(step)
