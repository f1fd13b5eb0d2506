"""`_native.EncoderBase`: what it takes for a text, what it refuses; its fast path stays out of Python."""

from __future__ import annotations

import ctypes
import gc
import inspect
import mmap
import sys
import weakref
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.native_encoders import document, pair, shared_pair
from toktier import _native
from toktier.errors import InvalidText, UnsupportedConfig

KINDS = {  # storage of a str, by its widest character
    "ascii": "plain text, 123",
    "one byte": "caf\xe9 \xff",
    "two bytes": "日本語 text ▁",
    "four bytes": "emoji 😀 and 日本語 caf\xe9",
}
WHOLE_UNICODE = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@pytest.fixture(scope="module")
def encoder() -> _native.EncoderBase:
    return pair()[0]


@settings(deadline=None, max_examples=200)
@given(WHOLE_UNICODE, st.booleans(), st.sampled_from(["cl100k_like", "gpt2_like", "llama_like"]))
def test_str_and_its_utf8_give_the_ids_of_the_reference(text: str, special: bool, name: str) -> None:
    encoder, reference = shared_pair(name)
    expected = reference.encode(text, add_special_tokens=special)
    served = encoder.native_calls
    for given_text in (text, text.encode()):
        encoding = encoder.encode(given_text, special)
        assert encoding == expected.ids
        assert encoding.offsets == expected.offsets
        assert encoder.encode(given_text, special, offsets=True).offsets == expected.offsets
        assert encoder.count(given_text, special) == len(expected.ids)
    size = len(text.encode())
    assert encoder.native_calls == (served[0] + 6, served[1] + 6 * size), "the native engine served, and nothing else"


@pytest.mark.parametrize("repeat", [1, 100, 1000])
@pytest.mark.parametrize("kind", KINDS)
def test_every_storage_of_a_str(kind: str, repeat: int, encoder: _native.EncoderBase) -> None:
    """Short texts keep the GIL and long ones give it up; both ways transcode every storage."""
    text = KINDS[kind] * repeat
    expected = pair()[1].encode(text)
    assert encoder.encode(text) == expected.ids
    assert encoder.encode(text).offsets == expected.offsets


@pytest.mark.parametrize("padding", range(18))
def test_transcoding_at_every_alignment(padding: int, encoder: _native.EncoderBase) -> None:
    """ASCII goes in words of eight bytes: a wider character may stand at any place in one."""
    for wide in ("é", "日", "😀", "éa日b"):
        for text in ("a" * padding + wide + "b" * 20, wide + "a" * padding + wide):
            assert encoder.encode(text) == encoder.encode(text.encode())


def test_a_str_gets_no_cached_copy(encoder: _native.EncoderBase) -> None:
    text = "".join(["日本語 "] * 100)
    before = sys.getsizeof(text)
    encoder.encode(text)
    encoder.count(text)
    encoder.encode_batch([text])
    assert sys.getsizeof(text) == before
    text.encode()
    ctypes.pythonapi.PyUnicode_AsUTF8.restype = ctypes.c_char_p
    ctypes.pythonapi.PyUnicode_AsUTF8(ctypes.py_object(text))
    assert sys.getsizeof(text) > before, "the measure must notice such a copy"


class Text(str):
    """A str that answers wrongly when asked."""

    __slots__ = ()

    def __str__(self) -> str:
        return "other"

    def encode(self, *_: Any) -> bytes:
        return b"other"


class Bytes(bytes):
    __slots__ = ()

    def __bytes__(self) -> bytes:
        return b"other"


def bytes_like(data: bytes) -> dict[str, Any]:
    mapped = mmap.mmap(-1, len(data))
    mapped[:] = data
    spread = bytearray(2 * len(data))
    spread[::2] = data
    return {
        "bytes": data,
        "subclass of bytes": Bytes(data),
        "bytearray": bytearray(data),
        "memoryview": memoryview(data),
        "memoryview of every second byte": memoryview(spread)[::2],
        "reversed memoryview": memoryview(data[::-1])[::-1],
        "array": array("B", data),
        "signed array": array("b", array("B", data).tobytes()),
        "numpy": np.frombuffer(data, dtype=np.uint8),
        "mmap": mapped,
        "str subclass": Text(data.decode()),
    }


