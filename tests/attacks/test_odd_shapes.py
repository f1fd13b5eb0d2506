"""Files of odd shape that the reference loads: they are declined and never called "no tokenizer".

The reference takes some objects as arrays of their fields, goes in places by the fields and not by `type`, and passes
over what it does not know. Every place of a file with every component is exchanged, dropped, reshaped and relabelled.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

import toktier
from tests.support.tokenizer_maker import Document, added, changed, encoded, minimal
from toktier.errors import ArtifactDamaged, NotATokenizer, ProgramUnsupported, UnsupportedConfig
from toktier.program.tokenizer_json import read_tokenizer

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
REPLACE = {"type": "Replace", "pattern": {"String": "a"}, "content": "b"}
PIECES = [{"SpecialToken": {"id": "a", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
COMPONENTS: dict[str, tuple[str, list[Document]]] = {
    "normalizer": (
        "normalizers",
        [
            {"type": "NFC"}, {"type": "Lowercase"}, {"type": "Strip", "strip_left": True, "strip_right": False},
            REPLACE, {"type": "Prepend", "prepend": "_"}, {"type": "Precompiled", "precompiled_charsmap": ""},
            {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
             "lowercase": True},
        ],
    ),
    "pre_tokenizer": (
        "pretokenizers",
        [
            {"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Isolated", "invert": False},
            {"type": "Digits", "individual_digits": True}, {"type": "Punctuation", "behavior": "Isolated"}, BYTE_LEVEL,
            {"type": "Metaspace", "replacement": "_", "prepend_scheme": "always", "split": True},
            {"type": "CharDelimiterSplit", "delimiter": "a"}, {"type": "Whitespace"},
        ],
    ),
    "decoder": (
        "decoders",
        [
            BYTE_LEVEL, {"type": "ByteFallback"}, {"type": "Fuse"}, REPLACE, {"type": "BPEDecoder", "suffix": "</w>"},
            {"type": "Strip", "content": "a", "start": 1, "stop": 0},
            {"type": "CTC", "pad_token": "a", "word_delimiter_token": "|", "cleanup": True},
            {"type": "WordPiece", "prefix": "##", "cleanup": True},
            {"type": "Metaspace", "replacement": "_", "prepend_scheme": "always", "split": True},
        ],
    ),
    "post_processor": (
        "processors",
        [
            BYTE_LEVEL,
            {"type": "TemplateProcessing", "single": PIECES, "pair": PIECES,
             "special_tokens": {"a": {"id": "a", "ids": [0], "tokens": ["a"]}}},
            {"type": "BertProcessing", "sep": ["a", 0], "cls": ["b", 1]},
            {"type": "RobertaProcessing", "sep": ["a", 0], "cls": ["b", 1], "trim_offsets": True,
             "add_prefix_space": True},
        ],
    ),
}  # fmt: skip
ODD: list[Any] = [
    None, True, 0, -1, 1.5, "", "x", "BPE", "ByteLevel", "Sequence", "Fuse", [], [1], ["a"], [["a", "b"]], {}, [[]],
    {"type": "ByteLevel"}, {"type": 3}, {"type": None}, {"String": "a"}, {"a": 1}, [{}], {"type": ["BPE"]},
    {"ByteLevel": {}}, ["ByteLevel"], [True, True, True], {"type": "Fuse", "extra": 1},
]  # fmt: skip
GIVEN: list[Any] = [None, 1, "x", [], {}]
NAMES = ("type", "foo", "vocab", "id", "content", "String", "single", "trim_offsets", "prefix", "unk_id", "regex")


def sequence(part: str, within: int | None = None) -> Document:
    member, components = COMPONENTS[part]
    known = components if within is None else components[:within]
    return {"type": "Sequence", member: known}


def everything() -> Document:
    """A file with every component that the compiler takes."""
    return changed(
        minimal(),
        normalizer=sequence("normalizer", 5),
        pre_tokenizer=sequence("pre_tokenizer", 4),
        decoder=sequence("decoder"),
        post_processor=sequence("post_processor", 2),
        added_tokens=[added("zz"), added("yy", normalized=True)],
        truncation={"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0},
        padding={"strategy": {"Fixed": 4}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
                 "pad_type_id": 0, "pad_token": "a"},
    )  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


def mutants(document: Document) -> Iterator[Document]:
    for path in places(document):
        at = document
        for key in path[:-1]:
            at = at[key]
        present = at[path[-1]]
        values: list[Any] = list(ODD)
        if isinstance(present, dict):
            values += [list(present.values()), {key.upper(): value for key, value in present.items()}]
            values += [{**present, name: given} for name in NAMES for given in GIVEN]
        if isinstance(present, list):
            values += [[*present, item] for item in ODD]
        for value in [*values, at]:  # `at` itself: the place is dropped
            result = copy.deepcopy(document)
            inner = result
            for key in path[:-1]:
                inner = inner[key]
            if value is at:
                del inner[path[-1]]
            else:
                inner[path[-1]] = value
            yield result


def relabelled() -> Iterator[Document]:
    """Components under the types of others, with fields of others too, one missing, without a type, as arrays."""
    for part, (_, components) in COMPONENTS.items():
        items = [*components, sequence(part, 2)]
        for item in items:
            for kind in (*(each["type"] for each in items), "Foo", "", None, 3):
                whole = {**item, "type": kind}
                forms = [whole, *({k: v for k, v in whole.items() if k != dropped} for dropped in whole)]
                forms += [{**other, **item, "type": kind} for other in items]
                for form in forms:
                    yield changed(minimal(), **{part: form})
                    yield changed(minimal(), **{part: list(form.values())})


def misjudged(document: Document) -> NotATokenizer | None:
    """The refusal of a file that the reference loads."""
    data = encoded(document)
    try:
        read_tokenizer(data)
    except NotATokenizer as error:
        try:
            Tokenizer.from_buffer(data)
        except BaseException:  # a panic is no Exception
            return None
        return error
    except (ArtifactDamaged, ProgramUnsupported, UnsupportedConfig):
        return None
    return None


def check(documents: list[Document]) -> None:
    found = [(error.message, document) for document in documents if (error := misjudged(document)) is not None]
    assert not found, f"{len(found)} of {len(documents)}, the first: {found[0][0]}: {json.dumps(found[0][1])[:2000]}"


def test_law_what_the_reference_loads_is_never_no_tokenizer() -> None:
    rng = random.Random(5)
    documents = [*mutants(everything()), *relabelled()]
    assert len(documents) > 10_000
    check(rng.sample(documents, 1500))


@pytest.mark.ci
def test_law_every_mutant() -> None:
    check([*mutants(everything()), *mutants(minimal()), *relabelled()])


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"decoder": {"type": 3, **{k: v for k, v in REPLACE.items() if k != "type"}}}, "decoder.type"),
        ({"normalizer": {"type": None, "strip_left": True, "strip_right": True}}, "normalizer.type"),
        ({"normalizer": [True, True]}, "normalizer"),
        ({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Isolated", "invert": False,
                            "foo": 1}}, "pre_tokenizer.foo"),
        ({"post_processor": {**COMPONENTS["post_processor"][1][1], "type": "ByteLevel"}}, "post_processor.type"),
        ({"truncation": ["Right", 8, "LongestFirst", 0]}, "truncation"),
    ],
)  # fmt: skip
def test_the_reference_serves_it_and_the_place_is_named(changes: Document, place: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(encoded(changed(minimal(), **changes)))
    reference = Tokenizer.from_file(str(path))
    with pytest.warns(toktier.ToktierWarning, match="R_PROGRAM_UNSUPPORTED"):
        tok = toktier.from_file(path)
    enc = tok.encode("abcab")
    assert enc.backend == "hf"
    assert enc.ids == reference.encode("abcab", add_special_tokens=False).ids
    with pytest.raises(ProgramUnsupported) as caught:
        toktier.from_file(path, policy="require_accelerated")
    assert caught.value.path == place
