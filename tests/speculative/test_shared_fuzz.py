"""A million operations of native/tests/shared_lookup_fuzz.cpp: against an exact model, with tables that are too small,
with eight threads and forks, and with eight threads under ThreadSanitizer. CI runs it shorter, under AddressSanitizer.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.material import ROOT
from tests.support.simt_build import compiler

NATIVE = ROOT / "native"
SOURCES = [NATIVE / "tests" / "shared_lookup_fuzz.cpp", *sorted((NATIVE / "speculative").glob("*.cpp"))]


def built(directory: Path, *flags: str) -> Path:
    found = compiler()
    assert found is not None
    line = [found, "-std=c++20", "-g", "-Wall", "-Wextra", "-Werror", *flags, f"-I{NATIVE}", "-pthread"]
    program = directory / "shared_lookup_fuzz"
    subprocess.run([*line, *map(str, SOURCES), "-o", str(program)], check=True)
    return program


def run_a_million(program: Path, mode: str) -> None:
    options = {"TSAN_OPTIONS": "halt_on_error=1:exitcode=66"}
    run = subprocess.run([program, mode, "1000000"], capture_output=True, text=True, env=options)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith(f"{mode}: 1000000 operations")


@pytest.mark.full
def test_against_models(tmp_path: Path) -> None:
    program = built(tmp_path, "-O2")
    for mode in ("model", "sound", "threads"):
        run_a_million(program, mode)


@pytest.mark.full
def test_eight_threads_under_thread_sanitizer(tmp_path: Path) -> None:
    # GCC warns that fences are unknown to it. All that they order is atomic, so that no race hides behind them.
    run_a_million(built(tmp_path, "-O1", "-fsanitize=thread", "-Wno-tsan"), "threads")
