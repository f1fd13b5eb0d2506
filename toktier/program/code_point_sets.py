"""The algebra of sets of code points, and two sets as one table of marks.

A set is a tuple of (first, last): inclusive, ascending, disjoint, not adjacent. `complement` is over U+0000..U+10FFFF,
so that surrogates, which no text contains, go with the other code points outside of a set. Not here: which characters
are in a set (`unicode.py`).
"""

from __future__ import annotations

from bisect import bisect_right

Ranges = tuple[tuple[int, int], ...]

LAST_CODE_POINT = 0x10FFFF


def size(r: Ranges) -> int:
    """Number of code points."""
    return sum(last - first + 1 for first, last in r)


def contains(r: Ranges, cp: int) -> bool:
    i = bisect_right(r, (cp, LAST_CODE_POINT)) - 1
    return i >= 0 and r[i][1] >= cp


def complement(r: Ranges) -> Ranges:
    """Over U+0000..U+10FFFF, surrogates included."""
    out = []
    start = 0
    for first, last in r:
        if first > start:
            out.append((start, first - 1))
        start = last + 1
    if start <= LAST_CODE_POINT:
        out.append((start, LAST_CODE_POINT))
    return tuple(out)


def union(a: Ranges, b: Ranges) -> Ranges:
    """Unlike the others it also takes ranges in any order, that overlap."""
    out: list[tuple[int, int]] = []
    for first, last in sorted(a + b):
        if out and first <= out[-1][1] + 1:
            if last > out[-1][1]:
                out[-1] = (out[-1][0], last)
        else:
            out.append((first, last))
    return tuple(out)


def intersection(a: Ranges, b: Ranges) -> Ranges:
    out = []
    i = j = 0
    while i < len(a) and j < len(b):
        first, last = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if first <= last:
            out.append((first, last))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return tuple(out)


def difference(a: Ranges, b: Ranges) -> Ranges:
    return intersection(a, complement(b))


def marks(first: Ranges, second: Ranges) -> list[tuple[int, int, int]]:
    """Rows for `build_trie`, ascending: 1 for what is in the first set alone, 2 in the second alone, 3 in both."""
    parts = (difference(first, second), difference(second, first), intersection(first, second))
    return sorted((low, high, mark) for mark, part in enumerate(parts, start=1) for low, high in part)
