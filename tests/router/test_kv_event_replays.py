"""Replays of KV events over real sockets: gaps, slow readers, heartbeats that show a gap, and askers of any kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import zmq

from tests.router.event_reader import Index
from tests.router.event_sockets import ANY, PATIENCE, joined, replayed
from toktier.errors import ConfigInvalid
from toktier.router import kv_event_feed
from toktier.router.kv_events import KvEvents

pytestmark = pytest.mark.usefixtures("unhurried_events")


def test_e7_a_gap_is_filled_by_the_same_batches_in_order(context: zmq.Context[Any]) -> None:
    with KvEvents(ANY, ANY, block_size=2) as events:
        subscriber = joined(context, events)
        for length in range(2, 22, 2):
            events.slot_now(0, 0, list(range(length)))
            subscriber.read()
        seen = subscriber.batches
        first = seen[4][0]
        assert replayed(context, events.endpoints[0][1], first) == seen[4:]
        assert replayed(context, events.endpoints[0][1], seen[-1][0] + 1) == []
        # A subscriber that missed the middle, as one does that was too slow.
        late = Index()
        for _, payload in [*seen[:4], *replayed(context, events.endpoints[0][1], first)]:
            late.apply(payload)
        assert late.blocks == subscriber.index.blocks
        assert events.stats()["upstreams"][0]["replays"] == 3


def test_whoever_asks_for_what_is_gone_is_told_everything(context: zmq.Context[Any]) -> None:
    with KvEvents(ANY, ANY, block_size=1, replay_batches=3) as events:
        subscriber = joined(context, events)
        for length in range(1, 12):
            events.slot_now(0, length % 2, list(range(length)))
            subscriber.read_until_it_holds([list(range(length)), list(range(length - 1))], 1)
        index = Index()
        batches = replayed(context, events.endpoints[0][1], 0)
        assert len(batches) <= 3
        for _, payload in batches:
            index.apply(payload)
        assert index.blocks == subscriber.index.blocks
        assert events.stats()["upstreams"][0]["announcements"] > 2


def test_a_subscriber_that_reads_nothing_holds_nobody_up_and_fills_its_gap(
    context: zmq.Context[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kv_event_feed, "SUBSCRIBER_BACKLOG", 2)
    with KvEvents(ANY, ANY, block_size=1 << 12, replay_bytes=1 << 30) as events:
        slow = context.socket(zmq.SUB)
        slow.setsockopt(zmq.RCVHWM, 1)
        slow.setsockopt(zmq.RCVBUF, 4096)
        slow.setsockopt(zmq.RCVTIMEO, PATIENCE)
        slow.subscribe(b"")
        slow.connect(events.endpoints[0][0])
        assert slow.recv_multipart()
        subscriber = joined(context, events)
        for step in range(150):  # of 160 kB each: more than kernels keep for a connection
            events.slot_now(0, 0, np.full(1 << 15, 1 << 30 | step, dtype=np.uint32))
            subscriber.read_until_it_begins_with(1 << 30 | step)
        index, last, gaps = Index(), None, 0
        while last != subscriber.batches[-1][0]:
            # What the slow one lost at the end shows with the next batch.
            events.slot_now(0, 1, [] if len(subscriber.index.blocks) > 8 else np.arange(1 << 12))
            subscriber.read()
            while slow.poll(50):
                _, number, payload = slow.recv_multipart()
                told = int.from_bytes(number, "big")
                missed = [(told, payload)]
                if last is not None and told != last + 1:
                    gaps += 1
                    missed = replayed(context, events.endpoints[0][1], last + 1)
                for number_again, payload in missed:
                    if last is None or number_again > last:
                        index.apply(payload)
                        last = number_again
        assert gaps
        assert index.blocks == subscriber.index.blocks


@pytest.mark.parametrize("replay", [None, ANY])
def test_a_quiet_feed_beats_and_announces_where_nobody_can_ask(
    context: zmq.Context[Any], monkeypatch: pytest.MonkeyPatch, replay: str | None
) -> None:
    monkeypatch.setattr(kv_event_feed, "HEARTBEAT", 0.01)
    with KvEvents(ANY, replay, block_size=2) as events:
        subscriber = joined(context, events)
        events.slot_now(0, 0, [1, 2])
        kinds = []
        for _ in range(200):
            kinds.append([event["type"] for event in subscriber.read()])
        told = kinds.index(["BlockStored"])
        assert not any(kinds[:told])
        again = [["AllBlocksCleared", "BlockStored"]] if replay is None else []
        assert [kind for kind in kinds[told + 1 :] if kind] == again
        numbers = [number for number, _ in subscriber.batches]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        assert subscriber.index.prefixes == {(1, 2)}


@pytest.mark.parametrize(
    "request_frames",
    [[b"", b""], [b"", b"1234567"], [b"x", bytes(8)], [b""], [b"", bytes(8), b"more"], [bytes(8)]],
)
def test_a_request_of_another_shape_is_counted_and_not_answered(
    context: zmq.Context[Any], request_frames: list[bytes]
) -> None:
    with KvEvents(ANY, ANY, block_size=2) as events:
        endpoint = events.endpoints[0][1]
        assert endpoint is not None
        reader = context.socket(zmq.DEALER)
        reader.connect(endpoint)
        reader.send_multipart(request_frames)
        reader.send_multipart([b"", (0).to_bytes(8, "big")])
        reader.setsockopt(zmq.RCVTIMEO, PATIENCE)
        _, number, _ = reader.recv_multipart()  # of the second request
        assert number != (-1).to_bytes(8, "big", signed=True)
        assert events.stats()["upstreams"][0]["bad_requests"] == 1
        assert events.stats()["failure"] is None


def test_whoever_asks_and_never_reads_is_cut(context: zmq.Context[Any]) -> None:
    with KvEvents(ANY, ANY, block_size=1024, replay_batches=2) as events:
        subscriber = joined(context, events)
        endpoint = events.endpoints[0][1]
        assert endpoint is not None
        # A replay of a megabyte: forty of them fit in no buffers, whatever comes first of what follows.
        events.slot_now(0, 0, np.arange(1 << 18))
        subscriber.read_until(lambda index: len(index.blocks) == 1 << 8)
        reader = context.socket(zmq.DEALER)
        reader.setsockopt(zmq.RCVHWM, 1)
        reader.setsockopt(zmq.RCVBUF, 4096)
        reader.connect(endpoint)
        for _ in range(40):
            reader.send_multipart([b"", (0).to_bytes(8, "big")])
        events.slot_now(0, 1, np.arange(1 << 10) + 1)
        subscriber.read_until(lambda index: len(index.blocks) == (1 << 8) + 1)
        while not events.stats()["upstreams"][0]["cut_replays"]:
            assert events.stats()["failure"] is None
            replayed(context, endpoint, 0)  # others are served meanwhile
        reader.close(0)


def test_replays_on_a_port_of_another_upstream_are_refused() -> None:
    KvEvents("tcp://127.0.0.1:5557", "tcp://127.0.0.1:5558", upstreams=1)
    with pytest.raises(ConfigInvalid, match="5558"):
        KvEvents("tcp://127.0.0.1:5557", "tcp://127.0.0.1:5558", upstreams=2)
