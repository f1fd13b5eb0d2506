"""A guard on how many requests run at once: some run, some wait in order, the rest is told to come again.

Not here: which slot a request gets, and what waits inside a llama-server.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from typing import Final

from toktier.router.refusals import App, Message, Receive, Refusal, Refused, Scope, Send, retry_after

# Answered however many requests run, as `/` is: they are quick, and somebody looks at them because too many run.
UNLIMITED_PREFIXES: Final = ("/toktier", "/health", "/metrics", "/openapi.json")
# Of a body that is read before its request is let in, in as many connections as there may be: 114 MiB by default.
_AT_ONCE: Final = 1 << 18


class Admission:
    """Lets `max_running` requests through at once, and as many as `max_queued` wait, in order, up to `seconds`; the
    rest is told to come again. A request asks to be let in when its body is there, or the first quarter of a MiB of
    it: slow senders hold no place. One that waits and whose client goes away leaves the queue.

    `running`, `queued`: now. `admitted`, `rejected`, `left`: so far; `left` is of clients that went away.
    """

    def __init__(
        self,
        app: App,
        max_running: int,
        max_queued: int,
        seconds: float,
        unlimited: tuple[str, ...] = UNLIMITED_PREFIXES,
    ) -> None:
        self.app, self._max_running, self._max_queued, self._seconds = app, max_running, max_queued, seconds
        self._unlimited = unlimited
        self._waiting: OrderedDict[asyncio.Future[None], None] = OrderedDict()
        self.running = self.admitted = self.rejected = self.left = 0

    @property
    def queued(self) -> int:
        return len(self._waiting)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] == "/" or scope["path"].startswith(self._unlimited):
            return await self.app(scope, receive, send)
        ahead = _ReadAhead(receive)
        if not await ahead.fill() or not await self._admitted(ahead):
            self.left += 1
            return None
        self.admitted += 1
        try:
            return await self.app(scope, ahead.receive, send)
        finally:
            self._release()

    async def _admitted(self, ahead: _ReadAhead) -> bool:
        """True: a place is taken. False: the client went away while it waited. Raises Refused."""
        if self.running < self._max_running:
            self.running += 1
            return True
        if self.queued >= self._max_queued:
            raise self._overloaded()
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[place] = None
        watch = asyncio.ensure_future(ahead.watch())
        try:
            await asyncio.wait({place, watch}, timeout=self._seconds, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            if place.done():
                self._release()
            raise
        finally:
            self._waiting.pop(place, None)
            watch.cancel()
        if place.done():
            return True
        if watch.done() and not watch.cancelled() and watch.exception() is None:
            return False
        raise self._overloaded()

    def _release(self) -> None:
        """Gives a place to whoever has waited longest."""
        if self._waiting:
            place, _ = self._waiting.popitem(last=False)
            place.set_result(None)
        else:
            self.running -= 1

    def _overloaded(self) -> Refused:
        self.rejected += 1
        return Refused(
            Refusal.OVERLOADED,
            f"{self.running:,} requests run and {self.queued:,} wait: no more may",
            remedy="try again later, or start the router with larger --max-concurrent and --max-queued",
            headers=[retry_after(min(self._seconds, 60))],
        )


class _ReadAhead:
    """The beginning of a body, read before its request is let in, and given on afterwards."""

    __slots__ = ("_complete", "_messages", "_receive")

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._messages: deque[Message] = deque()
        self._complete = False

    async def fill(self) -> bool:
        """Reads it. False: the client went away."""
        size = 0
        while not self._complete and size < _AT_ONCE:
            message = await self._receive()
            if message["type"] != "http.request":
                return False
            self._messages.append(message)
            self._complete = not message.get("more_body", False)
            size += len(message.get("body", b""))
        return True

    async def watch(self) -> None:
        """Returns when the client goes away; of one that still sends, never."""
        if not self._complete:
            await asyncio.Event().wait()
        while (await self._receive())["type"] == "http.request":
            pass

    async def receive(self) -> Message:
        return self._messages.popleft() if self._messages else await self._receive()
