"""Servers that are away, hang, refuse, forget or lose a connection: a miss that is counted, or a clear error; never a
change made twice, and nothing acknowledged lost."""

from __future__ import annotations

import contextlib
import os
import random
import select
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sessions import model
from tests.sessions.model import FINGERPRINT, TEXT, change, remembered
from tests.sessions.redis_process import PASSWORD, RedisProcess, needed
from toktier.errors import (
    BackendUnavailable,
    EnvironmentFault,
    SessionRevisionConflict,
    StoreFormatUnsupported,
    ToktierError,
)
from toktier.sessions import redis_lookup
from toktier.sessions.redis_store import RedisStore


@pytest.fixture(autouse=True)
def _needs_server() -> None:
    needed()


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[RedisProcess]:
    process = RedisProcess(tmp_path / "durable", durable=True)
    yield process
    process.close()


def store_of(process: RedisProcess, name: str = "faults", timeout: float = 60.0) -> RedisStore:
    return RedisStore(process.url, namespace=f"{name}-{os.urandom(4).hex()}", timeout=timeout)


def assert_unavailable(error: ToktierError, refusal: str | None = None) -> None:
    assert error.code == "BACKEND_UNAVAILABLE"
    assert error.remedy
    assert error.__cause__ is None
    if refusal is not None:
        assert error.details["refusal"] == refusal


def test_a_server_that_is_away_is_an_error_for_named_sessions_and_a_miss_for_look_ups(tmp_path: Path) -> None:
    store = RedisStore(f"unix://{tmp_path}/nobody.sock")
    for ask in (lambda: store.open("chat", FINGERPRINT), store.sessions, lambda: store.remove("chat"), store.verify):
        with pytest.raises(BackendUnavailable) as caught:
            ask()
        assert_unavailable(caught.value, "CONNECTION")
    assert store.longest_prefix(TEXT, FINGERPRINT) is None
    assert (store.counters.misses, store.counters.unavailable, store.counters.failed_checks) == (1, 1, 0)
    assert store.longest_prefix("short: nobody is asked", FINGERPRINT) is None


def test_a_server_that_failed_a_look_up_is_not_asked_for_a_while(
    redis_process: RedisProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_of(redis_process)
    remembered(store, TEXT, 4096)
    asked = []

    def away(*_: object) -> None:
        asked.append(1)
        raise BackendUnavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(store._sessions.server, "run", away)
        for _ in range(5):
            assert store.longest_prefix(TEXT, FINGERPRINT) is None
            with pytest.raises(BackendUnavailable):
                store.remember(FINGERPRINT, [change(0, TEXT)])
    assert len(asked) == 1
    assert store.counters.unavailable == store.counters.misses == 5
    assert store.longest_prefix(TEXT, FINGERPRINT) is None  # still
    assert store.open("chat", FINGERPRINT).append(change(0, "named sessions are asked for at once")) == 1
    later = time.monotonic() + 1000
    monkeypatch.setattr(redis_lookup.time, "monotonic", lambda: later)
    assert store.longest_prefix(TEXT, FINGERPRINT) is not None


def test_a_server_that_hangs_costs_the_timeout(redis_process: RedisProcess) -> None:
    store = store_of(redis_process, timeout=2.0)  # which opening and appending do not take
    session = store.open("chat", FINGERPRINT)
    session.append(change(0, "abc"))
    redis_process.hang()
    try:
        for ask in (lambda: session.append(change(1, "def")), session.ids, lambda: store.open("x", FINGERPRINT)):
            with pytest.raises(BackendUnavailable) as caught:
                ask()
            assert_unavailable(caught.value, "TIMEOUT")
        assert store.longest_prefix(TEXT, FINGERPRINT) is None
        assert store.counters.unavailable == 1
    finally:
        redis_process.go_on()
    patient = RedisStore(redis_process.url, namespace=store._sessions.keys.prefix[:-1], timeout=60)
    again = patient.open("chat", FINGERPRINT)
    assert again.state.revision in (1, 2)  # what was sent is done when the server goes on, or is not
    assert again.ids() == model.ids_of("abcdef"[: 3 * again.state.revision])
    assert patient.verify() == []


@pytest.mark.parametrize("written", ["0ther-s3cret", PASSWORD + "x", ""])
def test_a_wrong_password_is_named_and_never_shown(tmp_path: Path, written: str) -> None:
    process = RedisProcess(tmp_path / "locked", "--requirepass", PASSWORD)
    try:
        before = f":{written}@" if written else ""
        url = process.url.replace("unix://", f"unix://{before}")
        store = RedisStore(url, timeout=60)
        for ask in (lambda: store.open("chat", FINGERPRINT), store.sessions):
            with pytest.raises(BackendUnavailable, match="credentials") as caught:
                ask()
            assert_unavailable(caught.value)
            shown = (
                f"{caught.value.to_dict()} {caught.value!r} {caught.value.__context__!r} {store!r} {store._sessions!r}"
            )
            assert not written or written not in shown
        assert store.longest_prefix(TEXT, FINGERPRINT) is None
        assert store.counters.unavailable == 1
        right = RedisStore(process.url.replace("unix://", f"unix://:{PASSWORD}@"), timeout=60)
        assert right.open("chat", FINGERPRINT).state.revision == 0
        assert PASSWORD not in f"{right!r} {right._sessions.server!r} {right._sessions.server._address!r}"
    finally:
        process.close()


def test_a_restart_in_the_middle_is_not_noticed(durable: RedisProcess) -> None:
    store = store_of(durable)
    session = store.open("chat", FINGERPRINT, keep_text=True)
    remembered(store, TEXT, 4096)
    for k in range(6):
        session.append(change(k, f"part {k} "))
        durable.kill()
        durable.start()
    expected = "".join(f"part {k} " for k in range(6))
    assert session.ids() == model.ids_of(expected)
    assert session.text() == expected.encode()
    assert store.longest_prefix(TEXT, FINGERPRINT) is not None
    assert store.verify() == []
    durable.kill()
    with pytest.raises(BackendUnavailable):
        session.append(change(6, "x"))
    durable.start()
    assert session.append(change(6, "x")) == 7


@pytest.mark.ci
def test_a_killed_server_loses_nothing_acknowledged(durable: RedisProcess) -> None:
    store = store_of(durable)
    session = store.open("chat", FINGERPRINT, keep_text=True)
    choose = random.Random(1)
    for _ in range(10):
        killer = threading.Timer(choose.random() * 0.05, durable.kill)
        killer.start()
        acknowledged = session.state.revision
        with contextlib.suppress(BackendUnavailable):
            while True:
                acknowledged = session.append(change(acknowledged, f"append {acknowledged} "))
        killer.join()
        durable.start()
        state = session.refresh()
        assert state.revision in (acknowledged, acknowledged + 1)
        expected = "".join(f"append {k} " for k in range(state.revision))
        assert (session.ids(), session.text()) == (model.ids_of(expected), expected.encode())
        assert store.verify() == []


class Lossy:
    """Stands between a client and a server, and can lose one answer with its connection."""

    def __init__(self, directory: Path, process: RedisProcess) -> None:
        self._target = process.url.removeprefix("unix://")
        self._path = str(directory / "lossy.sock")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self._path)
        self._listener.listen()
        self.lose: bytes | None = None  # the next answer to a request that holds this
        self.meanwhile = lambda: None
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"unix://{self._path}"

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server, contextlib.suppress(OSError):
            server.connect(self._target)
            request = b""
            while True:
                for ready in select.select([client, server], [], [])[0]:
                    data = ready.recv(1 << 20)
                    if not data:
                        return
                    if ready is client:
                        request += data
                        server.sendall(data)
                    elif self.lose is not None and self.lose in request:
                        self.lose = None
                        self.meanwhile()
                        return
                    else:
                        request = b""
                        client.sendall(data)

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def lossy(tmp_path: Path, redis_process: RedisProcess) -> Iterator[Lossy]:
    one = Lossy(tmp_path, redis_process)
    yield one
    one.close()


