"""Sessions in a store under attack: interrupts at any call, stores restored, removed or altered under them, finalizers.

Never a wrong id, nothing acknowledged is lost: else an error that says what happened. What damaged rows alone do is in
`test_store_attacks.py`, kills in `test_durable_kills.py`.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sessions.redis_process import RedisProcess
from tests.sessions.whole_sessions import fresh, opened
from toktier import errors
from toktier._native import Encoding
from toktier.config import resolve_settings
from toktier.sessions.durable import DurableSession
from toktier.sessions.live import ReferenceLive
from toktier.sessions.opening import open_store
from toktier.sessions.session import Session
from toktier.tokenizer import Tokenizer

NAME = "cl100k_like"
TEXT = "The quick brown fox jumps over the lazy dog. " * 4000
SESSIONS = f"{os.sep}toktier{os.sep}sessions{os.sep}"


@functools.cache
def tokenizer() -> Tokenizer:
    return opened(NAME)


def named(place: Path | str, name: str = "chat", keep_text: bool = False) -> DurableSession:
    """As another process has it, of a store of its own."""
    tok = tokenizer()
    stored = open_store(place, resolve_settings()).open(name, tok.ids_identity, keep_text=keep_text)
    return DurableSession(tok._new_live, stored, name)


def copied(place: Path, copy: Path) -> None:
    _backed_up(place / "sessions.db", copy)


def _backed_up(path: Path, copy: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as source, contextlib.closing(sqlite3.connect(copy)) as target:
        source.backup(target)


def restored(place: Path, copy: Path, *, renamed: bool) -> None:
    if renamed:
        for suffix in ("-wal", "-shm"):
            (place / f"sessions.db{suffix}").unlink(missing_ok=True)
        shutil.copy(copy, place / "new")
        os.replace(place / "new", place / "sessions.db")
        return
    _backed_up(copy, place / "sessions.db")


@pytest.mark.parametrize("keep_text", [False, True])
def test_a_presented_text_that_is_a_part_of_what_is_stored_is_stored(tmp_path: Path, keep_text: bool) -> None:
    named(tmp_path, keep_text=keep_text).append(TEXT)
    ends = [p.text_bytes for p in named(tmp_path)._stored.points()]
    assert len(ends) > 3
    # The ends of steps: there all that is presented is known, and yet the session has to become shorter.
    for end in (ends[-1], ends[-2], ends[0], ends[0] - 1, 1, 0):
        named(tmp_path).present(TEXT)
        session = named(tmp_path)
        assert session.present(TEXT[:end]).ids == fresh(NAME, TEXT[:end]) == session.ids
        again = named(tmp_path)
        assert (again.text_length, again.revision) == (end, session.revision)
        assert again.ids == fresh(NAME, TEXT[:end])
        session.append("more")
        assert named(tmp_path).ids == fresh(NAME, TEXT[:end] + "more")


def test_presenting_what_is_there_changes_nothing(tmp_path: Path) -> None:
    named(tmp_path).append(TEXT)
    session = named(tmp_path)
    session.append(" More and more. ")
    assert session.present(TEXT + " More and more. ").ids == fresh(NAME, TEXT + " More and more. ")
    assert session.revision == named(tmp_path).revision == 2


def test_a_presented_text_that_the_store_refuses_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named(tmp_path).append(TEXT)
    session = named(tmp_path)
    full = errors.EnvironmentFault("no space", remedy="make some")
    with monkeypatch.context() as patched:
        for method in ("append", "replace"):
            patched.setattr(session._stored, method, _raising(full))
        for text in (TEXT[:90_000] + "Another end.", "", TEXT[:100]):
            with pytest.raises(errors.EnvironmentFault):
                session.present(text)
            assert (len(session), session.ids) == (len(fresh(NAME, TEXT)), fresh(NAME, TEXT))
    session.append("More.")
    assert session.ids == named(tmp_path).ids == fresh(NAME, TEXT + "More.")


def _raising(error: BaseException) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise error

    return refuse


@pytest.mark.parametrize("renamed", [False, True])
def test_another_history_of_the_same_revision_is_a_conflict_and_then_taken_over(tmp_path: Path, renamed: bool) -> None:
    place, copy = tmp_path / "store", tmp_path / "copy"
    session = named(place)
    session.append("One ")
    copied(place, copy)
    session.append("two three four five ")
    restored(place, copy, renamed=renamed)
    other = named(place)
    other.append("other words ")
    assert other.revision == session.revision
    with pytest.raises(errors.SessionRevisionConflict, match="another history"):
        session.append("six ")
    assert session.refresh() == 2
    session.append("seven ")
    text = "One other words seven "
    assert session.ids == named(place).ids == fresh(NAME, text)
    assert session.text_length == len(text)


def test_a_number_that_became_another_session_s_is_a_conflict(tmp_path: Path) -> None:
    place, copy = tmp_path / "store", tmp_path / "copy"
    named(place, "first")
    copied(place, copy)
    session = named(place, "mine")
    session.append("mine ")
    restored(place, copy, renamed=False)
    other = named(place, "other")
    other.append("other ")
    assert other._stored.state.number == session._stored.state.number
    with pytest.raises(errors.SessionRevisionConflict):
        session.append("more ")
    with pytest.raises(errors.SessionRevisionConflict):
        session.refresh()
    assert named(place, "other").ids == fresh(NAME, "other ")


def test_a_store_that_is_gone_takes_nothing(tmp_path: Path) -> None:
    place = tmp_path / "store"
    session = named(place)
    session.append("One ")
    shutil.move(place, tmp_path / "elsewhere")
    with pytest.raises(errors.EnvironmentFault, match="No such file"):
        session.append("two ")
    assert not place.exists()
    shutil.move(tmp_path / "elsewhere", place)
    session.append("three ")
    assert named(place).ids == session.ids == fresh(NAME, "One three ")


@pytest.mark.parametrize("change", [1, -1, 7])
def test_altered_places_of_steps_give_no_wrong_id(tmp_path: Path, change: int) -> None:
    parts = [f"The quick brown fox {k} jumps. " for k in range(8)]
    for part in parts[:6]:
        named(tmp_path).append(part)
    session = named(tmp_path)
    for part in parts[6:]:
        session.append(part)
    held = session._live.held_from
    with contextlib.closing(sqlite3.connect(tmp_path / "sessions.db")) as connection:
        connection.execute("UPDATE step SET text_bytes = text_bytes + ? WHERE text_bytes >= ?", (change, held))
        connection.commit()
    text = "".join(parts)
    with contextlib.suppress(errors.StoreCorrupt):
        assert session.ids == fresh(NAME, text)
    with contextlib.suppress(errors.StoreCorrupt, errors.SessionStateMismatch):
        session.replace(len(text) - 20, "another end")
        assert session.ids == fresh(NAME, text[:-20] + "another end")


@pytest.mark.parametrize("value", ["x", b"x", 1.5, -1])
def test_what_only_eviction_reads_stops_nobody(tmp_path: Path, value: object) -> None:
    tok = opened(NAME, store=tmp_path)
    tok.encode(TEXT)
    tok.session("chat").append("One ")
    with contextlib.closing(sqlite3.connect(tmp_path / "sessions.db")) as connection:
        connection.execute("UPDATE state SET held = ?, last_use = ?", (value, value))
        connection.commit()
    assert tok.encode(TEXT + "end", add_special_tokens=False).ids == fresh(NAME, TEXT + "end")
    assert tok.encode("other " + TEXT, add_special_tokens=False).ids == fresh(NAME, "other " + TEXT)
    named(tmp_path).append("two")
    assert named(tmp_path).ids == fresh(NAME, "One two")
    assert tok._store is not None
    assert tok._store.sessions()
    tok._store.evict(0)


@contextlib.contextmanager
def interrupted_after(calls: int) -> Iterator[list[str]]:
    """KeyboardInterrupt when so many calls of C functions have returned to the code of sessions: right behind a call is
    where a signal comes in."""
    seen: list[str] = []

    def profile(frame: Any, event: str, argument: Any) -> None:
        if event == "c_return" and SESSIONS in frame.f_code.co_filename:
            seen.append(f"{frame.f_code.co_name}:{frame.f_lineno}")
            if len(seen) == calls:
                sys.setprofile(None)
                raise KeyboardInterrupt

    sys.setprofile(profile)
    try:
        yield seen
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("change", ["append", "replace", "present", "first append", "first present"])
def test_an_interrupt_at_any_call_leaves_the_old_text_or_the_new_one(tmp_path: Path, change: str) -> None:
    start = "The quick brown fox jumps over the lazy dog. " * 100
    new = {"append": start + "More of it.", "replace": start[:3000] + "Cut."}.get(
        change.split()[-1], start[:2000] + "!"
    )
    for calls in range(1, 1000):
        session = named(tmp_path, f"{calls}")  # one store: making one syncs
        session.append(start[:2500])
        session.append(start[2500:])
        if change.startswith("first"):
            session.close()
        interrupted = False
        with interrupted_after(calls) as seen:
            try:
                if change == "replace":
                    session.replace(3000, "Cut.")
                elif change.endswith("append"):
                    session.append("More of it.")
                else:
                    session.present(new)
            except KeyboardInterrupt:
                interrupted = True
                # Nothing is left open or locked even while the interrupt is handled.
                with sqlite3.connect(tmp_path / "sessions.db", timeout=0) as other:
                    other.execute("BEGIN IMMEDIATE")
                    other.rollback()
                other.close()
        session.refresh()
        text = new if session.revision == 3 else start
        assert session.ids == named(tmp_path, f"{calls}").ids == fresh(NAME, text), seen[-3:]
        session.append(" And on.")
        assert session.ids == named(tmp_path, f"{calls}").ids == fresh(NAME, text + " And on."), seen[-3:]
        if not interrupted:
            assert calls > 20
            return
    pytest.fail("it never came to its end")


def test_what_the_store_took_and_memory_did_not_is_read_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = named(tmp_path)
    session.append("abc " * 200)
    taken = type(session._stored).replace

    def interrupting(*arguments: Any, **named_ones: Any) -> int:
        taken(session._stored, *arguments, **named_ones)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(session._stored, "replace", interrupting)
        with pytest.raises(KeyboardInterrupt):
            session.replace(400, "bbb bbb bbb bbb")
    text = ("abc " * 100) + "bbb bbb bbb bbb"
    assert session.ids == fresh(NAME, text)
    session.append(" more")
    assert session.ids == named(tmp_path).ids == fresh(NAME, text + " more")


def test_a_change_in_the_middle_of_a_change_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = named(tmp_path)
    session.append("One ")
    taken = type(session._stored).append
    refused: list[str] = []

    def nested(*arguments: Any) -> int:
        for change in (lambda: session.append("x"), lambda: session.present("x"), lambda: session.refresh()):
            with pytest.raises(RuntimeError, match="changing the session already"):
                change()
            refused.append("refused")
        assert session.ids == fresh(NAME, "One ")
        return taken(session._stored, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(session._stored, "append", nested)
        session.append("two ")
    assert len(refused) == 3
    assert session.ids == named(tmp_path).ids == fresh(NAME, "One two ")


def test_a_look_from_another_thread_loses_no_append(tmp_path: Path) -> None:
    session = named(tmp_path)
    session.append("One ")
    session.close()
    making, go_on, new_live = threading.Event(), threading.Event(), session._new_live

    def slow() -> Any:
        live = new_live()
        if threading.current_thread() is looker:
            making.set()
            assert go_on.wait(120)
        return live

    session._new_live = slow
    looker = threading.Thread(target=session.__len__)
    writer = threading.Thread(target=session.append, args=("two ",))
    looker.start()
    assert making.wait(120)
    writer.start()
    writer.join(0.2)
    go_on.set()
    looker.join()
    writer.join()
    session.append("three ")
    assert session.ids == named(tmp_path).ids == fresh(NAME, "One two three ")


def test_threads_take_turns_where_the_reference_serves() -> None:
    session = Session(ReferenceLive(lambda text, _: Encoding.from_ids(fresh(NAME, text))), None, "f" * 64)
    threads = [threading.Thread(target=lambda: [session.append("a ") for _ in range(100)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (session.revision, session.text) == (400, "a " * 400)


def test_the_name_is_that_of_the_string_whatever_its_methods_say(tmp_path: Path) -> None:
    class Liar(str):
        __hash__ = str.__hash__

        def encode(self, *_: Any) -> bytes:
            return b"theirs"

        def __eq__(self, other: object) -> bool:
            return True

        def __str__(self) -> str:
            return "theirs"

    tok = opened(NAME, store=tmp_path)
    tok.session("theirs").append("theirs ")
    tok.session(Liar("mine")).append("mine ")
    assert named(tmp_path, "theirs").ids == fresh(NAME, "theirs ")
    assert named(tmp_path, "mine").ids == fresh(NAME, "mine ")


def test_kept_text_serves_the_reference_too(tmp_path: Path) -> None:
    named(tmp_path, keep_text=True).append(TEXT[:5000])
    session = named(tmp_path)
    session._new_live = lambda: ReferenceLive(lambda text, _: Encoding.from_ids(fresh(NAME, text)))
    session.append("more")
    assert session.ids == named(tmp_path).ids == fresh(NAME, TEXT[:5000] + "more")


def test_a_server_that_lost_its_end_gives_no_mixture(redis_process: RedisProcess) -> None:
    redis = pytest.importorskip("redis")
    client = redis.Redis(unix_socket_path=redis_process.url.removeprefix("unix://"))
    session = named(redis_process.url, "lost end")
    session.append("One ")
    kept = {key: client.dump(key) for key in client.keys("toktier:*")}
    session.append("two three four five ")
    client.delete(*client.keys("toktier:*"))
    for key, value in kept.items():
        client.restore(key, 0, value)
    named(redis_process.url, "lost end").append("other words ")
    with pytest.raises(errors.SessionRevisionConflict, match="another history"):
        session.append("six ")
    assert session.refresh() == 2
    session.append("seven ")
    assert session.ids == named(redis_process.url, "lost end").ids == fresh(NAME, "One other words seven ")


def test_an_answer_that_an_interrupt_left_is_nobody_s(
    redis_process: RedisProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    redis = pytest.importorskip("redis")
    session = named(redis_process.url, "interrupted")
    session.append("One ")
    other = named(redis_process.url, "other")
    with monkeypatch.context() as patched:
        patched.setattr(redis.Redis, "parse_response", _raising(KeyboardInterrupt()))
        # A connection that is taken from the pool and has an answer is dropped; a slow server's comes later.
        patched.setattr(redis.connection.AbstractConnection, "can_read", lambda *_, **__: False)
        with pytest.raises(KeyboardInterrupt):
            session.append("two ")
        patched.undo()
        patched.setattr(redis.connection.AbstractConnection, "can_read", lambda *_, **__: False)
        fresh_store = session._stored._sessions.server  # type: ignore[attr-defined]
        assert fresh_store.call("ECHO", "mine") == b"mine"
    session.refresh()
    other.append("other ")
    session.append("three ")
    assert session.ids == named(redis_process.url, "interrupted").ids
    assert session.ids in (fresh(NAME, "One three "), fresh(NAME, "One two three "))
