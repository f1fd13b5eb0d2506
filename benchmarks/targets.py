"""What the fast engine has to show, as numbers, and what a run shows: the worst cell counts, never the mean.

Data and one look at the results for each line. A target without its cells in the results is "not measured", not met.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from engines import OURS, REFERENCE
from reading import best_rate
from workloads import GROUPS

PEERS = ("fastokens", "gigatoken", "basetenkenizer")
Results = dict[str, Any]


@dataclass(frozen=True)
class Target:
    """`at_least`: larger is better. `seen` gives (value, where) of each cell."""

    what: str
    limit: float
    unit: str
    at_least: bool
    seen: Callable[[Results], Iterator[tuple[float, str]]]

    def worst(self, results: Results) -> tuple[float, str] | None:
        found = list(self.seen(results))
        if not found:
            return None
        return min(found) if self.at_least else max(found)

    def met(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit


def by_engine(results: Results) -> Iterator[tuple[str, dict[str, Any], dict[str, dict[str, Any]]]]:
    """artifact/workload, its facts, and its cells by engine, in the order of the run."""
    grouped: dict[str, dict[str, dict[str, Any]]] = {}
    for cell in results["cells"]:
        grouped.setdefault(f"{cell['artifact']}/{cell['workload']}", {})[cell["engine"]] = cell
    for place, cells in grouped.items():
        yield place, results["workloads"][place], cells


def ratios(
    results: Results, kind: str, workloads: Iterable[str], peers: Iterable[str], artifacts: Iterable[str] | None = None
) -> Iterator[tuple[float, str]]:
    """Ours to the best of `peers`, where both have figures; a cell of ours that is wrong counts as nothing."""
    for place, facts, cells in by_engine(results):
        artifact, _, workload = place.partition("/")
        if workload not in workloads or (artifacts is not None and artifact not in artifacts):
            continue
        theirs = [rate for peer in peers if peer in cells and (rate := best_rate(cells[peer], kind, facts))]
        if theirs and OURS in cells:
            yield (best_rate(cells[OURS], kind, facts) or 0.0) / max(theirs), place


def _refused(results: Results) -> set[str]:
    """Artifacts that a peer refuses."""
    return {c["artifact"] for c in results["cells"] if c["engine"] in PEERS and c["status"] == "refused"}


def _against_reference(results: Results) -> Iterator[tuple[float, str]]:
    return ratios(results, "first", GROUPS["documents"], [REFERENCE], _refused(results))


def _calls(workload: str) -> Callable[[Results], Iterator[tuple[float, str]]]:
    def seen(results: Results) -> Iterator[tuple[float, str]]:
        for place, facts, cells in by_engine(results):
            if place.endswith(f"/{workload}") and OURS in cells:
                rate = best_rate(cells[OURS], "warm", facts)
                if rate:
                    yield 1 / rate, place

    return seen


def _loads(kind: str) -> Callable[[Results], Iterator[tuple[float, str]]]:
    return lambda results: ((min(row[kind]["first_ids_ns"]) / 1e6, row["artifact"]) for row in results["loads"])


def _threads(long: bool) -> Callable[[Results], Iterator[tuple[float, str]]]:
    def seen(results: Results) -> Iterator[tuple[float, str]]:
        for row in results["threads"]:
            if row["engine"] == OURS and row["status"] == "ok":
                processes = row["bytes"] / min(row["two_processes_ns"])
                shared = row["long_bytes"] / min(row["long_ns"]) if long else row["bytes"] / min(row["two_threads_ns"])
                yield shared / processes, row["artifact"]

    return seen


def _memory(of: Callable[[dict[str, Any]], int]) -> Callable[[Results], Iterator[tuple[float, str]]]:
    return lambda results: (
        (of(row) / 1e6, row["artifact"])
        for row in results["resident"]
        if row["engine"] == OURS and row["status"] == "ok"
    )


def _documents(kind: str) -> Callable[[Results], Iterator[tuple[float, str]]]:
    return lambda results: ratios(results, kind, GROUPS["documents"], ["fastokens"])


TARGETS = (
    Target("first pass over distinct documents, to fastokens", 1.5, "×", True, _documents("first")),
    Target("warm pass over documents, to fastokens", 1.4, "×", True, _documents("warm")),
    Target(
        "agent transcripts with special tokens, first pass, to fastokens", 1.5, "×", True,
        lambda results: ratios(results, "first", ["agent_chats"], ["fastokens"]),
    ),
    Target("documents of tokenizers that a peer refuses, to the reference", 30, "×", True, _against_reference),
    Target("hello world", 120, " ns", False, _calls("hello")),
    Target("256 ASCII characters", 300, " ns", False, _calls("ascii_256")),
    Target("256 characters, not ASCII", 500, " ns", False, _calls("non_ascii_256")),
    Target("warm load to first IDs, file trusted", 5, " ms", False, _loads("warm")),
    Target("warm load to first IDs, file hashed", 15, " ms", False, _loads("rehashed")),
    Target("cold compile to first IDs", 1500, " ms", False, _loads("cold")),
    Target("batch on two threads, to two processes", 0.9, "×", True, _threads(False)),
    Target("one long text on two threads, to two processes", 0.75, "×", True, _threads(True)),
    Target(
        "growth of resident memory after warm-up", 1, " MB", False,
        _memory(lambda row: row["soaked"]["rss"] - row["warmed"]["rss"]),
    ),
    Target(
        "memory of a context", 12, " MB", False,
        _memory(lambda row: row["soaked"]["private"] - row["loaded"]["private"]),
    ),
    Target("resident memory of the process", 80, " MB", False, _memory(lambda row: row["soaked"]["rss"])),
    Target(
        "hostile pieces, first pass, to the better of fastokens and gigatoken", 0.9, "×", True,
        lambda results: ratios(results, "first", GROUPS["hostile"], ["fastokens", "gigatoken"]),
    ),
)  # fmt: skip
