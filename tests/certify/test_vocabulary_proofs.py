"""Proofs of impossibility against brute force: tiny random tokenizers, every text up to a length over their alphabet.

No such text may produce a token that was proved unreachable, or fire a rule that was proved blocked; the reference
makes the ids and the pieces, the slow BPE of the tests says which rules fire.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from tokenizers import Tokenizer

from tests.support import tokenizer_maker as maker
from tests.support.bpe_oracle import TO_CHARACTER, model_of
from toktier import _native
from toktier.certify.vocabulary_cache import VocabularyCoverage, generate
from toktier.certify.vocabulary_outcomes import PROOFS, Outcome
from toktier.errors import UnsupportedConfig
from toktier.program.compile import compile_tokenizer
from toktier.program.file import read_program
from toktier.program.pair_rows import program_rules

CHARACTERS = ["a", "b", " ", "1", "\n", "é", "e", "\u0301", "'", "s", "A", "中", "丯"]
LONGEST = 5
Document = dict[str, Any]


def tiny_document(rng: random.Random, byte_level: bool) -> tuple[Document, list[str]]:
    """A tokenizer whose rules join what texts over the returned alphabet hold, or could hold."""
    alphabet = rng.sample(CHARACTERS, 6)
    document = maker.minimal()
    if byte_level:
        tokens = [TO_CHARACTER[byte] for byte in range(256)]
        used = sorted({TO_CHARACTER[byte] for character in alphabet for byte in character.encode()})
        document["pre_tokenizer"] = {
            "type": "Sequence",
            "pretokenizers": [
                {
                    "type": "Split",
                    "pattern": {"Regex": rng.choice(maker.SPLIT_PATTERNS)},
                    "behavior": rng.choice(("Isolated", "Removed", "MergedWithNext")),
                    "invert": rng.random() < 0.3,
                },
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
            ],
        }
    else:
        known = rng.sample(alphabet, 5)  # the sixth has no symbol
        tokens = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *known]
        used = known
        document["model"] |= {"unk_token": "<unk>", "byte_fallback": rng.random() < 0.7, "fuse_unk": rng.random() < 0.5}
    merges: list[list[str]] = []
    pool = list(used)
    while len(merges) < 14:
        left, right = rng.choice(pool), rng.choice(pool)
        if [left, right] in merges or len(left + right) > 5:
            continue
        merges.append([left, right])
        if left + right not in tokens:
            tokens.append(left + right)
            pool.append(left + right)
    for _ in range(4):
        extra = "".join(rng.choices(used, k=rng.randrange(2, 4)))
        if extra not in tokens:
            tokens.append(extra)
    rng.shuffle(merges)
    document["model"] |= {
        "vocab": {token: identity for identity, token in enumerate(tokens)},
        "merges": merges,
        "ignore_merges": rng.random() < 0.4,
    }
    document["normalizer"] = rng.choice(
        (
            None,
            {"type": "NFC"},
            {"type": "NFD"},
            {"type": "Lowercase"},
            {"type": "Replace", "pattern": {"String": rng.choice(alphabet)}, "content": rng.choice(("▁", "a", ""))},
        )
    )
    if rng.random() < 0.5:
        content = "".join(rng.choices(alphabet, k=2))
        flags = {name: rng.random() < 0.3 for name in ("single_word", "lstrip", "normalized")}
        document["added_tokens"] = [maker.added(content, **flags) | {"id": len(tokens)}]
    return document, alphabet


def checked(document: Document, alphabet: list[str], longest: int = LONGEST) -> Counter[Outcome]:
    """How many proofs of each kind held against all texts."""
    text = json.dumps(document)
    image = compile_tokenizer(text.encode())
    coverage = generate(_native.Program(image))
    reference = Tokenizer.from_str(text)
    texts = ["".join(letters) for n in range(1, longest + 1) for letters in itertools.product(alphabet, repeat=n)]
    produced: set[int] = set()
    for encoding in reference.encode_batch(texts, add_special_tokens=False):
        produced.update(encoding.ids)
    refuted = {i for i in produced if coverage.tokens[i] in PROOFS}
    assert not refuted, (text, [(reference.id_to_token(i), Outcome(coverage.tokens[i]).name) for i in refuted])
    found = Counter(Outcome(outcome) for outcome in coverage.tokens if outcome in PROOFS)
    if not document["added_tokens"]:  # the reference hands out pieces only without them
        found += _check_rules(document, reference, texts, image, coverage)
    return found


def _check_rules(
    document: Document, reference: Tokenizer, texts: list[str], image: bytes, coverage: VocabularyCoverage
) -> Counter[Outcome]:
    model = model_of(document)
    pieces: set[str] = set()
    for text in texts:
        left = text if reference.normalizer is None else reference.normalizer.normalize_str(text)
        if reference.pre_tokenizer is None:
            pieces.add(left)
        else:
            pieces.update(piece for piece, _ in reference.pre_tokenizer.pre_tokenize_str(left))
    fired: set[tuple[str, str]] = set()
    for piece in pieces:
        model.encode(piece, fired)
    found: Counter[Outcome] = Counter()
    for rank, (left_id, right_id, _) in enumerate(program_rules(read_program(image))):
        if coverage.rules[rank] in PROOFS:
            rule = (reference.id_to_token(left_id), reference.id_to_token(right_id))
            assert rule not in fired, (rule, Outcome(coverage.rules[rank]).name)
            found[Outcome(coverage.rules[rank])] += 1
    return found


@pytest.mark.parametrize("byte_level", [True, False])
def test_no_text_refutes_a_proof(byte_level: bool) -> None:
    found: Counter[Outcome] = Counter()
    for seed in range(12 if byte_level else 24):
        document, alphabet = tiny_document(random.Random(seed), byte_level)
        with contextlib.suppress(UnsupportedConfig):
            found += checked(document, alphabet)
    kinds = {Outcome.NORMALIZER, Outcome.MERGES}
    kinds |= {Outcome.INVALID_UTF8, Outcome.PRE_TOKENIZER} if byte_level else {Outcome.HAS_SYMBOL}
    assert kinds <= set(found)


def byte_level_document(pattern: str, tokens: list[str], merges: list[list[str]], ignore_merges: bool) -> Document:
    document = maker.minimal()
    vocabulary = [*TO_CHARACTER.values(), *tokens]
    document["model"] |= {
        "vocab": {token: identity for identity, token in enumerate(dict.fromkeys(vocabulary))},
        "merges": merges,
        "ignore_merges": ignore_merges,
    }
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    document["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, byte_level]}
    return document


def test_a_first_byte_that_always_finds_its_character() -> None:
    """a + C3 is made only where nothing follows C3, but something always does, and merges first."""
    first = TO_CHARACTER[0xC3]
    characters = [first + TO_CHARACTER[byte] for byte in range(0x80, 0xC0)]
    merges = [[pair[0], pair[1]] for pair in characters] + [["a", first]]
    document = byte_level_document(r"\s+", [*characters, "a" + first], merges, False)
    found = checked(document, ["a", "é", "è", "b", " "])
    assert found[Outcome.NEIGHBOURS] == 2 + 1, "both tokens and the rule"


def test_a_rule_whose_product_is_always_a_whole_piece() -> None:
    document = byte_level_document(r"\d{1,2}", ["11", "a1"], [["1", "1"], ["a", "1"]], True)
    found = checked(document, ["1", "2", "a", " "])
    assert found[Outcome.WHOLE_PIECE] == 1
    assert found[Outcome.PRE_TOKENIZER] == 2, "a1, the token and the rule"
    # With three digits to a piece it fires inside of 112.
    wider = byte_level_document(r"\d{1,3}", ["11", "a1"], [["1", "1"], ["a", "1"]], True)
    assert checked(wider, ["1", "2", "a", " "])[Outcome.WHOLE_PIECE] == 0


@pytest.mark.parametrize("normalizer", [None, {"type": "Prepend", "prepend": "d"}])
def test_a_token_around_an_added_token(normalizer: Document | None) -> None:
    document = maker.minimal() | {"normalizer": normalizer}
    document["added_tokens"] = [maker.added("bc") | {"id": 6}]
    assert checked(document, ["a", "b", "c", "d"])[Outcome.ADDED_TOKEN] == 1
    # A match that single_word throws away leaves the characters to the model.
    document["added_tokens"][0]["single_word"] = True
    assert checked(document, ["a", "b", "c", "d"])[Outcome.ADDED_TOKEN] == 0


def test_a_proof_that_is_wrong_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The brute force can fail: it refutes a claim that was made up."""
    coverage = generate(_native.Program(compile_tokenizer(json.dumps(maker.minimal()).encode())))
    wrong = replace(coverage, tokens=bytes([Outcome.NORMALIZER]) + coverage.tokens[1:])
    monkeypatch.setitem(checked.__globals__, "generate", lambda program: wrong)
    with pytest.raises(AssertionError, match="NORMALIZER"):
        checked(maker.minimal(), ["a", "b"])
