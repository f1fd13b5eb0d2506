"""A guard on the body of a request: how large it may be, and how slowly it may come.

Not here: what is in it.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from toktier.router.refusals import App, Message, Receive, Refusal, Refused, Scope, Send

_SLOWEST: Final = 1 << 18  # bytes a second of a body, beyond the seconds that are allowed in any case


class BodyLimit:
    """Refuses a body that is larger than `max_bytes`, by its length or counted as it comes, and one that takes longer
    than `seconds` and a second for each 256 KiB of it. The app sees a client that went away, and is not heard any more.

    `bytes_read`: of all bodies.
    """

    def __init__(self, app: App, max_bytes: int, seconds: float) -> None:
        self.app, self.max_bytes, self.seconds = app, max_bytes, seconds
        self.bytes_read = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if len(length) > 18 or int(length) > self.max_bytes:
            raise self.too_large()
        body = _LimitedBody(self, receive, send)
        try:
            await self.app(scope, body.receive, body.send)
        except Exception:
            if body.refused is None:
                raise
        if body.refused is not None and not body.answered:
            raise body.refused

    def too_large(self) -> Refused:
        return Refused(Refusal.BODY_TOO_LARGE, f"the body is larger than {self.max_bytes:,} bytes")

    def too_slow(self) -> Refused:
        return Refused(Refusal.BODY_TOO_SLOW, "the body did not arrive in time")


class _LimitedBody:
    """One request's body. `waited`: seconds in which nothing of it came."""

    __slots__ = ("_limit", "_receive", "_send", "answered", "complete", "refused", "size", "waited")

    def __init__(self, limit: BodyLimit, receive: Receive, send: Send) -> None:
        self._limit, self._receive, self._send = limit, receive, send
        self.size, self.waited, self.complete, self.answered = 0, 0.0, False, False
        self.refused: Refused | None = None

    async def receive(self) -> Message:
        if self.refused is not None:
            return {"type": "http.disconnect"}
        if self.complete:  # what comes now is that the client goes away, whenever that is
            return await self._receive()
        left = self._limit.seconds + self.size / _SLOWEST - self.waited
        begun = time.monotonic()
        try:
            async with asyncio.timeout(max(left, 0)):
                message = await self._receive()
        except TimeoutError:
            self.refused = self._limit.too_slow()
            return {"type": "http.disconnect"}
        finally:
            self.waited += time.monotonic() - begun
        if message["type"] != "http.request":
            return message
        self.size += len(message.get("body", b""))
        self._limit.bytes_read += len(message.get("body", b""))
        self.complete = not message.get("more_body", False)
        if self.size > self._limit.max_bytes:
            self.refused = self._limit.too_large()
            return {"type": "http.disconnect"}
        return message

    async def send(self, message: Message) -> None:
        if self.refused is None or self.answered:
            self.answered = True
            await self._send(message)
