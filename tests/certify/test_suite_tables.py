"""The tables suite: what a program rests on, every shipped table, and tables with one wrong entry."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import tokenizer_maker as maker
from tests.support.certify_runs import changed_file, run_suite
from tests.support.material import small_tokenizers
from tests.support.planted_faults import MINI, TOKENIZERS, assert_agrees
from toktier.certify.levels import Level
from toktier.certify.subject import Subject
from toktier.certify.suites import tables
from toktier.certify.suites.tables import TablesSuite, all_probes
from toktier.certify.unicode_probes import characters
from toktier.program import unicode

SUITE = TablesSuite()
BASE = next(path for path in small_tokenizers() if path.stem == "cl100k_like")


@pytest.fixture(scope="module", autouse=True)
def probed_once() -> Iterator[None]:
    """What the installed reference takes a character for hangs on no tokenizer: each such table is probed once, 10
    seconds for all, and compared with each tokenizer's as it was."""
    with pytest.MonkeyPatch.context() as patched:
        for name in tables._CHARACTERS:
            patched.setattr(characters, name, functools.cache(getattr(characters, name)))
        yield


@pytest.mark.parametrize("path", TOKENIZERS, ids=lambda path: path.stem)
def test_every_tokenizer_agrees_or_rests_on_no_table(path: Path) -> None:
    run = run_suite(SUITE, Subject(path))
    if run.plan.blocks == 0:
        assert run.plan.why
        assert path.stem in ("gemma_like", "llama_like")
        return
    assert_agrees(run)
    assert run.counts.checks >= run.plan.facts["tables"] > 2


def test_the_tables_of_a_program_are_named() -> None:
    plan = SUITE.plan(Subject(BASE), Level.QUICK, 0)
    names = plan.facts["names"].split(", ")
    assert {r"\p{N}", r"[\p{L}]", r"[\p{N}]", r"\s", "(?i:U+0073)", "byte_alphabet"} <= set(names)
    assert len(plan.facts["properties_digest"]) == 64


def everything(document: Any) -> None:
    document["normalizer"] = {
        "type": "Sequence",
        "normalizers": [
            {"type": "NFKC"},
            {"type": "Lowercase"},
            {"type": "Strip", "strip_left": True, "strip_right": True},
        ],
    }
    steps = [{"type": "Digits", "individual_digits": True}, {"type": "Punctuation", "behavior": "Isolated"}]
    document["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps}
    document["added_tokens"].append(maker.added("<word>", single_word=True))


@pytest.fixture(scope="module")
def rich(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    """A tokenizer that rests on every kind of table outside of patterns."""
    return Subject(changed_file(BASE, tmp_path_factory.mktemp("rich") / "t.json", everything))


@pytest.mark.ci
def test_components_bring_their_tables(rich: Subject) -> None:
    run = run_suite(SUITE, rich)
    assert run.plan.facts["names"] == "numeric, punctuation, word, white_space, lowercase, NFKC"
    assert_agrees(run)


def without_last(ranges: Any) -> Any:
    return ranges[:-1]


@pytest.mark.parametrize(
    ("function", "change"),
    [
        ("property_ranges", without_last),
        ("shorthand_ranges", without_last),
        ("fold_partners", without_last),
        ("byte_alphabet", lambda text: text[:-1] + "x"),
    ],
)
def test_a_wrong_entry_is_a_mismatch(
    monkeypatch: pytest.MonkeyPatch, function: str, change: Callable[[Any], Any]
) -> None:
    right = getattr(unicode, function)
    subject = Subject(MINI)
    plan = SUITE.plan(subject, Level.QUICK, 0)
    monkeypatch.setitem(tables._CHARACTERS, "byte_alphabet", lambda: change(right()))
    if function != "byte_alphabet":
        monkeypatch.undo()
        monkeypatch.setattr(unicode, function, lambda *a, **k: change(right(*a, **k)))
    run = run_suite(SUITE, subject)
    assert run.counts.mismatches > 0
    assert all("first difference" in failure["got"] for failure in run.failures)
    assert run.plan.facts == plan.facts


def test_a_table_that_the_reference_cannot_have_is_a_mismatch(monkeypatch: pytest.MonkeyPatch, rich: Subject) -> None:
    """The probe of the normal form finds a character that looks backwards and is not in the table."""
    from dataclasses import replace

    right = unicode.normalization("NFKC")
    monkeypatch.setattr(unicode, "normalization", lambda form: replace(right, no_boundary_before=((0x300, 0x300),)))
    run = run_suite(SUITE, rich, blocks=[5])
    assert [failure["subject"] for failure in run.failures] == ["NFKC"]
    assert "is changed by what stands before it" in run.failures[0]["got"]


def test_standard_takes_every_table() -> None:
    names = {name for probe in all_probes() for name in probe.names}
    assert {"Lu", "Alphabetic", "Han, alone", "numeric", "case folds", "NFC", "NFKD", "[[:alnum:]]"} <= names
    assert len(names) > 400


def test_one_block_of_properties_agrees() -> None:
    run = run_suite(SUITE, Subject(MINI), Level.STANDARD, blocks=[0])
    assert_agrees(run)
    assert run.counts.checks == 24


@pytest.mark.ci
def test_one_probe_of_eight_of_the_shipped_tables_agrees() -> None:
    """All are made again in CI, by the same probes, in tests/tools/test_generate_unicode_tables.py."""
    assert_agrees(run_suite(SUITE, Subject(MINI), Level.STANDARD, blocks=range(0, len(all_probes()), 8)))


@pytest.mark.full
def test_every_shipped_table_agrees() -> None:
    assert_agrees(run_suite(SUITE, Subject(MINI), Level.STANDARD))
