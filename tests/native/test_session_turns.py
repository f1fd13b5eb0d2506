"""One change of a `_native.SessionBase` at a time: threads, the thread that is changing it already, signals, forks in
the middle of a change, and threads that share an append.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.native_encoders import PROSE, shared_pair
from tests.support.native_encoders import core_ids as ids
from toktier._native import SessionBase
from toktier.errors import SessionRevisionConflict

LONG = 262_144  # bytes of an append from which on threads share it (native/session/span_encoder.h)


@pytest.fixture
def session() -> SessionBase:
    return SessionBase(shared_pair()[0])


def test_two_threads_append_whole_texts(session: SessionBase) -> None:
    """Small ones with the GIL held, and those for which it is given up."""
    parts = {"A": "aardvark! " * 3, "B": "bees? " * 900}
    start = threading.Barrier(len(parts))
    revisions: list[int] = []

    def work(letter: str) -> None:
        start.wait()
        for _ in range(60):
            revisions.append(session.append(parts[letter]).revision)

    threads = [threading.Thread(target=work, args=(letter,)) for letter in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(revisions) == list(range(1, 121))
    text = session.held_text().decode()
    assert session.snapshot() == ids(text)
    while text:
        text = text.removeprefix(parts["A" if text.startswith("a") else "B"])
        assert not text or text[0] in "ab"
    assert session.byte_length == 60 * sum(map(len, parts.values()))


def test_of_many_threads_that_expect_one_revision_one_wins(session: SessionBase) -> None:
    start = threading.Barrier(8)
    outcomes: list[str] = []

    def work(number: int) -> None:
        start.wait()
        try:
            session.append(f"{number} " * 3_000, expected_revision=0)
            outcomes.append("won")
        except SessionRevisionConflict:
            outcomes.append("lost")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["lost"] * 7 + ["won"]
    assert session.snapshot() == ids(session.held_text().decode())


class Cyclic:
    """Garbage whose finalizer comes to a session."""

    def __init__(self, call: Callable[[], Any], refused: list[str]) -> None:
        self.me, self.call, self.refused = self, call, refused

    def __del__(self) -> None:
        try:
            self.call()
        except RuntimeError as error:
            self.refused.append(str(error))


def test_a_finalizer_in_the_middle_of_a_change_is_refused_and_waits_for_nobody(session: SessionBase) -> None:
    """Where making a patch collects garbage. The change is whole, and what was refused is told."""
    refused: list[str] = []
    others: list[Callable[[], Any]] = [
        lambda: session.append(" x"), session.snapshot, session.held_text, session.discard,
        lambda: session.present(" y"),
    ]  # fmt: skip
    before = gc.get_threshold()
    try:
        gc.set_threshold(1)
        for number in range(200):
            Cyclic(others[number % len(others)], refused)
            session.append("abc def ")
            session.snapshot()
    finally:
        gc.set_threshold(*before)
    assert set(refused) <= {"this thread is changing the session already"}
    assert refused or sys.version_info >= (3, 12), "later interpreters collect between their instructions alone"
    assert session.snapshot() == ids(session.held_text().decode())


def test_a_number_that_comes_to_the_session_is_asked_before_the_change(session: SessionBase) -> None:
    class Start:
        def __index__(self) -> int:
            session.append(" more")
            return 3

    session.append("one two")
    assert session.replace(Start(), "x").revision == 3
    assert session.snapshot() == ids("onex")
    assert session.prepare_replace(Start(), "y")
    session.commit(9)
    with pytest.raises(SessionRevisionConflict):
        session.append("never", expected_revision=Start())  # type: ignore[arg-type]
    assert session.snapshot() == ids("oney more")


@pytest.mark.unsanitized  # a process of its own
def test_a_thread_that_waits_for_its_turn_hears_a_signal() -> None:
    """The main thread waits while another one appends; a handler that raises ends the wait, and nothing is changed."""

    class Heard(Exception):
        pass

    def handler(*_: object) -> None:
        raise Heard

    def wait_for_ever(session: SessionBase) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.005)
        while True:
            session.snapshot()

    text = PROSE * (LONG * 64 // len(PROSE))

    def heard_at() -> int:
        session, begun = SessionBase(shared_pair()[0]), threading.Event()

        def work() -> None:
            begun.set()
            session.append(text)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            begun.wait()
            with pytest.raises(Heard):
                wait_for_ever(session)
            revision = session.revision
        finally:
            thread.join()
        assert session.text_length == len(text)
        return revision

    kept = signal.signal(signal.SIGALRM, handler)
    try:
        # A busy host may come back to this thread when the append is over. A wait that no signal ends lasts so long in
        # every round.
        assert any(heard_at() == 0 for _ in range(10)), "the wait went on to the end of the append"
    finally:
        signal.signal(signal.SIGALRM, kept)


def test_sizes_may_be_read_while_another_thread_appends(session: SessionBase) -> None:
    """Each is what it was or what it becomes, no step between; reads between two of one revision belong together."""

    def sizes() -> tuple[int, int, int]:
        return len(session), session.text_length, session.byte_length

    session.append("begin ")
    text = PROSE * (LONG * 4 // len(PROSE))
    before = sizes()
    thread = threading.Thread(target=lambda: session.append(text))
    thread.start()
    seen: list[tuple[int, tuple[int, int, int], int]] = []
    while thread.is_alive():
        look = session.revision, sizes(), session.revision
        if not seen or look != seen[-1]:
            seen.append(look)
    thread.join()
    after = sizes()
    assert after[1:] == (len(text) + 6, len(text.encode()) + 6)
    for first, read, last in seen:
        assert 1 <= first <= last <= 2
        if first == last:  # else the append ended in the middle of the look
            assert read == (before if first == 1 else after)
        assert all(number in pair for number, *pair in zip(read, before, after, strict=True))


@pytest.mark.unsanitized  # forks
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_goes_on_after_a_fork_in_the_middle_of_another_threads_append() -> None:
    """It has what was committed, and waits for nobody: the other thread is not there."""
    # A busy host may come back to this thread when the append is over.
    assert any(forked_in_the_middle() for _ in range(50)), "each append was over before it was looked at"


def forked_in_the_middle() -> bool:
    """Whether there was a fork before the append was over. What the children found is checked."""
    session = SessionBase(shared_pair()[0])
    session.append("committed ")
    text = PROSE * (LONG * 8 // len(PROSE))
    begun = threading.Event()

    def work() -> None:
        begun.set()
        session.append(text)

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    children = []
    while session.revision == 1 and len(children) < 12:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                signal.alarm(300)
                held = session.revision == 1
                session.append("and on")
                whole = "committed and on" if held else None
                code = 0 if whole is None or session.snapshot().ids == ids(whole) else 2
                session.present("all new")
                code = code or (0 if session.snapshot().ids == ids("all new") else 3)
            finally:
                os._exit(code)
        children.append(child)
    thread.join()
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * len(children)
    assert session.text_length == len(text) + len("committed ")
    return bool(children)


@pytest.mark.unsanitized  # forks
def test_a_child_may_commit_what_was_prepared_before_the_fork(session: SessionBase) -> None:
    session.prepare_append("abc")
    child = os.fork()
    if child == 0:
        session.commit(3)
        os._exit(0 if session.append("d").revision == 4 and session.snapshot().ids == ids("abcd") else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert session.commit(2).replacement_ids == ids("abc")


def test_an_append_that_threads_share_is_that_of_one(session: SessionBase) -> None:
    text = PROSE * (LONG * 2 // len(PROSE))
    expected = ids(text)
    assert session.append(text).replacement_ids == expected
    for start in (7, len(text) // 3, len(text) - 90_000, len(text) - 600):
        session.replace(start, "x" + text[start + 1 :])
        changed = text[:start] + "x" + text[start + 1 :]
        assert session.snapshot() == ids(changed)
        session.present(text)
    assert session.snapshot() == expected
