"""What each level of TOKTIER_LOG_LEVEL and `log_level` puts on stderr; stdout and the exit code are the same at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import Outcome, check_document, run_here
from tests.cli.command import environment as plain_environment
from toktier import resources
from toktier.config import LOG_LEVELS
from toktier.errors import ExitCode

MINI = resources.tables_dir() / "artifacts" / "toktier_mini" / "tokenizer.json"
SERVED = "info: toktier_mini: fast_cpu serves ("
MINI_LINE = ("encode", "--family", "toktier_mini", "hello", "--policy", "supported")


class Here:
    """The command in this process, the level in the variable."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[bytes]) -> None:
        self.home, self._patch, self._capture = home, monkeypatch, capture

    def __call__(self, *line: str, level: str | None = None) -> Outcome:
        more = {} if level is None else {"TOKTIER_LOG_LEVEL": level}
        with self._patch.context() as patch:
            patch.setattr("tests.cli.command.environment", lambda home: plain_environment(home, **more))
            return run_here(*line, home=self.home, monkeypatch=patch, capture=self._capture)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Here:
    return Here(tmp_path / "home", monkeypatch, capfdbinary)


@pytest.fixture
def untested(tmp_path: Path) -> Path:
    """A tokenizer without evidence: the reference serves it, with a warning."""
    path = tmp_path / "tokenizer.json"
    path.write_text(MINI.read_text("utf-8").replace("|\\\\p{N}|", "|\\\\p{N}{1,3}|"), "utf-8")
    return path


@pytest.mark.parametrize("level", LOG_LEVELS)
def test_warnings_and_what_serves(here: Here, untested: Path, level: str) -> None:
    outcome = here("encode", "--file", str(untested), "hello", level=level)
    assert (outcome.code, outcome.text) == (0, here("encode", "--file", str(untested), "hello", "-q").text)
    assert ("warning: " in outcome.stderr) == (level != "error")
    assert ("info: " in outcome.stderr) == (level in ("info", "debug"))
    assert (outcome.stderr == "") == (level == "error")
    assert "Traceback" not in outcome.stderr


@pytest.mark.parametrize("level", LOG_LEVELS)
def test_errors_are_shown_at_every_level_and_the_trace_at_one(here: Here, level: str) -> None:
    outcome = here("encode", "--family", "qwen3_8c", "hello", level=level)
    assert outcome.code == ExitCode.NOT_FOUND
    assert outcome.stderr.startswith("error: ")
    assert "\nhint: " in outcome.stderr
    assert ("Traceback" in outcome.stderr) == (level == "debug")
    document = here("encode", "--family", "qwen3_8c", "hello", "--json", level=level)
    assert check_document(document)["error"]["code"] == "UNKNOWN_FAMILY"


@pytest.mark.parametrize("level", LOG_LEVELS)
def test_notes(here: Here, level: str) -> None:
    outcome = here("artifacts", "list", level=level)
    assert ("the cache holds no family" in outcome.stderr) == (level != "error")


def test_info_says_whether_it_was_compiled(here: Here) -> None:
    first, second = (here(*MINI_LINE, level="info").stderr for _ in range(2))
    assert first.startswith(SERVED)
    assert first.endswith("; program compiled now\n")
    assert second.endswith("; program from the cache\n")
    assert here(*MINI_LINE).stderr == ""


def test_quiet_leaves_errors_alone_at_any_level(here: Here, untested: Path) -> None:
    for level in LOG_LEVELS:
        assert here("encode", "--file", str(untested), "hello", "--quiet", level=level).stderr == "", level


def test_config_toml_is_asked_before_the_variable(here: Here) -> None:
    here.home.mkdir()
    for level, shown in (("info", True), ("error", False)):
        (here.home / "config.toml").write_text(f'log_level = "{level}"\n')
        outcome = here(*MINI_LINE, level="debug" if level == "error" else "error")
        assert outcome.stderr.startswith(SERVED) == shown
    outcome = here("encode", "--family", "nope", "hello", level="debug")  # config.toml says error
    assert "Traceback" not in outcome.stderr


@pytest.mark.parametrize("level", ["loud", "DEBUGG", "1", "warn", " ", "x" * 9999, "\x1b[31m"])
def test_a_word_that_is_no_level_is_an_error_that_names_them_all(here: Here, level: str) -> None:
    outcome = here("config", "show", level=level)
    assert outcome.code == ExitCode.USAGE
    assert outcome.stderr.startswith("error: TOKTIER_LOG_LEVEL is ")
    assert f"expected one of {', '.join(LOG_LEVELS)}\nhint: correct or unset TOKTIER_LOG_LEVEL\n" in outcome.stderr
    assert "\x1b" not in outcome.stderr
    assert len(outcome.stderr) < 1000
    assert check_document(here("config", "show", "--json", level=level))["error"]["code"] == "CONFIG_INVALID"
    assert here("help", "exit-codes", level=level).code == 0
    assert here("schema", "config", level=level).code == 0


def test_case_does_not_matter_and_nothing_is_no_level(here: Here) -> None:
    assert here(*MINI_LINE, level="INFO").stderr.startswith(SERVED)
    assert here(*MINI_LINE, level="").stderr == ""
