"""The driver of generators: what each outcome is, and the generators of registry tables under it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.material import ROOT

GENERATOR = """
import sys
from pathlib import Path
sys.path[:0] = [{root!r}, {root!r} + "/tools"]
from checked_output import Declined, run

def generate(arguments):
    if not arguments.source.is_file():
        raise Declined("nothing to compare with")
    return {{Path({target!r}): arguments.source.read_bytes()}}

def check_alone():
    data = Path({target!r}).read_bytes()
    return [] if data.startswith(b"good") else ["not good"]

raise SystemExit(run("Writes a file.", generate, check_alone, source=Path({source!r})))
"""


def run(script: Path | str, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, str(script), *arguments]
    outcome = subprocess.run(command, capture_output=True, text=True, cwd="/")
    return outcome.returncode, outcome.stderr


@pytest.fixture
def generator(tmp_path: Path) -> Path:
    script = tmp_path / "generate.py"
    target, source = tmp_path / "target", tmp_path / "source"
    script.write_text(GENERATOR.format(root=str(ROOT), target=str(target), source=str(source)))
    return script


def test_writes_and_then_agrees(generator: Path) -> None:
    (generator.parent / "source").write_bytes(b"good")
    assert run(generator, "--check") == (1, "error: target differs from what is generated; run tools/generate.py\n")
    assert not (generator.parent / "target").exists()
    assert run(generator) == (0, "")
    assert run(generator, "--check") == (0, "")
    (generator.parent / "target").write_bytes(b"goof")
    assert run(generator, "--check")[0] == 1


def test_without_the_input_the_output_is_checked_alone(generator: Path) -> None:
    assert run(generator) == (2, "error: nothing to compare with; nothing was written\n")
    (generator.parent / "target").write_bytes(b"good enough")
    assert run(generator, "--check") == (3, "declined: nothing to compare with\n")
    (generator.parent / "target").write_bytes(b"bad")
    code, said = run(generator, "--check")
    assert (code, "declined:" in said, "error: not good" in said) == (1, True, True)


@pytest.mark.parametrize("name", ["generate_pins.py", "generate_siblings.py"])
def test_the_tables_are_what_is_generated(name: str, tmp_path: Path) -> None:
    code, said = run(ROOT / "tools" / name, "--check")
    assert code in (0, 3), said
    assert (code == 3) == ("declined:" in said)
    code, said = run(ROOT / "tools" / name, "--check", "--source", str(tmp_path / "absent.json"))
    assert (code, "declined:" in said) == (3, True)
