"""A server that is away, hangs, forgets, refuses or talks nonsense: a miss that is counted, never an error, never a
wrong id; and what it costs is bounded by structure: at most one time-out for a thread and a pause."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.sessions.redis_process import PASSWORD, RedisProcess, needed
from tests.support.second_levels import PATIENT, Shared, balanced, ids_of, keys_of, stored, until, written
from toktier.cache.second_level import RedisSecondLevel
from toktier.cache.second_level_script import find
from toktier.errors import ToktierWarning

TIMEOUT = 0.05


@pytest.fixture
def process(tmp_path: Path) -> Iterator[RedisProcess]:
    needed()
    one = RedisProcess(tmp_path / "server")
    yield one
    one.close()


@pytest.fixture
def shared(process: RedisProcess) -> Iterator[Shared]:
    one = Shared(process)
    yield one
    one.close()


def back(level: RedisSecondLevel, keys: list[bytes]) -> None:
    """Waits until the server is asked again, whatever the answer."""
    until(lambda: level.lookup(keys) is not None or not level.stats()["paused"])


def test_a_server_that_hangs_costs_a_time_out_in_a_pause_and_is_found_again(shared: Shared) -> None:
    level = shared.level(timeout=TIMEOUT)
    keys = keys_of("hangs")
    stored(level, keys)
    until(lambda: level.lookup(keys) == (0, ids_of(keys[0])))
    before = level.stats()
    shared.process.hang()
    try:
        least = time.monotonic() + 1  # longer than the first pause

        def asked_in_vain() -> bool:
            assert level.lookup(keys) is None
            return time.monotonic() > least and level.stats()["not_asked"] - before["not_asked"] > 100

        until(asked_in_vain)
        stats = level.stats()
        timeouts, pauses = (stats[name] - before[name] for name in ("timeouts", "pauses"))
        assert timeouts == pauses >= 1
        assert pauses <= 3  # a probe is not answered either, so it stays at the first one but for a busy host
        assert stats["not_asked"] - before["not_asked"] > timeouts
        assert stats["last_failure"] == "TIMEOUT"
        assert balanced(stats)
    finally:
        shared.process.go_on()
    until(lambda: level.lookup(keys) == (0, ids_of(keys[0])))


@pytest.mark.usefixtures("patient")  # the look-ups time out, and no probe before them
def test_threads_that_wait_together_fail_together(shared: Shared) -> None:
    level = shared.level(timeout=2.0)  # no thread is kept from its turn for so long while others have theirs
    keys = keys_of("together")
    until(lambda: level.lookup(keys) is None and level.stats()["misses"] > 0)
    before = level.stats()
    shared.process.hang()
    found = []

    def ask() -> None:
        while not level.stats()["paused"]:
            found.append(level.lookup(keys))
        found.extend(level.lookup(keys) for _ in range(20))

    threads = [threading.Thread(target=ask) for _ in range(16)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        shared.process.go_on()
    assert set(found) == {None}
    stats = level.stats()
    assert stats["pauses"] > before["pauses"]
    assert stats["timeouts"] - before["timeouts"] <= 16 * (stats["pauses"] - before["pauses"])
    assert stats["connections"] <= 8
    assert balanced(stats)


def test_writes_to_a_server_that_hangs_stay_within_their_bound_and_never_wait(shared: Shared) -> None:
    level = shared.level(max_pending_writes=16)
    keys = keys_of("queue", 500)
    stored(level, keys[:1])
    shared.process.hang()
    try:
        for key in keys[1:]:
            level.store(key, ids_of(key, 1000))
            stats = level.stats()
            assert stats["pending"] <= 16
            assert stats["pending_bytes"] <= 16 * 4000
        assert stats["dropped"] >= 499 - 16 - 2
    finally:
        shared.process.go_on()
    until(lambda: level.stats()["pending"] == 0)
    stats = level.stats()
    assert stats["written"] + stats["write_errors"] + stats["dropped"] <= 500
    until(lambda: level.lookup(keys[-1:]) == (0, ids_of(keys[-1], 1000)))


@pytest.mark.usefixtures("patient")
def test_a_server_that_is_killed_and_started_again(shared: Shared) -> None:
    level = shared.level(timeout=0.3)
    keys = keys_of("killed", 2)
    stored(level, keys[:1])
    until(lambda: level.lookup(keys) is not None)
    shared.process.kill()
    for _ in range(100):
        assert level.lookup(keys) is None
    until(lambda: level.stats()["last_failure"] == "CONNECTION")  # a look-up may have given up before the probe did
    level.store(keys[1], ids_of(keys[1]))
    stats = level.stats()
    assert (stats["last_failure"], stats["connections"], stats["paused"]) == ("CONNECTION", 0, True)
    assert balanced(stats)
    shared.process.start()
    until(lambda: level.lookup(keys) == (1, ids_of(keys[1])))  # it forgot the first, the second was pending
    assert level.lookup(keys[:1]) is None


@pytest.mark.usefixtures("patient")
def test_a_restart_is_not_noticed_where_the_server_is_up_again_in_time(shared: Shared) -> None:
    level = shared.level()
    keys = keys_of("restarted")
    stored(level, keys)
    assert level.lookup(keys) is not None
    shared.process.kill()
    shared.process.start()
    assert level.lookup(keys) is None  # answered: it is not there
    stored(level, keys)
    assert level.lookup(keys) == (0, ids_of(keys[0]))
    with shared.client() as client:
        client.client_kill_filter(_type="normal", skipme=True)
    assert level.lookup(keys) == (0, ids_of(keys[0]))
    stats = level.stats()
    assert (stats["errors"], stats["pauses"], stats["write_errors"]) == (0, 0, 0)


@pytest.mark.ci
def test_under_load_whatever_happens_to_the_server_ids_are_exact(shared: Shared) -> None:
    levels = [shared.level(timeout=0.02, max_pending_writes=8) for _ in range(2)]
    keys = keys_of("load", 64)
    stop = threading.Event()
    wrong: list[Any] = []
    found = [0]

    def work(own: int) -> None:
        choose, level = random.Random(own), levels[own % 2]
        while not stop.is_set():
            some = choose.sample(keys, 8)
            got = level.lookup(some)
            if got is None:
                level.store(some[0], ids_of(some[0], 1000))
            elif got[1] != ids_of(some[got[0]], 1000):
                wrong.append(got)
            else:
                found[0] += 1
            if level.stats()["pending"] > 8:
                wrong.append("pending")
            time.sleep(0.0005)

    threads = [threading.Thread(target=work, args=(own,)) for own in range(6)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(3):
            time.sleep(0.2)
            shared.process.hang()
            time.sleep(0.2)
            shared.process.go_on()
            time.sleep(0.2)
            shared.process.kill()
            time.sleep(0.1)
            shared.process.start()
        before = found[0]
        until(lambda: found[0] > before)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not wrong
    assert all(balanced(level.stats()) for level in levels)


@pytest.mark.usefixtures("patient")
def test_nobody_there(tmp_path: Path) -> None:
    needed()
    level = RedisSecondLevel(f"unix://{tmp_path}/nobody.sock", timeout=PATIENT)
    keys = keys_of("nobody")
    assert level.lookup(keys) is None
    level.store(keys[0], ids_of(keys[0]))
    level.close()
    stats = level.stats()
    assert stats["last_failure"] == "CONNECTION"
    assert stats["written"] + stats["write_errors"] + stats["dropped"] <= 1
    assert (stats["pending"], stats["timeouts"]) == (0, 0)


@contextlib.contextmanager
def recorded_warnings() -> Iterator[list[warnings.WarningMessage]]:
    """Of all threads, but for what the collector finds that others left open."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", ResourceWarning)
        yield caught


