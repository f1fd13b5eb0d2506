"""Small tokenizer.json documents for tests: a minimal one to change, and random ones from a seed.

A random one takes a shipped small tokenizer and exchanges its parts. All are within the compiler, but for what the
caller puts in.
"""

from __future__ import annotations

import copy
import json
import random
from functools import cache
from typing import Any

from tests.support.material import SMALL_DIR

Document = dict[str, Any]

# What texts and contents are made of: what normalizers change, what regexes tell apart, what strip flags eat.
HOSTILE = (
    *"aAbBeEsSlLrRtT's019.,-_/<>|",
    " ", "  ", "\t", "\n", "\r\n", "\u00a0", "\u2003", "\u3000", "\u200b",
    "é", "ò", "ù", "e\u0301", "\u0301", "\u0327\u0301", "Å", "\u212b", "ﬁ", "ß", "ſ", "\u212a", "İ", "Σ",
    "²", "①", "½", "٣", "੩",
    "中", "文", "かな", "カ", "한", "\u1112\u1161\u11ab", "ไทย", "नि", "‽", "。", "€", "▁", "Ġ", "😀",
    "\U0001f469\u200d\U0001f680", "\U0001f1e6", "\x00", "\x7f", "\ufffd", "\ue000", "\U0010ffff",
    "<tok>", "word", "it's", "1234", "<|x|>",
)  # fmt: skip

SPLIT_PATTERNS = (
    r"\s+",
    r"\p{N}{1,3}",
    r"[^\s\p{L}\p{N}]+",
    r"'s|'t| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"[A-Z]?[a-z]+|\d",
)


