"""Class contexts in which a text may always be cut: pre-tokenizing the two sides apart gives the pieces of the whole,
whatever surrounds them. Threads, streaming, sessions and the GPU split texts there.

A cut between u and v (one or two classes each side) holds when, for all surroundings,
  1. a piece starts there, dropped or not as it would be at the start of a text;
  2. everything after it comes out as if the text began at v;
  3. everything before it comes out as if the text ended after u.
What a test needs is small, because the two automata are independent. With S(u) the left states after any text that ends
in u, and T(v) the right states of any text that begins with v:
  1. for every l in S(u), r in T(v): matrix[l][r] = matrix[left_start][r], not 0;
  2. for every l in S(u): the left states after v from l and from left_start can never be told apart;
  3. for every r in T(v): the right states of u·(what r stands for) and of u alone can never be told apart;
and for positions inside u or v the matrix entries are compared directly. "Never told apart" is Moore equivalence
(`equivalence.py`), so nothing is searched and the answer is exact: a context that is refused has a counterexample.

Not here: cuts of normalization, added tokens and vocabularies, which must hold as well.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toktier.program.equivalence import (
    left_access,
    left_blocks,
    left_rows,
    matrix_rows,
    nonempty_access,
    right_access,
    right_blocks,
    right_rows,
)

if TYPE_CHECKING:
    from toktier.program.boundary import BoundaryTables


@dataclass(frozen=True)
class Cuts:
    """One byte a context, 1 where it is a cut. With n classes: `pair[a*n + b]` for (a|b), `left_triple[(a*n + b)*n + c]`
    for (ab|c), `right_triple[...]` for (a|bc). A triple that holds a pair cut at its bar is a cut too.
    """

    pair: bytes
    left_triple: bytes
    right_triple: bytes


def static_cuts(tables: BoundaryTables) -> Cuts:
    """Every pair and triple cut of the boundary tables. O(n³ + n² · states) set operations on machine words."""
    return _CutFinder(tables).find()


class _CutFinder:
    """Sets of left and of right states are bit masks. Right states are replaced by their blocks where only equivalence
    counts.
    """

    def __init__(self, tables: BoundaryTables) -> None:
        self.n = n = tables.n_class
        self.start, self.end = tables.left_start, tables.right_end
        self.lefts, self.rights, self.matrix = left_rows(tables), right_rows(tables), matrix_rows(tables)
        self.left_block, self.right_block = left_blocks(tables), right_blocks(tables)
        self.reachable_left, self.reachable_right = sorted(left_access(tables)), sorted(right_access(tables))
        self.after = [{self.lefts[s][c] for s in self.reachable_left} for c in range(n)]  # S(c)
        self.behind = [{self.rights[s][c] for s in self.reachable_right} for c in range(n)]  # T(c)
        self.behind_mask = [_mask(states) for states in self.behind]
        self.after_mask = [_mask(states) for states in self.after]
        # Right states at which left state l gives what the start of text gives: bit r.
        self.as_start = [
            _mask(r for r in range(tables.n_right) if row[r] == self.matrix[self.start][r] != 0) for row in self.matrix
        ]
        # Left states at which right states r and s give the same value: bit l.
        columns = list(zip(*self.matrix, strict=True))
        self.agree = [
            [_mask(s for s, (x, y) in enumerate(zip(a, b, strict=True)) if x == y) for b in columns] for a in columns
        ]

    def find(self) -> Cuts:
        n = self.n
        # Condition 3 by last class u before the cut and right state r behind it; the rest by left state and class after.
        keeps_left = [
            [self.right_block[self.rights[r][u]] == self.right_block[self.rights[self.end][u]] for u in range(n)]
            for r in range(len(self.rights))
        ]
        ends_as_alone = [_mask(u for u in range(n) if all(keeps_left[r][u] for r in self.behind[v])) for v in range(n)]
        starts_as_alone = [self._starts_as_alone(v) for v in range(n)]
        pair, left_triple, right_triple = bytearray(n * n), bytearray(n**3), bytearray(n**3)
        for v in range(n):
            before_pair = self._ends_as_alone_before(v)
            for b in range(n):
                pair[b * n + v] = self.after_mask[b] & ~starts_as_alone[v] == 0 and ends_as_alone[v] >> b & 1
                for a in range(n):
                    after = _mask(self.lefts[s][b] for s in self.after[a])
                    left_triple[(a * n + b) * n + v] = after & ~starts_as_alone[v] == 0 and before_pair[b] >> a & 1
        for b in range(n):
            for c in range(n):
                starts = self._starts_as_alone_pair(b, c)
                behind = {self.rights[r][b] for r in self.behind[c]}
                ends = _mask(u for u in range(n) if all(keeps_left[r][u] for r in behind))
                for a in range(n):
                    right_triple[(a * n + b) * n + c] = self.after_mask[a] & ~starts == 0 and ends >> a & 1
        return Cuts(bytes(pair), bytes(left_triple), bytes(right_triple))

    def _starts_as_alone(self, v: int) -> int:
        """Left states before (|v) from which a text that begins with v goes on as from the start of text: bit l."""
        block = self.left_block[self.lefts[self.start][v]]
        return _mask(
            s
            for s in self.reachable_left
            if self.behind_mask[v] & ~self.as_start[s] == 0 and self.left_block[self.lefts[s][v]] == block
        )

    def _starts_as_alone_pair(self, b: int, c: int) -> int:
        """The same for texts that begin with bc."""
        behind = _mask(self.rights[r][b] for r in self.behind[c])
        inner = self.lefts[self.start][b]
        block = self.left_block[self.lefts[inner][c]]
        return _mask(
            s
            for s in self.reachable_left
            if behind & ~self.as_start[s] == 0
            and all(self.matrix[self.lefts[s][b]][r] == self.matrix[inner][r] for r in self.behind[c])
            and self.left_block[self.lefts[self.lefts[s][b]][c]] == block
        )

    def _ends_as_alone_before(self, v: int) -> list[int]:
        """For each b: the classes a for which everything before (ab|v) comes out as if the text ended after b."""
        result = []
        for b in range(self.n):
            alone = self.rights[self.end][b]
            whole = {self.rights[r][b] for r in self.behind[v]}
            agreeing = -1
            for r in whole:
                agreeing &= self.agree[r][alone]
            result.append(
                _mask(
                    a
                    for a in range(self.n)
                    if self.after_mask[a] & ~agreeing == 0
                    and all(
                        self.right_block[self.rights[r][a]] == self.right_block[self.rights[alone][a]] for r in whole
                    )
                )
            )
        return result


def _mask(numbers: Iterable[int]) -> int:
    mask = 0
    for number in numbers:
        mask |= 1 << number
    return mask


def renewal_fault(tables: BoundaryTables) -> tuple[bytes, bytes] | None:
    """None where every piece start is like the start of a text: whatever came before, the rest comes out as it would
    alone. Else a text (u, v) with a piece start between u and v, after which v does not come out as v alone does.

    Sessions and splices may restart at any known piece start only where this is None.
    """
    lefts, rights, matrix = left_rows(tables), right_rows(tables), matrix_rows(tables)
    access_left, access_right = left_access(tables), right_access(tables)
    behind = nonempty_access(access_right, rights, backwards=True)
    before: dict[int, list[tuple[int, int]]] = {}  # right state of c·w: its (c, right state of w)
    for r in access_right:
        for c, target in enumerate(rights[r]):
            before.setdefault(target, []).append((c, r))
    # Nodes: left state in the whole text, left state in v alone, right state of the rest. Text: u and v up to here.
    texts: dict[tuple[int, int, int], tuple[bytes, bytes]] = {}
    queue: deque[tuple[int, int, int]] = deque()
    for left, u in access_left.items():
        for r in before:
            if u and matrix[left][r]:
                texts[left, tables.left_start, r] = (u, b"")
                queue.append((left, tables.left_start, r))
    while queue:
        node = queue.popleft()
        whole, alone, r = node
        u, v = texts[node]
        if matrix[whole][r] != matrix[alone][r]:
            return u, v + behind[r]
        for c, rest in before[r]:
            target = (lefts[whole][c], lefts[alone][c], rest)
            if rest in before and target not in texts and target[0] != target[1]:
                texts[target] = (u, v + bytes((c,)))
                queue.append(target)
    return None