@pytest.mark.parametrize("name", bytes_like(b" "))
def test_anything_of_bytes_is_a_text(name: str, encoder: _native.EncoderBase) -> None:
    data = "naïve text 日本 ".encode() * 3
    text = bytes_like(data)[name]
    expected = pair()[1].encode(data.decode())
    encoding = encoder.encode(text)
    assert encoding == expected.ids
    if isinstance(text, bytearray):
        text.clear()
    assert encoding.offsets == expected.offsets, "of the text as it was"
    assert encoder.encode_batch([bytes_like(data)[name]])[0] == expected.ids
    assert encoder.count(bytes_like(data)[name]) == len(expected.ids)


@pytest.mark.parametrize(
    "wrong",
    [None, 5, 1.5, ["a"], ("a",), {"a": 1}, object(), array("I", [1]), np.zeros(3), np.array(["a"]),
     memoryview(array("H", [1])), Path("a")],
    ids=lambda w: type(w).__name__,
)  # fmt: skip
def test_what_is_no_text(wrong: Any, encoder: _native.EncoderBase) -> None:
    for call in (encoder.encode, encoder.count):
        with pytest.raises(TypeError, match="expected str or bytes"):
            call(wrong)
    with pytest.raises(TypeError, match=r"expected str or bytes.*item 1"):
        encoder.encode_batch(["a", wrong])


def test_a_released_buffer_is_an_error(encoder: _native.EncoderBase) -> None:
    view = memoryview(b"abc")
    view.release()
    with pytest.raises(ValueError, match="released"):
        encoder.encode(view)


@pytest.mark.parametrize("surrogate", [0xD800, 0xDBFF, 0xDC00, 0xDFFF])
@pytest.mark.parametrize("before", ["", "a", "abcdefgh" * 4, "é日", "😀é", "x" * 5000])
def test_lone_surrogates_are_named_by_code_point(before: str, surrogate: int, encoder: _native.EncoderBase) -> None:
    for text in (before + chr(surrogate), before + chr(surrogate) + "after 日"):
        for call in (encoder.encode, encoder.count):
            with pytest.raises(InvalidText) as caught:
                call(text)
            assert caught.value.details == {"position": len(before)}
            assert str(caught.value) == f"lone surrogate at position {len(before)}"
            assert caught.value.remedy


@pytest.mark.parametrize(
    "bad",
    [b"\x80", b"\xff", b"\xc0\x80", b"\xc1\xbf", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf0\x80\x80\x80",
     b"\xf4\x90\x80\x80", b"\xf5", b"\xc3", b"\xe6\x97", b"\xf0\x9f\x98", b"\xc3a", b"\xe6\x97a"],
)  # fmt: skip
@pytest.mark.parametrize("before", [b"", "日本 abc".encode(), b"x" * 5000])
def test_malformed_utf8_is_named_by_byte(before: bytes, bad: bytes, encoder: _native.EncoderBase) -> None:
    for text in (before + bad, bytearray(before + bad), before + bad + b"z"):
        with pytest.raises(InvalidText) as caught:
            encoder.encode(text)
        with pytest.raises(UnicodeDecodeError) as expected:
            bytes(text).decode()
        assert caught.value.details == {"position": expected.value.start} == {"position": len(before)}


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=12))
def test_bytes_are_taken_exactly_when_python_decodes_them(data: bytes) -> None:
    encoder = shared_pair()[0]
    text = data.decode(errors="surrogateescape")
    bad = next((i for i, c in enumerate(text) if 0xDC80 <= ord(c) <= 0xDCFF), None)
    if bad is None:
        assert encoder.encode(data) == encoder.encode(text)
        return
    with pytest.raises(InvalidText) as caught:
        encoder.encode(data)
    assert caught.value.details["position"] == len(text[:bad].encode())


