"""Law: a program compiled from any tokenizer.json within the compiler, run by the engine, gives what the reference
gives: ids and offsets with and without special tokens, and decoded text where the program decodes itself.

Random tokenizers exchange every part of the small ones: normalizers, stages, flags of added tokens, post-processors,
decoders, truncation, padding.
"""

from __future__ import annotations

import contextlib
import random

import pytest
from tokenizers import Tokenizer

from tests.support import tokenizer_maker as maker
from tests.support.tiers import blocks_of_seeds
from toktier import _native
from toktier.errors import ProgramUnsupported, UnsupportedConfig
from toktier.program.compile import compile_tokenizer
from toktier.program.file import read_program
from toktier.program.meta import read_meta

Row = tuple[list[int], list[tuple[int, int]]]


def reference_row(reference: Tokenizer, text: str, special: bool) -> Row | None:
    """None where the stored truncation makes the reference fail."""
    with contextlib.suppress(BaseException):  # a panic is no Exception
        encoding = reference.encode(text, add_special_tokens=special)
        return list(encoding.ids), list(encoding.offsets)
    return None


def engine_row(encoder: _native.EncoderBase, text: str, special: bool) -> Row | None:
    with contextlib.suppress(UnsupportedConfig):
        encoding = encoder.encode(text, special)
        return list(encoding.ids), [tuple(pair) for pair in encoding.offsets]
    return None


def check(seeds: range, texts: int) -> tuple[int, int, int]:
    """(tokenizers, rows, decoded texts) compared."""
    tokenizers = rows = decoded = 0
    for seed in seeds:
        rng = random.Random(seed)
        data = maker.encoded(maker.random_document(seed))
        try:
            image = compile_tokenizer(data)
        except (ProgramUnsupported, UnsupportedConfig):
            continue
        tokenizers += 1
        program = _native.Program(image)
        encoder, reference = _native.EncoderBase(program), Tokenizer.from_buffer(data)
        decodes = read_meta(read_program(image).section("META"))["decode"] == "native"
        count = reference.get_vocab_size() + 3
        for _ in range(texts):
            text = maker.random_text(rng)
            for special in (False, True):
                expected = reference_row(reference, text, special)
                assert engine_row(encoder, text, special) == expected, (seed, text, special)
                rows += 1
            for ids in (expected[0] if expected else [], rng.choices(range(count), k=rng.randrange(9))):
                for skip in (True, False) if decodes else ():
                    text = reference.decode(ids, skip_special_tokens=skip)
                    assert program.decode(ids, skip) == text, (seed, ids, skip)
                    decoded += 1
    return tokenizers, rows, decoded


def test_law_random_tokenizers() -> None:
    tokenizers, rows, decoded = check(range(24), 16)
    assert tokenizers > 16
    assert rows > 500
    assert decoded > 200


@pytest.mark.parametrize("block", blocks_of_seeds(6, in_ci=2))
def test_law_many_random_tokenizers(block: int) -> None:
    tokenizers, rows, decoded = check(range(10_000 + 100 * block, 10_100 + 100 * block), 40)
    assert tokenizers > 80
    assert rows > 6000
    assert decoded > 2000
