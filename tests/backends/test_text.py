"""What is a text and what are ids does not depend on who serves: same answers, same errors, same messages."""

from __future__ import annotations

import ctypes
import mmap
from array import array
from collections.abc import Callable
from typing import Any

import pytest

import toktier
from tests.support.material import SMALL_DIR
from toktier.backends.hf import checked_text
from toktier.errors import InvalidText, InvalidToken

PATH = SMALL_DIR / "cl100k_like.json"  # the program decodes


def mapped(data: bytes) -> mmap.mmap:
    result = mmap.mmap(-1, len(data))
    result[:] = data
    return result


def closed() -> mmap.mmap:
    result = mapped(b"hello")
    result.close()
    return result


def released() -> memoryview:
    result = memoryview(b"hello")
    result.release()
    return result


HELLO = b"h\xc3\xa9llo"
TEXTS: dict[str, Callable[[], Any]] = {
    "bytearray": lambda: bytearray(HELLO),
    "memoryview": lambda: memoryview(HELLO),
    "array B": lambda: array("B", HELLO),
    "array b": lambda: array("b", HELLO),
    "mmap": lambda: mapped(HELLO),
    "cast b": lambda: memoryview(HELLO).cast("b"),
    "cast c": lambda: memoryview(HELLO).cast("c"),
    "two-dimensional": lambda: memoryview(HELLO).cast("B", (2, 3)),
    "strided": lambda: memoryview(bytes(b for pair in zip(HELLO, b"??????", strict=True) for b in pair))[::2],
    "ctypes bytes": lambda: (ctypes.c_ubyte * 6)(*HELLO),
    "ctypes characters": lambda: (ctypes.c_char * 6).from_buffer_copy(HELLO),
}
NO_TEXTS: dict[str, Callable[[], Any]] = {
    "array I": lambda: array("I", [1]),
    "array u": lambda: array("u", "ab"),
    "empty array of floats": lambda: array("d"),
    "cast I": lambda: memoryview(b"hell").cast("I"),
    "cast ?": lambda: memoryview(b"\1\0").cast("?"),
    "ctypes integers": lambda: (ctypes.c_int * 2)(65, 66),
    "a number": lambda: 3,
    "None": lambda: None,
    "a list": lambda: [65],
}
FAULTS: dict[str, Callable[[], Any]] = {
    "malformed array": lambda: array("B", b"ab\xff"),
    "malformed mmap": lambda: mapped(b"ab\xff"),
    "malformed bytes": lambda: b"ab\xff",
    "a surrogate": lambda: "ab\ud800",
    "closed": closed,
    "released": released,
}
CALLS: dict[str, Callable[[toktier.Tokenizer, Any], Any]] = {
    "encode": lambda tok, text: (tok.encode(text).ids, tok.encode(text).offsets),
    "count": lambda tok, text: tok.count(text),
    "encode_batch": lambda tok, text: [row.ids for row in tok.encode_batch(["a", text])],
    "count_batch": lambda tok, text: tok.count_batch(["a", text]),
    "encode_segments": lambda tok, text: tok.encode_segments([(text, True), ("x", False)]).offsets,
    "batch itself": lambda tok, text: [row.ids for row in tok.encode_batch(text)],
}


def outcome(call: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except Exception as error:
        return type(error), str(error), getattr(error, "details", None)


@pytest.fixture(scope="module")
def engines() -> list[toktier.Tokenizer]:
    result = [toktier.from_file(PATH, tokenizer=name, policy="supported") for name in ("fast_cpu", "hf")]
    assert [tok.encode("a").backend for tok in result] == ["fast_cpu", "hf"]
    return result


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("kind", [*TEXTS, *NO_TEXTS, *FAULTS])
def test_both_engines_answer_alike(engines: list[toktier.Tokenizer], kind: str, name: str) -> None:
    make = (TEXTS | NO_TEXTS | FAULTS)[kind]
    first, second = (outcome(CALLS[name], tok, make()) for tok in engines)
    assert first == second


@pytest.mark.parametrize("kind", TEXTS)
def test_buffers_of_bytes_are_utf_8(engines: list[toktier.Tokenizer], kind: str) -> None:
    expected = engines[1].encode(HELLO.decode())
    for tok in engines:
        got = tok.encode(TEXTS[kind]())
        assert (got.ids, got.offsets) == (expected.ids, expected.offsets)
    assert checked_text(TEXTS[kind]()) == HELLO.decode()


@pytest.mark.parametrize("kind", NO_TEXTS)
def test_other_buffers_and_objects_are_a_type_error(engines: list[toktier.Tokenizer], kind: str) -> None:
    for tok in engines:
        with pytest.raises(TypeError, match=r"expected str or bytes of UTF-8, not .*, item 1$"):
            tok.encode_batch(["a", NO_TEXTS[kind]()])


def test_malformed_text_is_named_with_its_place(engines: list[toktier.Tokenizer]) -> None:
    for kind in ("malformed array", "malformed mmap", "malformed bytes", "a surrogate"):
        for tok in engines:
            with pytest.raises(InvalidText) as caught:
                tok.encode_batch(["a", FAULTS[kind]()])
            assert caught.value.details == {"position": 2, "item": 1}


IDS: dict[str, Callable[[], Any]] = {
    "bytes": lambda: b"\1\2",
    "bytearray": lambda: bytearray(b"\1\2"),
    "str": lambda: "12",
    "mmap": lambda: mapped(b"\1\2"),
    "memoryview of bytes": lambda: memoryview(b"\1\2"),
    "characters": lambda: memoryview(b"\1\2").cast("c"),
    "truth values": lambda: [1, True],
    "floats": lambda: [1.0],
    "negative": lambda: array("q", [1, -1]),
    "too great": lambda: [2**32],
    "array I": lambda: array("I", [1, 2]),
    "array H": lambda: array("H", [1, 2]),
    "strided": lambda: memoryview(array("I", [1, 2, 3]))[::2],
    "range": lambda: range(5),
    "no iterable": lambda: 5,
    "None": lambda: None,
    "closed": closed,
}


@pytest.mark.parametrize("kind", IDS)
def test_both_engines_take_the_same_ids(engines: list[toktier.Tokenizer], kind: str) -> None:
    calls: tuple[Callable[[toktier.Tokenizer], Any], ...] = (
        lambda tok: tok.decode(IDS[kind]()),
        lambda tok: tok.decode_batch([[1], IDS[kind]()]),
        lambda tok: tok.decode_stream(IDS[kind]()).step(5),
    )
    for call in calls:
        first, second = (outcome(call, tok) for tok in engines)
        assert first == second


def test_bytes_and_flags_are_no_ids(engines: list[toktier.Tokenizer]) -> None:
    for tok in engines:
        for value in (b"\1", bytearray(b"\1"), "1", 5, None):
            with pytest.raises(TypeError, match="expected integers, not "):
                tok.decode(value)  # type: ignore[arg-type]
        with pytest.raises(InvalidToken) as caught:
            tok.decode([1, True])
        assert caught.value.details == {"index": 1}
        with pytest.raises(InvalidToken):
            tok.id_to_token(True)
