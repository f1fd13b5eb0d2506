"""Texts and scripts for sessions of real tokenizers, and the fresh encoding that they are compared with."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import toktier
from tests.support.material import SMALL_DIR
from toktier._native import TokenPatch
from toktier.routing.vocabulary import BackendId
from toktier.tokenizer import Tokenizer

TOKENIZERS = ("cl100k_like", "deepseek_like", "gemma_like", "llama_like", "o200k_like")
UNITS = (
    *("a", "e", "s", "'s", " ", "  ", "\n", "\r", "\r\n", "\t", "1", "12", "1234", ".", "!?", "<|", "|>", "<", "the "),
    *("\u00e9", "e\u0301", "\u0323", "\u2581", "\u4e2d\u6587", "\ud55c", "\u1100\u1161\u11a8", "\ufb01", "\U0001f600"),
    *("\U0001f468\u200d\U0001f469", "\u00a0", "\u3000", "\u0651", "A", "Zz", "<s>", "</s>", "<|endoftext|>", "a" * 40),
    *("The quick brown fox jumps over the lazy dog. ", "def f(x):\n    return x\n", " " * 20),
)


def path_of(name: str) -> Path:
    return SMALL_DIR / f"{name}.json"


def opened(name: str, **arguments: Any) -> Tokenizer:
    """Served by the native engine, which is what is tested."""
    tok = toktier.from_file(path_of(name), policy="supported", **arguments)
    assert tok.explain(summary=True)["backend"] == BackendId.FAST_CPU.value
    return tok


@functools.cache
def reference(name: str) -> Any:
    import tokenizers

    return tokenizers.Tokenizer.from_file(str(path_of(name)))


def fresh(name: str, text: str) -> list[int]:
    return list(reference(name).encode(text, add_special_tokens=False).ids)


@dataclass(frozen=True)
class Edit:
    """Everything from `start` on (None: behind the end) becomes `text`."""

    start: int | None
    text: str


def edits(seed: int, count: int) -> Iterator[Edit]:
    """An edit script; starts are places in the text as it is then."""
    draw, length = random.Random(seed), 0
    for _ in range(count):
        text = "".join(draw.choices(UNITS, k=draw.choice((0, 1, 1, 2, 5, 30, 200))))
        start = None
        if draw.random() < 0.4:
            start = draw.choice((draw.randint(0, length), max(0, length - draw.randint(0, 8))))
        length = (length if start is None else start) + len(text)
        yield Edit(start, text)


def applied(text: str, edit: Edit) -> str:
    return (text if edit.start is None else text[: edit.start]) + edit.text


def patched(ids: list[int], patch: TokenPatch) -> list[int]:
    assert patch.keep_tokens <= len(ids)
    return ids[: patch.keep_tokens] + list(patch.replacement_ids)
