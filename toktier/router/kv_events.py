"""KV events for routers of others: what the slots of llama-servers hold, published over ZeroMQ in vLLM's format.

A KV-aware router (Dynamo's indexer, for one) subscribes, and knows which upstream holds which prefix. Each upstream is
a worker with endpoints of its own, for subscribers take all that comes over one endpoint to be of one worker.

The caller leaves what a slot holds now in a mailbox and goes on; a thread hashes, compares, writes and sends. Only the
latest content of each slot waits, so that the mailbox is bounded by what the slots hold, and nothing is ever dropped
from it. Not here: which upstream holds what (`slots`); docs/kv-events.md has the format and what subscribers may do.
"""

from __future__ import annotations

import os
import re
import threading
import time
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from toktier.errors import ConfigInvalid, EnvironmentFault
from toktier.integer_argument import integer_argument
from toktier.labels import quoted
from toktier.missing_distribution import missing_distribution
from toktier.router.block_hashes import Identity, block_hasher
from toktier.router.held_blocks import HeldBlocks
from toktier.router.kv_event_feed import Feed, FeedCounters
from toktier.router.kv_event_form import EventWriter
from toktier.router.kv_event_history import History
from toktier.router.token_ids import TokenIds
from toktier.router.vocabulary import KvForm, KvScheme

DEFAULT_ENDPOINT: Final = "tcp://127.0.0.1:5557"
REPLAY_BATCHES: Final = 1000
REPLAY_BYTES: Final = 32 << 20
CLOSE_SECONDS: Final = 5.0
SETTLE_SECONDS: Final = 0.05


@dataclass(slots=True)
class _Mail:
    cleared: bool = False
    slots: dict[int, TokenIds | None] = field(default_factory=dict)


