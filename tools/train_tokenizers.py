#!/usr/bin/env python3
"""Small tokenizers of every kind that the compiler reads, trained on the text of this repository.

Tests and the shipped family `toktier_mini` use them, so that everything can be tried with no network at all. Training
is deterministic: `--check` trains again and compares byte for byte. Needs the reference (`tokenizers`), nothing else.
Not here: real tokenizers; those are pinned artifacts (tables/artifact_pins.json).
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import Regex, models, normalizers, pre_tokenizers, trainers

ROOT = Path(__file__).resolve().parent.parent
TEXTS = [ROOT / "tests" / "data" / "text" / name for name in ("english.txt", "code.txt", "languages.txt")]
OUT = ROOT / "tests" / "data" / "tokenizers"
MINI = ROOT / "tables" / "artifacts" / "toktier_mini" / "tokenizer.json"

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CL100K = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + TAIL
SINGLE_DIGITS = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + TAIL
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{CONTRACTIONS}?|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{CONTRACTIONS}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
THREE_STAGES = [
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"""
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
]

Document = dict[str, Any]


def split(pattern: str, behavior: str = "Isolated", invert: bool = False) -> Document:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}


def byte_level(**fields: bool) -> Document:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False} | fields


def added(content: str, **flags: bool) -> Document:
    names = ("single_word", "lstrip", "rstrip", "normalized", "special")
    return {"content": content} | {name: flags.get(name, False) for name in names}


def sequence(kind: str, *items: Document) -> Document:
    return {"type": "Sequence", kind: list(items)}


