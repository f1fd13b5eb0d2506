"""The page and the figure are functions of the results; --check sees a page that is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.scripts import PLACE, script

PAGE = PLACE.parent / "docs" / "benchmarks.md"


def cell(artifact: str, workload: str, engine: str, nanoseconds: int, status: str = "ok") -> dict[str, Any]:
    section = [{"wall_ns": nanoseconds, "cpu_ns": nanoseconds}, {"wall_ns": nanoseconds, "cpu_ns": nanoseconds + 9}]
    empty = status in ("refused", "absent")
    return {
        "artifact": artifact, "workload": workload, "engine": engine, "status": status,
        "reason": None if status == "ok" else f"why it is {status} | really", "tokens": 10, "differing": 0,
        "load_ns": [] if empty else [5_000_000], "first_call_ns": [] if empty else [40_000],
        "first": [] if empty else section, "warm": [] if empty else section,
    }  # fmt: skip


def results(ours: int = 1_000) -> dict[str, Any]:
    """Two artifacts, ours at `ours` nanoseconds for a kilobyte; fastokens at 2,000, and refusing the second."""
    facts = {"kind": "passes", "texts": 1, "bytes": 1_000, "calls": 0}
    calls = {"kind": "calls", "texts": 1, "bytes": 11, "calls": 100}
    times = {"import_ns": [9], "load_ns": [1_000_000], "first_ids_ns": [1_500_000], "first_ids_cpu_ns": [1_400_000]}
    ours_of_one = {"artifact": "one", "engine": "toktier", "status": "ok"}
    memory = {"rss": 50_000_000, "private": 20_000_000}
    return {
        "schema": "toktier.bench_results", "schema_version": 1, "date": "2026-01-02",
        "machine": {"processor": "Some CPU", "cores": 2, "cores_used": 2, "caches": {"L2": "1M"}, "memory_bytes": 10**9,
                    "system": "Linux 6 x86_64", "libc": "glibc 2.36", "python": "3.11.2"},
        "engine_identity": "a" * 64,
        "versions": {"toktier": "0.1.0", "tokenizers": "0.23.3", "fastokens": "0.3.5", "tiktoken": None},
        "method": {"rounds": 3, "warm": 2, "document_bytes": 1, "piece_bytes": 1, "calls": 100,
                   "load_average": {"before": 0.1, "after": 0.2}},
        "artifacts": {"one": {"sha256": "b" * 64, "bytes": 5}, "two": {"sha256": "c" * 64, "bytes": 5}},
        "workloads": {"one/english": facts, "one/hello": calls, "two/english": facts},
        "cells": [
            cell("one", "english", "toktier", ours), cell("one", "english", "tokenizers", 100_000),
            cell("one", "english", "fastokens", 2_000),
            cell("one", "hello", "toktier", 10_000), cell("one", "hello", "tokenizers", 400_000),
            cell("one", "hello", "fastokens", 30_000),
            cell("two", "english", "toktier", ours), cell("two", "english", "tokenizers", 100_000),
            cell("two", "english", "fastokens", 0, "refused"),
        ],
        "loads": [{**ours_of_one, "cold": times, "warm": times, "rehashed": times}],
        "threads": [{**ours_of_one, "reason": None, "bytes": 1000,
                     "long_bytes": 1000, "one_thread_ns": [200], "two_threads_ns": [110], "two_processes_ns": [100],
                     "long_one_thread_ns": [200], "long_ns": [150]}],
        "resident": [{**ours_of_one, "reason": None, "bytes_encoded": 64_000_000,
                      "loaded": memory, "first_call": memory, "warmed": memory,
                      "soaked": {"rss": 50_000_000, "private": 29_000_000}}],
        "left_out": [],
    }  # fmt: skip


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "benchmarks.md").write_text(PAGE.read_text("utf-8"), "utf-8")
    (tmp_path / "results.json").write_text(json.dumps(results()), "utf-8")
    return tmp_path


def report(place: Path, *more: str) -> int:
    names = ("--results", "results.json"), ("--page", "benchmarks.md"), ("--figure", "benchmarks.svg")
    code = script("report").main([part for option, name in names for part in (option, str(place / name))] + list(more))
    assert isinstance(code, int)
    return code


def test_the_page_is_what_the_results_give() -> None:
    """Of the repository itself: also where no run is recorded."""
    assert script("report").main(["--check"]) == 0


def test_the_same_results_give_the_same_bytes() -> None:
    made = script("report").blocks(results())
    assert made == script("report").blocks(json.loads(json.dumps(results())))
    page = PAGE.read_text("utf-8")
    once = script("report").filled(page, results())
    assert script("report").filled(once, results()) == once
    assert script("report").filled(once, None) == script("report").filled(page, None)


def test_what_the_tables_say() -> None:
    made = script("report").blocks(results())
    assert "| one | english | 1,000 MB/s | 10 MB/s (×100.00) | 500 MB/s (×2.00) |" in made["documents-first"]
    assert "| two | english | 1,000 MB/s | 10 MB/s (×100.00) | refused |" in made["documents-first"]
    assert "| one | hello | 100 ns | 4,000 ns (×40.00) | 300 ns (×3.00) |" in made["short"]
    assert "two | all | refused: why it is refused \\| really" in made["refusals"]
    assert made["losses"] == "In no cell of this run."
    assert "10,000 MB/s" in made["threads"]
    assert "9,091 MB/s (0.91)" in made["threads"]
    assert made["long"] == "Not measured in this run."


def test_a_target_is_judged_by_its_worst_cell() -> None:
    by_name = {target.what: target for target in script("targets").TARGETS}
    first = by_name["first pass over distinct documents, to fastokens"]
    assert first.worst(results()) == (2.0, "one/english")
    slower = results()
    slower["workloads"]["two/english"] = slower["workloads"]["one/english"]
    slower["cells"][-1] = cell("two", "english", "fastokens", 1_200)
    value, where = first.worst(slower)
    assert (round(value, 2), where) == (1.2, "two/english")
    assert not first.met(value)
    assert by_name["hello world"].worst(results()) == (100.0, "one/hello")
    assert by_name["memory of a context"].worst(results()) == (9.0, "one")
    assert by_name["documents of tokenizers that a peer refuses, to the reference"].worst(results()) == (
        100.0,
        "two/english",
    )
    assert by_name["256 ASCII characters"].worst(results()) is None


def test_wrong_ids_meet_no_target() -> None:
    wrong = results()
    wrong["cells"][0] = cell("one", "english", "toktier", 1, "wrong")
    first = next(t for t in script("targets").TARGETS if t.what.startswith("first pass over"))
    assert first.worst(wrong) == (0.0, "one/english")
    assert "| one | english | WRONG |" in script("report").blocks(wrong)["documents-first"]


def test_an_engine_that_is_ahead_is_named() -> None:
    assert (
        "| one/english | first | 250 MB/s | fastokens: 500 MB/s |" in script("report").blocks(results(4_000))["losses"]
    )


def test_a_page_with_other_blocks_is_refused() -> None:
    page = PAGE.read_text("utf-8")
    for bad in (page.replace("<!-- bench:hostile -->", ""), page.replace("<!-- /bench:hostile -->", ""),
                page + "\n<!-- bench:new -->\n<!-- /bench:new -->\n"):  # fmt: skip
        with pytest.raises(ValueError, match="block"):
            script("report").filled(bad, results())


def test_check_sees_a_page_of_other_results(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    assert report(place, "--check") == 1
    assert report(place) == 0
    assert report(place, "--check") == 0
    drawn = (place / "benchmarks.svg").read_bytes()
    assert report(place) == 0
    assert (place / "benchmarks.svg").read_bytes() == drawn
    (place / "results.json").write_text(json.dumps(results(999)), "utf-8")
    assert report(place, "--check") == 1
    assert "benchmarks.svg" in capsys.readouterr().err
