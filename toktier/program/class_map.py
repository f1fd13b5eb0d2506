"""Character classes: the coarsest partition of all code points that a set of code point sets can tell apart.

A set is an expression over *bases* (tables probed from the reference, and spans as written). Bases are swept once
as ranges; the algebra ( | & ~ ) then runs on bit masks over the few classes of that sweep, never on code points.
Not here: what a base contains (`toktier.program.unicode`), canonical classes (`toktier.program.canonical_tables`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from toktier.program import unicode
from toktier.program.boundary_limits import MAX_CLASSES, MAX_SETS, Unsupported
from toktier.program.code_point_sets import LAST_CODE_POINT, Ranges, union

SURROGATES = range(0xD800, 0xE000)


@dataclass(frozen=True, slots=True)
class Table:
    """A probed table: kind "property", "shorthand", "posix" or "char_set" with its name. `bracketed`: it stands inside
    [...], where the reference gives `\\w` another content."""

    kind: str
    name: str
    bracketed: bool = False


@dataclass(frozen=True, slots=True)
class Spans:
    """Code points as written: (first, last) both included, ascending and disjoint (`spans` makes them so)."""

    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Union:
    parts: tuple[CodePointSet, ...]


@dataclass(frozen=True, slots=True)
class Intersection:
    parts: tuple[CodePointSet, ...]


@dataclass(frozen=True, slots=True)
class Complement:
    part: CodePointSet


CodePointSet: TypeAlias = Table | Spans | Union | Intersection | Complement


@dataclass(frozen=True, slots=True)
class ClassMap:
    """`ranges`: (first, last, class) ascending over 0..0x10FFFF, classes numbered by smallest code point.
    `members[k]`: bit mask over the classes of the k-th set that was asked for. Surrogates, which no text holds,
    belong to the class of U+D7FF."""

    n_class: int
    ranges: tuple[tuple[int, int, int], ...]
    members: tuple[int, ...]


def spans(ranges: Iterable[tuple[int, int]]) -> Spans:
    """One set out of ranges in any order, that may overlap."""
    return Spans(union(tuple(ranges), ()))


def table_ranges(table: Table) -> Ranges:
    """The probed ranges; KeyError when the reference has no such table."""
    match table.kind:
        case "property":
            return unicode.property_ranges(table.name, bracketed=table.bracketed)
        case "shorthand":
            return unicode.shorthand_ranges(table.name, bracketed=table.bracketed)
        case "posix":
            return unicode.posix_ranges(table.name)
        case "char_set":
            return {"numeric": unicode.numeric, "punctuation": unicode.punctuation}[table.name]()
        case _:
            raise KeyError(table.kind)


def classify(sets: Sequence[CodePointSet]) -> ClassMap:
    """The coarsest classes for `sets`. Raises Unsupported for more than MAX_CLASSES."""
    bases = list(dict.fromkeys(base for s in sets for base in _bases(s)))
    if max(len(bases), len(sets)) > MAX_SETS:
        raise Unsupported("character classes", f"more than {MAX_SETS} different sets")
    segments, signatures = _sweep([_ranges(base) for base in bases])
    if len(signatures) > MAX_SETS:
        raise Unsupported("character classes", f"the sets overlap in more than {MAX_SETS} ways")
    everything = (1 << len(signatures)) - 1
    base_mask: dict[CodePointSet, int] = {}
    for k, base in enumerate(bases):
        base_mask[base] = sum(1 << j for j, signature in enumerate(signatures) if signature >> k & 1)
    masks = [_evaluate(s, base_mask, everything) for s in sets]

    # Classes that no asked set separates fall together; segments are in code point order, so numbering by first
    # occurrence is numbering by smallest code point.
    number: dict[tuple[int, ...], int] = {}
    merged = [number.setdefault(tuple(m >> j & 1 for m in masks), len(number)) for j in range(len(signatures))]
    if len(number) > MAX_CLASSES:
        raise Unsupported(
            "character classes", f"the patterns tell {len(number)} classes apart; {MAX_CLASSES} fit a byte"
        )
    ranges = join_ranges((first, last, merged[j]) for first, last, j in segments)
    keys = list(number)
    members = tuple(sum(1 << j for j, key in enumerate(keys) if key[k]) for k in range(len(sets)))
    return ClassMap(len(number), ranges, members)


def join_ranges(ranges: Iterable[tuple[int, int, int]]) -> tuple[tuple[int, int, int], ...]:
    """Adjacent ranges of one class become one range."""
    joined: list[tuple[int, int, int]] = []
    for first, last, number in ranges:
        if joined and joined[-1][2] == number:
            joined[-1] = (joined[-1][0], last, number)
        else:
            joined.append((first, last, number))
    return tuple(joined)


def _bases(s: CodePointSet) -> Iterable[Table | Spans]:
    match s:
        case Table() | Spans():
            yield s
        case Union(parts) | Intersection(parts):
            for part in parts:
                yield from _bases(part)
        case Complement(part):
            yield from _bases(part)


def _ranges(base: Table | Spans) -> Iterable[tuple[int, int]]:
    return base.ranges if isinstance(base, Spans) else table_ranges(base)


def _sweep(bases: Sequence[Iterable[tuple[int, int]]]) -> tuple[list[tuple[int, int, int]], list[int]]:
    """Segments (first, last, j) in order, and for each j the bit mask of the bases that hold it, in order of first
    occurrence."""
    toggles: dict[int, int] = {0: 0}
    for k, ranges in enumerate(bases):
        for first, last in ranges:
            for at in (first, last + 1):
                # A change inside the surrogates takes place behind them.
                place = SURROGATES.stop if at in SURROGATES else at
                toggles[place] = toggles.get(place, 0) ^ (1 << k)
    toggles.pop(LAST_CODE_POINT + 1, None)
    starts = sorted(toggles)
    segments: list[tuple[int, int, int]] = []
    number: dict[int, int] = {}
    mask = 0
    for i, first in enumerate(starts):
        mask ^= toggles[first]
        last = starts[i + 1] - 1 if i + 1 < len(starts) else LAST_CODE_POINT
        segments.append((first, last, number.setdefault(mask, len(number))))
    return segments, list(number)


def _evaluate(s: CodePointSet, base_mask: dict[CodePointSet, int], everything: int) -> int:
    match s:
        case Table() | Spans():
            return base_mask[s]
        case Union(parts):
            mask = 0
            for part in parts:
                mask |= _evaluate(part, base_mask, everything)
            return mask
        case Intersection(parts):
            mask = everything
            for part in parts:
                mask &= _evaluate(part, base_mask, everything)
            return mask
        case Complement(part):
            return everything ^ _evaluate(part, base_mask, everything)
