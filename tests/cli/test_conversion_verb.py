"""`artifacts check-conversion` over a small derived family: a match, every kind of "no", and missing inputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.artifacts.test_derive import CONFIG, INPUTS, MODULE, RANKS, TOKENS, pins_of
from tests.cli.command import Outcome, check_document, run_here
from toktier.artifacts.cache import ArtifactCache
from toktier.artifacts.import_paths import import_path
from toktier.artifacts.pins import Pins
from toktier.config import Config, resolve_settings
from toktier.conversion import check, ranks_with_module

RESULT = ranks_with_module.convert(RANKS, MODULE, CONFIG)
Run = Callable[..., Outcome]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def typed(home: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Runs the verb over the pins given; the inputs in `imported` are in the cache before."""

    def run(*more: str, pins: Pins, imported: dict[str, bytes] = INPUTS) -> Outcome:
        for name, data in imported.items():
            home.mkdir(exist_ok=True)
            (home.parent / name).write_bytes(data)
            import_path(home.parent / name, resolve_settings(Config(home=home), environ={}), pins=pins)
        monkeypatch.setattr("toktier_cli.verbs.artifacts_conversion.shipped_pins", lambda: pins)
        line = ("artifacts", "check-conversion", "gamma", "--offline", *more)
        return run_here(*line, home=home, monkeypatch=monkeypatch, capture=capfdbinary)

    return run


def test_a_match(typed: Run) -> None:
    outcome = typed("--json", pins=pins_of(RESULT))
    check_document(outcome)
    document = outcome.document
    assert outcome.code == 0
    assert document["identity_matches"] is True
    assert document["deterministic"] is True
    assert document["runs"] == 2
    assert document["converter"] == "ranks_with_module_v1"
    assert [(i["name"], i["source"]) for i in document["inputs"]] == [(name, "cache") for name in INPUTS]
    assert document["observed_sha256"] == document["expected_sha256"]
    assert document["observed_size"] == document["expected_size"] == len(RESULT)
    assert document["added_tokens"] == document["added_tokens_special"] == 256
    assert document["added_tokens_first_id"] == len(TOKENS)
    assert document["added_tokens_contiguous"] is True
    assert document["added_tokens_fully_described"] is True


def test_a_match_in_words(typed: Run) -> None:
    outcome = typed("--repeats", "3", pins=pins_of(RESULT))
    assert outcome.code == 0
    assert "gamma: converted 3 times with ranks_with_module_v1 from" in outcome.text
    assert "SHA-256 as pinned" in outcome.text


def test_nothing_of_the_result_is_stored(typed: Run, home: Path) -> None:
    typed(pins=pins_of(RESULT))
    stored = [path for path in (home / "cache" / "artifacts" / "blobs").rglob("*") if path.is_file()]
    assert sorted(path.read_bytes() for path in stored) == sorted(INPUTS.values())


def test_another_digest_is_a_no(typed: Run) -> None:
    outcome = typed("--json", pins=pins_of(RESULT[:-1]))
    check_document(outcome)
    assert outcome.code == 1
    assert outcome.document["identity_matches"] is False
    assert outcome.document["deterministic"] is True
    assert typed(pins=pins_of(RESULT[:-1])).text.count("SHA-256 is NOT the pinned one") == 1


def test_bytes_that_differ_between_processes_are_a_no(typed: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "run", lambda converter, paths, seed: RESULT + b" " * (seed - 1))
    outcome = typed("--json", pins=pins_of(RESULT))
    assert outcome.code == 1
    assert outcome.document["deterministic"] is False
    assert outcome.document["identity_matches"] is False
    assert "DIFFERENT BYTES" in typed(pins=pins_of(RESULT)).text


def test_missing_inputs_are_named(typed: Run) -> None:
    outcome = typed("--json", pins=pins_of(RESULT), imported={"tiktoken.model": RANKS})
    check_document(outcome)
    assert outcome.code == 3
    error = outcome.document["error"]
    assert [m["name"] for m in error["details"]["missing"]] == ["tokenization_kimi.py", "tokenizer_config.json"]
    assert "toktier artifacts import" in error["remedy"]


@pytest.mark.parametrize("content", [b"", b"wrong"])
def test_damaged_inputs_are_damage_and_not_absence(
    typed: Run, home: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes], content: bytes
) -> None:
    pins = pins_of(RESULT)
    assert typed(pins=pins).code == 0
    blob = ArtifactCache(home / "cache").blob_path(pins.family("gamma").inputs["tiktoken.model"].sha256)
    blob.write_bytes(content or bytes(len(RANKS)))
    for module in ("toktier.artifacts.resolve", "toktier.artifacts.fetch", "toktier.artifacts.pins"):
        monkeypatch.setattr(f"{module}.shipped_pins", lambda: pins)
    encode = ("encode", "--offline", "--family", "gamma", "hello", "--json")
    for outcome in (
        typed("--json", pins=pins, imported={}),
        run_here(*encode, home=home, monkeypatch=monkeypatch, capture=capfdbinary),
    ):
        check_document(outcome)
        assert outcome.code == 5
        error = outcome.document["error"]
        assert error["code"] == ("ARTIFACT_DAMAGED" if content else "ARTIFACT_HASH_MISMATCH")
        assert (error["details"]["file"], error["details"]["path"]) == ("tiktoken.model", str(blob))
        assert "toktier artifacts import tiktoken.model" in error["remedy"]


def test_inputs_that_cannot_be_converted_say_why(typed: Run) -> None:
    """The processes fail; the reason is still the converter's own."""
    inputs = INPUTS | {"tokenization_kimi.py": b"pat_str = make()\n"}
    outcome = typed("--json", pins=pins_of(RESULT, inputs), imported=inputs)
    check_document(outcome)
    assert outcome.code == 5
    assert "neither a string nor a joined list" in outcome.document["error"]["message"]


def test_the_hash_seed_of_the_processes_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the check relies on: the seed reaches the process."""
    from toktier.conversion import run_alone

    seen: list[str] = []

    def fake(command: list[str], **how: object) -> object:
        environment = how["env"]
        assert isinstance(environment, dict)
        seen.append(environment["PYTHONHASHSEED"])

        class Done:
            returncode, stdout, stderr = 0, b"{}", b""

        return Done()

    monkeypatch.setattr("toktier.conversion.run_alone.subprocess.run", fake)
    run_alone.run("tekken_v1", [], 1)
    run_alone.run("tekken_v1", [], 2)
    assert seen == ["1", "2"]
