"""Start-up: modules that must not be loaded on the quick paths, how many are, and how much is done. Counts, no time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import environment
from tests.support.material import ROOT

HEAVY = {"rich", "huggingface_hub", "jsonschema", "numpy", "tokenizers", "importlib.metadata", "asyncio", "ssl", "http",
         "email", "pydantic", "concurrent.futures", "multiprocessing", "click", "zstandard", "cuda", "glob",
         "toktier.inspection"}  # fmt: skip


def loaded(home: Path, *arguments: str) -> set[str]:
    """Modules after the command ran in a fresh interpreter, without those that any interpreter has."""
    script = (
        "import sys\nbefore = set(sys.modules)\nfrom toktier_cli.main import main\n"
        "import os\nout = os.dup(2)\nmain(sys.argv[1:])\n"
        "os.write(out, '\\n'.join(set(sys.modules) - before).encode())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, cwd=ROOT, env=environment(home)
    )
    return set(done.stderr.split("\n"))


def heavy(modules: set[str]) -> set[str]:
    return {h for h in HEAVY if any(m == h or m.startswith(h + ".") for m in modules)}


def test_version_needs_no_framework(tmp_path: Path) -> None:
    for line in (["--version"], ["-V"], ["--version", "--json"]):
        modules = loaded(tmp_path, *line)
        assert "toktier.version" in modules
        assert not any(m.startswith("typer") for m in modules)
        assert heavy(modules) == set()
        assert len(modules) < 45, sorted(modules)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["encode", "--help"],
        ["inspect"],
        ["inspect", "qwen3_8b"],
        ["inspect", "toktier_mini"],
        ["artifacts", "list", "--available"],
        ["artifacts", "list", "--json"],
        ["help", "exit-codes"],
        ["config", "show"],
        ["session", "list"],
        ["gpu", "compile", "--help"],
        ["doctor", "--json"],
        ["encode", "--family", "toktier_mini", "--policy", "supported", "hello"],
        ["count", "--family", "toktier_mini", "--policy", "supported", "README.md"],
    ],
    ids=" ".join,
)
def test_quick_paths_load_nothing_heavy(tmp_path: Path, arguments: list[str]) -> None:
    if "toktier_mini" in arguments:
        loaded(tmp_path, *arguments)  # compiles; from then on no compiler is loaded either
    modules = loaded(tmp_path, *arguments)
    assert "toktier_cli.app" in modules
    assert heavy(modules) == set()
    assert "toktier.program.compile" not in modules
    assert len(modules) < 260, f"{len(modules)} modules"


# Calls of functions, Python's and built in, on a cache that has been used before: work that no load of the machine
# disturbs. Bounds are half as much again as was counted with Python 3.11; half of it is the imports of the framework.
CALLS = {
    "--version": 1_000,
    "--help": 100_000,
    "inspect": 135_000,
    "inspect toktier_mini": 167_000,
    "inspect toktier_mini --json": 250_000,
    "doctor --json": 190_000,
}


def calls(home: Path, *arguments: str) -> int:
    script = (
        "import os, sys\nfrom toktier_cli.main import main\ncount = 0\n"
        "def counted(frame, event, argument):\n    global count\n    count += event in ('call', 'c_call')\n"
        "out = os.dup(2)\nsys.setprofile(counted)\nmain(sys.argv[1:])\nsys.setprofile(None)\n"
        "os.write(out, b'\\n%d' % count)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, cwd=ROOT, env=environment(home)
    )
    return int(done.stderr.split("\n")[-1])


@pytest.mark.parametrize("line", CALLS)
def test_the_quick_paths_do_little(tmp_path: Path, line: str) -> None:
    calls(tmp_path, *line.split())  # compiles
    counted = calls(tmp_path, *line.split())
    assert counted <= CALLS[line]
