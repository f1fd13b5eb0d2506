"""`inspect WHAT --text TEXT`: for people and as JSON, bounded and without control characters, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.command import Outcome, check_document, run_here
from tests.support.material import SMALL_DIR, changed_tokenizer

Run = Callable[..., Outcome]
CL100K = SMALL_DIR / "cl100k_like.json"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    def once(*line: str, stdin: bytes = b"") -> Outcome:
        return run_here(*line, home=tmp_path, monkeypatch=monkeypatch, capture=capfdbinary, stdin=stdin)

    return once


def test_both_views_say_the_same(run: Run) -> None:
    line = ("inspect", str(CL100K), "--text", "Hello  12345")
    document, shown = check_document(run(*line, "--json")), run(*line)
    append, last = document["append"], document["parts"]["last"]
    assert (document["text"]["characters"], document["parts"]["count"]) == (12, len(last))
    assert last[0]["cut"] == "start"
    assert append["encodes_from"] == last[-1]["at"]
    assert append["tokens_kept"] + append["tokens_encoded_again"] == document["text"]["tokens"]
    assert append["no_cut"][-1] == {"at": 12, "rule": "end", "reason": "it depends on what comes next"}
    assert "".join(part["text"] for part in last) == "Hello  12345"
    assert shown.code == 0
    assert (
        f"\nappend       keeps {append['tokens_kept']} tokens and encodes from {append['encodes_from']} on: "
        in shown.text
    )
    for part in last:
        assert part["cut"] in shown.text
        assert all(str(identity) in shown.text for identity in part["ids"])
    for row in append["no_cut"]:
        assert row["reason"] in shown.text


def test_a_family_and_a_file_by_option_and_stdin(run: Run) -> None:
    by_family = check_document(run("inspect", "toktier_mini", "--text", "-", "--json", stdin="größe\n".encode()))
    assert (by_family["name"], by_family["text"]["utf8_bytes"]) == ("toktier_mini", 8)
    by_file = check_document(run("inspect", "--file", str(CL100K), "--text", "größe\n", "--json"))
    assert by_file["text"]["characters"] == 6
    assert by_file["fingerprint"] != by_family["fingerprint"]
    assert check_document(run("inspect", "toktier_mini", "--text", "", "--json"))["append"]["no_cut"] == []


def test_lists_are_bounded_whatever_the_text(run: Run) -> None:
    text = ("one two " * 40_000).encode()
    line = ("inspect", str(CL100K), "--text", "-")
    shown, document = run(*line, stdin=text), check_document(run(*line, "--json", stdin=text))
    assert "the last 20 of " in shown.text
    assert shown.text.count("\n") < 60
    assert len(document["parts"]["last"]) == 1000 < document["parts"]["count"]
    letters = ("inspect", str(SMALL_DIR / "o200k_like.json"), "--text", "-")
    shown, whole = run(*letters, stdin=b"the" * 9000), run(*letters, "--json", stdin=b"the" * 9000)
    document = check_document(whole)
    assert len(document["append"]["no_cut"]) == 100
    assert document["append"]["no_cut_earlier"] == 26_900
    assert len(shown.stdout) < 8_000
    assert len(whole.stdout) < 40_000


def test_no_control_character_of_a_text_reaches_the_terminal(run: Run, tmp_path: Path) -> None:
    added = [{"id": 5000, "content": "\x1b]0;x", "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": False}]  # fmt: skip
    path = changed_tokenizer(CL100K, tmp_path / "tokenizer.json", added_tokens=added)
    shown = run("inspect", str(path), "--text", "a\x1b[31m\x07\u202e \x1b]0;x \x1b]")
    assert shown.code == 0
    assert all(character == "\n" or character.isprintable() for character in shown.text)
    assert "\\x1b" in shown.text
    document = run("inspect", str(path), "--text", "a\x1b[31m\x07\u202e \x1b]", "--json")
    check_document(document)
    assert b"\x1b" not in document.stdout


def test_a_file_that_the_reference_serves_knows_no_cuts(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(
        '{"model": {"type": "WordPiece", "vocab": {"[UNK]": 0}, "unk_token": "[UNK]",'
        ' "continuing_subword_prefix": "##", "max_input_chars_per_word": 100}}'
    )
    outcome = run("inspect", str(path), "--text", "a", "--json")
    error = outcome.document["error"]
    assert error["code"] == "PROGRAM_UNSUPPORTED"
    assert "knows no cuts" in error["message"]


def test_stored_truncation_refuses_sessions_and_does_not_shorten(run: Run, tmp_path: Path) -> None:
    truncation = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    path = changed_tokenizer(CL100K, tmp_path / "tokenizer.json", truncation=truncation)
    line = ("inspect", str(path), "--text", "one two three four five six")
    document = check_document(run(*line, "--json"))
    assert "truncation" in document["sessions_refused"]
    assert document["text"]["tokens"] > 3
    assert "\nsessions     refused: " in run(*line).text


@pytest.mark.parametrize(
    "more",
    [
        ("--text", "a"),
        ("toktier_mini", "toktier_mini", "--text", "a"),
        ("toktier_mini", "--text", "a", "--tables"),
        ("toktier_mini", "--text", "a", "--revision", "main"),
    ],
)
def test_what_does_not_go_together(run: Run, more: tuple[str, ...]) -> None:
    outcome = run("inspect", *more, "--json")
    assert (outcome.code, outcome.document["error"]["code"]) == (2, "USAGE")


def test_bad_text_and_absent_files_are_named(run: Run, tmp_path: Path) -> None:
    outcome = run("inspect", "toktier_mini", "--text", "-", "--json", stdin=b"ab\xff")
    assert outcome.document["error"]["code"] == "INVALID_TEXT"
    absent = run("inspect", "--file", str(tmp_path / "absent"), "--text", "a", "--json")
    assert absent.document["error"]["code"] == "ARTIFACT_NOT_FOUND"
    assert run("inspect", "qwen3_8b", "--text", "a", "--json").document["error"]["code"] == "ARTIFACT_NOT_FOUND"
    big = run("inspect", "toktier_mini", "--text", "-", "--json", stdin=b"a" * (1 << 24) + b"a")
    assert json.loads(big.stdout)["error"]["code"] == "USAGE"
