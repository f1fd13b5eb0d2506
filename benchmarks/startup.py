#!/usr/bin/env python3
"""Start-up of the command: each line many times in a process of its own, wall and CPU time beside the budget.

Rounds go through all lines in turn, so that all meet the same seconds of a machine. CPU time (user and system) is what
the budgets are held against: other work on the machine disturbs it least. Byte code is written before anything is
timed, as an installer does. The line `python -c pass` is in the table: a budget is for a machine on which it takes
8 ms, and "scaled" is the CPU time brought to that machine. Not here: what a verb does with much text; what must not
be imported (tests/cli/test_startup.py).

    python benchmarks/startup.py --tokenizer qwen3_8b=tokenizer.json --json startup.json
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REFERENCE_MS = 8.0  # `python -c pass` on the machine of the budgets
PLAIN = ("python -c pass", [sys.executable, "-c", "pass"], None)
# Line, budget in ms: of the contract of the command, and for the rest what was set for it.
LINES: tuple[tuple[str, float | None], ...] = (
    ("--version", 40),
    ("--help", 90),
    ("inspect", 90),
    ("inspect {family}", 90),
    ("inspect {family} --json", None),
    ("doctor --json", 200),
    ("encode --family toktier_mini --policy supported hello", None),
    ("artifacts verify", 100),
)


def command() -> list[str]:
    beside = Path(sys.executable).with_name("toktier")
    found = str(beside) if beside.exists() else shutil.which("toktier")
    return [sys.executable, "-m", "toktier_cli.main"] if found is None else [found]


def once(line: list[str], environ: dict[str, str]) -> tuple[float, float]:
    """Wall and CPU milliseconds of one run."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(line, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(line)} ended with {done.returncode}: {done.stderr.decode()}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return 1000 * wall, 1000 * cpu


def prepared(directory: Path, tokenizer: str | None) -> tuple[dict[str, str], str]:
    """The environment of the runs, with a cache that has been used before, and the family in it."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("TOKTIER_", "PYTHON"))}
    environ |= {"TOKTIER_HOME": str(directory / "home"), "PYTHONPYCACHEPREFIX": str(directory / "bytecode")}
    family = "toktier_mini"
    if tokenizer is not None:
        family, _, path = tokenizer.partition("=")
        subprocess.run([*command(), "artifacts", "import", path], env=environ, check=True, stdout=subprocess.DEVNULL)
        time.sleep(2.5)  # a file is trusted to be the one that was hashed two seconds after it was written
    return environ, family


def measure(rounds: int, tokenizer: str | None) -> list[dict[str, object]]:
    with tempfile.TemporaryDirectory() as directory:
        environ, family = prepared(Path(directory), tokenizer)
        lines = [PLAIN, *((f"toktier {line}".format(family=family), [*command(), *line.format(family=family).split()],
                           budget) for line, budget in LINES)]  # fmt: skip
        if tokenizer is None:  # nothing is in the cache that could be verified
            lines = [line for line in lines if "verify" not in line[0]]
        for _ in range(2):
            for _, line, _ in lines:
                once(line, environ)
        seen: dict[str, list[tuple[float, float]]] = {name: [] for name, _, _ in lines}
        for _ in range(rounds):
            for name, line, _ in lines:
                seen[name].append(once(line, environ))
    plain = statistics.median(cpu for _, cpu in seen[PLAIN[0]])
    return [
        {
            "line": name,
            "budget_ms": budget,
            "runs": rounds,
            "wall_median_ms": round(statistics.median(wall for wall, _ in seen[name]), 1),
            "wall_best_ms": round(min(wall for wall, _ in seen[name]), 1),
            "cpu_median_ms": round(statistics.median(cpu for _, cpu in seen[name]), 1),
            "cpu_best_ms": round(min(cpu for _, cpu in seen[name]), 1),
            "cpu_scaled_ms": round(statistics.median(cpu for _, cpu in seen[name]) * REFERENCE_MS / plain, 1),
        }
        for name, _, budget in lines
    ]


COLUMNS = {
    "budget_ms": "budget",
    "cpu_scaled_ms": "CPU, scaled",
    "cpu_median_ms": "CPU, median",
    "cpu_best_ms": "CPU, best",
    "wall_median_ms": "wall, median",
    "wall_best_ms": "wall, best",
}


def table(rows: list[dict[str, object]]) -> str:
    head = f"| line | {' | '.join(COLUMNS.values())} |\n|---|{'--:|' * len(COLUMNS)}\n"
    cells = ([f"`{row['line']}`", *("-" if row[key] is None else str(row[key]) for key in COLUMNS)] for row in rows)
    return head + "".join(f"| {' | '.join(line)} |\n" for line in cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=25, help="runs of each line (default: 25)")
    parser.add_argument("--tokenizer", metavar="FAMILY=FILE", help="a pinned tokenizer.json to inspect and verify")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here, too")
    given = parser.parse_args()
    load = os.getloadavg()[0]
    rows = measure(given.rounds, given.tokenizer)
    print(f"Python {platform.python_version()}, {os.cpu_count()} CPUs; milliseconds")
    print(f"load average {load:.2f} before, {os.getloadavg()[0]:.2f} after\n")
    print(table(rows), end="")
    if given.json is not None:
        machine = {"python": platform.python_version(), "cpus": os.cpu_count(), "load_before": load}
        given.json.write_text(json.dumps({"machine": machine, "lines": rows}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
