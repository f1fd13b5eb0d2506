"""Killed writers and many writers, of every store: nothing acknowledged is lost, and no change made twice or mixed."""

from __future__ import annotations

import os
import random
import signal
import struct
import threading
import time
from array import array
from typing import Any

import pytest

from tests.sessions import model
from tests.sessions.model import FINGERPRINT, change, ids_of
from tests.sessions.places import KINDS, Place
from toktier.errors import SessionRevisionConflict
from toktier.sessions.records import Append

KILLS = [pytest.param(50, marks=pytest.mark.ci), pytest.param(1000, marks=pytest.mark.full)]


hosts = pytest.mark.parametrize("places", ["sqlite", "redis"], indirect=True)


def part(revision: int) -> str:
    return f"append {revision} " * (1 + revision * revision % 40)


def append_until_killed(place: Place, pipe: int, seed: int) -> None:
    """Appends and edits; each revision goes to the pipe after it was acknowledged."""
    choose = random.Random(seed)
    store = place.open()
    session = store.open("chat", FINGERPRINT, keep_text=True)
    while True:
        revision = session.state.revision
        if revision % 7 == 6:
            point = session.last_point("tokens", max(0, session.state.tokens - 50))
            session.replace(point, change(revision, part(revision)))
        else:
            session.append(change(revision, part(revision), f"tail {revision}"))
        os.write(pipe, struct.pack("<I", session.state.revision))
        if choose.random() < 0.02:
            store.compact()


def replayed(revision: int) -> model.Model:
    """What the session is at a revision."""
    expected = model.Model()
    for at in range(revision):
        if at % 7 == 6:
            limit, keep = max(0, len(expected.text) - 50), 0
            while keep < len(expected.parts) and expected.ends[keep] <= limit:
                keep += 1
            expected.replace(keep, part(at), "")
        else:
            expected.append(part(at), f"tail {at}")
    return expected


