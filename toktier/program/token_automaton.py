"""The one-pass form of boundary tables: reads a text forwards once and says of each position whether a piece starts
there, as soon as every continuation agrees. The byte code of its actions stands in docs/program-format.md.

While a position waits for what follows, its outcome is a function of the right state of the rest. A state is the left
state and those functions, oldest first; reading class c turns a function f into f∘right(c, ·), and a function that is
constant is an outcome. Outcomes must come in ascending order, so a piece start that is known waits behind one that is
not; "no piece starts" needs no waiting, which is what keeps runs of white space at one pending position.

Every table that a split pattern was seen to give needs one or two pending positions and 11 to 25 states. Where three do
not suffice there is no such automaton, and the engine makes two passes.
"""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toktier.program.equivalence import coarsest_partition, left_rows, matrix_rows, right_access, right_rows

if TYPE_CHECKING:
    from toktier.program.boundary import BoundaryTables

MAX_PENDING = 3
MAX_TRANSITIONS = 1 << 16  # states × classes before minimization; real ones have under 2,000

NOT_YET = 3  # action on the new position: it becomes the youngest pending one
_PENDING_CODE = {0: 2, 1: 1, 2: 3}  # outcome of a pending position → its action; 0 stays


@dataclass(frozen=True)
class TokenAutomaton:
    """Tables by state and class, states numbered in breadth-first order from `start` = 0."""

    n_state: int
    n_class: int
    start: int
    next: bytes  # u16 little-endian [n_state * n_class]
    actions: bytes  # u8 [n_state * n_class]
    eof: bytes  # u8 [n_state]: outcomes of pending positions at the end of text, 2 bits each, oldest lowest
    pending: bytes  # u8 [n_state]: how many positions are pending


# Left state, then one function a pending position: 256 bytes, by right state (the first n_right count).
_State = tuple[int, tuple[bytes, ...]]


def build_token_automaton(tables: BoundaryTables) -> TokenAutomaton | None:
    """The minimal one-pass automaton, or None where more than three positions would be pending at once (or more than
    65,536 transitions arise): the tables are then run in two passes.
    """
    n_class, n_right = tables.n_class, tables.n_right
    lefts, rights = left_rows(tables), right_rows(tables)
    reachable = sorted(right_access(tables))
    # columns[c][r]: right state of c·v; as a bytes object, f∘right(c, ·) is columns[c].translate(f).
    columns = [bytes(row[c] for row in rights) for c in range(n_class)]
    outcome_rows = [row + bytes(256 - n_right) for row in matrix_rows(tables)]
    filler = bytes(256 - n_right)

    def compose(function: bytes, c: int) -> bytes:
        return columns[c].translate(function) + filler

    def constant(function: bytes) -> int | None:
        first = function[reachable[0]]
        return first if all(function[r] == first for r in reachable) else None

    def step(state: _State, c: int) -> tuple[_State, int]:
        left, functions = state
        own = compose(outcome_rows[left], c)
        action = 0
        kept: list[bytes] = []
        for k, function in enumerate(functions):
            composed = compose(function, c)
            value = constant(composed)
            if value is None or (value and kept):
                kept.append(composed)
            else:
                action |= _PENDING_CODE[value] << (2 + 2 * k)
        value = constant(own)
        if value is None or (value and kept):
            kept.append(own)
            value = NOT_YET
        return (lefts[left][c], tuple(kept)), action | value

    start: _State = (tables.left_start, ())
    index: dict[_State, int] = {start: 0}
    queue = deque([start])
    rows: list[list[int]] = []
    actions: list[bytes] = []
    while queue:
        state = queue.popleft()
        row, row_actions = [], bytearray()
        for c in range(n_class):
            target, action = step(state, c)
            if target not in index:
                if len(target[1]) > MAX_PENDING or (len(index) + 1) * n_class > MAX_TRANSITIONS:
                    return None
                index[target] = len(index)
                queue.append(target)
            row.append(index[target])
            row_actions.append(action)
        rows.append(row)
        actions.append(bytes(row_actions))
    ends = [
        sum(function[tables.right_end] << (2 * k) for k, function in enumerate(functions)) for _, functions in index
    ]
    counts = [len(functions) for _, functions in index]
    return _minimal(rows, actions, ends, counts)


def _minimal(rows: list[list[int]], actions: list[bytes], ends: list[int], counts: list[int]) -> TokenAutomaton:
    """Merges states with equal behaviour; numbers the rest breadth first, so that equal automata are equal tables."""
    blocks = coarsest_partition(list(zip(actions, ends, counts, strict=True)), rows)
    first = {block: state for state, block in reversed(list(enumerate(blocks)))}
    number, order = {blocks[0]: 0}, [blocks[0]]
    table: list[int] = []
    for block in order:  # grows while it is read
        for target in rows[first[block]]:
            if blocks[target] not in number:
                number[blocks[target]] = len(order)
                order.append(blocks[target])
            table.append(number[blocks[target]])
    states = [first[block] for block in order]
    return TokenAutomaton(
        n_state=len(order),
        n_class=len(rows[0]),
        start=0,
        next=struct.pack(f"<{len(table)}H", *table),
        actions=b"".join(actions[s] for s in states),
        eof=bytes(ends[s] for s in states),
        pending=bytes(counts[s] for s in states),
    )
