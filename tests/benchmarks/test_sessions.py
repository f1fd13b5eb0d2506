"""A tiny run of the benchmark of sessions, what it calls wrong, and what its tables and targets say of a run.

Nothing here is judged by time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from jsonschema import Draft202012Validator

from tests.benchmarks.scripts import PLACE, script

OURS, REFERENCE, NAMESAKE = "toktier", "tokenizers", "namesake"
KI, MI = 1 << 10, 1 << 20


def conforming(document: Any) -> Any:
    schema = json.loads((PLACE / "sessions.schema.json").read_text("utf-8"))
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(document)
    return document


@pytest.fixture
def corpora(tmp_path: Path) -> Path:
    place = tmp_path / "corpora"
    place.mkdir()
    chats = [
        [{"role": "user", "content": f"list größer-{n} 港 " * 9}, {"role": "tool", "content": "- a\n" * n}]
        for n in range(8)
    ]
    (place / "agent_chats.jsonl.zst").write_bytes(
        zstandard.ZstdCompressor().compress("\n".join(map(json.dumps, chats)).encode())
    )
    return place


def run(tmp_path: Path, *arguments: str, code: int = 0) -> tuple[Any, str]:
    """The document of a run, held to the schema, and what it printed."""
    out = tmp_path / "sessions.json"
    line = [sys.executable, str(PLACE / "sessions.py"), "--quick", *arguments, "--out", str(out)]
    ran = subprocess.run(line, capture_output=True, text=True, check=False)
    assert ran.returncode == code, ran.stdout + ran.stderr
    return conforming(json.loads(out.read_text("utf-8"))), ran.stdout


def seen(document: Any, engine: str) -> dict[tuple[str, str | None], list[Any]]:
    found: dict[tuple[str, str | None], list[Any]] = {}
    for cell in document["cells"]:
        if cell["engine"] == engine:
            found.setdefault((cell["measure"], cell["mode"]), []).append(cell)
    return found


@pytest.mark.ci
def test_everything_is_measured_and_compared(tmp_path: Path, corpora: Path) -> None:
    document, _ = run(tmp_path, "--corpora", str(corpora), "--store-dir", str(tmp_path))
    ours, reference = seen(document, OURS), seen(document, REFERENCE)
    modes = ("memory", "process", "full")
    assert set(reference) == {("fresh", None)}
    expected = {
        ("fresh", None), *((measure, mode) for measure in ("append", "replace") for mode in modes),
        *((measure, mode) for measure in ("transcript", "memory") for mode in ("memory", "process")),
        ("lookup_prefix", "process"), ("lookup_encode", "process"),
        *((f"reopen_{kind}", mode) for kind in ("session", "imported", "process") for mode in ("process", "full")),
    }  # fmt: skip
    if not document["left_out"]:
        expected |= {("written", "process"), ("written", "full")}
    assert set(ours) == expected
    assert [cell["status"] for cell in document["cells"] if cell["status"] != "ok"] == []
    assert all(cell["count"] >= 1 and cell["best"] <= cell["median"] <= cell["p90"] for cell in document["cells"])
    appends = {(cell["characters"], cell["delta"]) for cell in ours["append", "memory"]}
    assert appends == {(size, delta) for size in document["method"]["sizes"] for delta in (16, 256, 4096)}
    told = json.dumps(document)
    for part in (str(tmp_path), str(PLACE.parent), os.sep + "usr"):
        assert part not in told


def test_without_the_corpus_nothing_is_measured_and_the_reason_is_told(tmp_path: Path) -> None:
    document, printed = run(tmp_path, "--corpora", str(tmp_path / "nowhere"))
    assert document["cells"] == []
    reason = "the corpus agent_chats is not here"
    assert document["left_out"] == [{"artifact": "toktier_mini", "what": "all", "reason": reason}]
    assert f"left out: {reason}" in printed


def answers(place: Path, replies: dict[str, Any]) -> Any:
    """What one artifact's cells become when the workers answer so: `replies` by task."""
    sessions = script("sessions")
    options = sessions._parser().parse_args(["--quick"])
    whole = sessions.Run(options, place)
    artifact = sessions.Artifact(whole, "one", place / "tokenizer.json", place)
    artifact._ask = lambda engine, task, *more, **rest: replies[engine] if engine in replies else replies[task]
    artifact.measure()
    return whole.document


