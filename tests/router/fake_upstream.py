"""A stand-in for a llama-server on a real socket, for what no real one can be made to do: to lie, stall, flood, break.

It answers the router's questions as an honest server does; a test replaces the answers that it wants otherwise. Runs in
the event loop of the test. Not here: what a real llama-server says, which tests with a real one hold.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Handler: TypeAlias = "Callable[[Seen, asyncio.StreamWriter], Awaitable[None]]"
MARKER = "<__media_fake__>"


@dataclass(frozen=True)
class Seen:
    """One request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def reply(body: bytes | Any, status: int = 200, **headers: str) -> Handler:
    """An answer in one piece; what is not bytes becomes JSON."""
    content = body if isinstance(body, bytes) else json.dumps(body, separators=(",", ":")).encode()

    async def handle(_: Seen, writer: asyncio.StreamWriter) -> None:
        named = {"content-type": "application/json", "content-length": str(len(content))}
        named |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = "".join(f"{name}: {value}\r\n" for name, value in named.items())
        writer.write(f"HTTP/1.1 {status} Status\r\n{lines}\r\n".encode() + content)
        await writer.drain()

    return handle


def raw(*parts: bytes, then: Callable[[], Awaitable[None]] | None = None, close: bool = True) -> Handler:
    """These bytes; then what `then` awaits; then the connection is closed."""

    async def handle(_: Seen, writer: asyncio.StreamWriter) -> None:
        for part in parts:
            writer.write(part)
            await writer.drain()
        if then is not None:
            await then()
        if close:
            writer.close()

    return handle


def stream(*events: bytes | dict[str, Any], then: Callable[[], Awaitable[None]] | None = None) -> Handler:
    """Server-sent events in chunks of their own. With `then` the stream has no end but that of the connection. The
    first comes with the head: no time-out between parts can end before it."""

    async def handle(_: Seen, writer: asyncio.StreamWriter) -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        for event in events or (b"",):
            data = event if isinstance(event, bytes) else b"data: " + json.dumps(event).encode() + b"\n\n"
            writer.write(head + (b"%x\r\n%s\r\n" % (len(data), data) if data else b""))
            head = b""
            await writer.drain()
        if then is not None:
            await then()
            writer.close()
            return
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    return handle


async def forever() -> None:
    await asyncio.Event().wait()


@dataclass
class FakeUpstream:
    """`answers`: by path. `seen`: requests in order. `tokenize`: its tokenizer. `ended`: connections that the other
    side closed."""

    total_slots: int = 4
    n_ctx: int = 2048
    n_vocab: int = 1216
    marker: str | None = MARKER
    tokenize: Callable[[str], list[int]] = lambda text: list(text.encode())
    answers: dict[str, Handler] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    ended: int = 0
    port: int = 0
    slot_rows: list[dict[str, Any]] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def props(self) -> dict[str, Any]:
        document = {
            "default_generation_settings": {"n_ctx": self.n_ctx},
            "total_slots": self.total_slots,
            "model_alias": "fake",
            "model_path": "/models/fake.gguf",
            "build_info": "b1-fake",
            "endpoint_slots": True,
        }
        return document if self.marker is None else {**document, "media_marker": self.marker}

    def slots(self) -> list[dict[str, Any]]:
        if self.slot_rows is not None:
            return self.slot_rows
        return [{"id": index, "n_ctx": self.n_ctx, "is_processing": False} for index in range(self.total_slots)]

    async def handle(self, seen: Seen, writer: asyncio.StreamWriter) -> None:
        chosen = self.answers.get(seen.path)
        if chosen is None:
            chosen = self._honest(seen)
        await chosen(seen, writer)

    def _honest(self, seen: Seen) -> Handler:
        if seen.path == "/health":
            return reply({"status": "ok"})
        if seen.path == "/props":
            return reply(self.props())
        if seen.path == "/slots":
            return reply(self.slots())
        if seen.path == "/v1/models":
            return reply({"object": "list", "data": [{"id": "fake", "meta": {"n_vocab": self.n_vocab}}]})
        if seen.path == "/tokenize":
            return reply({"tokens": self.tokenize(seen.json["content"])})
        if seen.path == "/apply-template":
            return reply({"prompt": "".join(f"{m['role']}: {m['content']}\n" for m in seen.json["messages"])})
        return reply({"error": {"code": 404, "message": "File Not Found", "type": "not_found_error"}}, 404)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while not writer.is_closing():
                seen = await _request(reader)
                self.seen.append(seen)
                answering = asyncio.ensure_future(self.handle(seen, writer))
                gone = asyncio.ensure_future(reader.read(1))  # no client of these tests pipelines
                try:
                    await asyncio.wait((answering, gone), return_when=asyncio.FIRST_COMPLETED)
                    if not answering.done():
                        self.ended += 1
                        break
                    if isinstance(answering.exception(), ConnectionError):
                        self.ended += 1
                        break
                    answering.result()
                    # What came while it was answered begins the next request, or is the end.
                    first = await gone
                    if not first:
                        self.ended += 1
                        break
                    reader = _with_first(first, reader)
                finally:
                    for task in (answering, gone):
                        task.cancel()
                    await asyncio.gather(answering, gone, return_exceptions=True)
        writer.close()

    async def __aenter__(self) -> FakeUpstream:
        self._tasks: set[asyncio.Task[None]] = set()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.ensure_future(self._serve(reader, writer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        self._server = await asyncio.start_server(accept, "127.0.0.1", self.port, limit=1 << 22)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def fake_upstream(**options: Any) -> AsyncIterator[FakeUpstream]:
    async with FakeUpstream(**options) as fake:
        yield fake


@contextlib.contextmanager
def fake_beside(**options: Any) -> Iterator[FakeUpstream]:
    """In a thread of its own, for tests that wait."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def call(coroutine: Coroutine[Any, Any, Any]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, loop).result(60)

    fake = FakeUpstream(**options)
    call(fake.__aenter__())
    try:
        yield fake
    finally:
        call(fake.__aexit__())
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()


def completed(cached: int, evaluated: int, slot: int, ids: Sequence[int] = (1, 2, 3), **more: Any) -> dict[str, Any]:
    """What a llama-server says of a completion in its own format."""
    timings = {"cache_n": cached, "prompt_n": evaluated, "prompt_ms": 1.0, "predicted_n": len(ids), "predicted_ms": 1.0}
    said = {"content": "text", "tokens": list(ids), "id_slot": slot, "stop": True, "stop_type": "limit"}
    return {**said, "truncated": False, "timings": timings, **more}


class _Joined:
    """A reader with a byte in front that was read already."""

    def __init__(self, first: bytes, reader: asyncio.StreamReader) -> None:
        self._first, self._reader = first, reader

    async def readuntil(self, separator: bytes) -> bytes:
        first, self._first = self._first, b""
        return first + await self._reader.readuntil(separator)

    async def readexactly(self, size: int) -> bytes:
        return await self._reader.readexactly(size)

    async def read(self, size: int) -> bytes:
        return await self._reader.read(size)


def _with_first(first: bytes, reader: Any) -> Any:
    return _Joined(first, reader._reader if isinstance(reader, _Joined) else reader)


async def _request(reader: Any) -> Seen:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    start, *lines = head.split("\r\n")
    method, path, _ = start.split(" ")
    headers = {}
    for line in lines:
        if line:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Seen(method, path, headers, body)