def refused(level: RedisSecondLevel, words: set[str]) -> list[str]:
    """Looks up and stores while it is refused; gives what was warned of."""
    keys = keys_of("refused")
    breaker = level._state.breaker
    with recorded_warnings() as caught:
        for _ in range(3):
            assert level.lookup(keys) is None
            level.store(keys[0], ids_of(keys[0]))
            until(lambda: level.stats()["last_failure"] in words)
            with level._state.lock:
                breaker._probe_at = 0.0
                level._state._has_work.notify()
            until(lambda: breaker._probe_at != 0.0)  # probed, and refused again
        until(lambda: len(caught) > 0)  # it is said behind the probe
        stats = level.stats()
        assert stats["hits"] == 0
        assert stats["timeouts"] == 0
        assert balanced(stats)
    assert all(one.category is ToktierWarning for one in caught)
    return [str(one.message) for one in caught]


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("written_password", ["0ther-s3cret", ""])
def test_a_wrong_password_is_said_once_and_shown_nowhere(tmp_path: Path, written_password: str) -> None:
    needed()
    process = RedisProcess(tmp_path / "locked", "--requirepass", PASSWORD)
    try:
        credentials = f":{written_password}@" if written_password else ""
        shared = Shared(process)
        level = shared.level(process.url.replace("unix://", f"unix://{credentials}"))
        said = refused(level, {"NOAUTH", "WRONGPASS"})
        assert len(said) == 1
        shown = f"{said} {level!r} {level.stats()}"
        assert not written_password or written_password not in shown
        right = shared.level(process.url.replace("unix://", f"unix://:{PASSWORD}@"))
        keys = keys_of("right")
        stored(right, keys)
        assert right.lookup(keys) == (0, ids_of(keys[0]))
        assert PASSWORD not in f"{right!r} {right.stats()} {right._connector!r} {vars(right)}"
        level.close()
        right.close()
    finally:
        process.close()


