"""Strings that could be found across or inside each other in a text: for them "where it stands" depends on where a
search begins, and a text must not be cut at them.

Work is linear in the number of strings and quadratic in their lengths, which are those of tokens.
"""

from __future__ import annotations

from collections.abc import Iterable


def overlapping_pair(strings: Iterable[str]) -> tuple[str, str] | None:
    """Two of the strings of which one is in the other, or begins within the other and ends behind it; a string that
    begins within itself gives a pair of itself. None: there are none. Equal strings count as one."""
    distinct = dict.fromkeys(strings)
    begins = {string[:n]: string for string in distinct for n in range(1, len(string))}
    for string in distinct:
        for start in range(len(string)):
            other = begins.get(string[start:]) if start else None
            if other is not None:
                return string, other
            for end in range(start + 1, len(string) + 1):
                if end - start < len(string) and string[start:end] in distinct:
                    return string, string[start:end]
    return None


def overlapped_by(strings: Iterable[str], others: Iterable[str]) -> dict[str, str]:
    """Those of `strings` that overlap one of `others`, and which."""
    wanted = dict.fromkeys(strings)
    against = dict.fromkeys(other for other in others if other)
    lengths = sorted({len(string) for string in wanted})
    begins = {other[:n]: other for other in against for n in range(1, len(other))}
    ends = {other[n:]: other for other in against for n in range(1, len(other))}
    found: dict[str, str] = {}
    for other in against:
        for length in lengths:
            for start in range(len(other) - length + 1):
                if (inside := other[start : start + length]) in wanted:
                    found.setdefault(inside, other)
    for string in wanted:
        for start in range(len(string)):
            for end in range(start + 1, len(string) + 1):
                part = string[start:end]
                hit = part if part in against else None
                if start and end == len(string):
                    hit = hit or begins.get(part)
                if start == 0 and end < len(string):
                    hit = hit or ends.get(part)
                if hit is not None:
                    found.setdefault(string, hit)
    return found
