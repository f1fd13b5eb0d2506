"""Resident memory: after loading, after warming up, and after 64 MB of mixed text. What grows with traffic shows here.

The texts of all corpora in turn, over and over until the sum is reached; repeated ones with a running number inside, so
that no text comes twice. Results are dropped at once. `private`: what no other process shares, mapped tables aside.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engines import Places
from workers import Worker, WorkerFailed, opened
from workloads import LANGUAGES, Material, documents

WARM_BYTES = 8_000_000
BLOCK_BYTES = 4_000_000


def measure(
    names: Sequence[str], file: Path, material: Material, *, cpu: int, places: Places, total: int
) -> list[dict[str, Any]]:
    """One row an engine: bytes after each step."""
    rows = []
    for name in names:
        row: dict[str, Any] = {"engine": name, "status": "ok", "reason": None, "bytes_encoded": 0}
        try:
            with opened([name], file, [cpu], places, settle=False) as workers:
                worker = workers[name]
                if not isinstance(worker, Worker):
                    raise WorkerFailed(worker)
                if worker.ready:
                    row |= _soak(worker, material, total)
                else:
                    row |= {"status": "absent" if worker.absent else "refused", "reason": worker.refused}
        except WorkerFailed as error:
            row |= {"status": "failed", "reason": str(error)}
        rows.append(row)
    return rows


def _soak(worker: Worker, material: Material, total: int) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    base = worker.ask("memory")
    figures["loaded"] = base
    worker.ask("one", text="hello world")
    figures["first_call"] = worker.ask("memory")
    done = 0
    texts = [text for name in LANGUAGES for text in documents(name, material).texts[:200]]
    number = 0
    while done < total:
        block: list[str] = []
        size = 0
        while size < BLOCK_BYTES:
            text = texts[number * 7919 % len(texts)]  # a prime: all of them, mixed
            text = text if number < len(texts) else f"{text[: len(text) // 2]} {number} {text[len(text) // 2 :]}"
            block.append(text)
            size += len(text.encode())
            number += 1
        done += size
        worker.ask("soak", texts=block)
        if "warmed" not in figures and done >= min(WARM_BYTES, total // 4):
            figures["warmed"] = worker.ask("memory")
    figures["soaked"] = worker.ask("memory")
    figures["bytes_encoded"] = done
    return figures
