"""Vocabularies of other formats, small: a file of tiktoken ranks with the document beside it, and a tekken file."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from tests.support.material import SMALL_DIR
from toktier.program.unicode import byte_alphabet

PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def tokens() -> list[bytes]:
    """Entries of a byte-level vocabulary of the repository, in the order of their ids."""
    byte_of = {character: value for value, character in enumerate(byte_alphabet())}
    vocabulary = json.loads((SMALL_DIR / "cl100k_like.json").read_text())["model"]["vocab"]
    return [bytes(byte_of[c] for c in token) for token, _ in sorted(vocabulary.items(), key=lambda item: item[1])]


def ranks(path: Path) -> Path:
    rows = (base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(tokens()))
    path.write_bytes(b"".join(rows))
    return path


def said(path: Path, **changes: Any) -> Path:
    """The document beside a file of ranks."""
    beside = path.with_name(path.name + ".json")
    content = {
        "pat_str": PATTERN,
        "special_tokens": {"<|end|>": len(tokens()), "<|pad|>": len(tokens()) + 7},
        **changes,
    }
    beside.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))
    return beside


def tekken(path: Path, special: int = 3) -> Path:
    vocabulary = [
        {"rank": n, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
        for n, token in enumerate(tokens())
    ]
    path.write_text(
        json.dumps(
            {
                "config": {
                    "pattern": PATTERN,
                    "num_vocab_tokens": len(vocabulary),
                    "default_vocab_size": len(vocabulary) + special,
                    "default_num_special_tokens": special,
                    "version": "v3",
                },
                "vocab": vocabulary,
            }
        )
    )
    return path
