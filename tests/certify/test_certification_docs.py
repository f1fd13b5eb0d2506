"""docs/certification.md says what the source says, and the job files use verbs and options that exist.

UPDATE_CERTIFICATION=1 writes the tables anew.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.cli.command import run_here
from tests.support.material import ROOT
from toktier.certify.levels import LEVEL_MEANINGS
from toktier.certify.outcome import AGAINST_MEANINGS, OUTCOME_MEANINGS
from toktier.certify.suites import SUITES

PAGE = ROOT / "docs" / "certification.md"
JOBS = sorted((ROOT / "docs" / "ci").glob("*.yml"))


def table(header: str, rows: list[tuple[str, str]]) -> str:
    lines = [f"| {header} | means |", "|---|---|", *(f"| `{name}` | {meaning} |" for name, meaning in rows)]
    return "\n".join(lines)


TABLES = {
    "levels": lambda: table("level", [(level.value, meaning) for level, meaning in LEVEL_MEANINGS.items()]),
    "suites": lambda: table("suite", [(suite.name, suite.meaning) for suite in SUITES]),
    "outcomes": lambda: table("outcome", [(outcome.value, meaning) for outcome, meaning in OUTCOME_MEANINGS.items()]),
    "reasons": lambda: table("reason", [(reason.value, meaning) for reason, meaning in AGAINST_MEANINGS.items()]),
}


@pytest.mark.parametrize("name", TABLES)
def test_the_tables_are_those_of_the_source(name: str) -> None:
    text = PAGE.read_text("utf-8")
    found = re.search(rf"(<!-- {name}: [^\n]* -->\n)(.*?)(<!-- end -->)", text, re.DOTALL)
    assert found is not None
    wanted = TABLES[name]() + "\n"
    if os.environ.get("UPDATE_CERTIFICATION") == "1":
        PAGE.write_text(text[: found.start(2)] + wanted + text[found.end(2) :], "utf-8")
        return
    assert found[2] == wanted, "UPDATE_CERTIFICATION=1 writes it anew"


@pytest.mark.parametrize("path", JOBS, ids=lambda p: p.name)
def test_job_files_use_what_exists(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    lines = re.findall(r"toktier certify (\w+) ([^\n]*)", path.read_text("utf-8"))
    assert [verb for verb, _ in lines] == ["run", "merge", "verify"]
    for verb, rest in lines:
        shown = run_here("certify", verb, "--help", home=tmp_path, monkeypatch=monkeypatch, capture=capfdbinary)
        assert shown.code == 0
        for option in re.findall(r"--[a-z-]+", rest):
            assert option in shown.text, f"{path.name}: certify {verb} has no {option}"
    assert not re.search(r"https?://", path.read_text("utf-8"))


def test_there_are_two_job_files() -> None:
    assert len(JOBS) == 2
