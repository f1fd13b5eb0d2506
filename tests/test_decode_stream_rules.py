"""Streams of whole tokenizers equal the installed reference's where a decoder or an added token makes shortcuts wrong.

The rules that spare a stream work hold for some decoders only; here stand files for which they would not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from tests.support.native_tokenizers import native_file
from tests.support.tokenizer_maker import Document, added, changed, encoded, minimal

FALLBACK: Document = {"type": "ByteFallback"}
FUSE: Document = {"type": "Fuse"}


def replace(text: str, replacement: str) -> Document:
    return {"type": "Replace", "pattern": {"String": text}, "content": replacement}


def strip(start: int) -> Document:
    return {"type": "Strip", "content": "▁", "start": start, "stop": 0}


CASES: dict[str, tuple[list[Document], list[str], list[int]]] = {
    "Fuse before ByteFallback": ([FUSE, FALLBACK], ["<0x80>", "<0x0A>"], [0, 1, 0]),
    "Replace makes a byte token": ([replace("▁", ""), FALLBACK, FUSE], ["▁<0xC3>", "<0xA9>", "a"], [0, 1, 2, 0, 1]),
    "Strip makes a byte token": ([strip(1), FALLBACK, FUSE], ["▁<0xC3>", "<0xA9>", "a"], [0, 1, 2, 0, 1]),
    "Replace leaves byte tokens": ([replace("▁", " "), FALLBACK, FUSE], ["▁<0xC3>", "<0xC3>", "<0xA9>", "a"],
                                   [0, 1, 2, 3, 2, 2, 1, 2, 3, 0]),
}  # fmt: skip


def streamed(stream: Any, step: Any, ids: list[int]) -> list[str | None]:
    return [step(stream, token_id) for token_id in ids]


def compare(document: Document, ids: list[int], skip: bool, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(encoded(document))
    tokenizer = native_file(path)
    reference = Tokenizer.from_file(str(path))
    ours = streamed(
        tokenizer.decode_stream(skip_special_tokens=skip), lambda stream, token_id: stream.step(token_id), ids
    )
    theirs = streamed(
        DecodeStream(skip_special_tokens=skip), lambda stream, token_id: stream.step(reference, token_id), ids
    )
    assert ours == theirs
    assert any(ours)


@pytest.mark.parametrize("case", CASES)
def test_byte_fallback_among_other_steps(case: str, tmp_path: Path) -> None:
    decoders, tokens, ids = CASES[case]
    model = minimal()["model"] | {"vocab": {token: i for i, token in enumerate(tokens)}, "merges": []}
    document = changed(minimal(), model=model, decoder={"type": "Sequence", "decoders": decoders})
    compare(document, ids, False, tmp_path)


@pytest.mark.parametrize("skip", [True, False])
def test_a_special_token_that_normalizing_changes(skip: bool, tmp_path: Path) -> None:
    document = changed(
        minimal(),
        normalizer={"type": "Prepend", "prepend": "x"},
        added_tokens=[added("<t>", special=True, normalized=True)],
        decoder=FUSE,
    )
    compare(document, [0, 7, 1, 7, 7, 2], skip, tmp_path)
