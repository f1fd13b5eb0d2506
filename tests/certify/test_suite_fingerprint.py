"""The fingerprint suite: nothing to report on tokenizers of every kind; a fingerprint that forgets something, or minds
what means nothing, is reported."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.certify_runs import SuiteRun, run_suite
from tests.support.material import load_json, small_tokenizers
from toktier.certify import fingerprint_mutants as mutants
from toktier.certify.levels import Level
from toktier.certify.subject import Subject
from toktier.certify.suites import fingerprint as suite_module
from toktier.certify.suites.fingerprint import FingerprintSuite
from toktier.program import compile as compiler
from toktier.program.decoder import Decoder
from toktier.program.fingerprint import fingerprint
from toktier.program.post_processor import PostProcessor
from toktier.program.strict_json import parse_json

SUITE = FingerprintSuite()
NAMES = {path.stem: path for path in small_tokenizers()}


@pytest.mark.parametrize("level", [Level.QUICK, pytest.param(Level.STANDARD, marks=pytest.mark.ci)])
@pytest.mark.parametrize("name", NAMES)
def test_small_tokenizers_have_nothing_to_report(name: str, level: Level) -> None:
    run = run_suite(SUITE, Subject(NAMES[name]), level)
    assert not run.failures
    assert run.plan.facts["fields"] > 35
    assert run.counts.checks >= run.plan.facts["changes"] + run.plan.facts["model_changes_compiled"] + 2


def forgetting(change: Callable[[Any], Any], rules: Callable[[bytes], bytes] = lambda rules: rules) -> Any:
    """`fingerprint` of a changed specification, or of changed rules."""
    return lambda spec, boundary, sections, conf, live: fingerprint(change(spec), boundary, sections, conf, rules(live))


FORGOTTEN = {
    "decoder": (forgetting(lambda spec: replace(spec, decoder=Decoder(None))), "decoder"),
    "post_processor": (forgetting(lambda spec: replace(spec, post_processor=PostProcessor())), "post_processor"),
    "normalizer": (forgetting(lambda spec: replace(spec, normalizer=())), "normalizer"),
    "truncation": (forgetting(lambda spec: replace(spec, truncation=None)), "truncation"),
    "padding": (forgetting(lambda spec: replace(spec, padding=None)), "padding"),
    "added_tokens": (forgetting(lambda spec: replace(spec, added_tokens=())), "added_tokens"),
    "rules": (forgetting(lambda spec: spec, lambda rules: b""), "rule"),
    "ranks": (
        forgetting(lambda spec: spec, lambda r: b"".join(sorted(r[i : i + 12] for i in range(0, len(r), 12)))),
        "ranks",
    ),
}


@pytest.mark.parametrize("forgotten", FORGOTTEN)
def test_a_fingerprint_that_forgets_something_is_reported(forgotten: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong, field = FORGOTTEN[forgotten]
    monkeypatch.setattr(suite_module, "fingerprint", wrong)
    monkeypatch.setattr(compiler, "fingerprint", wrong)
    run = run_suite(SUITE, Subject(NAMES["llama_like"]))
    assert run.counts.mismatches > 0
    assert any(field in failure["subject"] for failure in run.failures)
    assert named(run) <= {"change", "change of the model"}


def named(run: SuiteRun) -> set[str]:
    return {failure["what"] for failure in run.failures}


def test_a_fingerprint_that_minds_the_spelling_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_order(spec: Any, *others: Any) -> str:
        first = next(iter(spec.model.vocabulary))
        return hashlib.sha256(f"{fingerprint(spec, *others)} {first}".encode()).hexdigest()

    monkeypatch.setattr(compiler, "fingerprint", by_order)
    assert "fingerprint by the short way" in named(run_suite(SUITE, Subject(NAMES["gpt2_like"])))
    monkeypatch.setattr(suite_module, "fingerprint", by_order)
    assert named(run_suite(SUITE, Subject(NAMES["gpt2_like"]))) == {"spelling"}


def test_a_rule_that_means_something_to_the_reference_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above quick: what the list takes for without effect is tried on the reference."""
    wrong = forgetting(lambda spec: replace(spec, normalizer=()))
    monkeypatch.setattr(suite_module, "fingerprint", wrong)
    monkeypatch.setattr(compiler, "fingerprint", wrong)
    row = (r"normalizer.*", "wrongly", lambda base, after, mutant: True)
    monkeypatch.setattr(suite_module, "WITHOUT_EFFECT", (*suite_module.WITHOUT_EFFECT, row))
    subject = Subject(NAMES["llama_like"])
    assert not run_suite(SUITE, subject).failures
    assert any("the reference" in what for what in named(run_suite(SUITE, subject, Level.STANDARD)))


