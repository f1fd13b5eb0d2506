"""docs/serving.md says what is true: its Python runs, its tables are those of the code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from toktier.serving import Limits
from toktier.serving.metrics import METRICS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "serving.md"
TEXT = PAGE.read_text(encoding="utf-8")
PYTHON = [block for language, block in re.findall(r"```(\w+)\n(.*?)```", TEXT, re.DOTALL) if language == "python"]
BEGIN, END = "<!-- metrics:table -->", "<!-- /metrics:table -->"


def table_of_metrics() -> str:
    rows = ["| name | kind | labels | |", "|---|---|---|---|"]
    for metric in METRICS:
        name = metric.name + ("_total" if metric.kind == "counter" else "")
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        rows.append(f"| `{name}` | {metric.kind} | {labels} | {metric.help} |")
    return "\n".join(rows)


@pytest.mark.unsanitized  # another interpreter
@pytest.mark.parametrize("block", PYTHON, ids=range(len(PYTHON)))
def test_the_python_of_the_page_runs(block: str, tmp_path: Path) -> None:
    ran = subprocess.run([sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "fast_cpu" in ran.stdout or "'success': True" in ran.stdout


def test_the_table_of_metrics_is_the_tables() -> None:
    """UPDATE_DOCS=1 writes it."""
    before, rest = TEXT.split(BEGIN)
    found, after = rest.split(END)
    if os.environ.get("UPDATE_DOCS") == "1":
        PAGE.write_text(f"{before}{BEGIN}\n{table_of_metrics()}\n{END}{after}", encoding="utf-8")
    else:
        assert found.strip() == table_of_metrics()


def test_the_limits_of_the_page_are_those_of_the_class() -> None:
    section = TEXT.split("## Limits")[1].split("\n## ")[0]
    for field in fields(Limits):
        assert f"`{field.name}`" in section
    shown = {"inline_bytes": "2,048", "max_batch": "1,024 texts", "max_batch_bytes": "1 MiB", "max_wait": "1 ms"}
    assert Limits() == Limits(
        inline_bytes=2048, max_batch=1024, max_batch_bytes=1 << 20, max_wait=0.001, queue_texts=8192,
        queue_bytes=64 << 20,
    )  # fmt: skip
    assert all(value in section for value in (*shown.values(), "8,192 texts", "64 MiB"))


def test_files_that_the_page_names_exist() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", TEXT):
        assert target.startswith("https://") or (PAGE.parent / target).exists(), target
