"""KV events over real sockets: what subscribers are told, early and late ones, and the end. Not here: replays."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.router.event_reader import events_of, full_blocks
from tests.router.event_sockets import ANY, PATIENCE, Subscriber, joined
from tests.support.material import ROOT
from toktier.errors import ConfigInvalid, EnvironmentFault
from toktier.router import kv_event_feed
from toktier.router.block_hashes import Identity
from toktier.router.kv_events import KvEvents

pytestmark = pytest.mark.usefixtures("unhurried_events")


@pytest.mark.parametrize("form", ["array", "map"])
def test_e4_slots_become_events(context: zmq.Context[Any], form: str) -> None:
    ids = list(range(100, 164))
    with KvEvents(ANY, topic="kv@{upstream}", block_size=16, form=form) as events:
        subscriber = joined(context, events)
        events.slot_now(0, 3, ids[:50])
        (stored,) = subscriber.read()
        assert stored["token_ids"] == ids[:48]
        assert stored["parent_block_hash"] is None
        events.slot_now(0, 3, np.array(ids, dtype=np.int32))
        (more,) = subscriber.read()
        assert more["token_ids"] == ids[48:]
        assert more["parent_block_hash"] == stored["block_hashes"][-1]
        events.slot_now(0, 3, ids[:40])
        (removed,) = subscriber.read()
        assert removed["block_hashes"] == [*more["block_hashes"], stored["block_hashes"][2]]
        events.clear(0)
        removed, cleared = subscriber.read()
        assert removed["block_hashes"] == stored["block_hashes"][1::-1]
        assert cleared["type"] == "AllBlocksCleared"
        assert subscriber.topics == {b"kv@0"}
    numbers = [number for number, _ in subscriber.batches]
    assert numbers == list(range(numbers[0], numbers[0] + 5))


def test_each_upstream_has_an_endpoint_of_its_own(context: zmq.Context[Any]) -> None:
    with KvEvents(ANY, block_size=2, upstreams=2) as events:
        first, second = joined(context, events, 0), joined(context, events, 1)
        events.slot_now(1, 0, [1, 2])
        events.slot_now(0, 0, [3, 4])
        first.read_until_it_holds([[3, 4]], 2)
        second.read_until_it_holds([[1, 2]], 2)
        events.clear(0)
        first.read_until_it_holds([], 2)
        events.slot_now(1, 1, [5, 6])
        second.read_until_it_holds([[1, 2], [5, 6]], 2)
    # Now that nothing is counted any more: a batch is, when it was sent, and may have been read before.
    of_each = [upstream["batches"] for upstream in events.stats()["upstreams"]]
    assert events.counters()["batches"] == sum(of_each) > max(of_each)
    assert events.counters()["failed"] == 0


STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.none() | st.lists(st.integers(0, 1), max_size=9)) | st.just("clear"), max_size=12
)


@settings(deadline=None, max_examples=15)
@given(STEPS)
def test_law_a_subscriber_ends_with_what_the_slots_hold(steps: list[Any]) -> None:
    """However many contents were replaced before they were published."""
    context: zmq.Context[Any] = zmq.Context()
    try:
        with KvEvents(ANY, block_size=2) as events:
            subscriber = joined(context, events)
            slots: dict[int, list[int]] = {}
            for step in steps:
                if step == "clear":
                    slots.clear()
                    events.clear(0)
                else:
                    slots[step[0]] = step[1] or []
                    events.slot_now(0, *step)
            marker = [9, 9, 9, 9]
            slots[7] = marker
            events.slot_now(0, 7, marker)
            subscriber.read_until(lambda index: tuple(marker) in index.prefixes)
            assert subscriber.index.prefixes == full_blocks(list(slots.values()), 2)
    finally:
        context.destroy(linger=0)


def test_a_late_subscriber_is_told_everything_without_asking(
    context: zmq.Context[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kv_event_feed, "ANNOUNCEMENT_INTERVAL", 0.0)
    with KvEvents(ANY, block_size=2) as events:
        early = joined(context, events)
        events.slot_now(0, 0, [1, 2, 3, 4])
        events.slot_now(0, 1, [1, 2, 5, 6])
        early.read_until_it_holds([[1, 2, 3, 4], [1, 2, 5, 6]], 2)
        late = joined(context, events)
        assert late.index.blocks == early.index.blocks
        assert early.read()[0]["type"] == "AllBlocksCleared"
        assert early.index.blocks == late.index.blocks
        events.slot_now(0, 1, None)
        late.read_until_it_holds([[1, 2, 3, 4]], 2)


def test_many_new_subscribers_cause_few_announcements(context: zmq.Context[Any]) -> None:
    begun = time.monotonic()
    with KvEvents(ANY, block_size=2) as events:
        first = joined(context, events)
        others = [Subscriber(context, events.endpoints[0][0]) for _ in range(20)]
        events.slot_now(0, 0, [1, 2])
        for one in [first, *others]:
            one.read_until_it_holds([[1, 2]], 2)
        # The sockets know a subscription before it is counted: its first batch may come between.
        counters = events.stats()["upstreams"][0]
        while counters["subscriptions"] < 21:
            assert time.monotonic() < begun + PATIENCE / 1000
            time.sleep(0.001)
            counters = events.stats()["upstreams"][0]
        assert counters["subscriptions"] == 21
        # At the start, for the first, and mostly one a second later for all others: more only where they came later.
        assert counters["announcements"] <= 2 + (time.monotonic() - begun) / kv_event_feed.ANNOUNCEMENT_INTERVAL


def test_a_second_subscriber_in_a_while_causes_no_announcement(
    context: zmq.Context[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kv_event_feed, "ANNOUNCEMENT_INTERVAL", 1e9)
    with KvEvents(ANY, block_size=1) as events:
        first = joined(context, events)
        second = Subscriber(context, events.endpoints[0][0])
        counters: dict[str, int] = {}
        step = 0
        while counters.get("subscriptions") != 2 or step < 2:
            events.slot_now(0, step % 2, [step])
            first.read()
            counters, step = events.stats()["upstreams"][0], step + 1
        events.slot_now(0, 0, [])
        first.read()
        assert events_of(second.receive())
        assert events.stats()["upstreams"][0]["announcements"] == 2  # at the start, and for the first


def test_without_subscribers_nothing_waits_but_the_latest_contents() -> None:
    events = KvEvents(ANY, block_size=2)
    for step in range(1000):
        events.slot_now(0, step % 4, [step, step])
    assert len(events._mail[0].slots) == 4
    assert events.stats()["superseded"] == 996
    events.close()


def test_a_publisher_that_begins_anew_goes_on_with_higher_numbers(
    context: zmq.Context[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kv_event_feed, "LINGER", PATIENCE)
    with KvEvents(ANY, block_size=2) as events:
        events.slot_now(0, 0, [1, 2])
        endpoint = events.endpoints[0][0]
        subscriber = Subscriber(context, endpoint)
        subscriber.read_until_it_holds([[1, 2]], 2)
    subscriber.read_until_it_holds([], 2)
    with KvEvents(endpoint, block_size=2) as events:
        events.slot_now(0, 0, [3, 4])
        subscriber.read_until_it_holds([[3, 4]], 2)
    numbers = [number for number, _ in subscriber.batches]
    assert numbers == sorted(set(numbers))


def test_closing_tells_that_all_is_cleared_and_takes_no_more(
    context: zmq.Context[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kv_event_feed, "LINGER", PATIENCE)
    events = KvEvents(ANY, block_size=2)
    events.start()
    subscriber = joined(context, events)
    events.slot_now(0, 0, [1, 2])
    subscriber.read_until_it_holds([[1, 2]], 2)
    events.close()
    events.slot_now(0, 0, [3, 4])
    events.clear(0)
    events.close()
    assert [event["type"] for event in subscriber.read()] == ["BlockRemoved", "AllBlocksCleared"]
    assert events.stats()["failure"] is None
    assert not any(thread.name == "toktier-kv-events" for thread in threading.enumerate())
    with pytest.raises(RuntimeError):
        events.start()


def test_closing_what_was_never_started() -> None:
    KvEvents(ANY).close()


def test_it_ends_where_a_subscriber_leaves_at_the_same_moment_and_leaves_no_descriptor(
    context: zmq.Context[Any],
) -> None:
    def once() -> None:
        with KvEvents(ANY, ANY, upstreams=2) as events:
            joined_here = Subscriber(context, events.endpoints[0][0])
            joined_here.read()
            joined_here._socket.close(0)
        assert events._thread is not None
        assert not events._thread.is_alive()

    once()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        once()
    begun = time.monotonic()
    while len(os.listdir("/proc/self/fd")) > before + 2:  # sockets of the reader close in their own time
        assert time.monotonic() < begun + PATIENCE / 1000
        time.sleep(0.01)


def test_garbage_on_the_sockets_ends_nothing(context: zmq.Context[Any]) -> None:
    with KvEvents(ANY, ANY, block_size=2) as events:
        for endpoint in events.endpoints[0]:
            assert endpoint is not None
            host, port = endpoint.removeprefix("tcp://").split(":")
            with socket.create_connection((host, int(port))) as raw:
                raw.sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(4096))
        subscriber = joined(context, events)
        events.slot_now(0, 0, [1, 2])
        subscriber.read_until_it_holds([[1, 2]], 2)


def test_an_endpoint_in_use_is_refused_and_nothing_is_left(context: zmq.Context[Any]) -> None:
    taken = context.socket(zmq.PUB)
    port = taken.bind_to_random_port("tcp://127.0.0.1")
    with pytest.raises(EnvironmentFault, match="in use") as caught:
        KvEvents(ANY, f"tcp://127.0.0.1:{port}").start()
    assert caught.value.remedy


@pytest.mark.parametrize(
    "endpoint",
    ["", "5557", "127.0.0.1:5557", "tcp://127.0.0.1", "tcp://127.0.0.1:0x1", "tcp://h:65536", "tcp://h:65535",
     "tcp://h:1;2", "ipc://", "udp://127.0.0.1:1", "tcp://::1:5557", "tcp://127.0.0.1:5557\x1b[31m"],
)  # fmt: skip
def test_an_endpoint_of_another_shape_is_refused(endpoint: str) -> None:
    with pytest.raises(ConfigInvalid, match="tcp://HOST:PORT") as caught:
        KvEvents(endpoint, upstreams=2)
    assert str(caught.value).isprintable()


def test_endpoints_follow_on_the_next_ports() -> None:
    events = KvEvents("tcp://127.0.0.1:5557", "tcp://[::1]:5657", upstreams=3)
    assert events.endpoints == [(f"tcp://127.0.0.1:{5557 + n}", f"tcp://[::1]:{5657 + n}") for n in range(3)]
    paths = KvEvents("ipc://events", upstreams=2).endpoints
    assert paths == [("ipc://events", None), ("ipc://events.1", None)]


def test_an_upstream_that_there_is_not() -> None:
    events = KvEvents(ANY, upstreams=2)
    with pytest.raises(ConfigInvalid, match="0 upstreams"):
        KvEvents(ANY, upstreams=0)
    for upstream in (-1, 2):
        with pytest.raises(ValueError, match="0 to 1"):
            events.slot_now(upstream, 0, [1])
        with pytest.raises(ValueError, match="0 to 1"):
            events.clear(upstream)


def test_ids_are_copied(context: zmq.Context[Any]) -> None:
    ids = np.array([1, 2], dtype=np.uint32)
    events = KvEvents(ANY, block_size=2)
    events.slot_now(0, 0, ids)
    ids[:] = 9
    with events:
        Subscriber(context, events.endpoints[0][0]).read_until_it_holds([[1, 2]], 2)


def test_a_thread_that_failed_says_so_and_the_caller_goes_on(
    context: zmq.Context[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    events = KvEvents(ANY, block_size=2)
    monkeypatch.setattr(events._feeds[0].held, "slot_now", lambda *_: 1 / 0)
    events.start()
    thread = events._thread
    assert thread is not None
    events.slot_now(0, 0, [1, 2])
    thread.join(PATIENCE / 1000)
    assert events.failure == "ZeroDivisionError"
    assert events.counters()["failed"] == 1
    events.slot_now(0, 0, [1, 2])
    events.close()
    assert events.stats()["failure"] == "ZeroDivisionError"


def test_a_salt_reaches_events_and_hashes(context: zmq.Context[Any]) -> None:
    keys = []
    for identity in (Identity(), Identity(cache_salt="tenant")):
        with KvEvents(ANY, block_size=2, form="map", identity=identity) as events:
            subscriber = joined(context, events)
            events.slot_now(0, 0, [1, 2])
            (stored,) = subscriber.read()
            assert stored.get("cache_salt") == identity.cache_salt
            keys += stored["block_hashes"]
    assert keys[0] != keys[1]


def test_the_example_of_the_guide_runs(tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "kv-events.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    ran = subprocess.run([sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("tcp://127.0.0.1:") == 4
    assert ran.stdout.strip().endswith("None")
