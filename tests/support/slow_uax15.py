"""UAX #15 written down as the standard states it, over `NormalizationTables`: slow, whole strings, no quick check.

An oracle that shares nothing with the engine's local normalization but the tables.
"""

from __future__ import annotations

from toktier.program.unicode import NormalizationTables


def normalize(text: str, tables: NormalizationTables) -> str:
    """The normal form of `text`; composes only if the tables have compositions."""
    decomposed: list[int] = []
    for c in map(ord, text):
        decomposed.extend(tables.decompositions.get(c, (c,)))
    _reorder(decomposed, tables.ccc)
    return "".join(map(chr, _compose(decomposed, tables)))


def _reorder(code_points: list[int], ccc: dict[int, int]) -> None:
    """Sorts each run of non-starters by class, keeping the order within a class."""
    start = 0
    while start < len(code_points):
        if ccc.get(code_points[start], 0) == 0:
            start += 1
            continue
        end = start
        while end < len(code_points) and ccc.get(code_points[end], 0) != 0:
            end += 1
        code_points[start:end] = sorted(code_points[start:end], key=ccc.__getitem__)
        start = end


def _compose(code_points: list[int], tables: NormalizationTables) -> list[int]:
    """A character joins the last starter before it unless something between has no lower class."""
    out: list[int] = []
    starter = -1  # index in `out`
    for c in code_points:
        number = tables.ccc.get(c, 0)
        if starter >= 0:
            between = tables.ccc.get(out[-1], 0) if len(out) - 1 > starter else None
            blocked = between is not None and (between == 0 or between >= number)
            composite = None if blocked else tables.compositions.get((out[starter], c))
            if composite is not None:
                out[starter] = composite
                continue
        if number == 0:
            starter = len(out)
        out.append(c)
    return out
