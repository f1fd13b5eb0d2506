"""What a second thread brings: a batch on two threads beside two processes with half of it each, and the same
documents as one long text.

Two processes that share nothing are what this machine can give at best, so they are measured in the same rounds and
figures are ratios to them. Wall time from a common tick to the end of the last one. Needs two processors.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engines import REFERENCE, Places
from side_by_side import reference_digests
from workers import Worker, WorkerFailed, opened
from workloads import Workload

AHEAD_NS = 50_000_000  # from asking to the common tick: fresh texts of a pass take a few milliseconds


def measure(
    names: Sequence[str],
    file: Path,
    batch: Workload,
    long: Workload,
    *,
    cpus: Sequence[int],
    places: Places,
    rounds: int,
) -> list[dict[str, Any]]:
    """One row an engine: `two_threads_ns`, `two_processes_ns`, `one_thread_ns`, `long_ns` and `long_one_thread_ns`,
    each with an entry a round."""
    expected = reference_digests(file, batch, cpu=cpus[0], places=places)
    expected_long = reference_digests(file, long, cpu=cpus[0], places=places)
    return [
        _row(name, file, batch, long, expected, expected_long, list(cpus[:2]), places, rounds)
        for name in names
        if name != REFERENCE
    ]


def _row(
    name: str,
    file: Path,
    batch: Workload,
    long: Workload,
    expected: list[str],
    expected_long: list[str],
    cpus: list[int],
    places: Places,
    rounds: int,
) -> dict[str, Any]:
    kinds = ("one_thread_ns", "two_threads_ns", "two_processes_ns", "long_one_thread_ns", "long_ns")
    row: dict[str, Any] = {"engine": name, "status": "ok", "reason": None, **{kind: [] for kind in kinds}}
    row |= {"bytes": batch.utf8_bytes, "long_bytes": long.utf8_bytes}
    half = _half(batch)
    parts = (batch.texts[:half], batch.texts[half:])

    def timed(kind: str, asked: Sequence[tuple[Worker, int]], wanted: Sequence[str]) -> None:
        """Each worker's texts at once, from the same tick on."""
        for worker, _ in asked:
            worker.ask("touch_batch")
        at = time.monotonic_ns() + AHEAD_NS
        for worker, threads in asked:
            worker.send("batch", threads=threads, at_ns=at)
        answers = [worker.receive() for worker, _ in asked]
        row[kind].append(max(answer["end_ns"] for answer in answers) - min(a["start_ns"] for a in answers))
        if [digest for answer in answers for digest in answer["digests"]] != list(wanted):
            row.update(status="wrong", reason=f"{kind}: results differ from the reference's")

    try:
        with (
            opened([name], file, cpus, places) as both,
            opened([name], file, cpus[:1], places) as left,
            opened([name], file, cpus[1:], places) as right,
        ):
            workers = [group[name] for group in (both, left, right)]
            ready = [worker for worker in workers if isinstance(worker, Worker) and worker.ready]
            if len(ready) < 3:
                worker = workers[0]
                reason = worker if isinstance(worker, str) else worker.refused
                return row | {"status": "absent" if reason is None else "refused", "reason": reason}
            whole, first, second = ready
            first.ask("take", texts=list(parts[0]))
            second.ask("take", texts=list(parts[1]))
            for _ in range(rounds):
                whole.ask("take", texts=list(batch.texts))
                timed("two_threads_ns", [(whole, 2)], expected)
                timed("two_processes_ns", [(first, 1), (second, 1)], expected)
                timed("one_thread_ns", [(whole, 1)], expected)
                whole.ask("take", texts=list(long.texts))
                timed("long_ns", [(whole, 2)], expected_long)
                timed("long_one_thread_ns", [(whole, 1)], expected_long)
    except WorkerFailed as error:
        row.update(status="failed", reason=str(error))
    return row


def _half(workload: Workload) -> int:
    """Where the texts are cut into two parts of about the same size."""
    size, half = 0, workload.utf8_bytes / 2
    for at, text in enumerate(workload.texts):
        size += len(text.encode())
        if size >= half:
            return at + 1
    return len(workload.texts)
