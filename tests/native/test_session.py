"""`_native.SessionBase`: what it takes and refuses, how small its patches are, garbage collection. Who may change it
when: test_session_turns.py. The halves that stores use: test_session_halves.py.

That its ids are those of the whole text under any script is a law (tests/laws/test_session_laws.py); what an append
costs is counted (tests/counters).
"""

from __future__ import annotations

import copy
import ctypes
import gc
import mmap
import pickle
import weakref
from array import array
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support.native_encoders import PROSE, pair, shared_pair
from tests.support.native_encoders import core_ids as ids
from toktier._native import EncoderBase, SessionBase
from toktier.errors import InvalidText, SessionRevisionConflict


@pytest.fixture
def session() -> SessionBase:
    return SessionBase(shared_pair()[0])


# What it takes for a text


@pytest.mark.parametrize("text", ["plain", "caf\xe9 \xff", "日本語 ▁", "emoji 😀 caf\xe9", PROSE * 100])
def test_every_storage_of_a_str_and_every_buffer(text: str) -> None:
    data = text.encode()
    mapped = mmap.mmap(-1, len(data))
    mapped[:] = data
    kinds = (
        text, data, bytearray(data), memoryview(data), memoryview(data + b"x" * len(data))[: len(data)],
        np.frombuffer(data, np.uint8), ctypes.create_string_buffer(data, len(data)), array("B", data), mapped,
    )  # fmt: skip
    for kind in kinds:
        session = SessionBase(shared_pair()[0])
        assert session.append(kind).replacement_ids == ids(text), type(kind)
        assert session.replace(1, kind).keep_tokens <= len(ids(text[0] + text))
        assert session.snapshot() == ids(text[0] + text)
        assert session.present(kind) == ids(text)
        assert bytes(session.held_text()) == data
    assert session.snapshot().backend == "fast_cpu"


class Text(str):
    """A str of its own kind."""

    __slots__ = ()

    def encode(self, *arguments: Any) -> bytes:
        raise AssertionError("never asked")


def test_a_str_of_its_own_kind_is_read_as_it_lies(session: SessionBase) -> None:
    session.append(Text("héllo"))
    assert session.snapshot() == ids("héllo")


def test_a_buffer_that_changes_afterwards_changes_nothing(session: SessionBase) -> None:
    data = bytearray(b"hello world")
    session.append(data)
    data[:] = b"x" * 200
    assert session.append(" end").keep_tokens <= len(ids("hello world"))
    assert session.snapshot() == ids("hello world end")


@pytest.mark.parametrize("given", [None, 1, 1.5, ["a"], ("a",), object()])
def test_what_is_no_text_is_refused(given: Any, session: SessionBase) -> None:
    session.append("held")
    for call in (session.append, session.present, session.prepare_append, session.prepare_present):
        with pytest.raises(TypeError):
            call(given)
    with pytest.raises(TypeError):
        session.replace(0, given)
    assert (session.snapshot(), session.revision) == (ids("held"), 1)


@pytest.mark.parametrize("given", [True, False])
def test_a_bool_is_no_text_and_no_start(given: bool, session: SessionBase) -> None:
    session.append("held")
    with pytest.raises(TypeError):
        session.append(given)
    with pytest.raises(TypeError, match="start must be an integer, not bool"):
        session.replace(given, "x")
    with pytest.raises(TypeError, match="add_special_tokens must be True or False, not int"):
        session.present("x", 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("before", ["", "held ", "é" * 9_000], ids=["nothing", "some", "much"])
@pytest.mark.parametrize("wide", [False, True], ids=["narrow", "wide"])
def test_a_lone_surrogate_is_refused_with_its_place(before: str, wide: bool, session: SessionBase) -> None:
    session.append(before)
    text = ("😀" if wide else "a") + "bc\ud800d"
    calls: list[tuple[Callable[[], Any], int]] = [
        (lambda: session.append(text), 3),
        (lambda: session.replace(0, text), 3),
        (lambda: session.present(text), 3),
        (lambda: session.present(before + text), len(before) + 3),
        (lambda: session.prepare_append(text), 3),
    ]
    for call, place in calls:
        with pytest.raises(InvalidText) as refused:
            call()
        assert str(place) in str(refused.value)
        assert place in refused.value.details.values()
    assert session.snapshot() == ids(before)
    with pytest.raises(RuntimeError, match="nothing is prepared"):
        session.commit(7)


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (b"\xff", 0),
        (b"ab\x80", 2),
        (b"ab\xe3\x81", 2),
        (b"\xed\xa0\x80", 0),
        (b"a\xc0\xaf", 1),
        (b"\xf4\x90\x80\x80", 0),
    ],
)
def test_malformed_bytes_are_refused_with_their_place(data: bytes, place: int, session: SessionBase) -> None:
    """Half a character too: a session takes whole ones."""
    session.append("held")
    for call in (session.append, session.present, lambda text: session.replace(1, text)):
        with pytest.raises(InvalidText) as refused:
            call(data)
        assert place in refused.value.details.values()
    assert (session.snapshot(), session.revision) == (ids("held"), 1)


