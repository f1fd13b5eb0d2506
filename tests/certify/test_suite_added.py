"""The suite of added tokens agrees with the reference on tokenizers of every kind, and reports an ignored flag."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.certify_runs import changed_file, faulty_subject, run_suite
from tests.support.material import small_tokenizers
from toktier.certify.levels import Level
from toktier.certify.subject import Subject
from toktier.certify.suites.added import BUDGET, AddedSuite

SUITE = AddedSuite()
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
BASE = next(path for path in small_tokenizers() if path.stem == "cl100k_like")


@pytest.mark.parametrize("path", small_tokenizers(), ids=lambda p: p.stem)
def test_small_tokenizers_agree(path: Path) -> None:
    subject = Subject(path)
    run = run_suite(SUITE, subject)
    assert not run.failures
    assert (run.counts.mismatches, run.counts.routed) == (0, 0)
    facts = run.plan.facts
    assert facts["tokens"] == facts["alone"] == len(subject.spec.added_tokens)
    assert run.counts.documents == facts["texts"] > 1_000
    assert run.counts.checks > run.counts.documents  # special tokens, and plain mode
    again = run_suite(SUITE, Subject(path), blocks=range(min(3, run.plan.blocks)))
    assert run.digests[:3] == again.digests


def _with_every_flag(document: Any, flags: Sequence[str] = FLAGS) -> None:
    template = document["added_tokens"][-1]
    top = max(*document["model"]["vocab"].values(), *(token["id"] for token in document["added_tokens"]))
    for number, flag in enumerate(flags, 1):
        content = f"<{flag}>" if flag != "single_word" else "zqx"
        token = {**template, **dict.fromkeys(FLAGS, False), flag: True, "content": content, "id": top + number}
        document["added_tokens"].append(token)


def _flag(flag: str) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        token = next(t for t in document["added_tokens"] if t["content"] in (f"<{flag}>", "zqx" * (flag[1] == "i")))
        token[flag] = False

    return change


def test_a_tokenizer_with_every_flag_agrees_and_an_ignored_one_is_reported(tmp_path: Path) -> None:
    base = changed_file(BASE, tmp_path / "base.json", _with_every_flag)
    assert not run_suite(SUITE, Subject(base)).failures
    for flag in ("single_word", "lstrip", "rstrip", "special"):
        faulty = changed_file(base, tmp_path / f"{flag}.json", _flag(flag))
        run = run_suite(SUITE, faulty_subject(base, faulty), until_mismatch=True)
        assert run.counts.mismatches > 0, flag
        assert run.failures
        assert all(failure["plain"] for failure in run.failures) == (flag == "special"), flag


def test_the_flag_normalized_is_reported_when_ignored(tmp_path: Path) -> None:
    def normalizing(document: Any) -> None:
        _with_every_flag(document, FLAGS[1:])  # a single word is tried beside every code point, which takes long
        document["normalizer"] = {"type": "Lowercase"}

    base = changed_file(BASE, tmp_path / "base.json", normalizing)
    assert not run_suite(SUITE, Subject(base)).failures
    faulty = changed_file(base, tmp_path / "faulty.json", _flag("normalized"))
    assert run_suite(SUITE, faulty_subject(base, faulty), until_mismatch=True).counts.mismatches > 0


def test_more_tokens_than_the_budget_each_get_their_share(tmp_path: Path) -> None:
    def many(document: Any) -> None:
        template = document["added_tokens"][-1]
        top = max(*document["model"]["vocab"].values(), *(token["id"] for token in document["added_tokens"]))
        for number in range(400):
            document["added_tokens"].append({**template, "content": f"<|n{number}|>", "id": top + 1 + number})

    subject = Subject(changed_file(BASE, tmp_path / "many.json", many))
    plan = SUITE.plan(subject, Level.QUICK, 1)
    for kind in ("alone", "contexts", "adjacent", "cut_short", "white_space"):
        assert plan.facts["tokens"] <= plan.facts[kind] <= BUDGET[Level.QUICK]
        assert (plan.facts[kind] < plan.facts[f"{kind}_possible"]) == (kind != "alone")
    contents = [placed.token.content for placed in subject.spec.added_tokens]
    assert all(sum(content in text for text in plan.payload.texts) > 5 for content in contents)
    assert plan.payload.texts != SUITE.plan(subject, Level.QUICK, 2).payload.texts


def test_without_added_tokens_nothing_is_planned_and_it_says_so(tmp_path: Path) -> None:
    def bare(document: Any) -> None:
        document.update(added_tokens=[], post_processor=None)

    plan = SUITE.plan(Subject(changed_file(BASE, tmp_path / "bare.json", bare)), Level.QUICK, 1)
    assert plan.blocks == 0
    assert plan.why == "the tokenizer has no added tokens"
