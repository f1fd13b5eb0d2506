"""What requests and the background thread share: waits are bounded, who failed is not asked, nothing is left open."""

from __future__ import annotations

import threading
import time
from typing import Any, cast

import pytest

from toktier.cache.second_level_exchange import Exchange
from toktier.cache.second_level_state import MAX_CONNECTIONS, State, Task, Write

SOON = 60.0  # seconds that no test needs
KEY = bytes(32)


class Closable:
    """In the place of a connection: nobody asks it."""

    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


def exchange() -> Exchange:
    return cast(Exchange, Closable())


def was_closed(one: Exchange) -> bool:
    return cast(Any, one).closed is True


def taken(state: State, seconds: float = SOON) -> Exchange | None:
    return state.take(time.monotonic() + seconds)


class Taker(threading.Thread):
    """Waits for a connection."""

    def __init__(self, state: State, seconds: float = SOON) -> None:
        super().__init__()
        self.state, self.seconds = state, seconds
        self.got: Exchange | None = None
        self.start()

    def run(self) -> None:
        self.got = taken(self.state, self.seconds)


@pytest.fixture
def state() -> State:
    return State(timeout=60.0, max_pending_writes=2)  # whose pauses outlast every test


def test_who_waits_makes_the_thread_open_a_connection_and_gets_it(state: State) -> None:
    taker = Taker(state)
    assert state.next_task() is Task.OPEN
    one = exchange()
    state.opened(one)
    taker.join()
    assert taker.got is one
    state.give(one)
    assert taken(state, 0) is one


def test_a_wait_ends_at_its_deadline_and_opens_the_breaker_where_there_is_no_connection_at_all(state: State) -> None:
    assert taken(state, 0.01) is None
    assert state.counters.timeouts == 1
    assert state.breaker.is_open
    assert taken(state) is None  # at once
    assert (state.counters.timeouts, state.counters.not_asked) == (1, 1)
    state.opened(exchange())  # it only was slow
    assert not state.breaker.is_open
    assert taken(state) is not None
    assert taken(state, 0.01) is None  # busy, which is no failure of the server
    assert not state.breaker.is_open


def test_a_failure_wakes_all_who_wait(state: State) -> None:
    state.opened(exchange())
    assert taken(state) is not None
    takers = [Taker(state) for _ in range(4)]
    while state._waiting < 4:
        time.sleep(0.001)
    state.failed("TIMEOUT")
    for taker in takers:
        taker.join()
        assert taker.got is None
    assert (state.counters.not_asked, state.last_failure, state.breaker.opened) == (4, "TIMEOUT", 1)


def test_while_the_server_is_not_asked_the_thread_waits_for_the_probe(state: State) -> None:
    state.store(KEY, b"abcd")
    state.failed("TIMEOUT")
    got: list[object] = []
    thread = threading.Thread(target=lambda: got.append(state.next_task()))
    thread.start()
    thread.join(0.05)
    assert thread.is_alive()
    with state.lock:
        state.breaker._probe_at = time.monotonic()
        state._has_work.notify()
    thread.join()
    assert got == [Task.OPEN]
    state.not_opened("CONNECTION")
    assert state.breaker.is_open
    assert state.last_failure == "CONNECTION"


def test_never_more_connections_than_the_bound(state: State) -> None:
    some = [exchange() for _ in range(MAX_CONNECTIONS + 1)]
    for one in some:
        state.opened(one)
    assert state.live == MAX_CONNECTIONS
    assert [was_closed(one) for one in some] == [False] * MAX_CONNECTIONS + [True]
    for _ in range(MAX_CONNECTIONS):
        assert taken(state) is not None
    taker = Taker(state)
    while not state._waiting:
        time.sleep(0.001)
    state.store(KEY, b"abcd")
    assert isinstance(state.next_task(), Write)  # a connection more is not opened
    state.close(0.0)
    taker.join()
    assert taker.got is None


def test_a_lost_connection_takes_the_ready_ones_with_it(state: State) -> None:
    some = [exchange() for _ in range(3)]
    for one in some:
        state.opened(one)
    first = taken(state)
    assert first is not None
    state.drop(first)
    assert state.live == 2
    second = taken(state)
    assert second is not None
    state.drop(second, others=True)
    assert state.live == 0
    assert all(was_closed(one) for one in some)


def test_writes_come_in_order_and_the_oldest_are_dropped(state: State) -> None:
    for k in range(3):
        state.store(bytes([k]) * 32, bytes([k]) * 4)
    state.remove(KEY)  # no room for it
    assert [state.next_task(), state.next_task()] == [Write(bytes([k]) * 32, bytes([k]) * 4) for k in (1, 2)]
    assert state.pending.dropped == 1


def test_closing_lets_writes_be_done_until_then_and_leaves_no_connection(state: State) -> None:
    used, ready = exchange(), exchange()
    for one in (ready, used):
        state.opened(one)
    assert taken(state) is used
    state.store(KEY, b"abcd")
    taker = Taker(State(1.0, 1))
    state.close(time.monotonic() + SOON)
    assert was_closed(ready)
    assert state.next_task() == Write(KEY, b"abcd")
    assert state.next_task() is Task.END
    state.give(used)
    assert was_closed(used)
    assert state.live == 0
    state.store(KEY, b"late")
    assert (len(state.pending), state.pending.dropped) == (0, 1)
    assert taken(state) is None
    taker.state.close(0.0)
    taker.join()
    assert taker.got is None


@pytest.mark.parametrize("paused", [False, True])
def test_what_cannot_be_written_before_the_end_is_dropped(state: State, paused: bool) -> None:
    state.store(KEY, b"abcd")
    if paused:
        state.failed("TIMEOUT")
    state.close(time.monotonic() + (SOON if paused else 0))
    assert state.next_task() is Task.END
    assert (len(state.pending), state.pending.dropped) == (0, 1)
