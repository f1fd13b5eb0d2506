"""Right automaton of a program: read from the end of the text backwards, it knows what matches at every position.

A state gives each program point its *value* at the current position: 0, its preferred way leads to a match of the whole
pattern; k + 1, no way leads through level k (at level 0: no match). Inside an atomic group of level k the preferred way
out of the group is the only one that counts, and when the rest fails behind it, the value is that failure's, of a lower
level: the group has a way, and therefore no other is tried. The end of the text is a state of its own, even where no
other state could tell it from "nothing matches here". Not here: what is done with the answers
(`toktier.program.left_automaton`).
"""

from __future__ import annotations

from dataclasses import dataclass

from toktier.program.boundary_limits import Budget, check_raw_states
from toktier.program.regex_program import MATCH_POINT, Op, Program

MATCHES = 0


@dataclass(frozen=True, slots=True)
class RightAutomaton:
    """`values[r][point]`; `step[r][class]`: the state one character further left. State 0: the end of the text."""

    values: tuple[bytes, ...]
    step: tuple[tuple[int, ...], ...]


def build_right_automaton(program: Program, members: tuple[int, ...], n_class: int, budget: Budget) -> RightAutomaton:
    """`members[k]`: bit mask over the classes of set number k of the program."""
    n = len(program.op)
    failed = bytes(0 if op is Op.MATCH else level + 1 for op, level in zip(program.op, program.level, strict=True))
    chars = [p for p in range(n) if program.op[p] is Op.CHAR]
    taken = [
        [(p, program.first[p]) for p in chars if members[program.second[p]] >> c & 1] for c in range(n_class)
    ]  # by class: points that take it, and where they continue
    steps = [(program.op[p], p, program.first[p], program.second[p], program.level[p] + 1) for p in program.order]

    def settle(values: bytearray, at_end: bool) -> bytes:
        """Values of the points that take no character, from those that do."""
        for op, point, first, second, fails in steps:
            if op is Op.SPLIT:
                value = values[first]
                values[point] = values[second] if value == fails else value
            elif op is Op.ATOM_END:
                values[point] = values[first]
            elif op is Op.ATOMIC:
                value = values[first]
                values[point] = fails if value == fails + 1 else value
            elif op is Op.LOOK:
                values[point] = values[first] if values[second] == MATCHES else fails
            elif op is Op.NOT_LOOK:
                values[point] = fails if values[second] == MATCHES else values[first]
            else:
                values[point] = values[first] if at_end else fails
        return bytes(values)

    end = settle(bytearray(failed), at_end=True)
    states = [end]
    number: dict[bytes, int] = {}  # without the end of the text, which is never entered again
    step: list[tuple[int, ...]] = []
    for state in states:
        check_raw_states(len(states))
        budget.spend(n * n_class)
        row = []
        for takers in taken:
            values = bytearray(failed)
            for point, after in takers:
                values[point] = state[after]
            settled = settle(values, at_end=False)
            found = number.get(settled)
            if found is None:
                found = number[settled] = len(states)
                states.append(settled)
            row.append(found)
        step.append(tuple(row))
    return RightAutomaton(tuple(states), tuple(step))


assert MATCH_POINT == 0  # `failed` gives MATCH the value 0
