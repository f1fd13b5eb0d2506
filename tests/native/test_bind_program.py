"""`_native.Program`: opening, look-ups, splitting, decoding, and what it says of bad input."""

from __future__ import annotations

import random
from array import array
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.native_encoders import document, pair, program_bytes, shared_pair
from toktier import _native
from toktier.errors import InvalidText, InvalidToken
from toktier.program.layout import HEADER_SIZE

TEXT = "Hello, café 日本語 😀 123\n\n  x"


@pytest.fixture(scope="module")
def program() -> _native.Program:
    opened = shared_pair()[0].program
    assert opened is not None
    return opened


@pytest.mark.parametrize("length", [0, 7, HEADER_SIZE - 1, HEADER_SIZE, 1000])
def test_a_truncated_file_is_refused(length: int) -> None:
    with pytest.raises(_native.ProgramError) as caught:
        _native.Program(program_bytes()[:length])
    assert isinstance(caught.value, ValueError)
    assert str(caught.value) == f"{caught.value.where}: {caught.value.what}"
    assert "\n" not in str(caught.value)


def test_foreign_and_damaged_files_are_refused_or_harmless() -> None:
    """Digests are the file reader's: here a damaged table is refused, or gives ids that are tokens."""
    good = program_bytes()
    with pytest.raises(_native.ProgramError):
        _native.Program(b"x" * len(good))
    rng = random.Random(1)
    refused = 0
    for _ in range(300):
        bad = bytearray(good)
        bad[rng.randrange(len(bad) if rng.random() < 0.5 else 3000)] ^= 1 << rng.randrange(8)
        try:
            opened = _native.Program(bad)
        except _native.ProgramError:
            refused += 1
            continue
        encoder = _native.EncoderBase(opened)
        assert all(i < opened.n_ids for i in encoder.encode(TEXT))
    assert refused > 30


@pytest.mark.parametrize("wrong", [None, 5, "text", [1]])
def test_what_is_no_buffer(wrong: Any) -> None:
    with pytest.raises(TypeError):
        _native.Program(wrong)


def test_buffers_of_every_kind() -> None:
    data = program_bytes()
    for buffer in (data, bytearray(data), memoryview(data), np.frombuffer(data, dtype=np.uint8)):
        assert _native.EncoderBase(_native.Program(buffer)).encode("a").ids == shared_pair()[0].encode("a").ids


def test_an_unaligned_buffer_works_or_is_refused() -> None:
    data = program_bytes()
    for shift in (1, 2, 4):
        moved = memoryview(b"\0" * shift + data)[shift:]
        try:
            opened = _native.Program(moved)
        except _native.ProgramError:
            continue
        assert _native.EncoderBase(opened).encode(TEXT) == shared_pair()[0].encode(TEXT)


def test_tokens_and_ids(program: _native.Program) -> None:
    reference = shared_pair()[1]
    vocabulary = reference.get_vocab(with_added_tokens=True)
    assert program.n_ids == 1 + max(vocabulary.values())
    for token, i in vocabulary.items():
        assert program.token_to_id(token) == i
        assert program.id_to_token(i) == token
    for missing in ("", "no such token", "\ud800", "x" * 100_000, "\0"):
        assert program.token_to_id(missing) == reference_id(missing)
    assert program.id_to_token(program.n_ids) is None
    assert program.id_to_token((1 << 32) - 1) is None
    special = {t["id"] for t in document()["added_tokens"] if t["special"]}
    assert {i for i in range(program.n_ids + 3) if program.is_special(i)} == special


def reference_id(token: str) -> int | None:
    return None if "\ud800" in token else shared_pair()[1].token_to_id(token)


def test_hostile_arguments(program: _native.Program) -> None:
    no_id: tuple[Any, ...] = (-1, 1 << 32, 1 << 99, "1", None, 1.0)
    no_token: tuple[Any, ...] = (5, None, b"a", ["a"])
    no_ids: tuple[Any, ...] = ("12", b"1234", 5, None)
    for bad in no_id:
        with pytest.raises(InvalidToken):
            program.id_to_token(bad)
        with pytest.raises(InvalidToken):
            program.decode([5, bad])
    for bad in no_token:
        with pytest.raises(TypeError):
            program.token_to_id(bad)
    for bad in no_ids:
        with pytest.raises(TypeError):
            program.decode(bad)
    with pytest.raises(InvalidToken) as caught:
        program.decode([1, 2, -5])
    assert caught.value.details == {"index": 2}
    assert "-5" in str(caught.value)
    with pytest.raises(InvalidText):
        program.split("a\ud800")
    with pytest.raises(TypeError):
        program.split(5)
    with pytest.raises(TypeError):
        type("Sub", (_native.Program,), {})


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.integers(0, 1300), max_size=20),
    st.booleans(),
    st.sampled_from(["cl100k_like", "llama_like", "gpt2_like"]),
)
def test_decode_is_the_references(ids: list[int], skip: bool, name: str) -> None:
    """Any ids, those without a token among them."""
    encoder, reference = shared_pair(name)
    assert encoder.program is not None
    expected = reference.decode(ids, skip_special_tokens=skip)
    for given_ids in (
        ids,
        tuple(ids),
        array("I", ids),
        np.array(ids, dtype=np.uint32),
        np.array(ids, dtype=np.int64),
        iter(ids),
    ):
        assert encoder.program.decode(given_ids, skip) == expected
    assert encoder.program.decode(_native.Encoding.from_ids(ids), skip_special_tokens=skip) == expected


def test_decode_takes_an_encoding_and_long_lists(program: _native.Program) -> None:
    encoder, reference = shared_pair()
    text = TEXT * 500
    assert program.decode(encoder.encode(text)) == reference.decode(reference.encode(text).ids) == text


@settings(deadline=None, max_examples=150)
@given(st.text(max_size=60), st.sampled_from(["cl100k_like", "o200k_like", "deepseek_like", "gpt2_like"]))
def test_both_splitters_agree(text: str, name: str) -> None:
    encoder = shared_pair(name)[0]
    assert encoder.program is not None
    boundaries, dropped = encoder.program.split(text)
    assert (boundaries, dropped) == encoder.program.split(text, two_pass=True)
    assert (boundaries, dropped) == encoder.program.split(text.encode())
    assert boundaries == sorted(set(boundaries))
    assert len(dropped) == len(boundaries) + 1
    assert all(0 < b < len(text.encode()) for b in boundaries)


def test_info(program: _native.Program) -> None:
    info = program.info()
    assert info["n_ids"] == program.n_ids
    assert info["n_class"] > 5
    assert info["has_pre_tokenizer"] is True
    padding = {"strategy": {"Fixed": 7}, "direction": "Left", "pad_to_multiple_of": 8, "pad_type_id": 0}
    padded = pair(padding=padding | {"pad_id": 3, "pad_token": program.id_to_token(3)})[0].program
    assert padded is not None
    assert {k: v for k, v in padded.info().items() if k.startswith("pad")} == {
        "pad_mode": 2, "pad_fixed": 7, "pad_multiple": 8, "pad_id": 3, "pad_left": True,
    }  # fmt: skip
