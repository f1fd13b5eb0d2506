"""The vocabulary suite over small tokenizers: its claims hold under the reference, and another BPE sees its rules fire.

Proofs of impossibility: test_vocabulary_proofs.py; wrong programs: test_vocabulary_mutants.py.
"""

from __future__ import annotations

import json
import random
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from tests.support import tokenizer_maker as maker
from tests.support.bpe_oracle import model_of
from tests.support.engine_pair import Pair
from tests.support.material import ROOT, SMALL_DIR
from toktier import _native
from toktier.certify import vocabulary_cache
from toktier.certify.levels import Level
from toktier.certify.subject import Subject
from toktier.certify.suites import suite_named
from toktier.certify.suites.vocabulary import VocabularySuite
from toktier.certify.tally import Tally
from toktier.certify.vocabulary_outcomes import PROOFS, Outcome
from toktier.errors import UnsupportedConfig
from toktier.program.pair_rows import program_rules

NAMES = ["cl100k_like", "deepseek_like", "gemma_like", "gpt2_like", "llama_like", "o200k_like"]
BYTE_LEVEL = ["cl100k_like", "gpt2_like", "o200k_like"]


def subject_of(name: str, home: Path) -> Subject:
    return Subject(SMALL_DIR / f"{name}.json", home=home)


@cache
def coverage_of(name: str) -> vocabulary_cache.VocabularyCoverage:
    return vocabulary_cache.generate(Subject(SMALL_DIR / f"{name}.json").native)


def rules_of(subject: Subject) -> dict[int, tuple[str, str]]:
    """Rank → the rule's two token strings, from the program's own table."""
    name = subject.native.id_to_token
    rules = program_rules(subject.program_file)
    return {rank: (str(name(left)), str(name(right))) for rank, (left, right, _) in enumerate(rules)}


@pytest.mark.parametrize("level", [Level.QUICK, Level.STANDARD])
@pytest.mark.parametrize("name", NAMES)
def test_every_text_agrees_with_the_reference(name: str, level: Level, tmp_path: Path) -> None:
    subject, suite = subject_of(name, tmp_path), suite_named("vocabulary")
    plan = suite.plan(subject, level, seed=0)
    assert plan.blocks
    documents = 0
    for block in range(plan.blocks):
        tally = Tally(subject, suite.name, block)
        suite.run(subject, level, 0, plan, block, tally)
        assert (tally.counts.mismatches, tally.counts.routed, tally.failures) == (0, 0, [])
        documents += tally.counts.documents
    assert documents == plan.facts["documents"]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_said_to_be_produced_the_reference_produces(name: str, tmp_path: Path) -> None:
    """By each text alone, and by the documents of the quick level too."""
    subject = subject_of(name, tmp_path)
    coverage = coverage_of(name)
    shown = {i for i, outcome in enumerate(coverage.tokens) if outcome == Outcome.SHOWN}
    for texts in (coverage.texts, coverage.documents):
        encodings = subject.reference.encode_batch(texts, add_special_tokens=False)
        assert shown == {i for encoding in encodings for i in encoding.ids}
    assert len(coverage.documents) < len(coverage.texts) / 4


@pytest.mark.parametrize("name", BYTE_LEVEL)
def test_what_is_said_to_fire_fires_in_another_bpe(name: str, tmp_path: Path) -> None:
    """Pieces by the reference's normalizer and pre-tokenizer, merges by the slow one of the tests."""
    subject = subject_of(name, tmp_path)
    coverage = coverage_of(name)
    model = model_of(json.loads(subject.data))
    rules = rules_of(subject)
    claimed = {rules[rank] for rank, outcome in enumerate(coverage.rules) if outcome == Outcome.SHOWN}
    for texts in (coverage.texts, coverage.documents):
        fired: set[tuple[str, str]] = set()
        for text in texts:
            _encode_slowly(subject.reference, model, text, fired)
        assert claimed <= fired


def _encode_slowly(reference: tokenizers.Tokenizer, model: Any, text: str, fired: set[tuple[str, str]]) -> None:
    if reference.normalizer is not None:
        text = reference.normalizer.normalize_str(text)
    for piece, _ in reference.pre_tokenizer.pre_tokenize_str(text):
        model.encode(piece, fired)