def test_keywords(encoder: _native.EncoderBase) -> None:
    reference = pair("llama_like")[1]
    llama = pair("llama_like")[0]
    expected = reference.encode("hi", add_special_tokens=True).ids
    assert expected != reference.encode("hi", add_special_tokens=False).ids
    assert llama.encode("hi", True) == llama.encode(text="hi", add_special_tokens=True) == expected
    spelled = "".join(["add_", "special_", "tokens"])  # not the interned name
    assert llama.encode("hi", **{spelled: True}) == expected  # type: ignore[arg-type]
    assert llama.count("hi", True) == llama.count(text="hi", add_special_tokens=True) == len(expected)
    assert llama.encode_batch(texts=["hi"], add_special_tokens=True, workers=1, plain=False)[0] == expected
    assert llama.encode("hi", session=None, lookup=None, plain=False, offsets=False) == llama.encode("hi")


WRONG_CALLS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda e: e.encode(), "missing the argument 'text'"),
    (lambda e: e.encode(add_special_tokens=True), "missing the argument 'text'"),
    (lambda e: e.encode("a", True, None), "at most 2 positional"),
    (lambda e: e.encode("a", nonsense=1), "unexpected keyword argument 'nonsense'"),
    (lambda e: e.encode("a", näme=1), "unexpected keyword"),
    (lambda e: e.encode("a", text="b"), "multiple values for argument 'text'"),
    (lambda e: e.encode("a", True, add_special_tokens=True), "multiple values"),
    (lambda e: e.encode("a", "yes"), "add_special_tokens must be True or False, not str"),
    (lambda e: e.encode("a", 1), "add_special_tokens must be True or False, not int"),
    (lambda e: e.encode("a", None), "add_special_tokens must be True or False, not NoneType"),
    (lambda e: e.encode("a", plain="x"), "plain must be"),
    (lambda e: e.encode("a", offsets=1), "offsets must be"),
    (lambda e: e.count("a", offsets=True), "unexpected keyword"),
    (lambda e: e.count("a", 0), "add_special_tokens must be"),
    (lambda e: e.count_batch(["a"], plain=0), "plain must be"),
    (lambda e: e.encode_batch("abc"), "several texts"),
    (lambda e: e.encode_batch(b"abc"), "several texts"),
    (lambda e: e.count_batch("abc"), "several texts"),
    (lambda e: e.encode_batch(5), "not iterable"),
    (lambda e: e.encode_batch(["a"], workers="2"), "workers must be an integer"),
    (lambda e: e.encode_batch(["a"], workers=True), "workers must be an integer"),
    (lambda e: e.encode_batch(["a"], workers=1.0), "workers must be an integer"),
]


@pytest.mark.parametrize("index", range(len(WRONG_CALLS)))
def test_wrong_calls(index: int, encoder: _native.EncoderBase) -> None:
    call, message = WRONG_CALLS[index]
    before = encoder.native_calls
    with pytest.raises(TypeError, match=message):
        call(encoder)
    assert encoder.native_calls == before


@pytest.mark.parametrize("workers", [0, -1, -(1 << 70)])
def test_workers_below_one(workers: int, encoder: _native.EncoderBase) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        encoder.encode_batch(["a"], workers=workers)


def test_signatures_are_those_of_the_stub() -> None:
    assert str(inspect.signature(_native.EncoderBase.encode)) == (
        "(self, /, text, add_special_tokens=False, *, session=None, lookup=None, plain=False, offsets=False)"
    )
    assert str(inspect.signature(_native.EncoderBase.encode_batch)) == (
        "(self, /, texts, add_special_tokens=False, *, workers=None, plain=False)"
    )


def test_plain_takes_special_tokens_for_text(encoder: _native.EncoderBase) -> None:
    reference = pair()[1]
    special = next(t["content"] for t in document()["added_tokens"] if t["special"])
    reference.encode_special_tokens = True
    text = f"a{special}b"
    assert encoder.encode(text, plain=True) == reference.encode(text).ids != encoder.encode(text).ids
    assert encoder.encode(text, plain=True).offsets == reference.encode(text).offsets
    assert encoder.encode_batch([text], plain=True)[0] == reference.encode(text).ids
    assert encoder.count(text, plain=True) == len(reference.encode(text).ids)