def times(keys: Iterable[str], digest: str, base: int = 4096) -> dict[str, Any]:
    check = {"base": base, "grown": "", "digest": digest}
    return {"times": {key: [7, 5, 6] for key in keys}, "checks": [check]}


def replies(appended: dict[str, Any], reference: dict[str, Any]) -> dict[str, Any]:
    other = times([""], "right")
    return {
        REFERENCE: reference, "fresh": times(["4096"], "right"), "appends": appended, "transcript": other,
        "memory": other, "lookup": times(["prefix", "encode"], "right"), "written": {"times": {"": [3]}, "checks": []},
        "make": {"times": {}, "checks": []}, "reopen": times(["session", "process"], "right"),
    }  # fmt: skip


def test_ids_that_differ_from_the_references_are_wrong_and_have_no_figure(tmp_path: Path) -> None:
    right = times(["4096"], "right")
    document = answers(tmp_path, replies(times(["4096/16", "4096/replace"], "other"), right))
    wrong = [cell for cell in document["cells"] if cell["status"] != "ok"]
    assert {(cell["measure"], cell["status"], cell["median"]) for cell in wrong} == {
        ("append", "wrong", None),
        ("replace", "wrong", None),
    }
    assert len(list(script("sessions").bad(document))) == len(wrong) == 6
    document = answers(tmp_path, replies(times(["4096/16"], "right"), right))
    assert list(script("sessions").bad(document)) == []


def test_a_session_that_nothing_was_compared_with_is_no_result(tmp_path: Path) -> None:
    document = answers(tmp_path, replies(times(["4096/16"], "right"), {"error": "the process ended with 9"}))
    failed = {(cell["engine"], cell["measure"], cell["status"]) for cell in document["cells"]}
    assert (REFERENCE, "fresh", "failed") in failed
    assert (OURS, "append", "failed") in failed
    assert all(cell["count"] == 0 for cell in document["cells"] if cell["status"] == "failed")


def test_a_worker_that_tells_nothing_of_ids_has_no_figure(tmp_path: Path) -> None:
    silent = {"times": {"4096/16": [5]}, "checks": []}
    document = answers(tmp_path, replies(silent, times(["4096"], "right")))
    assert {cell["status"] for cell in seen(document, OURS)["append", "memory"]} == {"failed"}
    assert seen(document, OURS)["written", "process"][0]["status"] == "ok"


def test_a_worker_that_fails_says_so_in_its_cell(tmp_path: Path) -> None:
    document = answers(tmp_path, replies({"error": "MemoryError"}, times(["4096"], "right")))
    (cell, *_) = seen(document, OURS)["append", "memory"]
    assert (cell["status"], cell["reason"], cell["count"]) == ("failed", "MemoryError", 0)
    assert any("MemoryError" in line for line in script("sessions").bad(document))


def cell(
    measure: str,
    mode: str | None,
    characters: int,
    delta: int | None,
    median: int,
    engine: str = OURS,
    status: str = "ok",
) -> dict[str, Any]:
    figures = {"count": 9, "best": median, "median": median, "p90": 2 * median}
    if status != "ok":
        figures = {"count": 0, "best": None, "median": None, "p90": None}
    return {
        "artifact": "one", "engine": engine, "measure": measure, "mode": mode, "characters": characters,
        "delta": delta, "status": status, "reason": None if status == "ok" else "why", **figures,
    }  # fmt: skip