def test_every_field_of_a_document_is_changed() -> None:
    document = load_json(NAMES["o200k_like"])
    walked = list(mutants.walk(document, range(len(document["added_tokens"]))))
    changed = {mutant.path for mutant in walked if mutant.change == "set"}

    def leaves(node: Any, path: tuple[Any, ...]) -> None:
        if path in (("model", "vocab"), ("model", "merges")):
            return
        if isinstance(node, (dict, list)):
            for step, value in node.items() if isinstance(node, dict) else enumerate(node):
                leaves(value, (*path, step))
        else:
            assert path in changed, path

    leaves(document, ())
    before = json.dumps(document)
    for mutant in walked:
        after = json.dumps(mutant.apply(document))
        assert (after != before) or mutant.change == "swap", mutant.name
    assert json.dumps(document) == before


@pytest.mark.parametrize("name", NAMES)
def test_spellings_say_the_same(name: str) -> None:
    document = load_json(NAMES[name])
    for spell in mutants.SPELLINGS.values():
        assert parse_json(spell(document), "x") == document
    assert mutants.backwards(document) == document
    assert list(mutants.backwards(document)) == list(document)[::-1]
    assert list(mutants.backwards(document)["model"]["vocab"]) == list(document["model"]["vocab"])[::-1]


def test_merges_are_spelled_the_other_way_unless_a_blank_forbids_it() -> None:
    as_text = {"model": {"merges": ["a b", "ab c"]}}
    as_pairs = mutants.other_spelling_of_merges(as_text)
    assert as_pairs == {"model": {"merges": [["a", "b"], ["ab", "c"]]}}
    assert mutants.other_spelling_of_merges(as_pairs) == as_text
    assert mutants.other_spelling_of_merges({"model": {"merges": [["a ", "b"]]}}) is None
    assert mutants.other_spelling_of_merges({"model": {"merges": []}}) is None


def test_a_sample_of_added_tokens_holds_every_set_of_flags() -> None:
    tokens = [{"special": index % 7 == 3, "lstrip": index == 90, "content": str(index)} for index in range(100)]
    chosen = mutants.sampled_tokens(tokens, 6, 1)
    assert len(chosen) == 6
    assert {0, 3, 90, 99} <= set(chosen)
    assert mutants.sampled_tokens(tokens, None, 1) == list(range(100))


def test_plans_are_the_same_in_every_process(tmp_path: Path) -> None:
    one, two = (run_suite(SUITE, Subject(NAMES["gpt2_like"])) for _ in range(2))
    assert one.digests == two.digests
    assert dict(one.plan.facts) == dict(two.plan.facts)


@pytest.mark.parametrize("vocabulary", [{"a": 0}, {"a": 0, "b": 1, "ab": 2}])
def test_the_least_tokenizers_have_nothing_to_report(tmp_path: Path, vocabulary: dict[str, int]) -> None:
    """No added token, no part but the model, at most one merge."""
    from tokenizers import Tokenizer, models

    merges = [("a", "b")] if "ab" in vocabulary else []
    Tokenizer(models.BPE(vocabulary, merges)).save(str(tmp_path / "t.json"))
    run = run_suite(SUITE, Subject(tmp_path / "t.json"), Level.STANDARD)
    assert not run.failures
    assert run.counts.checks > 50