def template(*before: tuple[str, int]) -> Document:
    special = [{"SpecialToken": {"id": token, "type_id": 0}} for token, _ in before]
    return {
        "type": "TemplateProcessing",
        "single": [*special, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [*special, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {token: {"id": token, "ids": [i], "tokens": [token]} for token, i in before},
    }


def lines() -> list[str]:
    return [line for path in TEXTS for line in path.read_text(encoding="utf-8").splitlines(keepends=True)]


def trained(pre_tokenizer: Any, size: int, normalizer: Any = None, alphabet: list[str] | None = None) -> Document:
    """Vocabulary and merges by the reference's trainer, as the JSON of a BPE model."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet or [], show_progress=False)
    tokenizer.train_from_iterator(lines(), trainer)
    model: Document = json.loads(tokenizer.to_str())["model"]
    return model


def byte_model(patterns: list[str], size: int = 1200) -> Document:
    stages = [pre_tokenizers.Split(Regex(p), "isolated") for p in patterns]
    pre_tokenizer = pre_tokenizers.Sequence(
        [*stages, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    return trained(pre_tokenizer, size, alphabet=pre_tokenizers.ByteLevel.alphabet())


def sentence_piece_model(size: int = 1500) -> Document:
    """Characters with ▁ for blanks, bytes for what has no token; <unk>, <s>, </s> come first, then the 256 bytes."""
    model = trained(
        pre_tokenizers.Split("▁", "merged_with_next"), size, normalizers.Sequence([normalizers.Replace(" ", "▁")])
    )
    head = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    ordered = head + [token for token in sorted(model["vocab"], key=model["vocab"].__getitem__) if token not in head]
    model |= {
        "vocab": {token: i for i, token in enumerate(ordered)},
        "unk_token": "<unk>",
        "fuse_unk": True,
        "byte_fallback": True,
    }
    return model


def document(model: Document, added_tokens: list[Document], **parts: Document | None) -> Document:
    """A whole tokenizer.json; ids of added tokens as the reference gives them."""
    vocabulary, following = model["vocab"], len(model["vocab"])
    tokens = []
    for token in added_tokens:
        if token["content"] in vocabulary:
            number = vocabulary[token["content"]]
        else:
            number, following = following, following + 1
        tokens.append({"id": number} | token)
    parts = {"normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None} | parts
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens, **parts, "model": model}


SENTENCE_PIECE_SPECIAL = [added(t, special=True) for t in ("<unk>", "<s>", "</s>")]
CHAT = [added(t, special=True) for t in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")]


def all_documents() -> dict[Path, Document]:
    cl100k, digits, o200k = byte_model([CL100K]), byte_model([SINGLE_DIGITS]), byte_model([O200K])
    three, gpt2 = byte_model(THREE_STAGES), trained(
        pre_tokenizers.ByteLevel(add_prefix_space=True), 1000, normalizers.NFKC(), pre_tokenizers.ByteLevel.alphabet()
    )  # fmt: skip
    pieces = sentence_piece_model()
    blank_decoder: list[Document] = [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    on_blank: Document = split("", "MergedWithPrevious") | {"pattern": {"String": " "}}
    to_blank: Document = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    return {
        MINI: document(
            digits,
            [*CHAT, added("<tool>"), added("</tool>")],
            normalizer={"type": "NFC"},
            pre_tokenizer=sequence("pretokenizers", split(SINGLE_DIGITS), byte_level(trim_offsets=False)),
            post_processor=byte_level(trim_offsets=False),
            decoder=byte_level(),
        ),
        OUT / "cl100k_like.json": document(
            cl100k,
            CHAT,
            pre_tokenizer=sequence("pretokenizers", split(CL100K, "Removed", True), byte_level()),
            decoder=byte_level(),
        ),
        OUT / "o200k_like.json": document(
            o200k | {"ignore_merges": True},
            CHAT,
            pre_tokenizer=sequence("pretokenizers", split(O200K), byte_level()),
            post_processor=sequence("processors", byte_level(trim_offsets=False), template(("<|endoftext|>", 1200))),
            decoder=byte_level(),
        ),
        OUT / "deepseek_like.json": document(
            three,
            [*CHAT, added("<think>", normalized=True), added("<｜end▁of▁turn｜>", normalized=True)],
            normalizer=sequence("normalizers"),
            pre_tokenizer=sequence("pretokenizers", *map(split, THREE_STAGES), byte_level()),
            post_processor=byte_level(trim_offsets=False),
            decoder=byte_level(),
        ),
        OUT / "gpt2_like.json": document(
            gpt2,
            [
                added("<|endoftext|>", special=True),
                added("<mask>", lstrip=True, special=True),
                added("<word>", single_word=True),
                added("<right>", rstrip=True, normalized=True),
            ],
            normalizer={"type": "NFKC"},
            pre_tokenizer=byte_level(add_prefix_space=True, use_regex=True),
            post_processor=byte_level(add_prefix_space=True, use_regex=True),
            decoder=byte_level(),
        ),
        OUT / "llama_like.json": document(
            pieces,
            SENTENCE_PIECE_SPECIAL,
            normalizer=sequence("normalizers", {"type": "Prepend", "prepend": "▁"}, to_blank),
            post_processor=template(("<s>", 1)),
            decoder=sequence("decoders", *blank_decoder, {"type": "Strip", "content": " ", "start": 1, "stop": 0}),
        ),
        OUT / "gemma_like.json": document(
            pieces,
            [*SENTENCE_PIECE_SPECIAL, added("\n\n"), added("<start_of_turn>")],
            normalizer=to_blank,
            pre_tokenizer=on_blank,
            post_processor=template(("<s>", 1)),
            decoder=sequence("decoders", *blank_decoder),
        ),
    }


def serialised(value: Document) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="compare instead of writing; exit 1 on a difference")
    options = parser.parse_args()
    stale = []
    for path, value in all_documents().items():
        text = serialised(value)
        tokenizers.Tokenizer.from_str(text)  # the reference must load what we ship
        if options.check:
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                stale.append(str(path.relative_to(ROOT)))
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if stale:
        sys.exit(f"differ from what training gives: {', '.join(stale)}; run tools/train_tokenizers.py")


if __name__ == "__main__":
    main()
