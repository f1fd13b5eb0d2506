"""When two states, or two whole boundary machines, can never be told apart by any text.

Cuts (`cuts.py`), the one-pass form (`token_automaton.py`) and the coverage suites (`coverage.py`) rest on it. The two
automata of boundary tables are independent: after a left state any text may follow, before a right state any text may
stand. So equivalence of states is Moore equivalence of each automaton alone, its output the row or column of the
matrix, and no search over pairs of runs is needed. `first_difference` of two machines is for the laws of the tests
and for the certification of a tokenizer. Not here: making tables minimal (`compile_boundaries` does).

Class strings are `bytes`, one class a byte, in text order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toktier.program.boundary import BoundaryTables


def left_rows(tables: BoundaryTables) -> list[bytes]:
    """`rows[l][c]`: the left state after class c in left state l."""
    n = tables.n_class
    return [tables.left[i * n : (i + 1) * n] for i in range(tables.n_left)]


def right_rows(tables: BoundaryTables) -> list[bytes]:
    """`rows[r][c]`: the right state of c·v where r is that of v."""
    n = tables.n_class
    return [tables.right[i * n : (i + 1) * n] for i in range(tables.n_right)]


def matrix_rows(tables: BoundaryTables) -> list[bytes]:
    """`rows[l][r]`: 0 no boundary, 1 boundary, 2 boundary of a piece that is dropped."""
    n = tables.n_right
    return [tables.matrix[i * n : (i + 1) * n] for i in range(tables.n_left)]


def left_access(tables: BoundaryTables) -> dict[int, bytes]:
    """Reachable left states, each with its shortest (then least) text before it, in the order they are found."""
    rows = left_rows(tables)
    access, queue = {tables.left_start: b""}, deque([tables.left_start])
    while queue:
        state = queue.popleft()
        for c, target in enumerate(rows[state]):
            if target not in access:
                access[target] = access[state] + bytes((c,))
                queue.append(target)
    return access


def right_access(tables: BoundaryTables) -> dict[int, bytes]:
    """Reachable right states, each with its shortest text behind it, in the order they are found."""
    rows = right_rows(tables)
    access, queue = {tables.right_end: b""}, deque([tables.right_end])
    while queue:
        state = queue.popleft()
        for c, target in enumerate(rows[state]):
            if target not in access:
                access[target] = bytes((c,)) + access[state]
                queue.append(target)
    return access


def nonempty_access(access: dict[int, bytes], rows: Sequence[Sequence[int]], *, backwards: bool) -> dict[int, bytes]:
    """`access` with the empty text of the start replaced by the shortest that comes back to it; without the start where
    none does. What the matrix says of the empty text before (or behind) is a convention that nobody can observe.
    """
    start = next(state for state, text in access.items() if not text)
    result = {state: text for state, text in access.items() if text}
    loops = (
        bytes((c,)) + text if backwards else text + bytes((c,))
        for state, text in access.items()
        for c, target in enumerate(rows[state])
        if target == start
    )
    shortest = min(loops, key=len, default=None)
    if shortest is not None:
        result[start] = shortest
    return result


def coarsest_partition(outputs: Sequence[Hashable], rows: Sequence[Sequence[int]]) -> list[int]:
    """Block of each state in the coarsest partition that respects the outputs and the transitions (Moore's refinement).

    Blocks are numbered by their first state. O(states² × classes) at worst; a handful of rounds in practice.
    """
    count, blocks = _number(outputs)
    while True:
        refined, new = _number([(blocks[s], tuple([blocks[t] for t in row])) for s, row in enumerate(rows)])
        if refined == count:
            return blocks
        count, blocks = refined, new


def _number(keys: Iterable[Hashable]) -> tuple[int, list[int]]:
    index: dict[Hashable, int] = {}
    numbers = [index.setdefault(key, len(index)) for key in keys]
    return len(index), numbers


def left_blocks(tables: BoundaryTables) -> list[int]:
    """Equal block: no text after it tells the two left states apart."""
    observable = sorted(_followed_by_text(tables))
    outputs = [bytes(row[r] for r in observable) for row in matrix_rows(tables)]
    return coarsest_partition(outputs, left_rows(tables))


def right_blocks(tables: BoundaryTables) -> list[int]:
    """Equal block: no text before it tells the two right states apart."""
    rows, reachable = matrix_rows(tables), sorted(left_access(tables))
    outputs = [bytes(rows[state][r] for state in reachable) for r in range(tables.n_right)]
    return coarsest_partition(outputs, right_rows(tables))


def _followed_by_text(tables: BoundaryTables) -> set[int]:
    """Right states of non-empty texts: only there does the matrix speak of a position in the text."""
    rows = right_rows(tables)
    return {target for state in right_access(tables) for target in rows[state]}


def first_difference(a: BoundaryTables, b: BoundaryTables) -> tuple[bytes, bytes] | None:
    """A text (u, v), v not empty, at whose position |u| the two machines differ; None: they are equal on every text.

    Both must be over the same classes. At position 0 a piece starts whatever the matrix says; there only "dropped or
    not" is compared.
    """
    if a.n_class != b.n_class:
        raise ValueError(f"machines over {a.n_class} and {b.n_class} classes cannot be compared")
    befores = _joint_access(left_rows(a), left_rows(b), (a.left_start, b.left_start), backwards=False)
    behinds = _joint_access(right_rows(a), right_rows(b), (a.right_end, b.right_end), backwards=True)
    rows_a, rows_b = matrix_rows(a), matrix_rows(b)
    for (ra, rb), v in behinds:
        if not v:
            continue
        for (la, lb), u in befores:
            value_a, value_b = rows_a[la][ra], rows_b[lb][rb]
            if value_a != value_b and (u or 2 in (value_a, value_b)):
                return u, v
    return None


def _joint_access(
    a: Sequence[bytes], b: Sequence[bytes], start: tuple[int, int], *, backwards: bool
) -> list[tuple[tuple[int, int], bytes]]:
    """Pairs of states that one text reaches in both automata, with that text; the start also by a non-empty one."""
    access: dict[tuple[int, int], bytes] = {start: b""}
    queue, back = deque([start]), None
    while queue:
        pair = queue.popleft()
        text = access[pair]
        for c, target in enumerate(zip(a[pair[0]], b[pair[1]], strict=True)):
            longer = bytes((c,)) + text if backwards else text + bytes((c,))
            if target not in access:
                access[target] = longer
                queue.append(target)
            elif target == start and back is None:
                back = longer
    found = list(access.items())
    return found if back is None else [*found, (start, back)]
