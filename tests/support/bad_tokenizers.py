"""Documents that no program can be made of: what the reference cannot load, and what is beyond the compiler.

Each with the JSON path that its refusal must name. Damaged bytes are not here, nor what the reference leaves undefined.
"""

from __future__ import annotations

import copy
from typing import Any

from tests.support.tokenizer_maker import Document, added, changed, minimal

DIGITS = {"type": "Digits", "individual_digits": True}
PUNCTUATION = {"type": "Punctuation", "behavior": "MergedWithNext"}
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
TEMPLATE = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "X", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {"X": {"id": "X", "ids": [0], "tokens": ["a"]}},
}
TRUNCATION = {"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0}
PADDING = {
    "strategy": "BatchLongest",
    "direction": "Right",
    "pad_to_multiple_of": None,
    "pad_id": 0,
    "pad_type_id": 0,
    "pad_token": "a",
}


def without(document: Document, path: str) -> Document:
    result = copy.deepcopy(document)
    *parents, last = path.split("__")
    at = result
    for name in parents:
        at = at[name]
    del at[last]
    return result


def split(**fields: Any) -> Document:
    return {"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Isolated", "invert": False, **fields}


def nested(inner: str, depth: int) -> Document:
    value: Document = {"type": "Sequence", inner: []}
    for _ in range(depth):
        value = {"type": "Sequence", inner: [value]}
    return value


def m(**changes: Any) -> Document:
    return changed(minimal(), **changes)


# What the reference cannot load: (document, path that the message names).
BROKEN: dict[str, tuple[Any, str]] = {
    "an array": ([], "the file"),
    "a string": ("x", "the file"),
    "null": (None, "the file"),
    "an empty object": ({}, "model"),
    "no model": (without(minimal(), "model"), "model"),
    "model null": (m(model=None), "model"),
    "model a string": (m(model="BPE"), "model"),
    "model of an unknown type": (m(model__type="Foo"), "model.type"),
    "model type null": (m(model__type=None), "model.type"),
    "model type in lower case": (m(model__type="bpe"), "model.type"),
    "model without vocab": (without(minimal(), "model__vocab"), "model.vocab"),
    "model without type and vocab": ({"model": {"merges": []}}, "model.vocab"),
    "model without merges": (without(minimal(), "model__merges"), "model.merges"),
    "vocab null": (m(model__vocab=None), "model.vocab"),
    "vocab an array": (m(model__vocab=[]), "model.vocab"),
    "negative id": (m(model__vocab={"a": -1}, model__merges=[]), "model.vocab['a']"),
    "fractional id": (m(model__vocab={"a": 1.0}, model__merges=[]), "model.vocab['a']"),
    "truth as id": (m(model__vocab={"a": True}, model__merges=[]), "model.vocab['a']"),
    "huge id": (m(model__vocab={"a": 2**32}, model__merges=[]), "model.vocab['a']"),
    "id a string": (m(model__vocab={"a": "0"}, model__merges=[]), "model.vocab['a']"),
    "merges null": (m(model__merges=None), "model.merges"),
    "merges an object": (m(model__merges={}), "model.merges"),
    "merges of numbers": (m(model__merges=[1]), "model.merges"),
    "merges in two spellings": (m(model__merges=["a b", ["ab", "c"]]), "model.merges"),
    "a rule of one": (m(model__merges=["a b", "ab"]), "model.merges[1]"),
    "a rule of three": (m(model__merges=["a b c"]), "model.merges[0]"),
    "a pair of three": (m(model__merges=[["a", "b", "c"]]), "model.merges[0]"),
    "a pair of numbers": (m(model__merges=[["a", "b"], ["a", 1]]), "model.merges[1]"),
    "a rule on no token": (m(model__merges=["a b", "b z"]), "model.merges"),
    "a rule to no token": (m(model__merges=["a b", "b d"]), "model.merges"),
    "fuse_unk a number": (m(model__fuse_unk=1), "model.fuse_unk"),
    "unk_token a number": (m(model__unk_token=1), "model.unk_token"),
    "added_tokens null": (m(added_tokens=None), "added_tokens"),
    "added_tokens an object": (m(added_tokens={}), "added_tokens"),
    "an added token null": (m(added_tokens=[None]), "added_tokens[0]"),
    **{
        f"an added token without {name}": (m(added_tokens=[without(added("x"), name)]), f"added_tokens[0].{name}")
        for name in added("x")
    },
    "an added id of -1": (m(added_tokens=[added("x") | {"id": -1}]), "added_tokens[0].id"),
    "an added id of 2**32": (m(added_tokens=[added("x") | {"id": 2**32}]), "added_tokens[0].id"),
    "a flag null": (m(added_tokens=[added("x") | {"lstrip": None}]), "added_tokens[0].lstrip"),
    "normalizer a string": (m(normalizer="NFC"), "normalizer"),
    "normalizer an array": (m(normalizer=[]), "normalizer"),
    "Strip without sides": (m(normalizer={"type": "Strip"}), "normalizer.strip_left"),
    "Prepend without text": (m(normalizer={"type": "Prepend"}), "normalizer.prepend"),
    "Replace by a bare pattern": (
        m(normalizer={"type": "Replace", "pattern": "a", "content": ""}),
        "normalizer.pattern",
    ),
    "Replace by two patterns": (
        m(normalizer={"type": "Replace", "pattern": {"String": "a", "Regex": "b"}, "content": ""}),
        "normalizer.pattern",
    ),
    "Sequence without steps": (m(normalizer={"type": "Sequence"}), "normalizer.normalizers"),
    "Split without behavior": (m(pre_tokenizer=without(split(), "behavior")), "pre_tokenizer.behavior"),
    "Split without invert": (m(pre_tokenizer=without(split(), "invert")), "pre_tokenizer.invert"),
    "Split behavior in lower case": (m(pre_tokenizer=split(behavior="isolated")), "pre_tokenizer.behavior"),
    "Split by a bare pattern": (m(pre_tokenizer=split(pattern="a")), "pre_tokenizer.pattern"),
    "Digits without its field": (m(pre_tokenizer={"type": "Digits"}), "pre_tokenizer.individual_digits"),
    "ByteLevel without a field": (m(pre_tokenizer=without(BYTE_LEVEL, "trim_offsets")), "pre_tokenizer.trim_offsets"),
    "ByteLevel with null": (m(pre_tokenizer=BYTE_LEVEL | {"use_regex": None}), "pre_tokenizer.use_regex"),
    "a bare step in a Sequence": (
        m(pre_tokenizer={"type": "Sequence", "pretokenizers": [BYTE_LEVEL, "ByteLevel"]}),
        "pre_tokenizer.pretokenizers[1]",
    ),
    "template as text": (m(post_processor=TEMPLATE | {"single": "X $A"}), "post_processor.single"),
    "template without pair": (m(post_processor=without(TEMPLATE, "pair")), "post_processor.pair"),
    "template of $C": (
        m(post_processor=TEMPLATE | {"single": [{"Sequence": {"id": "C", "type_id": 0}}]}),
        "post_processor.single[0].Sequence.id",
    ),
    "template piece without type_id": (
        m(post_processor=TEMPLATE | {"single": [{"Sequence": {"id": "A"}}]}),
        "post_processor.single[0].Sequence.type_id",
    ),
    "template special token without id": (
        m(post_processor=TEMPLATE | {"special_tokens": {"X": {"ids": [0], "tokens": ["a"]}}}),
        "post_processor.special_tokens['X'].id",
    ),
    "special tokens an array": (m(post_processor=TEMPLATE | {"special_tokens": []}), "post_processor.special_tokens"),
    "ByteLevel post-processor without fields": (m(post_processor={"type": "ByteLevel"}), "post_processor"),
    "ByteLevel decoder without fields": (m(decoder={"type": "ByteLevel"}), "decoder.add_prefix_space"),
    "Strip decoder of two characters": (
        m(decoder={"type": "Strip", "content": "ab", "start": 1, "stop": 0}),
        "decoder.content",
    ),
    "Strip decoder without stop": (m(decoder={"type": "Strip", "content": "a", "start": 1}), "decoder.stop"),
    **{
        f"truncation without {n}": (m(truncation=without(TRUNCATION, n)), f"truncation.{n}")
        for n in TRUNCATION
        if n != "direction"
    },
    "truncation direction in lower case": (m(truncation=TRUNCATION | {"direction": "left"}), "truncation.direction"),
    "truncation strategy in lower case": (m(truncation=TRUNCATION | {"strategy": "only_first"}), "truncation.strategy"),
    "negative max_length": (m(truncation=TRUNCATION | {"max_length": -1}), "truncation.max_length"),
    "max_length of 2**70": (m(truncation=TRUNCATION | {"max_length": 2**70}), "truncation.max_length"),
    **{
        f"padding without {n}": (m(padding=without(PADDING, n)), f"padding.{n}")
        for n in PADDING
        if n != "pad_to_multiple_of"
    },
    "padding strategy Fixed without length": (m(padding=PADDING | {"strategy": "Fixed"}), "padding.strategy"),
    "padding Fixed null": (m(padding=PADDING | {"strategy": {"Fixed": None}}), "padding.strategy.Fixed"),
    "negative multiple": (m(padding=PADDING | {"pad_to_multiple_of": -1}), "padding.pad_to_multiple_of"),
    "huge pad_id": (m(padding=PADDING | {"pad_id": 2**40}), "padding.pad_id"),
}  # fmt: skip

# Beyond the compiler: (document, path, part of the component).
UNSUPPORTED: dict[str, tuple[Document, str, str]] = {
    "another version": (m(version="2.0"), "version", "2.0"),
    "an unknown part": (minimal() | {"chat_template": "x"}, "chat_template", '"x"'),
    "WordPiece": (m(model={"type": "WordPiece", "vocab": {}}), "model.type", "WordPiece"),
    "WordLevel": (m(model={"type": "WordLevel", "vocab": {}}), "model.type", "WordLevel"),
    "Unigram": (m(model={"type": "Unigram", "vocab": []}), "model.type", "Unigram"),
    "a model without type or merges": (m(model={"vocab": {}}), "model.type", "missing"),
    "an unknown field of the model": (m(model__extra=1), "model.extra", "1"),
    "dropout": (m(model__dropout=0.1), "model.dropout", "0.1"),
    "a subword prefix": (m(model__continuing_subword_prefix="##"), "model.continuing_subword_prefix", "##"),
    "a word suffix": (m(model__end_of_word_suffix="</w>"), "model.end_of_word_suffix", "</w>"),
    "an empty vocabulary": (m(model__vocab={}, model__merges=[]), "model.vocab", "empty"),
    "two tokens of one id": (m(model__vocab={"a": 0, "b": 0}, model__merges=[]), "model.vocab['b']", "id 0"),
    "an unknown field of a token": (m(added_tokens=[added("x") | {"extra": 1}]), "added_tokens[0].extra", "1"),
    "a token repeated with other flags": (
        m(added_tokens=[added("x"), added("y"), added("x", special=True)]),
        "added_tokens[2]",
        "repeated",
    ),
    "an added token on a taken id": (
        m(model__vocab={"a": 0, "b": 1, "c": 3}, model__merges=[], added_tokens=[added("x")]),
        "added_tokens[0]",
        "id 3",
    ),
    "a step without type": (m(normalizer={"prepend": "a"}), "normalizer.type", "missing"),
    "an unknown normalizer": (m(normalizer={"type": "Nmt"}), "normalizer.type", "Nmt"),
    "Precompiled": (
        m(normalizer={"type": "Precompiled", "precompiled_charsmap": ""}),
        "normalizer.type",
        "Precompiled",
    ),
    "BertNormalizer": (m(normalizer={"type": "BertNormalizer"}), "normalizer.type", "BertNormalizer"),
    "ByteLevel normalizer": (m(normalizer={"type": "ByteLevel"}), "normalizer.type", "ByteLevel"),
    "a field of NFC": (m(normalizer={"type": "NFC", "x": 1}), "normalizer.x", "1"),
    "Prepend of nothing": (m(normalizer={"type": "Prepend", "prepend": ""}), "normalizer.prepend", "empty"),
    "Replace by a regex": (
        m(normalizer={"type": "Replace", "pattern": {"Regex": "a+"}, "content": ""}),
        "normalizer.pattern.Regex",
        "no literal",
    ),
    "Replace of nothing": (
        m(normalizer={"type": "Replace", "pattern": {"String": ""}, "content": "b"}),
        "normalizer.pattern.String",
        "empty",
    ),
    "Replace with groups": (
        m(normalizer={"type": "Replace", "pattern": {"Regex": "a"}, "content": "$0"}),
        "normalizer.content",
        "groups",
    ),
    "two Unicode forms": (
        m(normalizer={"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "NFKC"}]}),
        "normalizer.normalizers[1]",
        "second",
    ),
    "normalizers nested too deeply": (
        m(normalizer=nested("normalizers", 40)),
        "normalizer" + ".normalizers[0]" * 32,
        "nested",
    ),
    "Metaspace": (m(pre_tokenizer={"type": "Metaspace", "replacement": "_"}), "pre_tokenizer.type", "Metaspace"),
    "Whitespace": (m(pre_tokenizer={"type": "Whitespace"}), "pre_tokenizer.type", "Whitespace"),
    "an unknown step in a Sequence": (
        m(pre_tokenizer={"type": "Sequence", "pretokenizers": [split(), {"type": "BertPreTokenizer"}]}),
        "pre_tokenizer.pretokenizers[1].type",
        "BertPreTokenizer",
    ),
    "an unknown field of Split": (m(pre_tokenizer=split(extra=0)), "pre_tokenizer.extra", "0"),
    "Split by nothing": (m(pre_tokenizer=split(pattern={"String": ""})), "pre_tokenizer.pattern.String", "empty"),
    "two ByteLevel": (
        m(pre_tokenizer={"type": "Sequence", "pretokenizers": [BYTE_LEVEL, BYTE_LEVEL]}),
        "pre_tokenizer.pretokenizers[1]",
        "ByteLevel after",
    ),
    "Punctuation that merges after ByteLevel": (
        m(pre_tokenizer={"type": "Sequence", "pretokenizers": [BYTE_LEVEL, PUNCTUATION]}),
        "pre_tokenizer.pretokenizers[1]",
        "MergedWithNext after",
    ),
    "a Split that merges after split bytes": (
        m(
            pre_tokenizer={
                "type": "Sequence",
                "pretokenizers": [BYTE_LEVEL, DIGITS, split(behavior="MergedWithNext")],
            }
        ),
        "pre_tokenizer.pretokenizers[2].behavior",
        "MergedWithNext after",
    ),
    "a pattern after ByteLevel": (
        m(pre_tokenizer={"type": "Sequence", "pretokenizers": [BYTE_LEVEL, split(pattern={"Regex": "[^a]"})]}),
        "pre_tokenizer.pretokenizers[1].pattern.Regex",
        "after ByteLevel",
    ),
    "a prefix space for every piece": (
        m(pre_tokenizer={"type": "Sequence", "pretokenizers": [split(), BYTE_LEVEL | {"add_prefix_space": True}]}),
        "pre_tokenizer.pretokenizers[1].add_prefix_space",
        "every piece",
    ),
    "BertProcessing": (
        m(post_processor={"type": "BertProcessing", "sep": ["a", 0], "cls": ["a", 0]}),
        "post_processor.type",
        "BertProcessing",
    ),
    "a template with the text twice": (
        m(post_processor=TEMPLATE | {"single": [{"Sequence": {"id": "A", "type_id": 0}}] * 2}),
        "post_processor.single",
        "exactly one",
    ),
    "a template without the text": (
        m(post_processor=TEMPLATE | {"single": []}),
        "post_processor.single",
        "exactly one",
    ),
    "a template of the second text": (
        m(post_processor=TEMPLATE | {"single": [{"Sequence": {"id": "B", "type_id": 0}}]}),
        "post_processor.single",
        "exactly one",
    ),
    "a template with an undefined token": (
        m(post_processor=TEMPLATE | {"special_tokens": {}}),
        "post_processor.single[0].SpecialToken.id",
        "does not hold",
    ),
    "two templates": (
        m(post_processor={"type": "Sequence", "processors": [TEMPLATE, TEMPLATE]}),
        "post_processor.processors[1]",
        "second template",
    ),
    "a template whose id is another token": (
        m(post_processor=TEMPLATE | {"special_tokens": {"X": {"id": "X", "ids": [1], "tokens": ["a"]}}}),
        "post_processor",
        "not its token",
    ),
    "trimming after a template": (
        m(post_processor={"type": "Sequence", "processors": [TEMPLATE, BYTE_LEVEL]}),
        "post_processor.processors[1]",
        "trimmed",
    ),
    "an unknown decoder": (m(decoder={"type": "Foo"}), "decoder.type", "Foo"),
    "a field of Fuse": (m(decoder={"type": "Fuse", "x": 1}), "decoder.x", "1"),
    "a field of truncation": (m(truncation=TRUNCATION | {"x": 1}), "truncation.x", "1"),
    "padding to 2**30": (m(padding=PADDING | {"strategy": {"Fixed": 2**30}}), "padding", "padded"),
    "padding with another token": (m(padding=PADDING | {"pad_token": "b"}), "padding", "not its token"),
}  # fmt: skip
