"""What the raw times of a cell say: rates, ratios, and the words for cells that have none.

`run.py` and `report.py` read results through here, so that both say the same. The best pass is by processor time: other
work on the machine only adds to it.
"""

from __future__ import annotations

import statistics
from typing import Any

WORDS = {"refused": "refused", "wrong": "WRONG", "failed": "failed", "absent": "absent"}


def nanoseconds(cell: dict[str, Any], kind: str, clock: str = "cpu_ns") -> list[int]:
    return [section[clock] for section in cell[kind]]


def work(facts: dict[str, Any]) -> float:
    """What one timed section did: bytes of UTF-8, or calls."""
    return float(facts["calls"] if facts["kind"] == "calls" else facts["bytes"])


def best_rate(cell: dict[str, Any], kind: str, facts: dict[str, Any]) -> float | None:
    """Work a nanosecond of the best section; None for a cell without figures, or whose results are wrong."""
    times = nanoseconds(cell, kind)
    return None if not times or cell["status"] != "ok" else work(facts) / max(1, min(times))


def median_rate(cell: dict[str, Any], kind: str, facts: dict[str, Any]) -> float | None:
    times = nanoseconds(cell, kind)
    return None if not times or cell["status"] != "ok" else work(facts) / max(1.0, statistics.median(times))


def figure(rate: float, facts: dict[str, Any]) -> str:
    """MB/s of a pass, ns of a call."""
    return f"{1 / rate:,.0f} ns" if facts["kind"] == "calls" else f"{rate * 1000:,.0f} MB/s"


def cell_text(cell: dict[str, Any], kind: str, facts: dict[str, Any], ours: float | None) -> str:
    """The figure, and by how much ours is faster (×) where there is one of ours."""
    if cell["status"] in WORDS:
        return WORDS[cell["status"]]
    rate = best_rate(cell, kind, facts)
    if rate is None:
        return "–"
    ratio = "" if ours is None or ours == rate else f" (×{ours / rate:.2f})"
    return figure(rate, facts) + ratio