@pytest.mark.parametrize("name", NAMES)
def test_the_figures_add_up(name: str, tmp_path: Path) -> None:
    subject = subject_of(name, tmp_path)
    facts = VocabularySuite().plan(subject, Level.STANDARD, 0).facts
    assert all(isinstance(value, (int, str)) for value in facts.values())
    for what, shown, impossible in (("tokens", "produced", "unreachable"), ("rules", "fired", "blocked")):
        parts = [facts[f"{what}_{shown}"], facts[f"{what}_{impossible}"], facts[f"{what}_open"]]
        assert sum(parts) == facts[what]
        reasons = [v for k, v in facts.items() if k.startswith(f"{what}_{impossible}_")]
        assert sum(reasons) == facts[f"{what}_{impossible}"]
    model = json.loads(subject.data)["model"]
    assert facts["tokens"] == len(model["vocab"])
    assert facts["rules"] + facts["rules_dead"] == len(model["merges"])
    assert facts["tokens_open"] == facts["rules_open"] == 0
    assert facts["rank_pairs_told"] + facts["rank_pairs_blocked"] <= facts["rank_pairs"]
    assert facts["mutants_killed"] >= 0.9 * facts["mutants"] > 0
    assert facts["mutants_killed"] + facts["mutants_apart"] >= 0.98 * facts["mutants"]


def test_a_plan_is_the_same_each_time(tmp_path: Path) -> None:
    first = VocabularySuite().plan(subject_of("o200k_like", tmp_path), Level.STANDARD, 0)
    again = VocabularySuite().plan(subject_of("o200k_like", tmp_path / "elsewhere"), Level.STANDARD, 0)
    assert first == again


@pytest.mark.parametrize("seed", range(16))
def test_plain_merging_gives_the_engines_ids(seed: int) -> None:
    """The trace that says which rules fire is of the same text as the engine's ids, whatever the pipeline."""
    document = maker.random_document(seed) | {"truncation": None, "padding": None}
    try:
        pair, rng = Pair(document), random.Random(seed)
    except UnsupportedConfig:
        pytest.skip("undefined in the reference")
    for _ in range(60):
        text = maker.random_text(rng)
        if pair.reference(text) is None:
            continue
        ids, _ = _native.trace_merges(pair.program, text.encode())
        assert ids == pair.encoder.encode(text).ids, ascii(text)


@pytest.mark.parametrize("seed", range(6))
def test_claims_about_random_pipelines_hold(seed: int) -> None:
    """Stored truncation and padding included: a text that is cut shows nothing."""
    try:
        pair = Pair(maker.random_document(seed))
    except UnsupportedConfig:
        pytest.skip("undefined in the reference")
    coverage = vocabulary_cache.generate(pair.program)
    produced: set[int] = set()
    for text in coverage.texts:
        row = pair.reference(text)
        assert row is not None, ascii(text)
        produced |= set(row[0])
    shown = {i for i, outcome in enumerate(coverage.tokens) if outcome == Outcome.SHOWN}
    assert shown <= produced


def test_the_outcomes_are_those_of_the_native_search() -> None:
    header = (ROOT / "native" / "coverage" / "vocabulary_search.h").read_text(encoding="utf-8")
    body = header.split("enum class Outcome", 1)[1].split("};", 1)[0]
    stated = {name.upper(): int(value) for name, value in re.findall(r"^\s*(\w+) = (\d+)", body, re.MULTILINE)}
    assert stated == {outcome.name: outcome.value for outcome in Outcome}
    assert set(PROOFS) == set(Outcome) - {Outcome.ABSENT, Outcome.SHOWN, Outcome.OPEN}


def test_the_suite_is_kept_and_believed_only_when_it_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[bool] = []
    generate = vocabulary_cache.generate

    def counted(program: _native.Program) -> vocabulary_cache.VocabularyCoverage:
        made.append(True)
        return generate(program)

    monkeypatch.setattr(vocabulary_cache, "generate", counted)
    subject = subject_of("gpt2_like", tmp_path)
    first = vocabulary_cache.vocabulary_coverage(subject, 1)
    assert vocabulary_cache.vocabulary_coverage(subject, 1) == first
    assert len(made) == 1, "the second is read"
    (path,) = tmp_path.rglob("*.vocabulary")
    whole = path.read_bytes()

    for damaged in (whole[:-2], whole[:-40] + b"a" + whole[-39:], b"", whole.replace(b'"key":"', b'"key":"0')):
        path.write_bytes(damaged)
        before = len(made)
        assert vocabulary_cache.vocabulary_coverage(subject, 1) == first
        assert (len(made), path.read_bytes()) == (before + 1, whole), "made again and mended"

    path.chmod(0o666)  # others could have written it
    assert vocabulary_cache.vocabulary_coverage(subject, 1) == first
    assert len(made) == 6
    vocabulary_cache.vocabulary_coverage(subject, 2)  # another version of the suite
    other = subject_of("cl100k_like", tmp_path)
    vocabulary_cache.vocabulary_coverage(other, 1)
    assert len(made) == 8

    wrong_key = path.with_name(next(p for p in tmp_path.rglob("*.v1.vocabulary") if p != path).name)
    wrong_key.write_bytes(path.read_bytes())  # whole, but of another tokenizer
    vocabulary_cache.vocabulary_coverage(other, 1)
    assert len(made) == 9
