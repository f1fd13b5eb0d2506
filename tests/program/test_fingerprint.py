"""Laws of the fingerprint: it changes with everything that can change a result, and with nothing else.

One document has every part filled in. Each mutation must give another fingerprint (or a refusal, where it leaves what
the compiler takes); each harmless rewriting the same one.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support import tokenizer_maker as maker
from tests.support.tokenizer_maker import Document, added
from toktier.errors import ToktierError
from toktier.program.compile import compile_tokenizer
from toktier.program.file import read_program


def fingerprint_of(data: bytes | Document) -> str:
    image = compile_tokenizer(data if isinstance(data, bytes) else maker.encoded(data))
    return read_program(image).fingerprint


def full() -> Document:
    """Every part of a tokenizer.json in use."""
    document = maker.small("cl100k_like")
    document["normalizer"] = {
        "type": "Sequence",
        "normalizers": [
            {"type": "NFC"},
            {"type": "Lowercase"},
            {"type": "Strip", "strip_left": True, "strip_right": False},
            {"type": "Replace", "pattern": {"String": "q"}, "content": "k"},
            {"type": "Prepend", "prepend": "_"},
        ],
    }
    document["pre_tokenizer"] = {
        "type": "Sequence",
        "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": r"\s+|\p{L}+"}, "behavior": "MergedWithNext", "invert": False},
            {"type": "Digits", "individual_digits": True},
            {"type": "Punctuation", "behavior": "Isolated"},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
        ],
    }
    document["post_processor"] = {
        "type": "Sequence",
        "processors": [
            {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            {
                "type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "X", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {"X": {"id": "X", "ids": [1201, 1200], "tokens": ["<t2>", "<t1>"]}},
            },
        ],
    }
    document["decoder"] = {
        "type": "Sequence",
        "decoders": [
            {"type": "Replace", "pattern": {"String": "_"}, "content": " "},
            {"type": "Strip", "content": " ", "start": 1, "stop": 2},
            {"type": "Fuse"},
        ],
    }
    document["added_tokens"] = [added("<t1>"), added("<t2>", special=True), added("<t3>", normalized=True)]
    document["truncation"] = {"direction": "Right", "max_length": 99, "strategy": "LongestFirst", "stride": 1}
    document["padding"] = {
        "strategy": {"Fixed": 7},
        "direction": "Left",
        "pad_to_multiple_of": 3,
        "pad_id": 1200,
        "pad_type_id": 0,
        "pad_token": "<t1>",
    }
    return document


FULL = full()
BASE = fingerprint_of(FULL)

# Places whose value means nothing to ids, offsets and decoding of one text.
WITHOUT_MEANING = {
    "version",
    "post_processor.processors.0.use_regex",
    "pre_tokenizer.pretokenizers.3.trim_offsets",
    *(f"added_tokens.{k}.id" for k in range(3)),
    "post_processor.processors.1.single.0.SpecialToken.type_id",
    "post_processor.processors.1.single.1.Sequence.type_id",
    "post_processor.processors.1.special_tokens.X.id",
}
WITHOUT_MEANING_BELOW = ("post_processor.processors.1.pair",)


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Places of all scalars but those of the vocabulary and the merges, which have tests of their own."""
    if path in (("model", "vocab"), ("model", "merges")):
        return []
    if isinstance(value, dict):
        return [place for key in value for place in leaves(value[key], (*path, key))]
    if isinstance(value, list):
        return [place for index in range(len(value)) for place in leaves(value[index], (*path, index))]
    return [path]


def replaced(document: Document, path: tuple[str | int, ...], change: Callable[[Any], Any]) -> Document:
    result = copy.deepcopy(document)
    at: Any = result
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = change(at[path[-1]])
    return result


def other_value(value: Any) -> list[Any]:
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1]
    if value is None:
        return ["x", True, 0.5]
    alternatives = {
        "Isolated": ["Removed", "MergedWithPrevious"],
        "MergedWithNext": ["Isolated", "MergedWithPrevious"],
        "Left": ["Right"],
        "Right": ["Left"],
        "LongestFirst": ["OnlySecond"],
        "NFC": ["NFKC", "NFD"],
        "Lowercase": ["NFD"],
        "Fuse": ["ByteFallback"],
        r"\s+|\p{L}+": [r"\s+|\p{L}", r"\s|\p{L}+"],
    }
    return alternatives.get(value, [value + "z"])


def test_every_leaf_counts() -> None:
    counted = refused = 0
    for path in leaves(FULL):
        place = ".".join(map(str, path))
        for value in other_value(_at(FULL, path)):
            try:
                found = fingerprint_of(replaced(FULL, path, lambda _, value=value: value))  # type: ignore[misc]
            except ToktierError:
                refused += 1
                continue
            meaningless = place in WITHOUT_MEANING or place.startswith(WITHOUT_MEANING_BELOW)
            # Switches of the model that a complete byte alphabet makes unreachable change nothing either.
            unreachable = place in ("model.fuse_unk", "model.byte_fallback", "model.unk_token")
            assert (found == BASE) == (meaningless or unreachable), (place, value)
            counted += 1
    assert counted > 45, counted
    assert refused < counted, "mutations that are refused prove nothing"


def _at(document: Any, path: tuple[str | int, ...]) -> Any:
    for key in path:
        document = document[key]
    return document


