"""Class contexts in which a text may always be cut: pre-tokenizing the two sides apart gives the pieces of the whole,
whatever surrounds them. Threads, streaming, sessions and the GPU split texts there.

A cut between u and v (one or two classes each) holds when, for all surroundings,
  1. a piece starts there, dropped or not as it would be at the start of a text;
  2. everything after it comes out as if the text began at v;
  3. everything before it comes out as if the text ended after u.
The two automata are independent, so this splits into two inclusions of sets of states. Left states after texts that
end in u must lie among those from which a text that begins with v goes on as from the start (1 and 2); right states of
texts that begin with v must lie among those before which a text that ends in u comes out as before the end (3). "As"
means that no text tells the two apart: Moore equivalence (`equivalence.py`), with the matrix compared directly at
positions inside u and v. So nothing is searched, and the answer is exact: a refused context has a counterexample.

`renewal_fault` is for the laws of the tests and for the certification of a tokenizer; compiling does not call it.

`inner` holds the pairs for which all of this is true but the first: a piece may go on across the bar. There a cut needs
in addition that no merge joins the two characters. It is empty where pieces may be dropped: the two parts of one piece
would have to be dropped or kept alike.

Not here: cuts of normalization, added tokens and vocabularies, which must hold as well (`cut_guards.py`); the rule that
puts all of them together (`text_cuts.py`, kernels/shared/cuts.h).
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toktier.program.canonical_tables import DROPPED
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


# Triples are n³ bytes each and buy 10-20 % more cuts: beyond this they are left out.
MAX_TRIPLE_CLASSES = 64


@dataclass(frozen=True)
class Cuts:
    """One byte a context, 1 where it is a cut. With n classes: `pair[a*n + b]` for (a|b),
    `left_triple[(a*n + b)*n + c]` for (ab|c), `right_triple[(a*n + b)*n + c]` for (a|bc). A triple
    that holds a pair cut at its bar is a cut too. Both triples are empty over more than 64 classes. `inner` as `pair`.
    """

    pair: bytes
    left_triple: bytes
    right_triple: bytes
    inner: bytes


def static_cuts(tables: BoundaryTables) -> Cuts:
    """Every pair and triple cut of the boundary tables: n³ tests of bit masks for n classes."""
    sides = _Sides(tables)
    singles = [(c,) for c in range(tables.n_class)]
    if tables.n_class > MAX_TRIPLE_CLASSES:
        pair = _cuts([sides.before(u) for u in singles], [sides.after(v) for v in singles])
        return Cuts(pair, b"", b"", _inner(sides, singles))
    doubles = list(itertools.product(range(tables.n_class), repeat=2))
    before_one, before_two = [sides.before(u) for u in singles], [sides.before(u) for u in doubles]
    after_one, after_two = [sides.after(v) for v in singles], [sides.after(v) for v in doubles]
    return Cuts(
        pair=_cuts(before_one, after_one),
        left_triple=_cuts(before_two, after_one),
        right_triple=_cuts(before_one, after_two),
        inner=_inner(sides, singles),
    )


# Bit masks of one side of the bar: the left (right) states that are possible there, and the right (left) states on the
# other side with which this side comes out as it does alone.
_Side = tuple[int, int]


def _cuts(befores: list[_Side], afters: list[_Side]) -> bytes:
    return bytes(
        [lefts & ~starting == 0 and rights & ~ending == 0 for lefts, ending in befores for rights, starting in afters]
    )


def _inner(sides: _Sides, singles: list[tuple[int]]) -> bytes:
    if any(DROPPED in row for row in sides.matrix):
        return b""
    return _cuts([sides.before(u) for u in singles], [sides.after(v, inner=True) for v in singles])


class _Sides:
    def __init__(self, tables: BoundaryTables) -> None:
        self.start, self.end = tables.left_start, tables.right_end
        self.lefts, self.rights, self.matrix = left_rows(tables), right_rows(tables), matrix_rows(tables)
        self.left_block, self.right_block = left_blocks(tables), right_blocks(tables)
        self.reachable_left, self.reachable_right = sorted(left_access(tables)), sorted(right_access(tables))

    def before(self, u: tuple[int, ...]) -> _Side:
        """Left states after texts that end in u; right states r such that a text that ends in u and has r behind it
        comes out as if nothing were behind it.
        """
        lefts = set(self.reachable_left)
        history = []  # left states possible before each class of u
        for c in u:
            history.append(lefts)
            lefts = {self.lefts[s][c] for s in lefts}
        ending = []
        for r in self.reachable_right:
            behind, alone = r, self.end
            for k in range(len(u) - 1, -1, -1):
                behind, alone = self.rights[behind][u[k]], self.rights[alone][u[k]]
                if k and any(self.matrix[s][behind] != self.matrix[s][alone] for s in history[k]):
                    break
            else:
                if self.right_block[behind] == self.right_block[alone]:
                    ending.append(r)
        return _mask(lefts), _mask(ending)

    def after(self, v: tuple[int, ...], *, inner: bool = False) -> _Side:
        """Right states of texts that begin with v; left states s such that a text that begins with v has a piece start
        where it meets s, and comes out as at the start of a text. `inner`: whatever comes out where it meets s.
        """
        rights = set(self.reachable_right)
        future = []  # right states possible from each class of v on, last class first
        for c in reversed(v):
            rights = {self.rights[r][c] for r in rights}
            future.append(rights)
        starting = []
        for s in self.reachable_left:
            before, alone = s, self.start
            if not inner and any(self.matrix[s][r] == 0 for r in rights):
                continue
            for k, (c, behind) in enumerate(zip(v, reversed(future), strict=True)):
                if (k or not inner) and any(self.matrix[before][r] != self.matrix[alone][r] for r in behind):
                    break
                before, alone = self.lefts[before][c], self.lefts[alone][c]
            else:
                if self.left_block[before] == self.left_block[alone]:
                    starting.append(s)
        return _mask(rights), _mask(starting)


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
            further = (lefts[whole][c], lefts[alone][c], rest)
            if rest in before and further not in texts and further[0] != further[1]:
                texts[further] = (u, v + bytes((c,)))
                queue.append(further)
    return None
