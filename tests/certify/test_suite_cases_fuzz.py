"""Built-in cases and random texts: they agree with the reference, their counts are what they say, and each call that
they make is reported when it is wrong."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
import tokenizers

from tests.support.certify_runs import Altered, answered_by_the_reference, changed_file, faulty_subject, run_suite
from tests.support.material import small_tokenizers
from toktier.certify.levels import Level
from toktier.certify.subject import Subject
from toktier.certify.suite import Suite
from toktier.certify.suites import fuzz
from toktier.certify.suites.cases import FILE, CasesSuite, cases
from toktier.certify.suites.fuzz import FuzzSuite, vocabulary_texts

SUITES = [CasesSuite(), FuzzSuite()]
NAMES = {path.stem: path for path in small_tokenizers()}
KINDS = {
    "white space", "line ends", "contractions", "digits", "combining marks", "emoji", "cjk", "right to left",
    "zero width", "control, private, unassigned", "long runs", "code", "records", "templates", "encoded", "addresses",
    "mixed",
}  # fmt: skip


@pytest.fixture(autouse=True)
def few_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fuzz.TEXTS, Level.QUICK, 600)
    monkeypatch.setitem(fuzz.PER_BLOCK, Level.QUICK, 200)


@pytest.mark.parametrize("suite", SUITES, ids=lambda s: s.name)
@pytest.mark.parametrize("name", NAMES)
def test_small_tokenizers_agree(name: str, suite: Suite) -> None:
    run = run_suite(suite, Subject(NAMES[name]))
    assert not run.failures
    assert (run.counts.mismatches, run.counts.routed) == (0, 0)
    assert run.counts.documents == (len(cases()) if suite.name == "cases" else 600)
    compared = name not in ("deepseek_like", "gpt2_like")  # the reference names its normalized added tokens itself
    assert (run.plan.facts["decoding"] == "compared") == compared
    assert run.counts.checks > (4 if compared else 2) * run.counts.documents


@pytest.mark.parametrize("suite", SUITES, ids=lambda s: s.name)
def test_blocks_are_the_same_in_every_process_and_differ_by_seed(suite: Suite) -> None:
    once, again, other = (run_suite(suite, Subject(NAMES["llama_like"]), seed=seed).digests for seed in (3, 3, 4))
    assert once == again
    assert (once != other) == (suite.name == "fuzz")


@pytest.mark.parametrize("suite", SUITES, ids=lambda s: s.name)
def test_another_decoder_is_reported(tmp_path: Path, suite: Suite) -> None:
    faulty = changed_file(
        NAMES["llama_like"], tmp_path / "t.json", lambda document: document["decoder"]["decoders"].pop()
    )
    run = run_suite(suite, faulty_subject(NAMES["llama_like"], faulty), until_mismatch=True)
    assert {failure["what"] for failure in run.failures} <= {"decode", "decode_stream"}
    assert run.counts.mismatches > 0


@pytest.mark.parametrize(
    ("suite", "call", "what"),
    [
        (SUITES[0], "count", "count"),
        (SUITES[0], "encode_batch", "batch"),
        (SUITES[1], "encode_batch", "batch"),
        (SUITES[1], "decode_stream", "decode_stream"),
        (SUITES[1], "decode", "decode"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_one_wrong_call_is_reported(suite: Suite, call: str, what: str) -> None:
    subject = Subject(NAMES["cl100k_like"])
    tokenizer = subject.tokenizer
    wrong = {
        "count": lambda text, specials: tokenizer.count(text, specials) + 1,
        "encode_batch": lambda texts, specials, workers: tokenizer.encode_batch(
            [*texts[1:], texts[0]], specials, workers=workers
        ),
        "decode_stream": lambda: tokenizer.decode_stream(skip_special_tokens=True),
        "decode": lambda ids, skip: tokenizer.decode(ids, False),
    }
    subject.__dict__["tokenizer"] = Altered(tokenizer, **{call: wrong[call]})
    run = run_suite(suite, subject, until_mismatch=True)
    assert {failure["what"] for failure in run.failures} == {what}
    assert run.counts.mismatches > 0
    assert all("text" not in failure and failure["subject"] for failure in run.failures)


@pytest.mark.parametrize(("suite", "encodings"), [(SUITES[0], 3), (SUITES[1], 2)], ids=lambda v: getattr(v, "name", ""))
def test_calls_that_the_reference_answers_are_routed_and_no_agreement(suite: Suite, encodings: int) -> None:
    subject = Subject(NAMES["cl100k_like"])
    served = run_suite(suite, subject, blocks=[0]).counts
    subject.__dict__["tokenizer"] = answered_by_the_reference(subject)
    run = run_suite(suite, subject, blocks=[0])
    assert (run.counts.checks, run.counts.mismatches, served.routed) == (served.checks, 0, 0)
    # Only the texts that were encoded alone count: without and with special tokens, and in plain mode.
    alone = run.counts.checks - run.counts.routed
    assert encodings * run.counts.documents <= alone < (encodings + 1) * run.counts.documents


def test_decoding_left_to_the_reference_is_not_counted_as_compared(tmp_path: Path) -> None:
    delegated = changed_file(
        NAMES["cl100k_like"],
        tmp_path / "t.json",
        lambda document: document.update(decoder={"type": "WordPiece", "prefix": "##", "cleanup": True}),
    )
    for suite in SUITES:
        run = run_suite(suite, Subject(delegated))
        assert run.plan.facts["decoding"] == "left to the reference"
        assert (run.counts.mismatches, run.counts.routed) == (0, 0)


def test_a_fuzzed_fault_in_ids_is_reported_with_its_text(tmp_path: Path) -> None:
    other = changed_file(NAMES["cl100k_like"], tmp_path / "t.json", lambda document: document["model"]["merges"].pop(0))
    run = run_suite(SUITES[1], faulty_subject(NAMES["cl100k_like"], other), until_mismatch=True)
    reference = tokenizers.Tokenizer.from_file(str(other))
    assert any(failure["what"] == "ids" for failure in run.failures)
    for failure in run.failures:
        if failure["what"] == "ids" and not failure["plain"] and not failure["add_special_tokens"]:
            assert reference.encode(failure["text"], add_special_tokens=False).ids


def test_the_file_of_cases_is_whole() -> None:
    lines = [json.loads(line) for line in FILE.read_text(encoding="ascii").splitlines()]
    assert all({"kind", "text"} <= line.keys() <= {"kind", "text", "times"} for line in lines)
    found = cases()
    assert len(found) >= 1_000
    assert len({text for _, text in found}) == len(found)
    assert Counter(kind for kind, _ in found).keys() >= KINDS
    for _, text in found:
        text.encode("utf-8")


def test_vocabulary_texts_are_texts_of_the_vocabulary() -> None:
    texts = vocabulary_texts(Subject(NAMES["cl100k_like"]))
    assert " the" in texts
    assert not any("Ġ" in text for text in texts)
    assert "▁the" in vocabulary_texts(Subject(NAMES["llama_like"]))


def test_counts_of_each_level() -> None:
    plans = {level: fuzz.TEXTS[level] % fuzz.PER_BLOCK[level] for level in Level}
    assert set(plans.values()) == {0}
    assert fuzz.TEXTS[Level.STANDARD] == 60_000