def test_a_lost_answer_is_no_second_append(lossy: Lossy) -> None:
    store = RedisStore(lossy.url, namespace=f"lost-{os.urandom(4).hex()}", timeout=60)
    lossy.lose = b"tkse"
    session = store.open("chat", FINGERPRINT)  # the making of it, too
    assert lossy.lose is None
    assert session.append(change(0, "abc", "tail")) == 1
    lossy.lose = b"tkse"
    assert session.append(change(1, "def")) == 2
    assert lossy.lose is None
    lossy.lose = b"tkse"
    assert session.replace(session.points()[0], change(2, "ghi"), before=b"abc") == 3
    assert session.ids() == model.ids_of("abcghi")
    assert session.refresh().revision == 3
    lossy.lose = b"tkse"
    remembered(store, TEXT, 4096)
    found = store.longest_prefix(TEXT, FINGERPRINT)
    assert found is not None
    assert found.ids == model.ids_of(TEXT[: found.text_bytes])
    assert store.verify() == []


def test_after_a_lost_answer_another_writer_is_a_conflict_that_says_so(
    lossy: Lossy, redis_process: RedisProcess
) -> None:
    name = f"lost-{os.urandom(4).hex()}"
    store = RedisStore(lossy.url, namespace=name, timeout=60)
    session = store.open("chat", FINGERPRINT)
    other = RedisStore(redis_process.url, namespace=name, timeout=60).open("chat", FINGERPRINT)

    def meanwhile() -> None:
        other.refresh()
        other.append(change(1, "other "))

    lossy.meanwhile, lossy.lose = meanwhile, b"tkse"
    with pytest.raises(SessionRevisionConflict, match="may be among what was written") as caught:
        session.append(change(0, "mine "))
    assert caught.value.details == {"expected": 0, "found": 2}
    session.refresh()
    assert session.ids() == model.ids_of("mine other ")


def dumped(process: RedisProcess, store: RedisStore) -> dict[str, bytes]:
    client = store._sessions.server._connected()
    return {key.decode(): client.dump(key) for key in client.keys(f"{store._sessions.keys.prefix}*")}


