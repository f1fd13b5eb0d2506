"""`toktier bench`: every engine here has its row, a wrong one ends with 1, and the processors are given back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import check_document, run, run_here
from tests.support.material import SMALL_DIR
from toktier_cli.bench import engines

LINE = ("bench", "--rounds", "1", "--policy", "supported")


def test_rows_and_figures(tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text("my own text, 123\n" * 10)
    outcome = run(*LINE, "--input", str(tmp_path / "own.txt"), "--peers", "--json", home=tmp_path / "home")
    document = check_document(outcome)
    assert outcome.code == 0, outcome.stdout
    rows = {row["name"]: row for row in document["engines"]}
    assert list(rows)[:2] == ["toktier (fast_cpu)", "tokenizers"]
    assert set(list(rows)[2:]) == {"fastokens", "gigatoken", "basetenkenizer", "tiktoken"}
    for name, row in rows.items():
        measured = row["status"] == "measured"
        assert measured or name not in ("toktier (fast_cpu)", "tokenizers")
        assert [figure["text"] for figure in row["figures"]] == [text["name"] for text in document["texts"]]
        assert all((figure["best"] is not None) == measured for figure in row["figures"])
        assert (row["version"] is None) == (row["status"] == "absent")


def test_the_table(tmp_path: Path) -> None:
    outcome = run(*LINE, "--file", str(SMALL_DIR / "o200k_like.json"), home=tmp_path / "home")
    assert outcome.code == 0
    lines = outcome.text.splitlines()
    assert lines[0].startswith("ENGINE")
    assert [line.split()[0] for line in lines[1:3]] == ["toktier", "tokenizers"]
    assert lines[2].split()[-1].startswith("x")


def test_a_wrong_engine_has_no_figure_and_the_exit_code_is_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    class Wrong(engines.Reference):
        name = "wrong"

        def ids_of(self, result: Any) -> bytes:
            return super().ids_of(result)[4:]

    monkeypatch.setattr(engines, "ENGINES", (*engines.ENGINES[:2], Wrong))
    before = os.sched_getaffinity(0)
    home = tmp_path / "home"
    outcome = run_here(*LINE, "--peers", "--json", home=home, monkeypatch=monkeypatch, capture=capfdbinary)
    assert outcome.code == 1
    row = check_document(outcome)["engines"][2]
    assert row["status"] == "wrong"
    assert "differ from the reference's" in row["reason"]
    assert all(figure["best"] is None for figure in row["figures"])
    shown = run_here(*LINE, "--peers", home=home, monkeypatch=monkeypatch, capture=capfdbinary)
    assert b"WRONG" in shown.stdout
    assert os.sched_getaffinity(0) == before


def test_an_empty_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("")
    outcome = run(*LINE, "--input", str(tmp_path / "empty.txt"), home=tmp_path / "home")
    assert outcome.code == 2
    assert "empty" in outcome.stderr
