"""What the raw times of sessions say: medians, and ours beside a fresh encoding of the whole and the namesake.

`sessions.py` and `report.py` read results through here, so that both say the same. Not here: targets.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from engines import NAMESAKE, OURS, REFERENCE
from reading import WORDS

Cell = dict[str, Any]
Results = dict[str, Any]
BYTES = ("written", "memory")  # measures of bytes; the others are of nanoseconds
MODES = {"memory": "memory", "process": "store", "full": "store, full", None: ""}
# Columns beside ours: engine, and whether it is its own session or a fresh encoding of the whole.
BESIDE = ((OURS, "fresh"), (REFERENCE, "fresh"), (NAMESAKE, "session"))


def summary(times: Sequence[int]) -> dict[str, int | None]:
    """Of single calls; None where there are none. The 90th percentile is the least that nine in ten do not exceed."""
    if not times:
        return {"count": 0, "best": None, "median": None, "p90": None}
    ordered = sorted(times)
    p90 = ordered[math.ceil(len(ordered) * 0.9) - 1]
    return {"count": len(ordered), "best": ordered[0], "median": round(statistics.median(ordered)), "p90": p90}


def length(characters: int | None) -> str:
    """4 Mi and the like, powers of two."""
    if characters is None:
        return "–"
    for unit, name in ((1 << 20, " Mi"), (1 << 10, " Ki")):
        if characters >= unit and characters % unit == 0:
            return f"{characters // unit}{name}"
    return str(characters)


def figure(value: float | None, measure: str) -> str:
    if value is None:
        return "–"
    if measure in BYTES:
        return f"{value / 1e6:,.2f} MB" if value >= 1e6 else f"{value / 1e3:,.1f} kB"
    return f"{value / 1e6:,.2f} ms" if value >= 1e6 else f"{value / 1e3:,.1f} µs"


def told(cell: Cell) -> str:
    """One line of a cell, while it is measured."""
    what = f"{cell['artifact']:14} {cell['engine']:10} {cell['measure']:15} {cell['mode'] or '':8}"
    of = f"{length(cell['characters']):>6} {cell['delta'] or '':>5}"
    if cell["status"] != "ok":
        return f"{what} {of}  {WORDS[cell['status']]}: {cell['reason']}"
    shown = [f"{name} {figure(cell[name], cell['measure'])}" for name in ("median", "p90", "best")]
    return f"{what} {of}  {'  '.join(shown)}  of {cell['count']}"


def appends(results: Results) -> list[tuple[str, ...]]:
    """Rows of appends and replacements, each beside the whole text's fresh encoding."""
    return _rows(results, ("append", "replace"))


def others(results: Results) -> list[tuple[str, ...]]:
    """Rows of everything else; bytes have no fresh encoding beside them."""
    return _rows(results, ("transcript", "lookup", "reopen", "written", "memory"))


HEADER = ("artifact", "what", "kept in", "text", "median", "p90", "calls", "fresh", "fresh, tokenizers", NAMESAKE)
NAMES = {
    "replace": "last {delta} replaced",
    "append": "append of {delta}",
    "transcript": "whole transcript, {delta} more",
    "lookup_prefix": "look-up in the store",
    "lookup_encode": "encode() with look-up",
    "reopen_session": "reopen, and append of {delta}",
    "reopen_imported": "the same, modules imported",
    "reopen_process": "the same, with imports and load",
    "written": "written to disk, append of {delta}",
    "memory": "resident memory",
}


def _rows(results: Results, measures: Sequence[str]) -> list[tuple[str, ...]]:
    cells = {_key(cell): cell for cell in results["cells"]}
    rows = []
    for cell in results["cells"]:
        measure = cell["measure"]
        if cell["engine"] != OURS or measure.partition("_")[0] not in measures:
            continue
        what = NAMES.get(measure, measure).format(delta=f"{cell['delta'] or 0:,}")
        mode, text = MODES[cell["mode"]], length(cell["characters"])
        ours = cell["median"] if cell["status"] == "ok" else None
        mine = figure(ours, measure) if ours is not None else WORDS.get(cell["status"], "–")
        beside = [_beside(cells, cell, engine, kind, ours) for engine, kind in BESIDE]
        figures = (mine, figure(cell["p90"], measure), f"{cell['count']:,}")
        rows.append((cell["artifact"], what, mode, text, *figures, *beside))
    return rows


def _beside(cells: dict[tuple[Any, ...], Cell], cell: Cell, engine: str, kind: str, ours: int | None) -> str:
    """The figure of another way, and how many times ours it takes. The namesake's store syncs always: its one figure
    stands beside both durabilities."""
    if kind == "fresh":
        if cell["measure"] in BYTES:
            return ""
        key = (cell["artifact"], engine, "fresh", None, cell["characters"], None)
    else:
        mode = "process" if cell["mode"] == "full" else cell["mode"]
        key = (cell["artifact"], engine, cell["measure"], mode, cell["characters"], cell["delta"])
    other = cells.get(key)
    if other is None:
        return "–"
    if other["status"] != "ok" or other["median"] is None:
        return WORDS.get(other["status"], "–")
    return figure(other["median"], cell["measure"]) + (f" (×{_ratio(other['median'] / ours)})" if ours else "")


def _ratio(value: float) -> str:
    """Two decimals below ten; nobody reads more digits of a large one."""
    return f"{value:.2f}" if value < 10 else f"{value:,.0f}"


def _key(cell: Cell) -> tuple[Any, ...]:
    return tuple(cell[name] for name in ("artifact", "engine", "measure", "mode", "characters", "delta"))