@pytest.mark.usefixtures("patient")
def test_a_server_without_scripts_is_paused_and_said_once(tmp_path: Path) -> None:
    needed()
    process = RedisProcess(tmp_path / "bare", "--rename-command", "EVAL", "", "--rename-command", "EVALSHA", "")
    try:
        level = Shared(process).level()
        assert len(refused(level, {"ERR"})) == 1
        level.close()
    finally:
        process.close()


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(("rules", "words"), [
    ("+get +strlen +set +unlink ~*", {"NOPERM"}),
    ("+evalsha +eval +get +set +unlink ~*", {"NOPERM", "ERR"}),
    ("+@all ~{other}:*", {"NOPERM"}),
])  # fmt: skip
def test_a_user_who_may_not_is_said_once(shared: Shared, rules: str, words: set[str]) -> None:
    shared.process.command("ACL", "SETUSER", "cache", "reset", "on", ">pw", *rules.split())
    level = shared.level(shared.process.url.replace("unix://", "unix://cache:pw@"))
    assert len(refused(level, words)) == 1


@pytest.mark.usefixtures("patient")
def test_a_user_with_what_the_page_names_may(shared: Shared) -> None:
    rules = ["+evalsha", "+eval", "+strlen", "+get", "+set", "+unlink"]
    shared.process.command("ACL", "SETUSER", "cache", "reset", "on", ">pw", *rules, f"~{{{shared.prefix}}}:*")
    level = shared.level(shared.process.url.replace("unix://", "unix://cache:pw@"))
    keys = keys_of("allowed")
    stored(level, keys)
    assert level.lookup(keys) == (0, ids_of(keys[0]))


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("how", ["full", "replica"])
def test_a_server_that_takes_no_writes_still_answers(shared: Shared, how: str) -> None:
    level = shared.level()
    keys = keys_of("read only", 2)
    stored(level, keys[:1])
    if how == "full":
        shared.process.command("CONFIG", "SET", "maxmemory", "1")
    else:
        shared.process.command("REPLICAOF", "127.0.0.1", "1")
    level.store(keys[1], ids_of(keys[1]))
    until(lambda: level.stats()["last_failure"] is not None)
    stats = level.stats()
    assert (stats["write_errors"], stats["last_failure"]) == (1, {"full": "OOM", "replica": "READONLY"}[how])
    assert level.lookup(keys) == (0, ids_of(keys[0]))
    assert level.stats()["pauses"] == 0


def test_a_server_that_is_busy_with_a_script_is_asked_again_without_a_word(shared: Shared) -> None:
    level = shared.level(timeout=TIMEOUT)
    keys = keys_of("busy")
    stored(level, keys)
    until(lambda: level.lookup(keys) is not None)
    shared.process.command("CONFIG", "SET", "lua-time-limit", "1")

    def run_for_ever() -> None:
        with shared.client() as client, contextlib.suppress(redis.ResponseError):
            client.eval("while true do end", 0)

    endless = threading.Thread(target=run_for_ever)
    with recorded_warnings() as caught:
        endless.start()
        until(lambda: level.lookup(keys) is None and level.stats()["last_failure"] in ("BUSY", "TIMEOUT"))
        until(lambda: level.stats()["last_failure"] == "BUSY")
        assert level.stats()["paused"]
        until(lambda: shared.process.command("SCRIPT", "KILL").startswith(b"+OK"))
        endless.join()
    assert not caught
    until(lambda: level.lookup(keys) == (0, ids_of(keys[0])))


