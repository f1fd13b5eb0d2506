"""What a Redis store asks of its server: round trips, and bytes that do not grow with a session."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.sessions import model
from tests.sessions.model import FINGERPRINT, TEXT, change, remembered
from tests.sessions.redis_process import RedisProcess, needed
from toktier.errors import EnvironmentFault
from toktier.sessions import redis_lookup, redis_sessions
from toktier.sessions.redis_store import RedisStore


@pytest.fixture
def store(redis_process: RedisProcess) -> RedisStore:
    needed()
    return RedisStore(redis_process.url, namespace=f"costs-{os.urandom(4).hex()}", timeout=60)


@pytest.fixture
def trips(store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], int]:
    """Round trips of an action, the second time: the server knows the scripts then."""
    server = store._sessions.server
    attempt = server._attempt
    count = 0

    def counted(send: Callable[[object], object]) -> object:
        nonlocal count
        count += 1
        return attempt(send)

    monkeypatch.setattr(server, "_attempt", counted)

    def measure(action: Callable[[], object]) -> int:
        nonlocal count
        count = 0
        action()
        return count

    return measure


def test_an_append_is_one_round_trip_whatever_it_passes(
    store: RedisStore, trips: Callable[[Callable[[], object]], int]
) -> None:
    session = store.open("chat", FINGERPRINT)
    for k in range(20):
        text = "x" * (1000 * k)  # with marks and without
        assert trips(lambda text=text, k=k: session.append(change(k, text, "tail"))) == 1
    assert trips(lambda: store.open("chat", FINGERPRINT)) == 1
    assert trips(session.refresh) == 1
    assert trips(session.ids) == 1
    assert trips(lambda: session.last_point("tokens", 5000)) == 1
    point = session.points()[5]
    before = b"x" * 2000
    assert trips(lambda: session.replace(point, change(20, "y" * 9000), before=before)) == 2
    assert store.verify() == []


def test_a_look_up_is_three_round_trips_and_one_for_each_doubling(
    store: RedisStore, trips: Callable[[Callable[[], object]], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_lookup, "TOUCH_NANOSECONDS", 1 << 62)  # a hit is noted, in trips more, a second later
    remembered(store, TEXT, 5000)
    assert trips(lambda: store.longest_prefix("x" * 9000, FINGERPRINT)) == 1
    assert trips(lambda: store.longest_prefix("x" * 4000, FINGERPRINT)) == 0
    assert trips(lambda: store.longest_prefix(TEXT, FINGERPRINT)) == 3
    remembered(store, TEXT * 30, 5000)  # 1.2 MB: 64 marks, 128, 256
    assert trips(lambda: store.longest_prefix(TEXT * 30, FINGERPRINT)) <= 3 + 2 + 1
    assert store.counters.hits == 2


def test_what_an_append_sends_does_not_grow_with_the_session(store: RedisStore) -> None:
    session = store.open("chat", FINGERPRINT)
    client = store._sessions.server._connected()

    def sent() -> int:
        before = client.info("stats")["total_net_input_bytes"]
        session.append(change(session.state.revision, "x" * 256))
        return int(client.info("stats")["total_net_input_bytes"] - before)

    session.append(change(0, "x" * 1024))
    first = sent()
    session.append(change(session.state.revision, "x" * (1024 * 1000 - 256)))
    assert abs(sent() - first) < 100
    assert session.ids() == model.ids_of("x" * (session.state.text_bytes))


def test_a_step_that_no_server_takes_is_refused(store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
    session = store.open("chat", FINGERPRINT)
    monkeypatch.setattr(redis_sessions, "LARGEST_BYTES", 10_000)
    with pytest.raises(EnvironmentFault, match="more than") as caught:
        session.append(change(0, "x" * 10_000))
    assert caught.value.details["most"] == 10_000
    assert session.append(change(0, "x" * 2000), change(0, "x" * 2000)) == 1


def test_long_histories_are_read_in_parts(store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_sessions, "READ_STEPS", 64)
    session = store.open("chat", FINGERPRINT, keep_text=True)
    session.append(*[change(0, f"{k} " * (1 + k % 50)) for k in range(500)])
    text = "".join(f"{k} " * (1 + k % 50) for k in range(500))
    assert session.ids() == model.ids_of(text)
    assert session.text() == text.encode()
    assert len(session.points()) == 500
    assert store.verify() == []
