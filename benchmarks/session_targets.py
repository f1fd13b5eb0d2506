"""What sessions have to show, as numbers, and what a run shows: medians, the worst artifact counts.

Data, and one look at the results for each line, as `targets.py`. Only texts of the full length count: a trial with
short ones meets nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from engines import OURS
from targets import Target

Results = dict[str, Any]
Seen = Callable[[Results], Iterator[tuple[float, str]]]

LONG, LONGEST, MIDDLE, STORED = 1 << 22, 1 << 24, 1 << 18, 1 << 20


def cells(
    results: Results, measure: str, mode: str | None, characters: int, delta: int | None, engine: str = OURS
) -> Iterator[dict[str, Any]]:
    """Those with figures."""
    wanted = (engine, measure, mode, characters, delta)
    for cell in results["cells"]:
        own = tuple(cell[key] for key in ("engine", "measure", "mode", "characters", "delta"))
        if own == wanted and cell["status"] == "ok" and cell["count"]:
            yield cell


def _median(measure: str, mode: str, characters: int, delta: int | None, unit: float) -> Seen:
    return lambda results: (
        (cell["median"] / unit, cell["artifact"]) for cell in cells(results, measure, mode, characters, delta)
    )


def _flat(measure: str, mode: str, delta: int) -> Seen:
    """The longest session to one of 256 Ki."""

    def seen(results: Results) -> Iterator[tuple[float, str]]:
        base = {cell["artifact"]: cell["median"] for cell in cells(results, measure, mode, MIDDLE, delta)}
        for cell in cells(results, measure, mode, LONGEST, delta):
            if cell["artifact"] in base:
                yield cell["median"] / base[cell["artifact"]], cell["artifact"]

    return seen


US, MS, KB, MB = 1e3, 1e6, 1e3, 1e6

# What, limit, unit, how it is read.
_AT_MOST: tuple[tuple[str, float, str, Seen], ...] = (
    ("append of 256 characters to 4 Mi, in memory", 20, " µs", _median("append", "memory", LONG, 256, US)),
    ("append of 256 characters to 4 Mi, in a store", 300, " µs", _median("append", "process", LONG, 256, US)),
    ("the same to 16 Mi, to 256 Ki, in memory", 1.5, "×", _flat("append", "memory", 256)),
    ("the same to 16 Mi, to 256 Ki, in a store", 1.5, "×", _flat("append", "process", 256)),
    ("replacing the last 1 Ki of 4 Mi, in memory", 20, " µs", _median("replace", "memory", LONG, 1024, US)),
    ("replacing the last 1 Ki of 4 Mi, in a store", 300, " µs", _median("replace", "process", LONG, 1024, US)),
    ("the same of 16 Mi, to 256 Ki, in memory", 1.5, "×", _flat("replace", "memory", 1024)),
    ("the same of 16 Mi, to 256 Ki, in a store", 1.5, "×", _flat("replace", "process", 1024)),
    ("reopening 4 Mi in a new process, and an append", 10, " ms", _median("reopen_session", "process", LONG, 256, MS)),
    ("the same, modules imported before", 10, " ms", _median("reopen_imported", "process", LONG, 256, MS)),
    ("written to disk for an append of 256 to 4 Mi", 8, " kB", _median("written", "process", LONG, 256, KB)),
    ("memory of a session of 4 Mi", 12, " MB", _median("memory", "memory", LONG, None, MB)),
    ("look-up of a stored 1 Mi, in the store", 3, " ms", _median("lookup_prefix", "process", STORED, None, MS)),
    ("look-up of a stored 1 Mi, encode() as a whole", 3, " ms", _median("lookup_encode", "process", STORED, None, MS)),
    ("whole transcript of 4 Mi, in memory", 2, " ms", _median("transcript", "memory", LONG, 256, MS)),
    ("whole transcript of 4 Mi, in a store", 2, " ms", _median("transcript", "process", LONG, 256, MS)),
)
TARGETS = tuple(Target(what, limit, unit, False, seen) for what, limit, unit, seen in _AT_MOST)
