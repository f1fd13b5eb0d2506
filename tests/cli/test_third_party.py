"""Engines of others on the command line: --tokenizer with --policy experimental, the variable, and every refusal.

Stand-ins answer (tests/support/third_party_stand_in.py); what the real ones give is tested in tests/backends.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import Outcome, check_document, environment, run_here
from tests.support import third_party_stand_in
from tests.support.third_party_stand_in import VERSION, StandIn
from toktier.routing.vocabulary import THIRD_PARTY
from toktier_cli.main import main

NAMES = [backend.value for backend in THIRD_PARTY]
MINI = ("--family", "toktier_mini")


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def engine(name: str, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    return third_party_stand_in.install(monkeypatch, name)


class Here:
    """Runs a line in this process."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[bytes]) -> None:
        self._home, self._monkeypatch, self._capture = home, monkeypatch, capture

    def __call__(self, *line: str) -> Outcome:
        return run_here(*line, home=self._home, monkeypatch=self._monkeypatch, capture=self._capture)

    def with_variables(self, *line: str, **more: str) -> Outcome:
        self("--version")  # sets what a run has
        for variable, value in environment(self._home, **more).items():
            self._monkeypatch.setenv(variable, value)
        self._capture.readouterr()
        code = main(line)
        captured = self._capture.readouterr()
        return Outcome(code, captured.out, captured.err.decode())


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Here:
    return Here(tmp_path / "home", monkeypatch, capfdbinary)


def test_every_verb_that_encodes_takes_one(name: str, engine: StandIn, here: Here, tmp_path: Path) -> None:
    asked = (*MINI, "--tokenizer", name, "--policy", "experimental")
    plain = check_document(here("encode", "hello 42", *MINI, "--json"))
    told = check_document(here("encode", "hello 42", *asked, "--explain", "--json"))
    assert (told["ids"], told["backend"]) == (plain["ids"], name)
    assert (told["explain"]["backend"], told["explain"]["exact_id_guarantee"]) == (name, False)
    assert here("encode", "hello 42", *asked).text == here("encode", "hello 42", *MINI).text
    file = tmp_path / "text.txt"
    file.write_text("hello 42")
    calls = len(engine.calls)
    counted = check_document(here("count", str(file), *asked, "--json"))
    assert counted["tokens"] == len(plain["ids"])
    assert len(engine.calls) > calls
    words = here("decode", *map(str, plain["ids"]), *asked)
    assert (words.code, words.text) == (0, "hello 42")


def test_offsets_are_refused_before_anything_is_encoded(name: str, engine: StandIn, here: Here) -> None:
    outcome = here("encode", "hello", *MINI, "--tokenizer", name, "--policy", "experimental", "--offsets", "--json")
    assert (outcome.code, outcome.document["error"]["code"]) == (2, "UNSUPPORTED_CONFIG")
    assert name in outcome.document["error"]["message"]
    assert engine.calls == []


@pytest.mark.parametrize("by", ["flag", "variable"])
def test_without_the_policy_the_reference_serves_with_one_line(name: str, engine: StandIn, here: Here, by: str) -> None:
    line = ("encode", f"hello {by}", *MINI)
    flag, variables = (("--tokenizer", name), {}) if by == "flag" else ((), {"TOKTIER_TOKENIZER": name})
    outcome = here.with_variables(*line, *flag, **variables)
    (warning,) = outcome.stderr.splitlines()
    assert outcome.code == 0
    assert warning.startswith(f"warning: toktier_mini: the reference serves, not {name}")
    assert "--policy experimental" in warning
    assert engine.calls == []
    for strict in (("--no-tokenizer-fallback",), ()):
        more = {} if strict else {"TOKTIER_TOKENIZER_FALLBACK": "off"}
        refused = here.with_variables(*line, *flag, *strict, "--json", **variables, **more)
        assert (refused.code, refused.document["error"]["code"]) == (2, "CONFIG_INVALID")


def test_the_flag_beats_the_variable(name: str, engine: StandIn, here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    other = next(n for n in NAMES if n != name)
    third_party_stand_in.install(monkeypatch, other)
    line = ("encode", "hello", *MINI, "--policy", "experimental", "--json")
    assert here.with_variables(*line, TOKTIER_TOKENIZER=other).document["backend"] == other
    assert here.with_variables(*line, "--tokenizer", name, TOKTIER_TOKENIZER=other).document["backend"] == name


def test_a_file_that_it_refuses_is_one_warning_or_exit_8(name: str, engine: StandIn, here: Here) -> None:
    engine.load_fails = ValueError("unsupported normalizer type: NFKC")
    line = ("encode", "hello", *MINI, "--tokenizer", name, "--policy", "experimental")
    outcome = here(*line)
    assert outcome.code == 0
    assert outcome.stderr.count("unsupported normalizer type: NFKC") == 1
    refused = here(*line, "--no-tokenizer-fallback", "--json")
    assert (refused.code, refused.document["error"]["code"]) == (8, "BACKEND_UNAVAILABLE")
    assert "NFKC" in refused.document["error"]["message"]


def test_an_unknown_name_lists_the_known(here: Here) -> None:
    outcome = here("encode", "hello", *MINI, "--tokenizer", "fasttokens")
    assert outcome.code == 2
    assert "auto, gpu, fast_cpu, fastokens, basetenkenizer, gigatoken, hf" in outcome.stderr


def test_doctor_names_the_variable_that_has_no_policy(name: str, engine: StandIn, here: Here) -> None:
    line = ("doctor", "--family", "toktier_mini", "--json", "--timeout", "600")
    outcome = here.with_variables(*line, TOKTIER_TOKENIZER=name)
    row = next(check for check in check_document(outcome)["checks"] if check["id"] == "family.route")
    assert row["status"] == "warn"
    assert row["summary"].startswith(f"the reference serves, not {name}")
    assert "experimental" in row["remedy"]["text"]
    assert VERSION  # the stand-in is no distribution: what doctor lists is read from those