def test_a_history_that_was_lost_and_written_anew_is_a_conflict(redis_process: RedisProcess) -> None:
    """As a server leaves it behind that lost its last second: an equal revision, another text."""
    store = store_of(redis_process)
    session = store.open("chat", FINGERPRINT)
    session.append(change(0, "abc"))
    client = store._sessions.server._connected()
    before = dumped(redis_process, store)
    session.append(change(1, "lost"))
    for key, value in before.items():
        client.restore(key, 0, value, replace=True)
    other = store.open("chat", FINGERPRINT)
    other.append(change(1, "anew"))
    for attempt in (lambda: session.append(change(2, "x")), session.ids, session.points):
        with pytest.raises(SessionRevisionConflict):
            attempt()
    session.refresh()
    assert session.ids() == model.ids_of("abcanew")


@pytest.mark.parametrize("edit", [False, True])
def test_a_full_server_refuses_and_nothing_is_changed(tmp_path: Path, edit: bool) -> None:
    process = RedisProcess(tmp_path / "full")
    try:
        store = store_of(process)
        session = store.open("chat", FINGERPRINT, keep_text=True)
        for k in range(3):
            session.append(change(k, f"part {k} " * 1000))
        before = dumped(process, store)
        process.command("CONFIG", "SET", "maxmemory", "1")
        point = session.points()[0 if edit else -1]
        with pytest.raises(EnvironmentFault, match="no memory") as caught:
            session.replace(point, change(3, "y" * 9000))
        assert caught.value.details["refusal"] == "OOM"
        with pytest.raises(EnvironmentFault):
            remembered(store, TEXT, 4096)
        process.command("CONFIG", "SET", "maxmemory", "0")
        assert dumped(process, store) == before
        assert session.append(change(3, "y")) == 4
        assert store.verify() == []
    finally:
        process.close()


@pytest.mark.parametrize(("command", "arguments"), [
    ("SET", ("not a session",)), ("SET", ("",)), ("RPUSH", ("a", "b")), ("HSET", ("a", "b")), ("SADD", ("a",)),
])  # fmt: skip
def test_a_key_of_somebody_else_is_neither_read_nor_changed(
    redis_process: RedisProcess, command: str, arguments: tuple[str, ...]
) -> None:
    store = store_of(redis_process)
    session = store.open("chat", FINGERPRINT)
    store.remove("chat")
    key = store._sessions.keys.state(b"n" + model_key("chat"))
    redis_process.command(command, key, *arguments)
    before = dumped(redis_process, store)
    for attempt in (lambda: store.open("chat", FINGERPRINT), lambda: store.remove("chat")):
        with pytest.raises(StoreFormatUnsupported) as caught:
            attempt()
        assert caught.value.remedy
    with pytest.raises(ToktierError):
        session.append(change(0, "x"))
    assert dumped(redis_process, store) == before
    assert store.sessions() == []


def model_key(name: str) -> bytes:
    from toktier.sessions import chains

    return chains.name_key(name.encode())


def test_a_version_to_come_is_refused(redis_process: RedisProcess) -> None:
    store = store_of(redis_process)
    store.open("chat", FINGERPRINT).append(change(0, "abc"))
    key = store._sessions.keys.state(b"n" + model_key("chat"))
    redis_process.command("SETRANGE", key, "4", "\x02")
    with pytest.raises(StoreFormatUnsupported, match="format 2") as caught:
        store.open("chat", FINGERPRINT)
    assert caught.value.details["expected"] == 1


def test_without_the_extra_the_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(BackendUnavailable, match="redis") as caught:
        RedisStore("redis://localhost")
    assert caught.value.details == {"distribution": "redis", "extra": "redis"}
    assert caught.value.remedy == "pip install 'redis>=6'"


def test_scripts_that_the_server_forgot_are_told_again(redis_process: RedisProcess) -> None:
    store = store_of(redis_process)
    session = store.open("chat", FINGERPRINT)
    remembered(store, TEXT, 4096)
    remembered(store, TEXT[:20_000], 5000)
    redis_process.command("SCRIPT", "FLUSH")
    session.append(change(0, "abc"))
    redis_process.command("SCRIPT", "FLUSH")
    assert session.ids() == model.ids_of("abc")
    redis_process.command("SCRIPT", "FLUSH")
    assert store.longest_prefix(TEXT, FINGERPRINT) is not None
    assert store.counters.unavailable == 0


def test_a_replica_is_no_place_to_write(tmp_path: Path) -> None:
    process = RedisProcess(tmp_path / "replica", "--replicaof", "127.0.0.1", "1")
    try:
        with pytest.raises(BackendUnavailable, match="replica") as caught:
            store_of(process).open("chat", FINGERPRINT)
        assert_unavailable(caught.value)
    finally:
        process.close()


def test_a_cluster_that_is_away_is_unavailable() -> None:
    store = RedisStore("redis+cluster://127.0.0.1:1", timeout=1)
    with pytest.raises(BackendUnavailable) as caught:
        store.open("chat", FINGERPRINT)
    assert_unavailable(caught.value)
    assert store.longest_prefix(TEXT, FINGERPRINT) is None
    assert store.counters.unavailable == 1