# Starts, revisions, empty texts


def test_a_start_is_a_code_point_of_the_text(session: SessionBase) -> None:
    session.append("aé日😀")
    for start in (-1, 5, 1 << 40, -(1 << 40)):
        with pytest.raises(ValueError, match=f"start is {start}: the text has 4 code points"):
            session.replace(start, "x")
    for start in (1 << 80, -(1 << 80)):
        with pytest.raises(ValueError, match="fit"):
            session.replace(start, "x")
    for start in ("1", 1.0, None):
        with pytest.raises(TypeError, match="start must be an integer"):
            session.replace(start, "x")  # type: ignore[arg-type]
    for start in range(5):
        assert session.replace(np.int64(start), "aé日😀"[start:]).replacement_ids.ids == []
    assert session.snapshot() == ids("aé日😀")
    session.replace(4, "!")
    session.replace(2, "")
    assert (session.snapshot(), session.text_length, session.byte_length) == (ids("aé"), 2, 3)


def test_an_expected_revision_is_an_integer(session: SessionBase) -> None:
    session.append("one")
    for given in (True, False, "1", 1.0, b"1", [1]):
        with pytest.raises(TypeError, match="expected_revision must be an integer or None, not"):
            session.append("x", expected_revision=given)  # type: ignore[arg-type]
    for given in (-1, 1 << 64, -(1 << 80)):
        with pytest.raises(SessionRevisionConflict) as refused:
            session.replace(0, "x", expected_revision=given)
        assert refused.value.details == {"expected": given, "found": 1}
    assert session.append(" two", expected_revision=np.int64(1)).revision == 2


def test_an_expected_revision_that_is_not_the_one_changes_nothing(session: SessionBase) -> None:
    assert session.append("one", expected_revision=0).revision == 1
    calls: list[Callable[[int], Any]] = [
        lambda revision: session.append(" x", expected_revision=revision),
        lambda revision: session.replace(0, "x", expected_revision=revision),
        lambda revision: session.append("", expected_revision=revision),
    ]
    for call in calls:
        for wrong in (0, 2, (1 << 64) - 1):
            with pytest.raises(SessionRevisionConflict) as refused:
                call(wrong)
            assert refused.value.details == {"expected": wrong, "found": 1}
    assert (session.snapshot(), session.revision) == (ids("one"), 1)
    assert session.replace(0, "two", expected_revision=1).revision == 2
    assert session.append(" three", expected_revision=None).revision == 3


def test_empty_texts_change_nothing_the_revision_included(session: SessionBase) -> None:
    encoder = shared_pair()[0]
    calls = encoder.native_calls[0]
    for empty in ("", b"", bytearray()):
        patch = session.append(empty)
        assert (patch.keep_tokens, patch.replacement_ids.ids, patch.revision) == (0, [], 0)
        assert session.replace(0, empty) == patch
        assert not session.prepare_append(empty)
        assert session.present(empty).ids == []
    session.append("abc")
    patch = session.append("")
    assert (patch.keep_tokens, patch.replacement_ids.ids, patch.revision) == (len(session), [], 1)
    assert session.replace(3, "") == patch
    assert not session.prepare_present("abc")
    assert session.present("abc") == ids("abc")
    assert session.revision == 1
    assert encoder.native_calls[0] == calls + 1, "one change was made"
    assert session.replace(0, "").keep_tokens == 0
    assert (len(session), session.text_length, session.revision, session.final_bytes) == (0, 0, 2, 0)
    assert session.append("abc").replacement_ids == ids("abc")


