"""A tiny run of the benchmark of the batcher: what it prints and writes. Nothing here is judged by time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.material import ROOT, SMALL_DIR


@pytest.mark.ci
@pytest.mark.unsanitized  # another interpreter
@pytest.mark.parametrize("backend", ["fast_cpu", "hf"])
def test_a_run_says_what_held(backend: str, tmp_path: Path) -> None:
    out = tmp_path / "batcher.json"
    line = [str(SMALL_DIR / "gpt2_like.json"), "--backend", backend, "--texts", "60", "--size", "100"]
    line += ["--rounds", "1", "--callers", "8", "--seconds", "0.05", "--json", str(out)]
    ran = subprocess.run(
        [sys.executable, "benchmarks/batcher.py", *line], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    document = json.loads(out.read_text("utf-8"))
    assert (document["backend"], document["texts"], document["callers"]) == (backend, 60, 8)
    assert {row["megabytes_per_second"] > 0 for row in document["throughput"].values()} == {True}
    held = document["cancellations"]
    assert (held["wrong"], held["lost"], held["answered"] + held["cancelled"]) == (0, 0, 60)
    for name in document["throughput"]:
        assert name in ran.stdout
    assert "target: wait_p99 at most 2 ms" in ran.stdout
