"""Whom `_native.EncoderBase` asks: its subclass where there is no program, for sessions, and from sizes of texts on."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.native_encoders import pair, program_bytes
from toktier import _native


class Routed(_native.EncoderBase):
    """Notes what it is asked."""

    def __init__(self, program: _native.Program | None) -> None:
        super().__init__(program)
        self.calls: list[tuple[Any, ...]] = []

    def _encode_routed(self, *arguments: Any) -> Any:
        self.calls.append(("encode", *arguments))
        return "encoded"

    def _encode_batch_routed(self, *arguments: Any) -> Any:
        self.calls.append(("encode_batch", *arguments))
        return "batch"

    def _count_routed(self, *arguments: Any) -> Any:
        self.calls.append(("count", *arguments))
        return 7

    def _count_batch_routed(self, *arguments: Any) -> Any:
        self.calls.append(("count_batch", *arguments))
        return [7]


def test_without_a_program_everything_is_routed() -> None:
    routed = Routed(None)
    assert routed.encode("a", True, plain=True) == "encoded"
    assert routed.encode(5) == "encoded"
    assert routed.encode_batch(["a"], workers=3) == "batch"  # type: ignore[comparison-overlap]
    assert routed.count("a", True) == 7
    assert routed.count_batch(["a"], plain=True) == [7]
    assert routed.calls == [
        ("encode", "a", True, None, None, True),
        ("encode", 5, False, None, None, False),
        ("encode_batch", ["a"], False, 3, False),
        ("count", "a", True, False),
        ("count_batch", ["a"], False, None, True),
    ]
    assert routed.native_calls == (0, 0)
    assert routed.program is None


def test_session_and_lookup_are_routed() -> None:
    routed = Routed(_native.Program(program_bytes()))
    routed.encode("a", session="chat")
    routed.encode("a", True, lookup="off")
    assert routed.calls == [("encode", "a", False, "chat", None, False), ("encode", "a", True, None, "off", False)]
    assert routed.native_calls == (0, 0)
    routed.encode("a", session=None, lookup=None)
    assert len(routed.calls) == 2
    assert routed.native_calls == (1, 1)


def test_an_error_of_a_route_is_the_callers() -> None:
    class Failing(_native.EncoderBase):
        def _encode_routed(self, *_: Any) -> Any:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Failing(None).encode("a")
    for call in ("encode_batch", "count", "count_batch"):
        with pytest.raises(NotImplementedError):
            getattr(Failing(None), call)("a")


class Sized(_native.EncoderBase):
    """Notes what it is asked, and has the engine answer."""

    def __init__(self, program: _native.Program, routed_from: int = 0, others_from: int = 0) -> None:
        super().__init__(program, routed_from, others_from)
        self.asked: list[str] = []

    def _encode_routed(self, text: Any, special: bool, session: Any, lookup: Any, plain: bool) -> _native.Encoding:
        self.asked.append("encode")
        return self._encode_here(text, special, plain=plain)

    def _encode_batch_routed(self, texts: Any, special: bool, workers: Any, plain: bool) -> _native.EncodingBatch:
        self.asked.append("encode_batch")
        assert type(texts) is tuple
        return self._encode_batch_here(texts, special, workers=workers, plain=plain)

    def _count_routed(self, text: Any, special: bool, plain: bool) -> int:
        self.asked.append("count")
        return self._count_here(text, special, plain=plain)

    def _count_batch_routed(self, texts: Any, special: bool, workers: Any, plain: bool) -> list[int]:
        self.asked.append("count_batch")
        return self._count_batch_here(texts, special, workers=workers, plain=plain)


def test_each_call_asks_the_subclass_from_its_own_size_on() -> None:
    program = pair()[0].program
    assert program is not None
    plain, routed = _native.EncoderBase(program), Sized(program, 100, 50)
    for size, encodes, others in ((49, False, False), (50, False, True), (99, False, True), (100, True, True)):
        text = "x" * size
        for texts in ([text], [text[:20], text[20:].encode(), ""]):
            routed.asked.clear()
            assert routed.encode(text, True) == plain.encode(text, True)
            assert routed.count(text) == plain.count(text)
            batch, expected = routed.encode_batch(iter(texts), workers=2), plain.encode_batch(texts)
            assert [row.ids for row in batch] == [row.ids for row in expected]
            assert routed.count_batch(texts, True) == plain.count_batch(texts, True)
            asked = ["encode"] * encodes + ["count", "encode_batch", "count_batch"] * others
            assert routed.asked == asked
    assert routed.native_calls[0] == plain.native_calls[0]


def test_without_sizes_no_text_is_long_enough_to_be_asked_about() -> None:
    routed = Sized(pair()[0].program)  # type: ignore[arg-type]
    for call in (routed.encode, routed.count):
        call("x" * 300_000)
    routed.encode_batch(["x" * 300_000] * 2)
    routed.count_batch(["x" * 300_000] * 2)
    assert routed.asked == []


def test_the_engine_answers_itself_only_where_there_is_one() -> None:
    encoder = _native.EncoderBase(None)
    for call in (encoder._encode_batch_here, encoder._count_batch_here):
        with pytest.raises(TypeError, match="no program"):
            call(["a"])