def test_a_change_is_counted_as_a_call_of_the_engine_with_what_it_encoded() -> None:
    encoder = pair()[0]
    session = SessionBase(encoder)
    session.append("word " * 1_000)
    first = encoder.native_calls
    assert first == (1, 5_000)
    session.append("more")
    assert encoder.native_calls[0] == 2
    assert 4 <= encoder.native_calls[1] - 5_000 < 40
    assert encoder.native_uncut == 0


def test_text_without_a_cut_is_told() -> None:
    encoder = pair(normalizer={"type": "NFC"})[0]
    session = SessionBase(encoder)
    session.append("\u0301" * 4_000)
    assert encoder.native_uncut == 1
    session.append("\u0301")
    assert encoder.native_uncut == 2
    session.replace(2, "")
    assert encoder.native_uncut == 2


# Patches


@pytest.mark.parametrize("name", ["cl100k_like", "gemma_like", "gpt2_like", "llama_like", "o200k_like"])
def test_patches_are_as_small_as_they_can_be(name: str) -> None:
    """They keep all that is common to the ids before and after."""
    session = SessionBase(shared_pair(name)[0])
    text, held = "", list[int]()
    for start, put in [
        (0, PROSE), (0, PROSE), (5, "x"), (5, PROSE[5:]), (20, PROSE[20:] * 3), (20, PROSE[20:] * 2), (90, ""),
        (3, " 1"), (3, " 1"), (4, "1" * 40), (10, "1" * 34), (0, PROSE * 30), (900, PROSE), (10, "t"),
    ]:  # fmt: skip
        patch = session.replace(min(start, len(text)), put)
        text = text[:start] + put
        now = ids(text, name)
        common = next((i for i, (a, b) in enumerate(zip(held, now, strict=False)) if a != b), min(len(held), len(now)))
        assert (patch.keep_tokens, patch.replacement_ids.ids) == (common, now[common:])
        assert (len(session), session.text_length, session.byte_length) == (len(now), len(text), len(text.encode()))
        held = now


def test_an_append_does_not_touch_what_stands_before_the_last_cut(session: SessionBase) -> None:
    session.append(PROSE * 100)
    final = session.final_bytes
    assert 0 < len(PROSE.encode()) * 100 - final < 40
    before = ids((PROSE * 100).encode()[:final].decode())
    for _ in range(20):
        assert session.append("s 1").keep_tokens >= len(before)
        assert session.final_bytes >= final


def test_a_patch_is_a_tuple_that_outlives_its_session() -> None:
    session = SessionBase(shared_pair()[0])
    patch = session.append("hello")
    del session
    keep, replacement, revision = patch
    assert (keep, replacement.ids, revision) == (0, ids("hello"), 1)
    assert repr(patch).startswith("toktier._native.TokenPatch(keep_tokens=0, replacement_ids=Encoding(")


def test_present_puts_the_tokens_of_the_template_around_and_holds_none_of_them() -> None:
    encoder, reference = shared_pair("llama_like")
    session = SessionBase(encoder)
    for text in ("Hello", "Hello there", "Help", "", "日本"):
        assert session.present(text, True) == reference.encode(text).ids
        assert len(session) == len(reference.encode(text, add_special_tokens=False).ids)
        assert session.present(text) == reference.encode(text, add_special_tokens=False).ids
    encoding = session.present("He said: 日本", True)
    assert encoding.offsets == reference.encode("He said: 日本").offsets
    assert encoding.tokens == reference.encode("He said: 日本").tokens


