"""Wrong programs fail the vocabulary suite: a rule dropped, two overlapping rules exchanged, two ids exchanged.

The mutant is a program of the engine, compiled from a changed file; the suite and the reference are of the right one.
"""

from __future__ import annotations

import copy
import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.material import SMALL_DIR
from toktier import Encoding, _native
from toktier.certify.levels import Level
from toktier.certify.subject import Subject
from toktier.certify.suite import SuitePlan
from toktier.certify.suites.vocabulary import VocabularySuite
from toktier.certify.tally import Tally
from toktier.program.compile import compile_tokenizer

Document = dict[str, Any]
SUITE = VocabularySuite()


class Mutant(Subject):
    """The subject with another program under test."""

    def __init__(self, path: Path, document: Document) -> None:
        super().__init__(path)
        self.encoder = _native.EncoderBase(_native.Program(compile_tokenizer(json.dumps(document).encode())))

    def encode(self, text: str, add_special_tokens: bool = False, plain: bool = False) -> Encoding:
        return self.encoder.encode(text, add_special_tokens, plain=plain, offsets=True)


def path_of(name: str) -> Path:
    return SMALL_DIR / f"{name}.json"


@cache
def document_of(name: str) -> str:
    return path_of(name).read_text(encoding="utf-8")


@cache
def plan_of(name: str, level: Level) -> SuitePlan:
    return SUITE.plan(Subject(path_of(name)), level, 0)


def mismatches(name: str, document: Document, level: Level) -> int:
    mutant, plan = Mutant(path_of(name), document), plan_of(name, level)
    total = 0
    for block in range(plan.blocks):
        tally = Tally(mutant, SUITE.name, block)
        SUITE.run(mutant, level, 0, plan, block, tally)
        assert tally.counts.routed == 0
        total += tally.counts.mismatches
    return total


def rules_in(document: Document) -> list[list[str]]:
    merges = document["model"]["merges"]
    return [rule.split(" ") if isinstance(rule, str) else list(rule) for rule in merges]


def with_rules(document: Document, rules: list[list[str]]) -> Document:
    changed = copy.deepcopy(document)
    changed["model"]["merges"] = rules
    return changed


@pytest.mark.parametrize("level", [Level.QUICK, Level.STANDARD])
@pytest.mark.parametrize("name", ["cl100k_like", "gemma_like"])
def test_the_right_program_has_none(name: str, level: Level) -> None:
    assert mismatches(name, json.loads(document_of(name)), level) == 0


@pytest.mark.parametrize("level", [Level.QUICK, Level.STANDARD])
@pytest.mark.parametrize("name", ["cl100k_like", "o200k_like", "llama_like"])
def test_a_missing_rule_is_seen(name: str, level: Level) -> None:
    document = json.loads(document_of(name))
    rules = rules_in(document)
    blocked = plan_of(name, level).facts["rules_blocked"]
    survived = 0
    for k in random.Random(1).sample(range(len(rules)), 8):
        survived += mismatches(name, with_rules(document, rules[:k] + rules[k + 1 :]), level) == 0
    assert survived == 0 or (blocked and survived <= 1), "each rule fires in some text, but for the blocked ones"


@pytest.mark.parametrize("name", ["cl100k_like", "deepseek_like", "llama_like"])
def test_exchanged_ranks_are_seen(name: str) -> None:
    """Of overlapping rules; one in ten may be exchanged without any text that shows it."""
    document, rng = json.loads(document_of(name)), random.Random(2)
    rules = rules_in(document)
    survived = tested = 0
    while tested < 20:
        i = rng.randrange(len(rules))
        overlapping = [k for k, rule in enumerate(rules) if k != i and rule[1] == rules[i][0]]
        if not overlapping:
            continue
        k = rng.choice(overlapping)
        mutant = list(rules)
        mutant[i], mutant[k] = rules[k], rules[i]
        survived += mismatches(name, with_rules(document, mutant), Level.STANDARD) == 0
        tested += 1
    assert survived <= 3


@pytest.mark.parametrize("level", [Level.QUICK, Level.STANDARD])
def test_exchanged_ids_are_seen(level: Level) -> None:
    name, rng = "cl100k_like", random.Random(3)
    document = json.loads(document_of(name))
    special = {token["content"] for token in document["added_tokens"]}
    tokens = [token for token in document["model"]["vocab"] if len(token) > 1 and token not in special]
    for _ in range(8):
        first, second = rng.sample(tokens, 2)
        mutant = copy.deepcopy(document)
        vocabulary = mutant["model"]["vocab"]
        vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
        assert mismatches(name, mutant, level) >= 2, (first, second)
