"""The canonical form of a boundary function: two minimal automata that do not depend on each other, and a matrix.

`out(u, v) = matrix[left state after u][right state of v]` for a text uv with the position after u: 0, no piece starts
there; 1, one does; 2, one does and is dropped. Equal functions get equal tables: states that no continuation separates
are merged (left by rows, right by columns), classes that no state separates are merged, states are numbered breadth
first in class order. Position 0 of a text that is not empty counts as a boundary, the end of the text never does.
Not here: where tables come from (`left_automaton`, `compose`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from toktier.program.boundary_limits import MAX_STATES, Budget, Unsupported, check_raw_states

NO_BOUNDARY, BOUNDARY, DROPPED = 0, 1, 2


@dataclass(frozen=True, slots=True)
class TwoSided:
    """`left[state][class]` read forwards from state 0; `right[state][class]` read backwards from state 0, the end of
    the text; `matrix[left][right]`."""

    left: tuple[tuple[int, ...], ...]
    right: tuple[tuple[int, ...], ...]
    matrix: tuple[bytes, ...]

    @property
    def n_class(self) -> int:
        return len(self.left[0])


def minimize(tables: TwoSided, budget: Budget) -> TwoSided:
    """The smallest tables of the same function over the same classes. All states must be reachable."""
    columns = tuple(bytes(column) for column in zip(*tables.matrix, strict=True))
    left_block = _blocks(tables.left, tables.matrix, budget)
    right_block = _blocks(tables.right, columns, budget)
    left, left_of = _renumber(tables.left, left_block)
    right, right_of = _renumber(tables.right, right_block)
    matrix = tuple(bytes(tables.matrix[i][j] for j in right_of) for i in left_of)
    return TwoSided(left, right, matrix)


def merge_classes(tables: TwoSided) -> tuple[TwoSided, tuple[int, ...]]:
    """Tables over the classes that their states can tell apart, and the new number of each old class."""
    number: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
    kept: list[int] = []
    merged = []
    signatures = zip(zip(*tables.left, strict=True), zip(*tables.right, strict=True), strict=True)
    for old, signature in enumerate(signatures):
        if signature not in number:
            number[signature] = len(number)
            kept.append(old)
        merged.append(number[signature])
    left = tuple(tuple(row[c] for c in kept) for row in tables.left)
    right = tuple(tuple(row[c] for c in kept) for row in tables.right)
    return TwoSided(left, right, tables.matrix), tuple(merged)


def join_dropped(tables: TwoSided, budget: Budget) -> TwoSided:
    """A dropped piece right after a dropped piece is one dropped piece: what is kept does not change, and the function
    depends on nothing else any more. The left state remembers, for every right state, whether the piece before is
    dropped."""
    if not any(DROPPED in row for row in tables.matrix):
        return tables
    n_right, n_class = len(tables.right), tables.n_class
    sources = [[row[c] for row in tables.right] for c in range(n_class)]
    states: list[tuple[int, bytes]] = [(0, bytes(n_right))]
    number = {states[0]: 0}
    left: list[tuple[int, ...]] = []
    matrix: list[bytes] = []
    for state, dropped in states:
        check_raw_states(len(states))
        budget.spend(n_right * (n_class + 1))
        row = tables.matrix[state]
        matrix.append(bytes(0 if v == DROPPED and d else v for v, d in zip(row, dropped, strict=True)))
        now = bytes(v == DROPPED if v else d for v, d in zip(row, dropped, strict=True))
        nexts = []
        for c in range(n_class):
            target = (tables.left[state][c], bytes(now[r] for r in sources[c]))
            if target not in number:
                number[target] = len(states)
                states.append(target)
            nexts.append(number[target])
        left.append(tuple(nexts))
    return minimize(TwoSided(tuple(left), tables.right, tuple(matrix)), budget)


def _blocks(step: Sequence[Sequence[int]], output: Sequence[Hashable], budget: Budget) -> list[int]:
    """The block of each state in the coarsest partition that respects outputs and steps (Moore's refinement)."""
    block = _ranked(output)
    while True:
        n = max(block) + 1
        if n > MAX_STATES:
            raise Unsupported("regex too large", f"its minimal automaton has more than {MAX_STATES} states")
        budget.spend(len(step) * len(step[0]))
        block = _ranked([(block[i], *[block[j] for j in row]) for i, row in enumerate(step)])
        if max(block) + 1 == n:
            return block


def _ranked(keys: Sequence[Hashable]) -> list[int]:
    rank: dict[Hashable, int] = {}
    return [rank.setdefault(key, len(rank)) for key in keys]


def _renumber(step: Sequence[Sequence[int]], block: Sequence[int]) -> tuple[tuple[tuple[int, ...], ...], list[int]]:
    """The automaton of the blocks, breadth first from the block of state 0, and one old state of each new one."""
    member = {b: i for i, b in reversed(list(enumerate(block)))}
    number = {block[0]: 0}
    queue = [block[0]]
    rows: list[tuple[int, ...]] = []
    for b in queue:
        row = []
        for target in step[member[b]]:
            t = block[target]
            if t not in number:
                number[t] = len(queue)
                queue.append(t)
            row.append(number[t])
        rows.append(tuple(row))
    return tuple(rows), [member[b] for b in queue]
