"""Program and right automaton → boundary tables of one Split.

With the right automaton's answers nothing is left of backtracking: at every choice the engine's way is the first branch
that does not fail. A *place* is where the engine stands after a character: a program point, the gap between matches, or
the start of the text. Place and right state decide the boundary here and the place after the next character. Read for
all right states at once, the place becomes a function of the right state, and the left automaton independent of it.
Not here: several Splits in a row (`toktier.program.compose`).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from operator import itemgetter

from toktier.program.boundary_limits import Budget, check_raw_states
from toktier.program.canonical_tables import BOUNDARY, DROPPED, NO_BOUNDARY, TwoSided, minimize
from toktier.program.regex_program import Op, Program
from toktier.program.right_automaton import MATCHES, RightAutomaton


class Between(enum.IntEnum):
    """What meets at a position."""

    NOTHING = 0  # inside a match or a gap, or the end of the text
    MATCH_MATCH = 1
    MATCH_GAP = 2
    GAP_MATCH = 3
    START_MATCH = 4
    START_GAP = 5


def boundary_values(behavior: str, invert: bool) -> tuple[int, ...]:
    """The matrix value for each Between under a Split behaviour; `invert` exchanges matches and gaps. KeyError for an
    unknown behaviour."""
    values = dict.fromkeys(Between, BOUNDARY)
    values[Between.NOTHING] = NO_BOUNDARY
    into_match, into_gap = Between.GAP_MATCH, Between.MATCH_GAP
    if invert:
        into_match, into_gap = into_gap, into_match
    match behavior:
        case "Isolated":
            pass
        case "Contiguous":
            values[Between.MATCH_MATCH] = NO_BOUNDARY
        case "MergedWithPrevious":
            values[into_match] = NO_BOUNDARY
        case "MergedWithNext":
            values[into_gap] = NO_BOUNDARY
        case "Removed":
            dropped = (
                (Between.MATCH_GAP, Between.START_GAP)
                if invert
                else (Between.MATCH_MATCH, Between.GAP_MATCH, Between.START_MATCH)
            )
            values.update(dict.fromkeys(dropped, DROPPED))
        case _:
            raise KeyError(behavior)
    return tuple(values[kind] for kind in Between)


@dataclass(frozen=True, slots=True)
class _Places:
    """`kind[place][r]` and `after[place][r]`; -1 where the place cannot meet right state r. Place 0: the start of the
    text."""

    kind: list[list[int]]
    after: list[list[int]]


def build_tables(
    program: Program, right: RightAutomaton, n_class: int, behavior: str, invert: bool, budget: Budget
) -> TwoSided:
    """The minimal two-sided tables of Split(pattern, behavior, invert)."""
    places = _follow(program, right, budget)
    class_of_state, step = _reduce_right(places, right, budget)
    representative = [class_of_state.index(k) for k in range(len(step))]
    kind = [[row[r] for r in representative] for row in places.kind]
    after = [[row[r] for r in representative] for row in places.after]

    # The right state of the end is never the state after a character is prepended, so what stands there is not read.
    values = boundary_values(behavior, invert)
    n_right = len(step)
    prepend = [itemgetter(*[step[r][c] for r in range(n_right)]) for c in range(n_class)]
    states: list[tuple[int, ...]] = [(0,) * n_right]
    number = {states[0]: 0}
    left: list[tuple[int, ...]] = []
    matrix: list[bytes] = []
    for state in states:
        check_raw_states(len(states))
        budget.spend(n_right * (n_class + 1))
        matrix.append(bytes(values[kind[place][r]] for r, place in enumerate(state)))
        moved = [after[place][r] for r, place in enumerate(state)]
        assert min(moved) >= 0, "a place met a right state under which it cannot match"
        row = []
        for take in prepend:
            target = take(moved)
            if target not in number:
                number[target] = len(states)
                states.append(target)
            row.append(number[target])
        left.append(tuple(row))
    return minimize(TwoSided(tuple(left), step, tuple(matrix)), budget)


def _follow(program: Program, right: RightAutomaton, budget: Budget) -> _Places:
    """The engine's way from every place under every right state."""
    start_place, gap_place = 0, 1
    continuations = sorted({program.first[p] for p, op in enumerate(program.op) if op is Op.CHAR})
    place_of = {point: k + 2 for k, point in enumerate(continuations)}
    budget.spend(len(right.values) * len(program.op))

    def ways(values: bytes) -> list[int]:
        """For each point, on the way that the engine takes from it: the place after the next character, or `ends`.
        Means nothing for a point that does not match."""
        way = base_way.copy()
        for point in program.order:
            first = program.first[point]
            if program.op[point] is Op.SPLIT and values[first] == program.level[point] + 1:
                first = program.second[point]
            way[point] = way[first]
        return way

    ends = -1  # the match ends before the next character
    base_way = [
        place_of.get(first, ends) if op is Op.CHAR else ends
        for op, first in zip(program.op, program.first, strict=True)
    ]
    kind = [[-1] * len(right.values) for _ in range(len(continuations) + 2)]
    after = [[-1] * len(right.values) for _ in range(len(continuations) + 2)]
    end = 0
    for place in range(len(kind)):
        kind[place][end], after[place][end] = Between.NOTHING, gap_place
    for r, values in enumerate(right.values):
        if r == end:
            continue
        way = ways(values)
        # A new match, or a gap where none starts, is the same from everywhere.
        starts = values[program.start] == MATCHES
        fresh = way[program.start] if starts else gap_place
        assert fresh != ends, "a pattern that matches the empty text was compiled"
        kind[start_place][r] = Between.START_MATCH if starts else Between.START_GAP
        kind[gap_place][r] = Between.GAP_MATCH if starts else Between.NOTHING
        after[start_place][r] = after[gap_place][r] = fresh
        for point in continuations:
            if values[point] != MATCHES:
                continue
            place = place_of[point]
            if way[point] != ends:
                kind[place][r], after[place][r] = Between.NOTHING, way[point]
            else:
                kind[place][r] = Between.MATCH_MATCH if starts else Between.MATCH_GAP
                after[place][r] = fresh
    return _Places(kind, after)


def _reduce_right(
    places: _Places, right: RightAutomaton, budget: Budget
) -> tuple[list[int], tuple[tuple[int, ...], ...]]:
    """Merges right states that send every place the same way (a first, cheap reduction: `minimize` finishes it). Gives
    the merged state of each state, the end staying 0, and the merged steps."""
    columns = list(zip(*places.kind, *places.after, strict=True))
    rank: dict[tuple[int, ...], int] = {}
    # Nothing joins the end: only there does the start of the text meet nothing.
    block = [rank.setdefault(column, len(rank)) for column in columns]
    while True:
        budget.spend(len(block) * len(right.step[0]))
        rank = {}
        refined = [rank.setdefault((block[r], *(block[t] for t in row)), len(rank)) for r, row in enumerate(right.step)]
        if len(rank) == max(block) + 1:
            break
        block = refined
    representative = [block.index(k) for k in range(max(block) + 1)]
    step = tuple(tuple(block[t] for t in right.step[r]) for r in representative)
    return block, step
