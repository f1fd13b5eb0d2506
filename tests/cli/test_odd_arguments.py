"""Arguments that scripts make by accident: an unset variable, a number that is none, a file that is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import check_document, run, run_here


@pytest.mark.parametrize(
    "verb", [["fetch", "qwen3_8b"], ["check-conversion", "kimi_k3"], ["kit", "qwen3_8b", "--out", "k"]]
)
@pytest.mark.parametrize("seconds", ["nan", "inf", "0"])
def test_a_time_out_is_a_number_of_seconds(
    verb: list[str],
    seconds: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    line = ["artifacts", *verb, "--offline", "--timeout", seconds, "--json"]
    outcome = run_here(*line, home=tmp_path, monkeypatch=monkeypatch, capture=capfdbinary)
    assert outcome.code == 2
    assert "--timeout" in check_document(outcome)["error"]["message"]


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (["import", ""], "PATH"),
        (["fetch", "qwen3_8b", "--from", ""], "--from"),
        (["mirror", "toktier_mini", "--out", ""], "--out"),
    ],
)
def test_an_empty_path_is_not_this_directory(line: list[str], named: str, tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    outcome = run("artifacts", *line, "--json", home=tmp_path / "home", cwd=here)
    assert outcome.code == 2
    assert check_document(outcome)["error"]["message"] == f"{named} is empty"
    assert list(here.iterdir()) == []


def test_a_bundle_that_is_not_there_is_a_path_and_keeps_no_other_from_its_answer(tmp_path: Path) -> None:
    export = run("artifacts", "export", "toktier_mini", "--out", str(tmp_path / "m.tar"), home=tmp_path / "home")
    assert export.code == 0
    outcome = run("artifacts", "verify", "m.tar", "gone.tar.zst", "--json", home=tmp_path / "home", cwd=tmp_path)
    here, gone = check_document(outcome)["paths"]
    assert (here["exit_code"], gone["exit_code"], outcome.code) == (0, 3, 3)
    assert gone["error"]["message"] == "gone.tar.zst does not exist"
