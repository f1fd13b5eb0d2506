"""`toktier serve report`: counts, percentage, exit codes, both sources; no text of an output in any answer."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.cli.command import Outcome, check_document, run_here
from toktier.router.divergence import Reason
from toktier.router.records import Records
from toktier_cli.verbs.serve_report import MeasureName

PAIRS = [("abc", "abc"), ("a  b\n", "a b"), ("The big red boat sails on.", "The large red boat sails on."), ("", "x"),
         ("it is 4", "it is 5")]  # fmt: skip
Here = Callable[..., Outcome]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Here:
    return partial(run_here, "serve", "report", home=tmp_path / "home", monkeypatch=monkeypatch, capture=capfdbinary)


def lines(pairs: list[tuple[str, str]]) -> bytes:
    return b"".join(json.dumps({"cached": a, "uncached": b}).encode() + b"\n" for a, b in pairs)


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "pairs.jsonl").write_bytes(lines(PAIRS))
    return str(tmp_path / "pairs.jsonl")


def test_identical_pairs_are_no_part_of_the_percentage(here: Here, path: str) -> None:
    document = check_document(here(path, "--json"))
    assert document["classes"] == {"identical": 1, "whitespace_only": 1, "cosmetic": 1, "substantive": 2}
    assert (document["pairs"], document["divergent"], document["substantive_percent"]) == (5, 4, 50.0)
    assert document["substantive_reasons"] == {"empty": 1, "numbers": 1}
    assert document["source"] == {"kind": "pairs", "path": path}
    assert "per_pair" not in document


def test_without_a_divergent_pair_there_is_no_percentage(here: Here) -> None:
    document = check_document(here("-", "--json", stdin=lines([("a", "a")])))
    assert (document["divergent"], document["substantive_percent"], document["exit_code"]) == (0, None, 0)
    assert "no pair diverges" in here("-", stdin=lines([("a", "a")])).text


def test_each_pair_is_named_by_its_line_and_its_text_is_not_shown(here: Here, path: str) -> None:
    document = check_document(here(path, "--json", "--per-pair"))
    assert [(row["place"], row["class"], row["reason"]) for row in document["per_pair"]] == [
        (1, "identical", "equal"),
        (2, "whitespace_only", "whitespace"),
        (3, "cosmetic", "measure"),
        (4, "substantive", "empty"),
        (5, "substantive", "numbers"),
    ]
    assert [row["likeness"] for row in document["per_pair"]] == [None, None, 0.8333, None, None]
    text = here(path, "--per-pair").text
    assert "line 3: cosmetic (measure 0.83)\nline 4: substantive (empty)\n" in text
    assert "boat" not in text


def test_substance_fails_the_run_only_where_it_is_asked_to(here: Here, path: str) -> None:
    assert here(path).code == 0
    assert here(path, "--fail-on-substantive").code == 1
    assert here("-", "--fail-on-substantive", stdin=lines(PAIRS[:3])).code == 0


def test_the_answer_says_what_the_measure_cannot_see(here: Here, path: str) -> None:
    document = check_document(here(path, "--json"))
    assert document["measure"]["name"] == "overlap"
    assert "paraphrase" in document["measure"]["blind_to"]
    assert document["measure"]["blind_to"] in here(path).text


def test_records_are_a_source_too(here: Here, tmp_path: Path) -> None:
    path = str(tmp_path / "requests.sqlite")
    kept = Records(path, outputs=True)
    assert kept.flush()
    assert "no prompt has an output with reuse" in here("--records", path).stderr
    for reused, text in ((False, "it is 4"), (True, "it is 5"), (True, "it is 4")):
        kept.add_output("name", b"p", reused=reused, text=text, started=1.0)
    kept.close()
    outcome = here("--records", path, "--per-pair")
    assert re.match(r"position \d+: substantive \(numbers\)\nposition \d+: identical \(equal\)\n", outcome.text)
    assert "substantive: 1, 100.0 % of 1 divergent pairs\n" in outcome.text


@pytest.mark.parametrize(
    ("typed", "code", "name"),
    [
        ((), 2, "USAGE"),
        (("", "--per-pair"), 2, "USAGE"),
        (("x.jsonl", "--records", "y.sqlite"), 2, "USAGE"),
        (("/dev/zero",), 2, "USAGE"),
        (("/",), 2, "USAGE"),
        (("absent.jsonl",), 3, "ARTIFACT_NOT_FOUND"),
        (("--records", "absent.sqlite"), 3, "STORE_NOT_FOUND"),
        (("--records", ""), 2, "USAGE"),
        (("-",), 5, "OUTPUTS_INVALID"),
        (("-", "--measure", "cosine"), 2, "USAGE"),
        (("-", "--minilm-tokenizer", "tokenizer.json"), 2, "USAGE"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, tuple) else None,
)
def test_what_cannot_be_reported_is_refused(here: Here, typed: tuple[str, ...], code: int, name: str) -> None:
    outcome = here(*typed, "--json")
    assert (outcome.code, check_document(outcome)["error"]["code"]) == (code, name)


def test_a_bad_line_ends_the_run_and_is_named(here: Here) -> None:
    outcome = here("-", stdin=lines(PAIRS) + b"{]\n")
    assert (outcome.code, outcome.stdout) == (5, b"")
    assert "stdin, line 6: no JSON" in outcome.stderr


def test_the_schema_has_the_words_of_the_tables() -> None:
    from tests.cli.command import validator

    schema = validator("serve_report").schema
    assert schema["$defs"]["reason"]["enum"] == list(Reason)
    assert schema["properties"]["measure"]["properties"]["name"]["enum"] == list(MeasureName)
