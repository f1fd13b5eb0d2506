"""Engines side by side on one workload: the first pass of a fresh process, then warm passes, in turns on one processor.

A round starts a process for each engine, lets each load and answer one short call (what an engine puts off until then
is figured apart), and then gives each its first pass, one after the other; the order is another in each round. Warm
passes follow in turns, each behind a pass that is not timed. Every timed result is compared with the reference's.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engines import REFERENCE, Places
from workers import Worker, WorkerFailed, opened
from workloads import Workload

SLOW_NS = 10_000_000_000
FIRST_TEXT = "hello world"


def compare(
    names: Sequence[str],
    file: Path,
    workload: Workload,
    *,
    cpu: int,
    places: Places,
    rounds: int,
    warm: int,
) -> list[dict[str, Any]]:
    """One cell an engine, in the order of `names`, which hold the reference. `warm`: timed warm passes in a round."""
    cells = {name: _cell(name) for name in names}
    expected = reference_digests(file, workload, cpu=cpu, places=places)
    for number in range(rounds):
        shift = number % len(names)
        asked = [name for name in (*names[shift:], *names[:shift]) if cells[name]["status"] in ("ok", "wrong")]
        with opened(asked, file, [cpu], places) as workers:
            ready = _ready(cells, workers)
            for worker in ready:
                _attempt(cells, worker, lambda w=worker: _begin(cells[w.name], w, workload))
            for worker in ready:
                _attempt(cells, worker, lambda w=worker: _pass(cells[w.name], "first", w, workload, expected))
            for _ in range(warm):
                for worker in ready:
                    if _worth_repeating(cells[worker.name], workload):
                        _attempt(cells, worker, lambda w=worker: _warm(cells[w.name], w, workload, expected))
    return list(cells.values())


def _worth_repeating(cell: dict[str, Any], workload: Workload) -> bool:
    """Not where a second pass is as the first (the reference's), or where the first took longer than anyone waits."""
    if workload.kind == "calls":
        return True
    return cell["engine"] != REFERENCE and all(s["wall_ns"] < SLOW_NS for s in cell["first"])


def _cell(name: str) -> dict[str, Any]:
    empty: dict[str, Any] = {"engine": name, "status": "ok", "reason": None, "tokens": None, "differing": 0}
    return empty | {"load_ns": [], "first_call_ns": [], "first": [], "warm": []}


def _ready(cells: dict[str, dict[str, Any]], workers: dict[str, Worker | str]) -> list[Worker]:
    ready = []
    for name, worker in workers.items():
        if isinstance(worker, str):
            cells[name] |= {"status": "failed", "reason": worker}
        elif worker.absent:
            cells[name] |= {"status": "absent"}
        elif worker.refused is not None:
            cells[name] |= {"status": "refused", "reason": worker.refused}
        else:
            ready.append(worker)
    return ready


def reference_digests(file: Path, workload: Workload, *, cpu: int, places: Places) -> list[str]:
    """Digests of the reference's ids of every text, from a process of its own that is not timed."""
    with opened([REFERENCE], file, [cpu], places) as workers:
        worker = workers[REFERENCE]
        if not isinstance(worker, Worker):
            raise WorkerFailed(f"the reference cannot load the file: {worker}")
        worker.ask("take", texts=list(workload.texts))
        digests: list[str] = worker.ask("run")["digests"]
        return digests


def _attempt(cells: dict[str, dict[str, Any]], worker: Worker, step: Any) -> None:
    """An engine that fails half-way has a cell that says so, and no more turns."""
    if cells[worker.name]["status"] not in ("ok", "wrong"):
        return
    try:
        step()
    except WorkerFailed as error:
        cells[worker.name] |= {"status": "failed", "reason": str(error)}


def _begin(cell: dict[str, Any], worker: Worker, workload: Workload) -> None:
    cell["load_ns"].append(worker.load_ns)
    cell["first_call_ns"].append(worker.ask("one", text=FIRST_TEXT)["wall_ns"])
    worker.ask("take", texts=list(workload.texts))


def _pass(cell: dict[str, Any], kind: str, worker: Worker, workload: Workload, expected: Sequence[str]) -> None:
    if workload.kind == "calls":
        took = worker.ask("calls", count=workload.calls)
        count = len(took["digests"])
        wanted = [expected[i % len(expected)] for i in range(workload.calls)][-count:]
    else:
        took = worker.ask("run")
        wanted = list(expected)
        cell["tokens"] = took["tokens"]
    cell[kind].append({"wall_ns": took["wall_ns"], "cpu_ns": took["cpu_ns"]})
    differing = sum(a != b for a, b in zip(took["digests"], wanted, strict=True))
    if differing:
        cell |= {"status": "wrong", "differing": max(differing, cell["differing"])}
        cell["reason"] = f"{cell['differing']} of {len(wanted)} results differ from the reference's"


def _warm(cell: dict[str, Any], worker: Worker, workload: Workload, expected: Sequence[str]) -> None:
    worker.ask("touch")
    _pass(cell, "warm", worker, workload, expected)
