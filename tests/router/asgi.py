"""Asks an ASGI app in this loop, message by message, as a server would."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from toktier.router.refusals import App, Message


@dataclass
class Exchange:
    """One request and what came back. `body`: pieces that the client sends; what follows them is `then`: nothing, or
    that the client goes away."""

    method: str = "GET"
    path: bytes = b"/"
    query: bytes = b""
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: list[bytes] = field(default_factory=lambda: [b""])
    version: str = "1.1"
    stalls: bool = False  # the last piece is never followed by the end
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    sent: list[Message] = field(default_factory=list)
    asked: int = 0

    def scope(self) -> dict[str, Any]:
        from urllib.parse import unquote

        headers = (
            self.headers if any(n == b"host" for n, _ in self.headers) else [(b"host", b"localhost"), *self.headers]
        )
        return {
            "type": "http",
            "method": self.method,
            "path": unquote(self.path.decode("latin-1")),
            "raw_path": self.path,
            "query_string": self.query,
            "headers": headers,
            "http_version": self.version,
            "scheme": "http",
            "root_path": "",
            "server": ("127.0.0.1", 8765),
            "client": ("127.0.0.1", 50000),
        }

    async def receive(self) -> Message:
        self.asked += 1
        if self.body:
            piece = self.body.pop(0)
            return {"type": "http.request", "body": piece, "more_body": bool(self.body) or self.stalls}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    async def through(self, app: App) -> Exchange:
        await app(self.scope(), self.receive, self.send)
        return self

    @property
    def status(self) -> int:
        starts = [m for m in self.sent if m["type"] == "http.response.start"]
        assert len(starts) == 1, f"{len(starts)} answers began"
        return int(starts[0]["status"])

    @property
    def answer_headers(self) -> dict[str, str]:
        start = next(m for m in self.sent if m["type"] == "http.response.start")
        return {name.decode(): value.decode() for name, value in start["headers"]}

    @property
    def answer(self) -> bytes:
        """The whole body; fails where it did not end."""
        bodies = [m for m in self.sent if m["type"] == "http.response.body"]
        assert not bodies[-1].get("more_body", False), "the answer has no end"
        return b"".join(m.get("body", b"") for m in bodies)

    @property
    def error(self) -> dict[str, Any]:
        """The error document of the answer, in the one shape."""
        document = json.loads(self.answer)
        assert set(document) == {"error"}
        error = document["error"]
        assert {"message", "type", "param", "code"} <= set(error) <= {"message", "type", "param", "code", "remedy"}
        assert self.answer_headers["content-type"] == "application/json"
        assert isinstance(error, dict)
        return error


class Echo:
    """An app that reads a whole body and gives it back. `seen`: scopes and bodies that reached it."""

    def __init__(self) -> None:
        self.seen: list[tuple[dict[str, Any], bytes]] = []
        self.gone = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        whole = b""
        while True:
            message = await receive()
            if message["type"] != "http.request":
                self.gone += 1
                return
            whole += message["body"]
            if not message["more_body"]:
                break
        self.seen.append((scope, whole))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": whole})


def headers(**named: str) -> list[tuple[bytes, bytes]]:
    return [(name.replace("_", "-").encode(), value.encode()) for name, value in named.items()]


def ask(app: App, **request: Any) -> Exchange:
    """One request in a loop of its own."""

    async def run() -> Exchange:
        return await Exchange(**request).through(app)

    return asyncio.run(run())


def values(exchanges: Iterable[Exchange]) -> list[int]:
    return [exchange.status for exchange in exchanges]
