"""Slow, plain execution of boundary tables and of the token automaton over class strings: what the tests of both forms,
and of the engine, compare with. Not the engine (`toktier._native`), and never on the way of a text.

A class string is `bytes`, one class a byte. A result has one value for each of its positions: 0 no piece starts there,
1 a piece starts, 2 a piece starts that is dropped. Position 0 is 1 or 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toktier.errors import InternalError

if TYPE_CHECKING:
    from toktier.program.boundary import BoundaryTables
    from toktier.program.token_automaton import TokenAutomaton


def run_two_pass(tables: BoundaryTables, classes: bytes) -> bytes:
    """Right automaton backwards, left automaton forwards, one matrix entry a position."""
    n, m = tables.n_class, tables.n_right
    right_states = bytearray(len(classes))
    state = tables.right_end
    for i in range(len(classes) - 1, -1, -1):
        state = tables.right[state * n + classes[i]]
        right_states[i] = state
    values = bytearray(len(classes))
    state = tables.left_start
    for i, c in enumerate(classes):
        values[i] = tables.matrix[state * m + right_states[i]]
        state = tables.left[state * n + c]
    return bytes(values)


def run_token_automaton(automaton: TokenAutomaton, classes: bytes, state: int | None = None) -> bytes:
    """One read a class, piece starts decided in ascending order. From another `state` than the start, the result begins
    with one value for each position that is pending there, oldest first.

    Raises InternalError where the tables break a rule of docs/program-format.md: pending counts that do not fit, an
    action on a position that is not pending, a piece start decided before an older position.
    """
    n = automaton.n_class
    state = automaton.start if state is None else state
    first = automaton.pending[state]
    values = bytearray(first + len(classes))
    pending = list(range(first))
    for i, c in enumerate(classes, first):
        entry = state * n + c
        action, kept = automaton.actions[entry], []
        for k in range(3):
            what = action >> (2 + 2 * k) & 3
            if k >= len(pending):
                if what:
                    raise InternalError(f"state {state}, class {c}: action on pending position {k}, which is not there")
            elif what == 0:
                kept.append(pending[k])
            elif kept and what != 2:
                raise InternalError(f"state {state}, class {c}: position {k} decided before an older one")
            else:
                values[pending[k]] = (0, 1, 0, 2)[what]
        own = action & 3
        if own == 3:
            kept.append(i)
        elif own and kept:
            raise InternalError(f"state {state}, class {c}: the new position decided before an older one")
        else:
            values[i] = own
        pending = kept
        state = int.from_bytes(automaton.next[2 * entry : 2 * entry + 2], "little")
        if len(pending) != automaton.pending[state]:
            raise InternalError(f"state {state} has {len(pending)} pending positions, not {automaton.pending[state]}")
    ends = automaton.eof[state]
    if ends >> (2 * len(pending)):
        raise InternalError(f"state {state}: the end of text decides positions that are not pending")
    for k, position in enumerate(pending):
        values[position] = ends >> (2 * k) & 3
    return bytes(values)
