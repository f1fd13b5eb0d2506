"""Where two pre-tokenizers split differently: a shortest string of classes, over the classes that either tells apart.

Exact: both machines are run together over all pairs of states that one text reaches, so None means that they split
every text alike. Not here: whether ids follow (a merge may never cross that place), which takes texts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from toktier.program.boundary import BoundaryTables
from toktier.program.equivalence import left_rows, matrix_rows, right_rows

SHOWN_MEMBERS = 8

Pair = tuple[int, int]


@dataclass(frozen=True)
class BoundaryDifference:
    """A text before and after the place, and the common alphabet: a class is given by some of its characters."""

    before: list[list[str]]
    after: list[list[str]]
    alphabet: list[list[str]]


def shortest_difference(a: BoundaryTables, b: BoundaryTables) -> BoundaryDifference | None:
    """None: they split every text alike. Classes of surrogates alone are left out: no text has them."""
    classes = _common_classes(a, b)
    alphabet = [members for members in map(_members, classes.values()) if members]
    pairs = [pair for pair, ranges in classes.items() if _members(ranges)]
    befores = _reached(left_rows(a), left_rows(b), (a.left_start, b.left_start), pairs)
    behinds = _reached(right_rows(a), right_rows(b), (a.right_end, b.right_end), pairs)
    rows_a, rows_b = matrix_rows(a), matrix_rows(b)
    best: tuple[list[int], list[int]] | None = None
    for (right_a, right_b), behind in behinds:
        if not behind:
            continue
        for (left_a, left_b), before in befores:
            if best is not None and len(before) + len(behind) >= len(best[0]) + len(best[1]):
                break  # in order of length
            values = rows_a[left_a][right_a], rows_b[left_b][right_b]
            # A piece starts at the start of a text whatever the tables say; there only "dropped" counts.
            if values[0] != values[1] and (before or 2 in values):
                best = before, behind[::-1]
                break
    if best is None:
        return None
    before, behind = best
    return BoundaryDifference([alphabet[c] for c in before], [alphabet[c] for c in behind], alphabet)


def _common_classes(a: BoundaryTables, b: BoundaryTables) -> dict[Pair, list[tuple[int, int]]]:
    """Ranges of code points by their class in each, in the order of the first code point."""
    found: dict[Pair, list[tuple[int, int]]] = {}
    i = j = start = 0
    while i < len(a.class_ranges) and j < len(b.class_ranges):
        (_, end_a, class_a), (_, end_b, class_b) = a.class_ranges[i], b.class_ranges[j]
        end = min(end_a, end_b)
        found.setdefault((class_a, class_b), []).append((start, end))
        start = end + 1
        i, j = i + (end_a == end), j + (end_b == end)
    return found


def _members(ranges: list[tuple[int, int]]) -> list[str]:
    """Some characters, printable ASCII first."""
    found = [c for low, high in ranges for c in range(low, min(high, low + 200) + 1) if not 0xD800 <= c <= 0xDFFF]
    found.sort(key=lambda c: (not 0x21 <= c <= 0x7E, c))
    return [chr(c) for c in found[:SHOWN_MEMBERS]]


def _reached(a: Sequence[bytes], b: Sequence[bytes], start: Pair, classes: list[Pair]) -> list[tuple[Pair, list[int]]]:
    """Pairs of states that one text reaches, each with a shortest such text as read, in order of length; the start also
    by a shortest text that is not empty."""
    found: dict[Pair, list[int]] = {start: []}
    queue = deque([start])
    order: list[tuple[Pair, list[int]]] = [(start, [])]
    back = False
    while queue:
        state = queue.popleft()
        for c, (class_a, class_b) in enumerate(classes):
            target = a[state[0]][class_a], b[state[1]][class_b]
            text = [*found[state], c]
            if target not in found:
                found[target] = text
                queue.append(target)
                order.append((target, text))
            elif target == start and not back:
                back = True
                order.append((target, text))
    return order