class KvEvents:
    """Thread-safe. A context manager: entering it is `start`, leaving it `close`."""

    def __init__(
        self,
        endpoint: str = DEFAULT_ENDPOINT,
        replay_endpoint: str | None = None,
        topic: str = "",
        block_size: int = 16,
        scheme: str = KvScheme.DYNAMO,
        form: str = KvForm.ARRAY,
        *,
        upstreams: int = 1,
        identity: Identity | None = None,
        replay_batches: int = REPLAY_BATCHES,
        replay_bytes: int = REPLAY_BYTES,
    ) -> None:
        """`endpoint`: `tcp://HOST:PORT` or `ipc://PATH` of the first upstream; the next ones follow on the next ports,
        or on paths with `.1`, `.2` behind. Port `*`: any free ones. `replay_endpoint`: likewise; None: no replays.
        `{upstream}` in `topic` becomes the number of the upstream. Nothing is bound before `start`.

        Raises ConfigInvalid, and BackendUnavailable where a distribution is missing.
        """
        count = integer_argument(upstreams, "upstreams")
        if count < 1:
            raise ConfigInvalid(
                f"KV events of {count} upstreams cannot be published: expected 1 or more", remedy="name an upstream"
            )
        identity = Identity() if identity is None else identity
        self._endpoints = [_endpoint_of(endpoint, number) for number in range(count)]
        replays = [None if replay_endpoint is None else _endpoint_of(replay_endpoint, n) for n in range(count)]
        self._replay_endpoints = replays
        _refuse_shared([*self._endpoints, *(e for e in replays if e is not None)])
        hasher = block_hasher(scheme, block_size, identity)
        writer = EventWriter(form, block_size, identity)
        most = max(2, integer_argument(replay_batches, "replay_batches"))
        self._feeds = [
            Feed(
                HeldBlocks(hasher),
                writer,
                History(most, replay_bytes, keep=replay_endpoint is not None),
                topic.replace("{upstream}", str(number)).encode(),
                rank=0,  # a llama-server is a worker by itself, never a rank of another
            )
            for number in range(count)
        ]
        self._lock = threading.Lock()
        self._mail: dict[int, _Mail] = {}
        self._superseded = 0
        self._closing = False
        self._signalled = False
        self._wake = -1  # an eventfd, while the thread lives
        self._context: Any = None
        self._thread: threading.Thread | None = None
        self.failure: str | None = None  # the type of what ended the thread

    @property
    def endpoints(self) -> list[tuple[str, str | None]]:
        """Of each upstream, where it is published and where replays are asked for; after `start` with their ports."""
        return list(zip(self._endpoints, self._replay_endpoints, strict=True))

    def start(self) -> None:
        """Binds the sockets and starts the thread. Raises EnvironmentFault where an endpoint cannot be bound."""
        try:
            import zmq
        except ImportError:
            raise missing_distribution("KV events need", "pyzmq", "kv-events", "'pyzmq>=26'") from None
        with self._lock:
            if self._thread is not None or self._closing:
                raise RuntimeError("KvEvents is started once")
            self._context = zmq.Context()
            for number, feed in enumerate(self._feeds):
                endpoint, replay = self._endpoints[number], self._replay_endpoints[number]
                try:
                    feed.bind(self._context, endpoint, replay)
                except zmq.ZMQError as error:
                    self._release()
                    where = endpoint if replay is None else f"{endpoint} and {replay}"
                    raise EnvironmentFault(
                        f"KV events cannot be published at {where}: {os.strerror(error.errno or 0)}",
                        details={"endpoint": endpoint, "replay_endpoint": replay},
                        remedy="name another endpoint, or end what listens there",
                    ) from None
                self._endpoints[number], self._replay_endpoints[number] = feed.endpoints()
                feed.announce()  # that nothing is held: what a process before this one said is over
            self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            self._thread = threading.Thread(target=self._run, name="toktier-kv-events", daemon=True)
            self._thread.start()
            self._signal()

    def slot_now(self, upstream: int, slot: int, ids: npt.ArrayLike | None) -> None:
        """The slot holds these IDs [n] and nothing else; None: nothing that is known. The IDs are copied. Never waits
        for a subscriber."""
        content = None if ids is None else np.array(ids, dtype=np.uint32)
        with self._lock:
            mail = self._mail_of(upstream)
            self._superseded += slot in mail.slots
            mail.slots[slot] = content
            self._signal()

    def clear(self, upstream: int) -> None:
        """Nothing is held any more: the upstream was restarted, or it is not known what it holds."""
        with self._lock:
            mail = self._mail_of(upstream)
            self._superseded += len(mail.slots)
            mail.cleared = True
            mail.slots.clear()
            self._signal()

    def close(self) -> None:
        """Publishes that all is cleared, for nobody will tell of changes any more. Waits for 5 s at most; what comes
        later is ignored."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
            self._mail = {number: _Mail(cleared=True) for number in range(len(self._feeds))}
            thread = self._thread
            self._signal()
        if thread is not None:
            thread.join(CLOSE_SECONDS)

    def stats(self) -> dict[str, Any]:
        """JSON-able. `superseded`: contents that were replaced before they were published."""
        return {
            "superseded": self._superseded,
            "failure": self.failure,
            "upstreams": [{"blocks": len(feed.held), **asdict(feed.counters)} for feed in self._feeds],
        }

    def counters(self) -> dict[str, int]:
        """Sums over all upstreams, which only grow. `failed`: 1 once the thread has ended by an error."""
        sums = {f.name: sum(getattr(feed.counters, f.name) for feed in self._feeds) for f in fields(FeedCounters)}
        return {**sums, "superseded": self._superseded, "failed": int(self.failure is not None)}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _mail_of(self, upstream: int) -> _Mail:
        if not 0 <= upstream < len(self._feeds):
            raise ValueError(f"there is no upstream {upstream}: expected 0 to {len(self._feeds) - 1}")
        if self._closing or self.failure is not None:
            return _Mail()  # nobody reads it
        return self._mail.setdefault(upstream, _Mail())

    def _signal(self) -> None:
        """With the lock held."""
        if self._wake >= 0 and not self._signalled:
            self._signalled = True
            os.eventfd_write(self._wake, 1)

    def _run(self) -> None:
        try:
            self._serve()
        except Exception as error:  # the router goes on without events
            self.failure = type(error).__name__
        finally:
            with self._lock:
                os.close(self._wake)
                self._wake = -1
            self._release()

    def _serve(self) -> None:
        import zmq

        poller = zmq.Poller()
        poller.register(self._wake, zmq.POLLIN)
        for feed in self._feeds:
            for socket in feed.sockets():
                poller.register(socket, zmq.POLLIN)
        while True:
            ready = dict(poller.poll(int(1000 * min(feed.until_due() for feed in self._feeds)) + 1))
            with self._lock:
                if self._signalled:
                    os.eventfd_read(self._wake)
                    self._signalled = False
                mail, self._mail = self._mail, {}
                closing = self._closing
            for feed in self._feeds:
                if feed.publisher in ready:
                    feed.read_subscriptions()
                feed.do_what_is_due()
            for upstream, one in mail.items():
                self._feeds[upstream].apply(one.cleared, one.slots)
            if closing:
                self._settle()
                return
            for feed in self._feeds:
                if feed.replay in ready:
                    feed.answer_replay()

    def _settle(self) -> None:
        """Hears who goes away, before the sockets are closed. libzmq 4.3.5 never ends a context that was closed while
        one left to whom a message was under way (on a busy host, one of a hundred such ends)."""
        import zmq

        poller = zmq.Poller()
        for feed in self._feeds:
            for socket in feed.sockets():
                poller.register(socket, zmq.POLLIN)
        until = time.monotonic() + SETTLE_SECONDS
        while (left := until - time.monotonic()) > 0:
            poller.poll(int(1000 * left) + 1)
            for feed in self._feeds:
                feed.drop_received()

    def _release(self) -> None:
        for feed in self._feeds:
            feed.close()
        self._context.term()


_TCP: Final = re.compile(r"tcp://(?P<host>\[[^\]]+\]|[^:/\[\]]+):(?P<port>[0-9]{1,5}|\*)")


def _endpoint_of(endpoint: str, upstream: int) -> str:
    """Of this upstream, where the first has `endpoint`."""
    if endpoint.startswith("ipc://") and len(endpoint) > len("ipc://"):
        return f"{endpoint}.{upstream}" if upstream else endpoint
    match = _TCP.fullmatch(endpoint)
    if match is not None:
        port = match["port"]
        if port == "*":
            return endpoint
        if 0 < int(port) + upstream < 1 << 16:
            return f"tcp://{match['host']}:{int(port) + upstream}"
    raise ConfigInvalid(
        f"KV events cannot be published at {quoted(endpoint)}: expected tcp://HOST:PORT or ipc://PATH, "
        "with a port for each upstream",
        remedy=f"name an endpoint like {DEFAULT_ENDPOINT}",
    )


def _refuse_shared(endpoints: list[str]) -> None:
    seen: set[str] = set()
    for endpoint in endpoints:
        if endpoint in seen and not endpoint.endswith(":*"):
            raise ConfigInvalid(
                f"two endpoints of KV events are {quoted(endpoint)}: each upstream has the next port, for replays too",
                remedy="leave as many ports between the endpoint and that of replays as there are upstreams",
            )
        seen.add(endpoint)
