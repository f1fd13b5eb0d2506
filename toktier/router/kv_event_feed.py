"""The KV events of one upstream: what its slots hold, numbered batches, the two sockets, and replays.

Frames are those of vLLM's publisher: [topic, sequence number, batch] to subscribers; a request [empty, first number] is
answered with [empty, number, batch] for each batch and [empty, -1, empty] at the end. One thread has all of this, for
sockets of ZeroMQ are of one thread. Not here: that thread (`kv_events`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from toktier.router.held_blocks import Change, HeldBlocks
from toktier.router.kv_event_form import REPLAY_END, SEQUENCE, EventWriter
from toktier.router.kv_event_history import History
from toktier.router.token_ids import TokenIds

# Batches that wait for one subscriber; who is further behind loses some, sees the gap and asks for a replay. Payloads
# are shared by all that wait for them.
SUBSCRIBER_BACKLOG: Final = 256
MAX_REQUEST: Final = 512  # bytes of what subscribers send: a topic, or a number
# Between two announcements that new subscribers cause, in seconds: they must not be a way to make work.
ANNOUNCEMENT_INTERVAL: Final = 1.0
SUBSCRIPTIONS_AT_ONCE: Final = 64  # so that whoever floods them does not hold up what is published
# After so many seconds without a batch an empty one is sent: a subscriber that lost the last ones sees its gap then.
HEARTBEAT: Final = 10.0
LINGER: Final = 200  # milliseconds that unsent batches are given at the end


@dataclass(slots=True)
class FeedCounters:
    batches: int = 0
    announcements: int = 0
    events: int = 0
    bytes: int = 0
    subscriptions: int = 0
    replays: int = 0
    cut_replays: int = 0  # whose reader read nothing
    bad_requests: int = 0


class Feed:
    """`rank`: in every batch, the data-parallel rank of the upstream within its worker."""

    def __init__(self, held: HeldBlocks, writer: EventWriter, history: History, topic: bytes, rank: int) -> None:
        self.held = held
        self.counters = FeedCounters()
        self._writer, self._history, self._topic, self._rank = writer, history, topic, rank
        # A subscriber that outlives this process ignores numbers up to the last that it saw, so those of the next one
        # have to be higher: microseconds, for no process sends a million batches a second.
        self._next = time.time_ns() // 1000
        self._announce_at = self._beat_at = math.inf
        self._announced_for_subscribers = -math.inf
        self._changed = False  # since the last announcement
        self.publisher: Any = None
        self.replay: Any = None

    def bind(self, context: Any, endpoint: str, replay_endpoint: str | None) -> None:
        """Raises zmq.ZMQError; `close` afterwards in any case."""
        import zmq

        # An XPUB is a PUB that is told of subscriptions: what came before them has to be told again.
        self.publisher = context.socket(zmq.XPUB)
        self.publisher.setsockopt(zmq.XPUB_VERBOSE, 1)
        self.publisher.setsockopt(zmq.SNDHWM, SUBSCRIBER_BACKLOG)
        self._bind(self.publisher, endpoint)
        if replay_endpoint is not None:
            self.replay = context.socket(zmq.ROUTER)
            self.replay.setsockopt(zmq.ROUTER_MANDATORY, 1)  # says so where a reader is gone, or reads nothing
            # A whole replay must fit, for it is sent at once; the second that is not read is cut.
            self.replay.setsockopt(zmq.SNDHWM, 2 * self._history.most)
            self._bind(self.replay, replay_endpoint)

    def endpoints(self) -> tuple[str, str | None]:
        """With the ports that the system chose."""
        import zmq

        bound = [None if s is None else s.getsockopt_string(zmq.LAST_ENDPOINT) for s in (self.publisher, self.replay)]
        return str(bound[0]), bound[1]

    def sockets(self) -> list[Any]:
        return [socket for socket in (self.publisher, self.replay) if socket is not None]

    def drop_received(self) -> None:
        """At the end: of what peers sent nothing is answered any more."""
        for socket in self.sockets():
            for _ in range(SUBSCRIPTIONS_AT_ONCE):
                if _received(socket) is None:
                    break

    def close(self) -> None:
        for socket in self.sockets():
            socket.close(LINGER)

    def apply(self, cleared: bool, slots: Mapping[int, TokenIds | None]) -> None:
        """Publishes, as one batch, what this changes. `cleared`: before `slots`."""
        changes = self.held.clear() if cleared else []
        for slot, ids in slots.items():
            changes += self.held.slot_now(slot, ids)
        if changes:
            self._changed = True
            self._publish(changes, announces=False)

    def announce(self) -> None:
        self._changed = False
        self.counters.announcements += 1
        self._publish(self.held.everything(), announces=True)

    def read_subscriptions(self) -> None:
        for _ in range(SUBSCRIPTIONS_AT_ONCE):
            message = _received(self.publisher)
            if message is None:
                return
            if message[0][:1] == b"\x01":
                self.counters.subscriptions += 1
                if self._announce_at == math.inf:
                    self._announce_at = self._announced_for_subscribers + ANNOUNCEMENT_INTERVAL

    def until_due(self) -> float:
        """Seconds until `do_what_is_due` has something to do."""
        return max(0.0, min(self._announce_at, self._beat_at) - time.monotonic())

    def do_what_is_due(self) -> None:
        now = time.monotonic()
        if self._announce_at <= now:
            self._announce_at, self._announced_for_subscribers = math.inf, now
            self.announce()
        elif self._beat_at <= now:
            if self._changed and self.replay is None:
                self.announce()  # whoever sees a gap cannot ask
            else:
                self._publish([], announces=False)

    def answer_replay(self) -> None:
        """One request, of those that wait."""
        import zmq

        message = _received(self.replay)
        if message is None:
            return
        if len(message) != 3 or message[1] or len(message[2]) != SEQUENCE.size:
            self.counters.bad_requests += 1
            return
        self.counters.replays += 1
        reader = message[0]
        try:
            for number, payload in self._history.since(SEQUENCE.unpack(message[2])[0]):
                self._send(self.replay, (reader, b"", SEQUENCE.pack(number), payload))
            self._send(self.replay, (reader, b"", REPLAY_END, b""))
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EAGAIN, zmq.EHOSTUNREACH):
                raise
            self.counters.cut_replays += 1

    def _publish(self, changes: list[Change], *, announces: bool) -> None:
        payload = self._writer.batch(changes, time.time(), self._rank)
        self._send(self.publisher, (self._topic, SEQUENCE.pack(self._next), payload))
        self._history.append(self._next, payload, announces=announces)
        self._next += 1
        self._beat_at = time.monotonic() + HEARTBEAT
        self.counters.batches += 1
        self.counters.events += len(changes)
        self.counters.bytes += len(payload)
        if self._history.wants_announcement:
            self.announce()

    @staticmethod
    def _send(socket: Any, frames: tuple[bytes, ...]) -> None:
        import zmq

        socket.send_multipart(frames, zmq.NOBLOCK, copy=False)

    @staticmethod
    def _bind(socket: Any, endpoint: str) -> None:
        import zmq

        socket.setsockopt(zmq.MAXMSGSIZE, MAX_REQUEST)
        socket.setsockopt(zmq.IPV6, int("[" in endpoint))
        socket.bind(endpoint)


def _received(socket: Any) -> list[bytes] | None:
    import zmq

    try:
        frames: list[bytes] = socket.recv_multipart(zmq.NOBLOCK)
    except zmq.Again:
        return None
    return frames