def test_init() -> None:
    for wrong in (5, "program", b"TTPROGRM", _native.Program):
        with pytest.raises(TypeError, match="Program or None"):
            _native.EncoderBase(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        _native.EncoderBase()  # type: ignore[call-arg]
    encoder = _native.EncoderBase(None)
    with pytest.raises(RuntimeError, match="twice"):
        encoder.__init__(None)  # type: ignore[misc]


def test_an_encoder_that_was_never_initialised() -> None:
    class Lazy(_native.EncoderBase):
        def __init__(self) -> None:
            pass

    lazy = Lazy()
    assert lazy.program is None
    for call in ("encode", "count"):
        with pytest.raises(RuntimeError, match="__init__"):
            getattr(lazy, call)("a")
    for call in ("encode_batch", "count_batch"):
        with pytest.raises(RuntimeError, match="__init__"):
            getattr(lazy, call)(["a"])


def test_the_fast_path_has_no_python_frame(encoder: _native.EncoderBase) -> None:
    """Also where a Python class inherits it: the profiler sees C calls and not one Python function."""

    class Tokenizer(_native.EncoderBase):
        pass

    tokenizer = Tokenizer(encoder.program)
    events: list[str] = []
    sys.setprofile(lambda frame, event, argument: events.append(event))
    try:
        tokenizer.encode("hello world")
        tokenizer.count("hello world")
        tokenizer.encode_batch(["hello", "world"])
    finally:
        sys.setprofile(None)
    assert "c_call" in events
    assert "call" not in events
    assert tokenizer.native_calls[0] == 4


def test_a_subclass_is_collected_in_a_cycle(encoder: _native.EncoderBase) -> None:
    class Tokenizer(_native.EncoderBase):
        me: Any

    program = encoder.program
    references = sys.getrefcount(program)
    tokenizer = Tokenizer(encoder.program)
    tokenizer.me = tokenizer
    gone = weakref.ref(tokenizer)
    del tokenizer
    gc.collect()
    assert gone() is None
    assert sys.getrefcount(program) == references


def test_a_finaliser_may_encode_while_encoding(encoder: _native.EncoderBase) -> None:
    """Whatever runs when the interpreter frees things has scratch memory of its own."""
    seen: list[Any] = []

    class Last:
        def __del__(self) -> None:
            seen.append(encoder.encode("from a finaliser " * 50).ids)

    expected = encoder.encode("from a finaliser " * 50).ids
    for _ in range(50):
        cycle: list[Any] = [Last()]
        cycle.append(cycle)
        del cycle
        text = "outside " * 400
        assert encoder.encode(text).offsets[-1][1] == len(text)
        assert len(encoder.encode_batch([text] * 20)) == 20
    gc.collect()
    assert seen == [expected] * 50


def test_stored_truncation_that_the_reference_refuses() -> None:
    """A stride that is not below the room: the reference panics, and so there is no answer to give."""
    truncation = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 5}
    encoder = pair(truncation=truncation)[0]
    assert len(encoder.encode("a")) == 1
    with pytest.raises(UnsupportedConfig, match="stride"):
        encoder.encode("a b c d e f g")
    with pytest.raises(UnsupportedConfig, match=r"stride.*item 1"):
        encoder.encode_batch(["a", "a b c d e f g", "b"])
    with pytest.raises(UnsupportedConfig, match="stride"):
        encoder.count("a b c d e f g")


@pytest.mark.parametrize("length", [2047, 2048, 2049])
def test_around_the_size_that_releases_the_gil(length: int, encoder: _native.EncoderBase) -> None:
    text = ("word " * 500)[:length]
    assert encoder.encode(text) == pair()[1].encode(text).ids


@pytest.mark.parametrize(("text", "weight"), [("", 0), ("abc", 3), ("caf\xe9", 4), ("日本", 4), ("a😀", 8), (b"ab", 2)])
def test_the_weight_of_a_text_is_its_storage(text: Any, weight: int) -> None:
    assert _native.text_weight(text) == weight
    with pytest.raises(TypeError):
        _native.text_weight(3)
