"""All scalar values as text, and what of it a reference component takes: the ground under every probe.

Ranges are lists of (first, last), inclusive, ascending, disjoint, not adjacent. Surrogates are in none: no text has
them.
"""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import Regex, normalizers

Ranges = list[tuple[int, int]]

SCALAR_COUNT = 0x110000 - 0x800
_BLOCK = 512  # code points a call: short enough that most calls see all or nothing matched, which is cheap to read


class ProbeError(Exception):
    """The reference answered in a way that a probe does not understand; the tables would be wrong."""


def scalar_values() -> Iterable[int]:
    yield from range(0xD800)
    yield from range(0xE000, 0x110000)


def blocks(size: int = _BLOCK) -> list[str]:
    """Every scalar value once, ascending, in strings of at most `size` (a power of two up to 2048) characters."""
    return ["".join(map(chr, range(i, i + size))) for i in range(0, 0x110000, size) if not 0xD800 <= i < 0xE000]


_BLOCKS = blocks()


def to_ranges(code_points: Iterable[int]) -> Ranges:
    """Ranges of ascending code points."""
    out: Ranges = []
    for c in code_points:
        if out and out[-1][1] == c - 1:
            out[-1] = (out[-1][0], c)
        else:
            out.append((c, c))
    return out


def members(ranges: Ranges) -> list[int]:
    return [c for a, b in ranges for c in range(a, b + 1)]


def size(ranges: Ranges) -> int:
    return sum(b - a + 1 for a, b in ranges)


def removed_by(normalizer: normalizers.Normalizer, texts: list[str] = _BLOCKS) -> Ranges:
    """The characters that a normalizer which only ever deletes single characters deletes from ascending texts."""
    out: Ranges = []

    def add(first: int, last: int) -> None:
        if out and out[-1][1] == first - 1:
            out[-1] = (out[-1][0], last)
        else:
            out.append((first, last))

    for text in texts:
        rest = normalizer.normalize_str(text)
        if rest == text:
            continue
        if not rest:
            add(ord(text[0]), ord(text[-1]))
            continue
        kept = set(rest)
        if len(kept) != len(rest) or not kept.issubset(text):
            raise ProbeError("a normalizer that should only delete characters changed some")
        for c in text:
            if c not in kept:
                add(ord(c), ord(c))
    return out


def matched_by(pattern: str, texts: list[str] = _BLOCKS) -> Ranges:
    """The scalar values that a pattern of one character matches, as the engine behind Split and Replace sees it."""
    return removed_by(normalizers.Replace(Regex(f"(?:{pattern})+"), ""), texts)


def parses(pattern: str) -> bool:
    try:
        Regex(pattern)
    except Exception:  # the binding raises bare Exception for a pattern that the engine refuses
        return False
    return True