@pytest.mark.parametrize("unit", ["abc ", "é ", "日", "😀 "], ids=ascii)
def test_present_finds_a_change_at_every_edge_of_what_it_compares_at_once(unit: str, session: SessionBase) -> None:
    """Blocks of 4096 bytes, and of 8192 code points where the text is not ASCII."""
    base = unit * 12_000
    session.append(base)
    for at in (0, 1, 4_094, 4_095, 4_096, 8_190, 8_191, 8_192, 8_193, 16_384, len(base) - 1):
        text = base[:at] + "x" + base[at + 1 :]
        assert session.present(text) == ids(text), at
        assert session.present(base) == ids(base), at


# Memory


def test_memory_counts_text_ids_and_marks(session: SessionBase) -> None:
    assert session.memory < 2_048
    session.append("word " * 100_000)
    held = 500_000 + 4 * len(session)
    assert held < session.memory < 2.5 * held
    before = session.memory
    for _ in range(200):
        session.append("and so on. ")
    assert session.memory < 1.7 * before, "small changes leave nothing behind"


def test_memory_of_a_text_that_was_cut_is_given_back(session: SessionBase) -> None:
    session.append("word " * 400_000)
    large = session.memory
    session.replace(10, "")
    assert session.memory < large // 50
    session.append(" and on")
    assert session.snapshot() == ids("word word  and on")


# The object


def test_it_belongs_to_an_encoder_with_a_program() -> None:
    for other in (None, object(), "tokenizer", EncoderBase(None)):
        with pytest.raises(TypeError, match="expected an EncoderBase with a program"):
            SessionBase(other)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        SessionBase()  # type: ignore[call-arg]
    session = SessionBase(shared_pair()[0])
    with pytest.raises(RuntimeError, match="called twice"):
        session.__init__(shared_pair()[0])  # type: ignore[misc]


def test_one_that_was_never_initialised_refuses_every_call() -> None:
    bare = SessionBase.__new__(SessionBase)
    calls: list[Callable[[], Any]] = [
        lambda: bare.append("x"), lambda: bare.replace(0, "x"), lambda: bare.present("x"), bare.snapshot,
        lambda: bare.prepare_append("x"), lambda: bare.prepare_replace(0, "x"), lambda: bare.prepare_present("x"),
        lambda: bare.commit(1), bare.discard, bare.prepared_begin, lambda: bare.changes(0, 0), bare.held_ids,
        lambda: bare.text_before(0, 0), bare.held_text, lambda: bare.restore(0, (0, 0, 0), b"", b""),
        lambda: bare.adopt(b"", b"", b""), lambda: len(bare), lambda: bare.text_length, lambda: bare.byte_length,
        lambda: bare.held_from, lambda: bare.final_bytes, lambda: bare.memory,
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(RuntimeError, match="__init__ was not called"):
            call()


def test_it_keeps_its_encoder_and_cycles_are_collected() -> None:
    class Holder(SessionBase):
        me: Any = None

    encoder = pair()[0]
    session = Holder(encoder)
    del encoder
    gc.collect()
    session.append("still here")
    assert session.snapshot() == ids("still here")
    session.me = [session]
    gone = weakref.ref(session)
    del session
    gc.collect()
    assert gone() is None


def test_encodings_outlive_the_session(session: SessionBase) -> None:
    session.append(PROSE)
    encoding = session.snapshot()
    other = session.present(PROSE + "x")
    session.replace(0, "something else entirely")
    del session
    gc.collect()
    reference = shared_pair()[1]
    assert encoding.offsets == reference.encode(PROSE, add_special_tokens=False).offsets
    assert other.tokens == reference.encode(PROSE + "x", add_special_tokens=False).tokens


def test_it_can_be_neither_pickled_nor_copied(session: SessionBase) -> None:
    for attempt in (lambda: pickle.dumps(session), lambda: copy.copy(session), lambda: copy.deepcopy(session)):
        with pytest.raises(TypeError):
            attempt()


def test_stored_truncation_does_not_touch_the_core_stream() -> None:
    """Who refuses sessions for such a file is the layer above; the engine cuts nothing off in silence."""
    truncation = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    session = SessionBase(pair(truncation=truncation)[0])
    session.append(PROSE)
    assert session.snapshot() == ids(PROSE)
