"""Subscribers and askers of KV events over real sockets, for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import zmq

from tests.router.event_reader import Index, events_of, full_blocks
from toktier.router.kv_events import KvEvents

ANY = "tcp://127.0.0.1:*"
PATIENCE = 180_000  # milliseconds after which something that is waited for counts as missing


class Subscriber:
    def __init__(self, context: zmq.Context[Any], endpoint: str, topic: str = "") -> None:
        self._socket = context.socket(zmq.SUB)
        self._socket.setsockopt(zmq.RCVTIMEO, PATIENCE)
        self._socket.setsockopt_string(zmq.SUBSCRIBE, topic)
        self._socket.connect(endpoint)
        self.index = Index()
        self.batches: list[tuple[int, bytes]] = []
        self.topics: set[bytes] = set()

    def receive(self) -> bytes:
        """The next batch, not applied: whoever comes in the middle may be told to remove what it never held."""
        topic, number, payload = self._socket.recv_multipart()
        assert len(number) == 8
        self.topics.add(topic)
        self.batches.append((int.from_bytes(number, "big"), payload))
        return payload

    def read(self) -> list[dict[str, Any]]:
        """The next batch, applied."""
        payload = self.receive()
        self.index.apply(payload)
        return events_of(payload)

    def read_until(self, holds: Callable[[Index], bool]) -> None:
        while not holds(self.index):
            self.read()

    def read_until_it_begins_with(self, token: int) -> None:
        self.read_until(lambda index: any(prefix[0] == token for prefix in index.prefixes))

    def read_until_it_holds(self, contents: list[list[int]], size: int) -> None:
        expected = full_blocks(contents, size)
        self.read_until(lambda index: index.prefixes == expected)


def joined(context: zmq.Context[Any], events: KvEvents, upstream: int = 0) -> Subscriber:
    """A subscriber that was told what is held, at a moment when nothing changes."""
    subscriber = Subscriber(context, events.endpoints[upstream][0])
    while not (told := subscriber.read()):  # an empty batch that was due when it came
        pass
    assert told[0]["type"] == "AllBlocksCleared"
    return subscriber


def replayed(context: zmq.Context[Any], endpoint: str | None, first: int) -> list[tuple[int, bytes]]:
    assert endpoint is not None
    reader = context.socket(zmq.DEALER)
    reader.setsockopt(zmq.RCVTIMEO, PATIENCE)
    reader.connect(endpoint)
    reader.send_multipart([b"", first.to_bytes(8, "big")])
    batches: list[tuple[int, bytes]] = []
    while True:
        empty, number, payload = reader.recv_multipart()
        assert empty == b""
        if number == (-1).to_bytes(8, "big", signed=True):
            assert payload == b""
            reader.close()
            return batches
        batches.append((int.from_bytes(number, "big"), payload))