def results(*cells: dict[str, Any]) -> dict[str, Any]:
    return {
        "schema": "toktier.session_bench_results", "schema_version": 1, "date": "2026-01-02",
        "machine": {"processor": "Some CPU", "cores": 2, "cores_used": 2, "caches": {"L2": "1M"}, "memory_bytes": 10**9,
                    "system": "Linux 6 x86_64", "libc": "glibc 2.36", "python": "3.11.2"},
        "engine_identity": "a" * 64, "versions": {OURS: "0.1.0", REFERENCE: "0.23.3", NAMESAKE: None},
        "method": {"sizes": [4096], "deltas": [16], "counts": [1], "rounds": 1, "long": 4096, "stored": 4096,
                   "calls": 1, "reopened": 1, "written": 1, "weighed": 1, "quick": False, "file_system": "ext4",
                   "load_average": {"before": 0.1, "after": 0.2}},
        "artifacts": {"one": {"sha256": "b" * 64, "bytes": 5}}, "cells": list(cells), "left_out": [],
    }  # fmt: skip


APPENDS = (
    cell("append", "memory", 256 * KI, 256, 8_000),
    cell("append", "memory", 4 * MI, 256, 9_000),
    cell("append", "memory", 16 * MI, 256, 16_000),
    cell("append", "process", 4 * MI, 256, 301_000),
    cell("append", "process", 4 * MI, 256, 45_000_000, NAMESAKE),
    cell("fresh", None, 4 * MI, None, 40_000_000),
    cell("fresh", None, 4 * MI, None, 1_800_000_000, REFERENCE),
    cell("memory", "memory", 4 * MI, None, 9_500_000),
    cell("replace", "memory", 4 * MI, 1024, 9_000, status="wrong"),
)


def test_targets_are_judged_by_medians() -> None:
    whole = conforming(results(*APPENDS))
    told = {target.what: (target.worst(whole), target) for target in script("session_targets").TARGETS}
    value = {what: found[0] for what, (found, _) in told.items() if found is not None}
    assert value == {
        "append of 256 characters to 4 Mi, in memory": 9.0,
        "append of 256 characters to 4 Mi, in a store": 301.0,
        "the same to 16 Mi, to 256 Ki, in memory": 2.0,
        "memory of a session of 4 Mi": 9.5,
    }
    met = {what for what, number in value.items() if told[what][1].met(number)}
    assert met == {"append of 256 characters to 4 Mi, in memory", "memory of a session of 4 Mi"}
    page = script("report").SESSION_BLOCKS["sessions-targets"](whole)
    assert "| append of 256 characters to 4 Mi, in a store | ≤ 300 µs | 301.00 µs (one) | **missed** |" in page
    assert (
        "| replacing the last 1 Ki of 4 Mi, in memory | ≤ 20 µs | not measured |  |" in page
    )  # a wrong cell is no figure


def test_the_tables_put_ours_beside_the_whole_text_and_the_namesake() -> None:
    blocks = {name: make(results(*APPENDS)) for name, make in script("report").SESSION_BLOCKS.items()}
    row = "| one | append of 256 | store | 4 Mi | 301.0 µs | 602.0 µs | 9 | 40.00 ms (×133) | 1,800.00 ms (×5,980) "
    assert row + "| 45.00 ms (×150) |" in blocks["sessions-appends"]
    assert "| one | last 1,024 replaced | memory | 4 Mi | WRONG |" in blocks["sessions-appends"]
    assert "| one | resident memory | memory | 4 Mi | 9.50 MB |" in blocks["sessions-others"]
    assert "| stores | on ext4 |" in blocks["sessions-machine"]


def test_medians_and_percentiles_are_of_single_calls() -> None:
    summary = script("session_tables").summary
    assert summary([5, 1, 9]) == {"count": 3, "best": 1, "median": 5, "p90": 9}
    assert summary(list(range(1, 11)))["p90"] == 9
    assert summary([])["median"] is None