class Nonsense:
    """Listens, and treats each connection as it is told."""

    def __init__(self, directory: Path, how: str) -> None:
        self.url = f"unix://{directory}/nonsense.sock"
        self._how = how
        self._clients: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.url.removeprefix("unix://"))
        self._listener.listen()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client = self._listener.accept()[0]
            except OSError:
                return
            if self._how == "closes":
                client.close()
                continue
            self._clients.append(client)  # never read, unless it answers
            if self._how == "talks HTTP":
                client.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            elif self._how == "promises much":
                client.sendall(b"+OK\r\n+OK\r\n$999999999\r\n")
            elif self._how == "answers everything":
                client.sendall(b"+OK\r\n" * 50)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for client in self._clients:
            client.close()


@pytest.mark.parametrize("how", ["closes", "is silent", "talks HTTP", "promises much", "answers everything"])
def test_who_is_no_server_is_not_asked(tmp_path: Path, how: str) -> None:
    needed()
    server = Nonsense(tmp_path, how)
    try:
        level = RedisSecondLevel(server.url, timeout=TIMEOUT)
        keys = keys_of(how)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ToktierWarning)
            until(lambda: level.lookup(keys) is None and level.stats()["paused"])
            for _ in range(100):
                assert level.lookup(keys) is None
            level.close()
        stats = level.stats()
        assert stats["hits"] == 0
        assert stats["timeouts"] <= stats["pauses"]
        assert stats["connections"] == 0
        assert balanced(stats)
    finally:
        server.close()


class Interrupted(BaseException):
    """As KeyboardInterrupt, from a signal that the test sends itself."""


def test_a_signal_in_the_middle_of_a_look_up_leaves_no_answer_for_the_next(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    level = shared.level()
    keys = keys_of("signal", 2)
    stored(level, keys)
    assert level.lookup(keys[:1]) == (0, ids_of(keys[0]))

    def interrupt(*_: object) -> None:
        raise Interrupted

    def find_and_be_interrupted(*arguments: Any) -> Any:
        """The signal comes while the server is asked, however long it took to come here."""
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        return find(*arguments)

    former = signal.signal(signal.SIGALRM, interrupt)
    shared.process.hang()
    try:
        with monkeypatch.context() as patch:
            patch.setattr("toktier.cache.second_level.find", find_and_be_interrupted)
            with pytest.raises(Interrupted):
                level.lookup(keys[:1])
    finally:
        signal.signal(signal.SIGALRM, former)
        shared.process.go_on()
    assert level.lookup(keys[1:]) == (0, ids_of(keys[1]))
    assert level.stats()["connections"] == 1


def test_closing_beside_a_server_that_hangs_ends(shared: Shared) -> None:
    level = shared.level(timeout=TIMEOUT)
    keys = keys_of("closing", 10)
    stored(level, keys[:1])
    thread = level._upkeep._thread
    assert thread is not None
    shared.process.hang()
    try:
        for key in keys:
            level.store(key, ids_of(key))
        level.close()
        thread.join(120)
        assert not thread.is_alive()
        stats = level.stats()
        assert (stats["pending"], stats["connections"]) == (0, 0)
        assert stats["dropped"] + stats["write_errors"] >= 1
    finally:
        shared.process.go_on()


@pytest.mark.usefixtures("patient")
def test_a_process_that_can_start_no_thread_does_without(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    level = shared.level()
    keys = keys_of("no thread")

    def none(_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none)
        assert level.lookup(keys) is None
        level.store(keys[0], ids_of(keys[0]))
    assert (level.stats()["errors"], level.stats()["lookups"]) == (1, 1)
    stored(level, keys)
    assert level.lookup(keys) == (0, ids_of(keys[0]))


@pytest.mark.usefixtures("patient")
def test_no_file_is_left_open(shared: Shared) -> None:
    def open_files() -> set[tuple[str, str]]:
        """A number may be given again, together with what it is of it is not."""
        found = set()
        for number in os.listdir("/proc/self/fd"):
            with contextlib.suppress(FileNotFoundError):
                found.add((number, os.readlink(f"/proc/self/fd/{number}")))
        return found

    keys = keys_of("files")
    stored(shared.level(), keys)
    before = open_files()
    for _ in range(3):
        level = shared.level()
        assert level.lookup(keys) is not None
        level.store(keys[0], ids_of(keys[0]))
        written(level)
        level.close()
    until(lambda: open_files() <= before)  # those of others may close meanwhile
