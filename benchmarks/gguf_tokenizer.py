"""The tokenizer.json that a GGUF file's own vocabulary amounts to, for byte-level BPE with a split pattern known here.

A GGUF file names its split pattern and has no normalizer and no template: what it says is written down as the format
of Hugging Face says it, and what is not known is refused. Whether both give the same IDs is for the caller to compare.
Not here: vocabularies of SentencePiece, reading weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import gguf

_GPT2: Final = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
_QWEN2: Final = (
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+"
    "|\\s+(?!\\S)|\\s+"
)


def _split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


# llama.cpp's name of a split pattern: what comes before bytes become characters.
SPLITS: Final[Mapping[str, tuple[dict[str, Any], ...]]] = {
    "gpt-2": (_split(_GPT2),),
    "smollm": ({"type": "Digits", "individual_digits": True}, _split(_GPT2)),
    "qwen2": (_split(_QWEN2),),
}
_BYTES: Final = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}


def tokenizer_document(model: Path) -> dict[str, Any]:
    """The content of tokenizer.json. SystemExit names what is not known here."""
    fields = gguf.GGUFReader(model).fields

    def value(name: str, default: Any = None) -> Any:
        return fields[name].contents() if name in fields else default

    kind, split = value("tokenizer.ggml.model"), value("tokenizer.ggml.pre")
    if kind != "gpt2" or split not in SPLITS:
        raise SystemExit(f"the vocabulary is of kind {kind!r} with the split pattern {split!r}: not known here")
    if value("tokenizer.ggml.add_bos_token", False) or value("tokenizer.ggml.add_eos_token", False):
        raise SystemExit("the model adds tokens to every text: not known here")
    tokens, types = value("tokenizer.ggml.tokens"), value("tokenizer.ggml.token_type")
    added = [
        {
            "id": number,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": types[number] == gguf.TokenType.CONTROL,
        }
        for number, token in enumerate(tokens)
        if types[number] in (gguf.TokenType.CONTROL, gguf.TokenType.USER_DEFINED)
    ]
    vocabulary = {token: number for number, token in enumerate(tokens) if types[number] != gguf.TokenType.UNUSED}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*SPLITS[split], _BYTES]},
        "post_processor": None,
        "decoder": {**_BYTES, "trim_offsets": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocabulary,
            "merges": value("tokenizer.ggml.merges"),
        },
    }
