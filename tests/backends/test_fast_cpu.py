"""FastCpuBackend: the byte tokens that streams know, against the reference's ByteFallback and the native decoder."""

from __future__ import annotations

import json
import random
from itertools import product
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers.decoders import DecodeStream as ReferenceStream

from tests.support.native_tokenizers import native_file
from tests.support.tokenizer_maker import changed, minimal

# Digits, signs, blanks, what is nearly a digit, a digit of another script.
MARKS = "0123456789abcdefABCDEFgGxX+-_. ٣é"
NEAR_BYTES = [
    *(f"<0x{a}{b}>" for a, b in product(MARKS, MARKS)),
    *("<0xf>", "<0x+>", "<0x041>", "<0x+0F>", "<0XAf>", " <0xAf>", "<0xAf> ", "<AF>"),
]


def document() -> dict[str, Any]:
    vocab = {token: index for index, token in enumerate(["a", *NEAR_BYTES])}
    decoder = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]}
    return changed(minimal(), decoder=decoder, model__vocab=vocab, model__merges=[])


def id_of(reference: tokenizers.Tokenizer, token: str) -> int:
    token_id = reference.token_to_id(token)
    assert token_id is not None
    return token_id


def test_law_three_readers_take_the_same_tokens_for_bytes(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(document()), encoding="utf-8")
    tok, reference = native_file(path), tokenizers.Tokenizer.from_file(str(path))
    assert tok._native is not None
    assert tok._native.decodes
    taken = {}
    for token in NEAR_BYTES:
        token_id = id_of(reference, token)
        text = reference.decode([token_id])
        assert tok.decode([token_id]) == text, token
        if text != token:
            taken[token_id] = token
    known = tok._native._byte_tokens
    assert {token: known.get(token_id) for token_id, token in taken.items()} == {
        token: int(token[3:5], 16) for token in taken.values()
    }
    assert known.keys() == taken.keys()
    assert {"<0x+F>", "<0xAf>"} <= set(taken.values())
    assert not {"<0xf >", "<0x f>", "<0x-F>", "<0x041>"} & set(taken.values())


def test_law_a_stream_over_signed_byte_tokens_equals_the_references(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(document()), encoding="utf-8")
    tok, reference = native_file(path), tokenizers.Tokenizer.from_file(str(path))
    near = [id_of(reference, t) for t in ("a", "<0x+F>", "<0x+a>", "<0xE4>", "<0xbd>", "<0xA0>", "<0xf >", "<0xC3>")]
    rng = random.Random(6)
    compared = 0
    for _ in range(300):
        mine, theirs = tok.decode_stream(), ReferenceStream(None, False)
        for _ in range(12):
            token_id = rng.choice(near)
            try:
                expected = theirs.step(reference, token_id)
            except Exception:
                break  # what the reference's stream does not survive: toktier/decode_stream.py
            assert mine.step(token_id) == expected
            compared += 1
    assert compared > 1500
