#!/usr/bin/env python3
"""From nothing to the first ids, in new processes: a warm load, one that hashes the file again, and a cold compile.

Measured after `import toktier`, whose own time stands beside (`import_ns`). The cache is a directory made for the run.
Run with `--child` this file is the new process. Not here: start-up of the command (`startup.py`).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SETTLED_SECONDS = 2.1  # a file that changed less than two seconds ago is trusted by nobody
TEXT = "hello world"


def measure(file: Path, *, cpu: int, runs: int) -> dict[str, Any]:
    """Nanoseconds of each run, by kind of load: `warm`, `rehashed`, `cold`."""
    figures: dict[str, list[dict[str, Any]]] = {"cold": [], "warm": [], "rehashed": []}
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place) / "tokenizer.json"
        shutil.copyfile(file, copy)  # its owner alone can write it, whatever the original is
        copy.chmod(0o600)
        time.sleep(SETTLED_SECONDS)
        home = Path(place) / "home"
        for _ in range(max(1, runs // 4)):
            shutil.rmtree(home, ignore_errors=True)
            figures["cold"].append(_child(copy, home, cpu))
        time.sleep(SETTLED_SECONDS)
        _child(copy, home, cpu)  # notes what may be trusted from now on
        for _ in range(runs):
            figures["warm"].append(_child(copy, home, cpu))
        for _ in range(runs):
            for hint in [*home.rglob("sources/*.json"), *home.rglob("*.verified")]:
                hint.unlink()
            figures["rehashed"].append(_child(copy, home, cpu))
    for kind, rows in figures.items():
        wanted = {"cold": (False, False), "warm": (True, True), "rehashed": (True, False)}[kind]
        seen = {(row.pop("from_cache"), row.pop("trusted")) for row in rows}
        if seen != {wanted}:
            raise AssertionError(f"a {kind} load was none: (from_cache, trusted) was {sorted(seen)}, not {wanted}")
    return {kind: {name: [row[name] for row in rows] for name in rows[0]} for kind, rows in figures.items()}


def _child(file: Path, home: Path, cpu: int) -> dict[str, Any]:
    environment = {**os.environ, "TOKTIER_HOME": str(home)}
    line = [sys.executable, str(Path(__file__).resolve()), "--child", str(file), "--cpu", str(cpu)]
    told = subprocess.run(line, env=environment, capture_output=True, text=True, check=True)
    row: dict[str, Any] = json.loads(told.stdout)
    return row


def child(file: str, cpu: int) -> dict[str, Any]:
    os.sched_setaffinity(0, [cpu])
    before = time.perf_counter_ns()
    import toktier

    toktier.from_file  # noqa: B018 - what the first use of the name imports belongs to the import
    start, cpu = time.perf_counter_ns(), time.process_time_ns()
    tok = toktier.from_file(
        file, policy="supported", tokenizer="fast_cpu", config=toktier.Config(tokenizer_fallback=False)
    )
    loaded = time.perf_counter_ns()
    ids = list(memoryview(tok.encode(TEXT)))
    end, cpu = time.perf_counter_ns(), time.process_time_ns() - cpu
    if not ids:
        raise AssertionError("no ids")
    told = tok.explain()["program"]
    return {
        "import_ns": start - before,
        "load_ns": loaded - start,
        "first_ids_ns": end - start,
        "first_ids_cpu_ns": cpu,
        "from_cache": told["from_cache"],
        "trusted": told["trusted"],
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--child", required=True)
    parser.add_argument("--cpu", type=int, required=True)
    options = parser.parse_args()
    print(json.dumps(child(options.child, options.cpu)))
