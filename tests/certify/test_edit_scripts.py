"""Scripts of edits: as data and back, played with patches alone, shortened, and told and replayed as failures."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cli.command import run_here, validator
from tests.support.material import small_tokenizers
from toktier._native import SessionBase, TokenPatch
from toktier.certify.edit_scripts import (
    OPERATIONS,
    Edit,
    Material,
    difference,
    from_rows,
    play,
    random_script,
    to_rows,
)
from toktier.certify.failures import distinct, failure_document, read_failure, script_of, to_bytes
from toktier.certify.levels import Level
from toktier.certify.minimise import minimise
from toktier.certify.plan import make_plan
from toktier.certify.replay import replay
from toktier.certify.subject import Subject
from toktier.certify.suites.sessions import SessionsSuite
from toktier.certify.summary import failure_line
from toktier.errors import EvidenceInvalid

PATH = next(path for path in small_tokenizers() if path.stem == "cl100k_like")
MATERIAL = Material(["<|x|>", "<pad>"], ["\u0300", "\U0010ffff"], ["the"])
edits = st.builds(Edit, st.sampled_from(OPERATIONS), st.text(max_size=6), st.integers(0, 9))


@given(st.lists(edits, max_size=5))
def test_law_a_script_is_its_rows(script: list[Edit]) -> None:
    assert from_rows(json.loads(json.dumps(to_rows(tuple(script))))) == tuple(script)


@pytest.mark.parametrize(
    "rows",
    [
        None, {}, "append", [1], [[]], [["append", 0]], [["erase", 0, []]], [["append", -1, []]],
        [["append", 0, [0xD800]]],
        [["append", 0, [0x110000]]], [["append", 0, ["a"]]], [["append", 0, [True]]], [["append", "0", []]],
    ],
)  # fmt: skip
def test_what_is_no_script_is_refused(rows: Any) -> None:
    with pytest.raises(ValueError, match="no script"):
        from_rows(rows)


def test_random_scripts_are_of_every_operation_and_stay_short() -> None:
    rng = random.Random(1)
    short = [random_script(rng, MATERIAL, 12) for _ in range(400)]
    assert all(len(script) == 12 for script in short)
    assert set(Counter(edit.operation for script in short for edit in script)) == set(OPERATIONS)
    assert sum(len(edit.text) for script in short for edit in script) < 400 * 12 * 40
    places = [random_script(rng, MATERIAL, 12, 900) for _ in range(20)]
    assert all(len(script[0].text) == 900 for script in places)
    assert any(edit.operation == "replace" and 500 < edit.start < 540 for script in places for edit in script)


@settings(deadline=None)
@given(st.lists(edits, max_size=6))
def test_law_patches_of_any_script_give_the_reference(script: list[Edit]) -> None:
    assert SUBJECT.session is not None
    for step in play(SUBJECT.session, tuple(script)):
        assert difference(step, SUBJECT.expected(step.text).ids) is None
        assert not script or step.text.endswith(script[step.edit].text)


def test_a_session_that_was_opened_again_is_given_what_it_asks_for() -> None:
    """The edit lies before what the restored session holds."""
    text = "one two three four five. " * 8
    script = (Edit("reopen", text), Edit("append", " six"), Edit("replace", "x", 5), Edit("present", "one two"))
    assert SUBJECT.session is not None
    steps = list(play(SUBJECT.session, script))
    assert [step.text for step in steps] == [text, f"{text} six", "one tx", "one two", "one two"]
    assert all(difference(step, SUBJECT.expected(step.text).ids) is None for step in steps)


class KeepsOneLess(SessionBase):
    """Wrong from the first append of an x to a text that has a y."""

    def append(self, text: Any, **options: Any) -> TokenPatch:
        keep, ids, revision = super().append(text, **options)
        wrong = "x" in text and b"y" in self.held_text()
        return TokenPatch((keep - (wrong and keep > 0), ids, revision))


@pytest.fixture
def wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Subject, "session", property(lambda self: lambda: KeepsOneLess(self.tokenizer)))


@pytest.mark.usefixtures("wrong")
def test_a_failure_is_shortened_told_and_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    subject = Subject(PATH, home=tmp_path)
    plan = make_plan(subject, [SessionsSuite()], Level.QUICK, 1, "cl100k_like").plan
    script = (
        Edit("append", "a long y beginning"), Edit("append", "b"), Edit("replace", "cc y", 7),
        Edit("present", "yes y no"),
        Edit("append", " one"), Edit("append", "words x and more"),
    )  # fmt: skip
    kept = {"suite": "sessions", "block": 0, "times": 2, "what": "ids of a session", "script": to_rows(script)}
    document = failure_document(plan, kept, subject, {})
    shortest = script_of(document)
    assert shortest is not None
    assert len(shortest) <= 2
    assert sum(len(edit.text) for edit in shortest) <= 3
    assert document["found_in_edits"] == 6
    assert document["comparison"]["differs"] == "ids"
    path = tmp_path / "f.json"
    path.write_bytes(to_bytes(document))
    read = read_failure(path)
    assert read == document
    validator("certify_failure").validate(document)
    for broken in (None, [], [["erase", 0, []]]):
        path.write_bytes(to_bytes(document | {"script": broken}))
        with pytest.raises(EvidenceInvalid):
            read_failure(path)
    assert distinct([("a", read), ("b", read)]) == [("a", read | {"times": 4})]
    line = failure_line("f.json", document)
    assert "U+0078" in line
    assert "toktier certify replay f.json" in line
    assert replay(read, subject)["differs"]
    monkeypatch.undo()
    assert not replay(read, subject)["differs"]
    path.write_bytes(to_bytes(document))
    line = ("certify", "replay", str(path), "--file", str(PATH))
    told = run_here(*line, home=tmp_path, monkeypatch=monkeypatch, capture=capfdbinary)
    assert told.code == 0
    assert "agrees now (sessions block 0, ids of a session)" in told.text
    assert f"append {shortest[-1].text!a}" in told.text
    outcome = run_here("--json", *line, home=tmp_path, monkeypatch=monkeypatch, capture=capfdbinary)
    validator("certify_replay").validate(outcome.document)


def test_a_script_is_shortened_like_a_text() -> None:
    script = tuple(Edit("append", letter) for letter in "abcXdefYg")

    def differs(tried: tuple[Edit, ...]) -> bool:
        text = "".join(edit.text for edit in tried)
        return "X" in text and "Y" in text

    assert [edit.text for edit in minimise(script, differs)] == ["X", "Y"]


SUBJECT = Subject(PATH)