def minimal() -> Document:
    """A BPE over four letters; nothing else in it."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {"a": 0, "b": 1, "c": 2, "d": 3, "ab": 4, "abc": 5, "bc": 6},
            "merges": ["a b", "ab c", "b c"],
        },
    }


def changed(document: Document, **changes: Any) -> Document:
    """A deep copy with values set at paths, spelled `model__vocab`."""
    result = copy.deepcopy(document)
    for path, value in changes.items():
        *parents, last = path.split("__")
        at = result
        for name in parents:
            at = at[name]
        at[last] = value
    return result


def added(content: str, **flags: bool) -> Document:
    """An added token; every flag false unless given."""
    names = ("single_word", "lstrip", "rstrip", "normalized", "special")
    return {"id": 0, "content": content, **{name: flags.get(name, False) for name in names}}


def encoded(document: Document) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode()


@cache
def _small(name: str) -> str:
    return (SMALL_DIR / f"{name}.json").read_text(encoding="utf-8")


def small(name: str) -> Document:
    """A shipped small tokenizer, to be changed at will."""
    document: Document = json.loads(_small(name))
    return document


def random_text(rng: random.Random, most: int = 14) -> str:
    return "".join(rng.choices(HOSTILE, k=rng.randrange(most)))


def random_document(seed: int) -> Document:
    """A tokenizer within the compiler; equal seeds give equal ones."""
    rng = random.Random(seed)
    byte_level = rng.random() < 0.7
    base = rng.choice(
        ("cl100k_like", "gpt2_like", "o200k_like", "deepseek_like") if byte_level else ("llama_like", "gemma_like")
    )
    document = small(base)
    document["model"]["ignore_merges"] = rng.random() < 0.3
    if not byte_level:
        document["model"]["fuse_unk"] = rng.random() < 0.5
        document["model"]["byte_fallback"] = rng.random() < 0.5
    document["normalizer"] = _normalizer(rng)
    document["pre_tokenizer"] = _pre_tokenizer(rng, byte_level)
    taken = {token["content"] for token in document["added_tokens"]}
    for content in rng.sample(("<tok>", "word", "<|x|>", " a", "é", "ab", "<tok", "1", "的", "it's"), rng.randrange(6)):
        if content not in taken:
            flags = {name: rng.random() < 0.3 for name in ("single_word", "lstrip", "rstrip", "normalized", "special")}
            document["added_tokens"].append(added(content, **flags))
    if rng.random() < 0.4:
        document["post_processor"] = _post_processor(rng, document)
    if rng.random() < 0.6:
        document["decoder"] = _decoder(rng)
    if rng.random() < 0.3:
        document["truncation"] = {
            "direction": rng.choice(("Left", "Right")),
            "max_length": rng.randrange(9),
            "strategy": rng.choice(("LongestFirst", "OnlyFirst", "OnlySecond")),
            "stride": rng.choice((0, 0, 1, 3)),
        }
    if rng.random() < 0.3:
        token, identity = next(iter(document["model"]["vocab"].items()))
        document["padding"] = {
            "strategy": rng.choice(("BatchLongest", {"Fixed": rng.randrange(12)})),
            "direction": rng.choice(("Left", "Right")),
            "pad_to_multiple_of": rng.choice((None, 0, 4)),
            "pad_id": identity,
            "pad_type_id": 0,
            "pad_token": token,
        }
    return document


def _post_processor(rng: random.Random, document: Document) -> Any:
    vocabulary = document["model"]["vocab"]
    tokens = rng.sample(sorted(vocabulary), 2)
    special = {token: {"id": token, "ids": [vocabulary[token]], "tokens": [token]} for token in tokens}
    single: list[Document] = [{"SpecialToken": {"id": token, "type_id": 0}} for token in rng.choices(tokens, k=2)]
    single.insert(rng.randrange(3), {"Sequence": {"id": "A", "type_id": 0}})
    template = {"type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": special}
    trim = {
        "type": "ByteLevel",
        "add_prefix_space": rng.random() < 0.5,
        "trim_offsets": rng.random() < 0.7,
        "use_regex": True,
    }
    return rng.choice((None, template, trim, {"type": "Sequence", "processors": [trim, template]}))


def _decoder(rng: random.Random) -> Any:
    steps: list[Document] = [
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {
            "type": "Replace",
            "pattern": {"String": rng.choice(("▁", "a", "Ġt"))},
            "content": rng.choice((" ", "", "▁▁")),
        },
        {"type": "Strip", "content": rng.choice((" ", "▁", "e")), "start": rng.randrange(3), "stop": rng.randrange(2)},
    ]
    chosen = rng.sample(steps, rng.randrange(5))
    return rng.choice((None, chosen[0] if chosen else None, {"type": "Sequence", "decoders": chosen}))


def _normalizer(rng: random.Random) -> Any:
    form = rng.choice(("NFC", "NFKC", "NFD", "NFKD"))
    steps = [
        {"type": form},
        {"type": "Lowercase"},
        {"type": "Strip", "strip_left": rng.random() < 0.5, "strip_right": rng.random() < 0.5},
        {
            "type": "Replace",
            "pattern": {"String": rng.choice((" ", "a", "ab", "é"))},
            "content": rng.choice(("▁", "", "xyz")),
        },
        {"type": "Prepend", "prepend": rng.choice(("▁", "q "))},
        {"type": "Sequence", "normalizers": [{"type": form}]},
    ]
    chosen = rng.sample(steps, rng.randrange(4))
    if not chosen:
        return None
    return chosen[0] if len(chosen) == 1 else {"type": "Sequence", "normalizers": chosen}


def _after_byte_level(rng: random.Random) -> list[Document]:
    """Steps that see mapped bytes."""
    return [
        {"type": "Digits", "individual_digits": rng.random() < 0.5},
        {"type": "Punctuation", "behavior": rng.choice(("Isolated", "Contiguous"))},
        {
            "type": "Split",
            "pattern": {"Regex": rng.choice(("[0-9][0-9][0-9]", "[a-z]+"))},
            "behavior": rng.choice(("Isolated", "Contiguous")),
            "invert": rng.random() < 0.3,
        },
    ]


def _pre_tokenizer(rng: random.Random, byte_level: bool) -> Any:
    def split() -> Document:
        pattern = (
            {"Regex": rng.choice(SPLIT_PATTERNS)} if rng.random() < 0.8 else {"String": rng.choice(("a", " ", "s."))}
        )
        behavior = rng.choice(("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"))
        return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": rng.random() < 0.3}

    stages: list[Document] = []
    for _ in range(rng.randrange(3)):
        digits = {"type": "Digits", "individual_digits": rng.random() < 0.5}
        punctuation = {"type": "Punctuation", "behavior": rng.choice(("Isolated", "Contiguous", "MergedWithNext"))}
        stages.append(rng.choice((split(), split(), digits, punctuation)))
    if byte_level:
        first = not stages
        stages.append(
            {
                "type": "ByteLevel",
                "add_prefix_space": first and rng.random() < 0.5,
                "trim_offsets": True,
                "use_regex": rng.random() < 0.5,
            }
        )
        if rng.random() < 0.15:
            stages += rng.sample(_after_byte_level(rng), rng.randrange(1, 3))
    if not stages:
        return None
    return stages[0] if len(stages) == 1 and rng.random() < 0.5 else {"type": "Sequence", "pretokenizers": stages}
