"""The halves of a change of `_native.SessionBase`, between which a store writes: what is prepared and not yet
committed, and a session that begins where another one left off. What it does for users: test_session.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.native_encoders import PROSE, shared_pair
from tests.support.native_encoders import core_ids as ids
from toktier._native import SessionBase
from toktier.errors import InvalidText, SessionNeedsText


@pytest.fixture
def session() -> SessionBase:
    return SessionBase(shared_pair()[0])


def test_what_is_prepared_shows_nowhere_until_it_is_committed(session: SessionBase) -> None:
    session.append("The quick ")
    held = (len(session), session.text_length, session.byte_length, session.revision, session.final_bytes)
    for prepare in (
        lambda: session.prepare_append("brown fox"),
        lambda: session.prepare_replace(1, "other"),
        lambda: session.prepare_present("Something else"),
    ):
        assert prepare()
        assert (len(session), session.text_length, session.byte_length, session.revision, session.final_bytes) == held
        assert session.snapshot() == ids("The quick ")
        assert session.prepared_begin() <= session.byte_length
        session.discard()
        for asked in (lambda: session.commit(9), session.prepared_begin, lambda: session.changes(0, 0)):
            with pytest.raises(RuntimeError, match="nothing is prepared"):
                asked()
    assert session.prepare_replace(4, "slow")
    with pytest.raises(ValueError, match="no revision"):
        session.commit(1 << 63)
    with pytest.raises(OverflowError):
        session.commit(-1)
    assert session.commit(40).revision == 40
    assert (session.snapshot(), session.revision) == (ids("The slow"), 40)
    assert session.append("er").revision == 41


def test_another_change_lets_go_of_what_was_prepared(session: SessionBase) -> None:
    assert session.prepare_append("never")
    session.append("kept")
    with pytest.raises(RuntimeError, match="nothing is prepared"):
        session.commit(9)
    assert session.prepare_append(" never")
    with pytest.raises(InvalidText):
        session.prepare_append("\ud800")
    with pytest.raises(RuntimeError, match="nothing is prepared"):
        session.commit(9)
    assert session.prepare_append(" never")
    assert not session.prepare_append("")
    with pytest.raises(RuntimeError, match="nothing is prepared"):
        session.commit(9)
    assert session.snapshot() == ids("kept")


def in_steps(name: str = "cl100k_like") -> Iterator[tuple[SessionBase, SessionBase, str]]:
    """After each of some changes: a live session, one restored from what `changes` said, the text."""
    encoder = shared_pair(name)[0]
    live = SessionBase(encoder)
    text = ""
    for put in (PROSE, "a", " b", PROSE * 40, "12", "345", "\r", "\n", PROSE * 900, " e", "\u0301", "👩", "🏽", "‍💻"):
        assert live.prepare_append(put)
        text += put
        steps, open_ids, open_text = live.changes(0, 0)
        live.commit(live.revision + 1)
        final_text, final_ids = (b"".join(parts) for parts in ([t for _, t in steps], [i for i, _ in steps]))
        assert (final_text + open_text).decode() == text
        assert list(memoryview(final_ids + open_ids).cast("I")) == ids(text, name)
        for step_ids, step_text in steps:
            assert step_text.decode()
            assert list(memoryview(step_ids).cast("I")) or not step_ids
        restored = SessionBase(encoder)
        final = (len(final_text), len(final_text.decode()), len(final_ids) // 4)
        restored.restore(live.revision, final, open_text, open_ids)
        yield live, restored, text


@pytest.mark.parametrize("name", ["cl100k_like", "gpt2_like", "llama_like", "deepseek_like"])
def test_a_restored_session_appends_as_the_live_one_does(name: str) -> None:
    for live, restored, text in in_steps(name):
        assert (len(restored), restored.text_length, restored.byte_length, restored.revision) == (
            len(live), live.text_length, live.byte_length, live.revision,
        )  # fmt: skip
        assert restored.held_from == live.final_bytes
        twin = SessionBase(shared_pair(name)[0])
        twin.append(text)
        for put in ("s", "'t", " ", "\u0301", "日", PROSE):
            patch, expected = restored.append(put), twin.append(put)
            text += put
            assert (patch.keep_tokens, patch.replacement_ids) == (expected.keep_tokens, expected.replacement_ids)
            assert len(restored) == len(twin)
        assert twin.snapshot() == ids(text, name)


def test_a_restored_session_asks_for_text_that_it_does_not_hold() -> None:
    *_, (live, restored, text) = in_steps()
    base = live.held_text()[: restored.held_from].decode()
    for call in (
        lambda: restored.replace(0, "x"),
        lambda: restored.replace(len(base) - 1, "x"),
        lambda: restored.replace(len(base), "x"),
        lambda: restored.present(text),
        restored.snapshot,
    ):
        with pytest.raises(SessionNeedsText) as refused:
            call()
        assert len(base) in refused.value.details.values() or len(base) + 3 in refused.value.details.values()
    for asked in ((0, 4), (restored.held_from - 1, 0), (live.byte_length + 1, 1), (live.byte_length, -1)):
        with pytest.raises(ValueError, match="not held"):
            restored.text_before(*asked)
    before_text, before_ids = live.held_text()[: restored.held_from], live.held_ids()
    before_ids = before_ids[: (len(live) - len(restored.held_ids()) // 4) * 4]
    for wrong in ((before_text[1:], before_ids, b""), (before_text, before_ids[4:], b""), (b"", b"", b"")):
        with pytest.raises(ValueError, match="not what lies before"):
            restored.adopt(*wrong)
    restored.adopt(before_text, before_ids, b"")
    assert (restored.held_from, restored.snapshot()) == (0, ids(text))
    assert restored.text_before(len(before_text), 7) == before_text[-7:]
    restored.replace(3, "other")
    assert restored.snapshot() == ids(text[:3] + "other")


@pytest.mark.parametrize(
    "state",
    [
        (1, (-1, 0, 0), b"", b""), (1, (0, -1, 0), b"", b""), (1, (0, 0, -1), b"", b""), (1, (0, 0, 0), b"\xff", b""),
        (1, (0, 0, 0), b"a\xe3\x81", b""), (1, (0, 0, 0), b"ab", b"123"),
    ],
)  # fmt: skip
def test_what_is_no_state_is_refused(state: Any, session: SessionBase) -> None:
    with pytest.raises(ValueError, match="no state of a session"):
        session.restore(*state)
    assert session.append("abc").replacement_ids == ids("abc")


def test_changes_are_asked_from_a_point_that_is_held_and_before_them(session: SessionBase) -> None:
    session.append(PROSE * 10)
    session.prepare_append("x")
    begin = session.prepared_begin()
    for point in ((-1, 0), (begin + 1, 0), (0, -1), (0, len(session) + 1)):
        with pytest.raises(ValueError, match="not held, or behind"):
            session.changes(*point)
    steps, _, open_text = session.changes(begin, len(ids((PROSE * 10).encode()[:begin].decode())))
    assert b"".join(text for _, text in steps) + open_text == (PROSE * 10).encode()[begin:] + b"x"