def test_every_part_counts() -> None:
    for part in ("normalizer", "post_processor", "decoder", "truncation", "padding"):
        assert fingerprint_of(FULL | {part: None}) != BASE, part
    for part, inner in (("normalizer", "normalizers"), ("pre_tokenizer", "pretokenizers"), ("decoder", "decoders")):
        for index in range(len(FULL[part][inner])):
            document = copy.deepcopy(FULL)
            del document[part][inner][index]
            if part == "pre_tokenizer" and index == 3:
                continue  # without ByteLevel it is another model
            assert fingerprint_of(document) != BASE, (part, index)


def test_order_of_steps_counts() -> None:
    document = copy.deepcopy(FULL)
    document["normalizer"]["normalizers"].reverse()
    assert fingerprint_of(document) != BASE


def test_vocabulary_and_merges_count() -> None:
    document = FULL | {"post_processor": None, "padding": None}  # these name ids, which follow the vocabulary
    base = fingerprint_of(document)
    model = document["model"]
    tokens = list(model["vocab"].items())
    swapped = dict(tokens) | {tokens[300][0]: tokens[301][1], tokens[301][0]: tokens[300][1]}
    renamed = {("Ġqqqq" if k == 700 else token): identity for k, (token, identity) in enumerate(tokens)}
    last = tokens[-1][0]
    for change in (
        {"vocab": swapped},
        {"vocab": dict(tokens[:-1]), "merges": [m for m in model["merges"] if "".join(m) != last and last not in m]},
        {"merges": model["merges"][:-1]},
        {"merges": [model["merges"][1], model["merges"][0], *model["merges"][2:]]},
        {"ignore_merges": True},
    ):
        assert fingerprint_of(document | {"model": model | change}) != base, list(change)
    with pytest.raises(ToktierError):
        fingerprint_of(document | {"model": model | {"vocab": renamed}})


def test_unknown_tokens_and_fallback_count_where_they_can_be_reached() -> None:
    document = maker.small("llama_like")
    base = fingerprint_of(document)
    for change in ({"unk_token": None}, {"byte_fallback": False}, {"unk_token": "<s>"}, {"fuse_unk": False}):
        assert fingerprint_of(document | {"model": document["model"] | change}) != base, change


def reordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: reordered(value[key]) for key in reversed(value)}
    return [reordered(item) for item in value] if isinstance(value, list) else value


HARMLESS: dict[str, Callable[[], bytes]] = {
    "white space": lambda: json.dumps(FULL, indent=3).encode(),
    "escapes": lambda: json.dumps(FULL, ensure_ascii=True).encode(),
    "order of keys": lambda: maker.encoded(reordered(FULL)),
    "no version": lambda: maker.encoded({key: value for key, value in FULL.items() if key != "version"}),
    "merges as lines": lambda: _model({"merges": [" ".join(pair) for pair in FULL["model"]["merges"]]}),
    "a rule written twice": lambda: _model({"merges": [FULL["model"]["merges"][-1], *FULL["model"]["merges"]]}),
    "switches left out": lambda: _model({}, leave_out=("fuse_unk", "byte_fallback", "ignore_merges", "dropout")),
    "empty prefixes": lambda: _model({"continuing_subword_prefix": "", "end_of_word_suffix": ""}),
    "another expression that does the same": lambda: _regex(r"(?:\s\s*|\p{L}{1,}|\p{Lu}{2})"),
    "sequences in sequences": lambda: maker.encoded(
        FULL | {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [FULL["pre_tokenizer"]]}}
    ),
    "ids of added tokens": lambda: maker.encoded(
        FULL | {"added_tokens": [token | {"id": 5} for token in FULL["added_tokens"]]}
    ),
    "a repeated added token": lambda: maker.encoded(
        FULL | {"added_tokens": [*FULL["added_tokens"], FULL["added_tokens"][0]]}
    ),
}


def _model(change: Document, leave_out: tuple[str, ...] = ()) -> bytes:
    model = {key: value for key, value in FULL["model"].items() if key not in leave_out}
    return maker.encoded(FULL | {"model": model | change})


def _regex(pattern: str) -> bytes:
    path = ("pre_tokenizer", "pretokenizers", 0, "pattern", "Regex")
    return maker.encoded(replaced(FULL, path, lambda _: pattern))


@pytest.mark.parametrize("case", HARMLESS)
def test_harmless_rewritings_do_not_count(case: str) -> None:
    data = HARMLESS[case]()
    assert data != maker.encoded(FULL)
    assert fingerprint_of(data) == BASE


def test_a_rule_that_can_never_fire_does_not_count() -> None:
    document = maker.changed(
        maker.minimal(),
        model__vocab={"a": 0, "b": 1, "c": 2, "ab": 3, "bc": 4, "abc": 5},
        model__merges=["a b", "b c", "ab c"],
    )
    dead = maker.changed(document, model__merges=["a b", "b c", "ab c", "a bc"])
    assert fingerprint_of(dead) == fingerprint_of(document)
    alive = maker.changed(document, model__merges=["b c", "a b", "ab c", "a bc"])
    assert fingerprint_of(alive) != fingerprint_of(document)


def test_the_fingerprint_stands_in_header_and_differs_from_the_artifact() -> None:
    image = compile_tokenizer(maker.encoded(FULL))
    program = read_program(image)
    assert program.fingerprint == BASE
    assert program.artifact_sha256 != BASE
    assert bytes.fromhex(BASE) in image[:128]
