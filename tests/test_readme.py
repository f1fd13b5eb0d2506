"""The README says what is true: its Python runs, its commands run, its links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL)
COMMANDS = [
    line[2:].split("#")[0].strip()
    for language, block in BLOCKS
    if language == "console"
    for line in block.splitlines()
    if line.startswith("$ ") and "toktier " in line
]
NEEDS_FETCH = [c for c in COMMANDS if "qwen3_8b" in c]
CERTIFIES = [c for c in COMMANDS if "toktier certify" in c]


def test_python_blocks_run(tmp_path: Path) -> None:
    blocks = [block for language, block in BLOCKS if language == "python"]
    assert blocks
    for block in blocks:
        ran = subprocess.run(
            [sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, check=False
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        assert "fast_cpu" in ran.stdout


def run(command: str, home: Path) -> subprocess.CompletedProcess[str]:
    # Rests on no table of characters, whose probes are most of what certifying takes; tests/certify has them.
    words = command.replace("path/to/tokenizer.json", "tests/data/tokenizers/llama_like.json").split("toktier ", 1)[1]
    shell = f'"$PYTHON" -m toktier_cli.main --home "$TOKTIER_TEST_HOME" {words}'
    env = {"PYTHON": sys.executable, "TOKTIER_TEST_HOME": str(home), "PATH": "/usr/bin:/bin", "HOME": str(home)}
    return subprocess.run(["bash", "-c", shell], cwd=ROOT, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("command", [c for c in COMMANDS if c not in NEEDS_FETCH + CERTIFIES])
def test_commands_run(command: str, tmp_path: Path) -> None:
    ran = run(command, tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout


@pytest.mark.ci
@pytest.mark.parametrize("commands", [NEEDS_FETCH, CERTIFIES], ids=["fetched", "certified"])
def test_commands_that_rest_on_each_other_run_in_their_order(commands: list[str], tmp_path: Path) -> None:
    assert len(commands) > 1
    for command in commands:
        ran = run(command, tmp_path)
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout


@pytest.mark.parametrize("name", ["README.md", "ARCHITECTURE.md"])
def test_files_that_are_named_exist(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert target.startswith("https://") or (ROOT / target).exists(), target
