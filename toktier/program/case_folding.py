"""Case-insensitive characters: which code points a literal matches, and which literals must be refused.

Oniguruma also folds one character to several (`(?i:ss)` matches U+00DF, and U+00DF matches "ss"). The compiler has no
such matches, so it refuses every literal that could take part in one; contractions ('s 't 're 've 'm 'll 'd) cannot.
Not here: the fold tables (`toktier.program.unicode`).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import pairwise

from toktier.program import unicode
from toktier.program.boundary_limits import Unsupported

MAX_FOLDED = 512  # code points of a case-insensitive set


def partners(written: Iterable[int]) -> tuple[int, ...]:
    """All code points that one of `written` matches, ascending. Raises Unsupported for a character that also matches
    several characters."""
    several = _match_several()
    found: set[int] = set()
    for code_point in written:
        matched = {code_point, *unicode.fold_partners(code_point)}
        if matched & several:
            raise Unsupported("multi-character case fold", f"U+{code_point:04X} also matches several characters")
        found |= matched
    return tuple(sorted(found))


def check_adjacent(pairs: Iterable[tuple[int, int]]) -> None:
    """Raises Unsupported when two case-insensitive characters that may follow each other begin, end or lie inside a
    text that one character matches as well."""
    folding = _folding_pairs()
    for first, second in pairs:
        for a in {first, *unicode.fold_partners(first)}:
            for b in {second, *unicode.fold_partners(second)}:
                if (chr(a), chr(b)) in folding:
                    raise Unsupported(
                        "multi-character case fold",
                        f"{chr(first) + chr(second)!r} without regard to case also matches a single character",
                    )


@cache
def _match_several() -> frozenset[int]:
    return frozenset(c for singles in unicode.multi_character_folds().values() for c in singles)


@cache
def _folding_pairs() -> frozenset[tuple[str, str]]:
    return frozenset(pair for text in unicode.multi_character_folds() for pair in pairwise(text))
