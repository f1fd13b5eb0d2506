"""Sessions in a store: what is acknowledged is there in another process, whoever writes and whatever is edited."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest

import toktier
from tests.sessions.whole_sessions import TOKENIZERS, Edit, applied, edits, fresh, opened, patched, path_of
from toktier import errors
from toktier.sessions import opening
from toktier.sessions.durable import DurableSession

NAME = "cl100k_like"


def named(tok: object, name: str = "chat") -> DurableSession:
    session = tok.session(name)  # type: ignore[attr-defined]
    assert isinstance(session, DurableSession)
    return session


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("keep_text", [False, True])
def test_a_session_goes_on_where_another_process_left_it(tmp_path: Path, name: str, keep_text: bool) -> None:
    for seed in range(4):
        text, ids, revision = "", list[int](), 0
        for at, edit in enumerate(edits(seed, 12)):
            # A new tokenizer and store each time: what a new process has.
            with opened(name, store=tmp_path).session(f"{seed}", keep_text=keep_text and at == 0) as session:
                assert session.revision == revision
                start = None if edit.start is None else min(edit.start, len(text))
                try:
                    patch = session.append(edit.text) if start is None else session.replace(start, edit.text)
                except errors.SessionNeedsText:
                    assert not keep_text
                    continue
                text, ids, revision = applied(text, Edit(start, edit.text)), patched(ids, patch), patch.revision
                assert ids == fresh(name, text) == session.ids
                assert (session.text_length, len(session)) == (len(text), len(ids))
    assert opened(name, store=tmp_path)._store.verify() == []  # type: ignore[union-attr]


def test_what_a_presented_text_shares_is_taken_from_the_store(tmp_path: Path) -> None:
    text = "The quick brown fox jumps over the lazy dog. " * 4000
    named(opened(NAME, store=tmp_path)).append(text)
    for shown in (text, text + "More.", text[:100_000] + "Another end.", text[:3], "Quite another text.", ""):
        tok = opened(NAME, store=tmp_path)
        assert tok.encode(shown, session="chat").ids == fresh(NAME, shown)
        if len(shown) > 50_000:
            # A long text leaves points: at most 64 KiB of it and what is new are encoded again.
            assert tok.native_calls[1] < 70_000
        session = named(tok)
        assert session.ids == fresh(NAME, shown)
        assert tok._store is not None
        assert tok._store.verify() == []
        session.replace(0, text)


def test_engine_and_reference_go_on_for_each_other(tmp_path: Path) -> None:
    text = "The quick brown fox jumps over the lazy dog. " * 10
    for policy in ("supported", "reference", "supported", "reference"):
        tok = toktier.from_file(path_of(NAME), policy=policy, store=tmp_path)
        text += f"Then {policy}. "
        assert tok.encode(text, session="chat").ids == fresh(NAME, text)
        assert tok.encode(text + "More.", session="chat").ids == fresh(NAME, text + "More.")
        assert tok.session("chat").replace(len(text), "").keep_tokens <= len(fresh(NAME, text))
        assert tok.session("chat").ids == fresh(NAME, text)
    named(opened(NAME, store=tmp_path), "other").append(text)
    session = toktier.from_file(path_of(NAME), policy="reference", store=tmp_path).session("other")
    with pytest.raises(errors.SessionNeedsText) as caught:
        session.append("x")
    assert caught.value.remedy
    assert session.ids == fresh(NAME, text)


def test_the_other_one_s_change_is_a_conflict_until_it_is_taken_over(tmp_path: Path) -> None:
    one, two = (named(opened(NAME, store=tmp_path)) for _ in range(2))
    one.append("one ")
    with pytest.raises(errors.SessionRevisionConflict):
        two.append("two ")
    assert two.ids == []
    assert two.refresh() == 1
    two.append("two ")
    assert two.ids == fresh(NAME, "one two ")
    # A whole text says all: it needs no refresh.
    tok = opened(NAME, store=tmp_path)
    stale = named(tok)
    two.append("three")
    assert tok.encode("one two three four", session="chat").ids == fresh(NAME, "one two three four")
    assert stale.revision == 2
    assert named(tok).revision == 4


def test_a_session_that_was_removed_is_a_conflict(tmp_path: Path) -> None:
    tok = opened(NAME, store=tmp_path)
    session = named(tok)
    session.append("text")
    assert tok._store is not None
    assert tok._store.remove("chat")
    with pytest.raises(errors.SessionRevisionConflict):
        session.append("more")
    assert tok.encode("anew", session="chat").ids == fresh(NAME, "anew")


def test_an_edit_before_what_is_held_needs_the_text(tmp_path: Path) -> None:
    text = "The quick brown fox jumps over the lazy dog. " * 10
    named(opened(NAME, store=tmp_path)).append(text)
    session = named(opened(NAME, store=tmp_path))
    with pytest.raises(errors.SessionNeedsText) as caught:
        session.replace(5, "x")
    assert caught.value.remedy
    assert session.ids == fresh(NAME, text)
    assert session.snapshot().ids == fresh(NAME, text)


def test_a_session_is_of_one_tokenizer(tmp_path: Path) -> None:
    named(opened(NAME, store=tmp_path)).append("text")
    with pytest.raises(errors.SessionStateMismatch):
        opened("o200k_like", store=tmp_path).session("chat")


def test_a_store_that_refuses_leaves_the_session_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = named(opened(NAME, store=tmp_path))
    session.append("some text ")

    def full(*_: object, **__: object) -> int:
        raise errors.EnvironmentFault("no space left on the device")

    with monkeypatch.context() as patch:
        patch.setattr(session._stored, "append", full)
        with pytest.raises(errors.EnvironmentFault):
            session.append("lost")
    assert session.ids == fresh(NAME, "some text ")
    assert session.append("kept").revision == 2
    assert session.ids == named(opened(NAME, store=tmp_path)).ids == fresh(NAME, "some text kept")


def append_in_child(place: str, count: int) -> None:
    opening.TIMEOUT_SECONDS = 120.0  # of a spawned process: its turn may be long in coming on a busy disk
    for k in range(count):
        while True:
            session = named(opened(NAME, store=place))
            try:
                session.append(f"{os.getpid()} {k}\n")
                break
            except errors.SessionRevisionConflict:
                pass


def test_processes_lose_nothing_of_each_other(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=append_in_child, args=(str(tmp_path), 5)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    tok = opened(NAME, store=tmp_path)
    session = named(tok)
    assert session.revision == 15
    lines = tok.decode(session.ids).splitlines()
    expected = [f"{worker.pid} {k}" for worker in workers for k in range(5)]
    assert sorted(lines) == sorted(expected)


def test_a_forked_child_goes_on(tmp_path: Path) -> None:
    tok = opened(NAME, store=tmp_path)
    session = named(tok)
    session.append("before ")
    child = os.fork()
    if child == 0:
        try:
            session.append("in the child ")
            os._exit(0 if session.ids == tok.encode("before in the child ").ids else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with pytest.raises(errors.SessionRevisionConflict):
        session.append("after")
    session.refresh()
    session.append("after")
    assert session.ids == fresh(NAME, "before in the child after")