@pytest.mark.unsanitized
@hosts
@pytest.mark.parametrize("rounds", KILLS)
def test_a_killed_writer_loses_nothing_acknowledged(place: Place, rounds: int) -> None:
    choose = random.Random(rounds)
    acknowledged = histories = 0
    for seed in range(rounds):
        if acknowledged > 150:  # short histories: the model replays all of it
            acknowledged, histories = 0, histories + 1
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.close(read)
                append_until_killed(place / str(histories), write, seed)
            finally:
                os._exit(1)
        os.close(write)
        time.sleep(choose.random() * 0.03)
        os.kill(child, signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        with os.fdopen(read, "rb") as pipe:
            sent = pipe.read()
        if sent:
            acknowledged = struct.unpack("<I", sent[-4:])[0]
        with (place / str(histories)).open() as store:
            session = store.open("chat", FINGERPRINT, keep_text=True)
            assert session.state.revision in (acknowledged, acknowledged + 1)
            model.check(session, replayed(session.state.revision))
            assert store.verify() == []
            acknowledged = session.state.revision


@pytest.mark.ci
@pytest.mark.unsanitized
@pytest.mark.parametrize("places", KINDS, indirect=True)
def test_processes_append_to_one_store(place: Place) -> None:
    """To one session, where each retries what conflicts, and each to one of its own."""
    processes, appends = 4, 40
    children = []
    for process in range(processes):
        child = os.fork()
        if child == 0:
            try:
                store = place.open()
                shared = store.open("shared", FINGERPRINT)
                own = store.open(f"own {process}", FINGERPRINT)
                for k in range(appends):
                    own.append(change(k, f"{k} "))
                    ids = array("I", [process * appends + k]).tobytes()
                    while True:
                        try:
                            shared.append(Append(shared.state.revision, ids, b"x"))
                            break
                        except SessionRevisionConflict:
                            shared.refresh()
                os._exit(0)
            finally:
                os._exit(1)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * processes
    store = place.open()
    session = store.open("shared", FINGERPRINT)
    assert session.state.revision == processes * appends
    assert sorted(memoryview(session.ids()).cast("I")) == list(range(processes * appends))
    for process in range(processes):
        assert store.open(f"own {process}", FINGERPRINT).ids() == ids_of("".join(f"{k} " for k in range(appends)))
    assert store.verify() == []


@pytest.mark.unsanitized
def test_of_two_processes_that_race_one_wins_each_revision(place: Place) -> None:
    place.open().open("chat", FINGERPRINT)
    pipes = [os.pipe() for _ in range(2)]
    children = []
    for process, (_, write) in enumerate(pipes):
        child = os.fork()
        if child == 0:
            try:
                session = place.open().open("chat", FINGERPRINT)
                while session.state.revision < 60:
                    try:
                        won = session.append(change(session.state.revision, str(process)))
                        os.write(write, bytes([won]))
                    except SessionRevisionConflict:
                        session.refresh()
                os._exit(0)
            finally:
                os._exit(1)
        children.append(child)
        os.close(write)
    won = []
    for read, _ in pipes:
        with os.fdopen(read, "rb") as pipe:
            won.append(pipe.read())
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
    session = place.open().open("chat", FINGERPRINT)
    assert sorted(won[0] + won[1]) == list(range(1, session.state.revision + 1))
    assert session.ids() == ids_of("".join("0" if k in won[0] else "1" for k in range(1, session.state.revision + 1)))
    assert place.open().verify() == []


@pytest.mark.unsanitized
def test_a_fork_goes_on_with_the_store_on_both_sides(place: Place) -> None:
    store = place.open()
    session, own = store.open("chat", FINGERPRINT), store.open("own", FINGERPRINT)
    session.append(change(0, "before "))
    child = os.fork()
    if child == 0:
        try:
            for k in range(20):
                session.append(change(1 + k, f"child {k} "))
            os._exit(0)
        finally:
            os._exit(1)
    for k in range(20):
        own.append(change(k, f"parent {k} "))
    assert os.waitpid(child, 0)[1] == 0
    session.refresh()
    assert session.ids() == ids_of("before " + "".join(f"child {k} " for k in range(20)))
    assert own.ids() == ids_of("".join(f"parent {k} " for k in range(20)))


@pytest.mark.ci
@pytest.mark.unsanitized
@pytest.mark.parametrize("places", KINDS, indirect=True)
def test_processes_that_remember_stay_within_the_budget(place: Place) -> None:
    """Each evicts what the others remembered; no named session goes, and what is found is right."""
    named = place.open().open("named", FINGERPRINT)
    named.append(change(0, "n" * 9000))
    budget, children = 200_000, []
    for process in range(3):
        child = os.fork()
        if child == 0:
            try:
                store = place.open(budget_bytes=budget)
                for k in range(20):
                    text = f"{process} {k} " * 1000
                    store.remember(FINGERPRINT, [change(0, text)])
                    found = store.longest_prefix(text, FINGERPRINT)
                    assert found is None or found.ids == ids_of(text)
                    assert store.counters.failed_checks == 0
                os._exit(0)
            finally:
                os._exit(1)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 3
    store = place.open(budget_bytes=budget)
    held = [info.held_bytes for info in store.sessions() if info.name is None]
    assert 0 < sum(held) <= budget
    assert named.ids() == ids_of("n" * 9000)
    assert store.verify() == []


@pytest.mark.parametrize("places", ["redis", "redis-cluster"], indirect=True)
def test_a_session_that_is_evicted_before_it_is_there_is_listed_all_the_same(place: Place) -> None:
    """Its bytes count from the moment it is listed, so that another may choose it."""
    store, other = place.open(), place.open()
    write = store._sessions.write

    def evicted_first(*arguments: Any) -> None:
        assert len(other.evict(0)) == 1
        write(*arguments)

    store._sessions.write = evicted_first
    store.remember(FINGERPRINT, [change(0, "one " * 1000)])
    assert other.verify() == []
    assert [info.name for info in other.sessions()] == [None]


@pytest.mark.parametrize("places", ["redis", "redis-cluster"], indirect=True)
def test_a_session_that_is_written_while_it_is_evicted_goes_whole(place: Place) -> None:
    store, other = place.open(), place.open()
    write, drop = store._sessions.write, other._sessions.drop
    chosen, written = threading.Event(), threading.Event()

    def dropped(*arguments: Any, **more: Any) -> bool:
        there: bool = drop(*arguments, **more)
        chosen.set()
        assert written.wait(120)
        return there

    def written_late(*arguments: Any) -> None:
        evicting.start()
        assert chosen.wait(120)
        write(*arguments)

    store._sessions.write, other._sessions.drop = written_late, dropped
    evicting = threading.Thread(target=other.evict, args=(0,))
    store.remember(FINGERPRINT, [change(0, "one " * 1000)])
    written.set()
    evicting.join()
    assert place.open().verify() == []
    assert place.open().sessions() == []
