"""Connections, byte by byte: smuggling, slow headers, clients that take nothing, and too many of them."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn
from uvicorn.lifespan.off import LifespanOff

from tests.router.asgi import Echo
from tests.router.running import UPSTREAM, Raw, Running, parsed, running
from toktier.router import connections
from toktier.router.guards import ConnectionTally
from toktier.router.request_form import MAX_HEADER_BYTES


@pytest.fixture(scope="module")
def router(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    key = tmp_path_factory.mktemp("keys") / "keys"
    key.write_text("sk-0123456789abcdef\n")
    key.chmod(0o600)
    with running(tmp_path_factory.mktemp("home"), *UPSTREAM, "--api-key-file", str(key)) as process:
        yield process.ready()


HOST, KEY = b"Host: localhost\r\n", b"Authorization: Bearer sk-0123456789abcdef\r\n"
POST = b"POST /v1/completions HTTP/1.1\r\n" + HOST + KEY

SMUGGLED: list[tuple[str, bytes]] = [
    ("two lengths", POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}x"),
    ("two lengths in one", POST + b"Content-Length: 2, 3\r\n\r\n{}x"),
    ("a length and chunks", POST + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ("chunks and a length", POST + b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n"),
    ("another coding", POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
    ("two codings", POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    ("chunked twice", POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ("a blank before the colon", POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n"),
    ("a folded header", POST + b"Transfer-Encoding:\r\n chunked\r\nContent-Length: 2\r\n\r\n{}"),
    ("a length that is none", POST + b"Content-Length: +2\r\n\r\n{}"),
    ("a negative length", POST + b"Content-Length: -1\r\n\r\n"),
    ("a huge length", POST + b"Content-Length: 99999999999999999999\r\n\r\n"),
    ("a chunk size that is none", POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n"),
    ("a negative chunk size", POST + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n{}\r\n0\r\n\r\n"),
    ("a huge chunk size", POST + b"Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFFFFFFFFF\r\n"),
    ("a bare line end", POST + b"X: a\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n{}"),
    ("a carriage return in a value", POST + b"X: a\rb\r\nContent-Length: 0\r\n\r\n"),
    ("a NUL in a value", POST + b"X: a\0b\r\nContent-Length: 0\r\n\r\n"),
    ("a NUL in a name", POST + b"X\0: a\r\nContent-Length: 0\r\n\r\n"),
    ("no host", b"GET /health HTTP/1.1\r\n\r\n"),
    ("two hosts", b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil.com\r\n\r\n"),
    ("another host", b"GET /health HTTP/1.1\r\nHost: evil.com\r\n\r\n"),
    ("absolute form", b"GET http://localhost/health HTTP/1.1\r\n" + HOST + b"\r\n"),
    ("authority form", b"CONNECT evil.com:443 HTTP/1.1\r\n" + HOST + b"\r\n"),
    ("asterisk form", b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n"),
    ("dot segments", b"GET /v1/../health HTTP/1.1\r\n" + HOST + b"\r\n"),
    ("escaped dots", b"GET /%2e%2e/health HTTP/1.1\r\n" + HOST + b"\r\n"),
    ("an escaped slash", b"GET /v1%2Fmodels HTTP/1.1\r\n" + HOST + b"\r\n"),
    ("doubled slashes", b"GET //health HTTP/1.1\r\n" + HOST + b"\r\n"),
    ("a line end in the path", b"GET /health%0d%0aX:y HTTP/1.1\r\n" + HOST + b"\r\n"),
    ("a blank in the path", b"GET /hea lth HTTP/1.1\r\n" + HOST + b"\r\n"),
    ("no version", b"GET /health\r\n" + HOST + b"\r\n"),
    ("another version", b"GET /health HTTP/2.0\r\n" + HOST + b"\r\n"),
    ("the preface of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    ("the hello of TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"a" * 100 + b"\r\n\r\n"),
    ("noise", bytes(range(256)) + b"\r\n\r\n"),
    ("a long target", b"GET /" + b"a" * 3000 + b" HTTP/1.1\r\n" + HOST + b"\r\n"),
    ("a long header", b"GET /health HTTP/1.1\r\n" + HOST + b"X: " + b"a" * (MAX_HEADER_BYTES + 100) + b"\r\n\r\n"),
    ("a header without end", b"GET /health HTTP/1.1\r\n" + HOST + b"X: " + b"a" * (MAX_HEADER_BYTES + 100)),
    ("long headers", b"GET /health HTTP/1.1\r\n" + HOST + (b"X: " + b"a" * 900 + b"\r\n") * 50 + b"\r\n"),
    ("many headers", b"GET /health HTTP/1.1\r\n" + HOST + b"".join(b"X-%d: a\r\n" % n for n in range(150)) + b"\r\n"),
    ("a compressed body", POST + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}"),
]  # fmt: skip
HIDDEN = b"GET /toktier/events HTTP/1.1\r\n" + HOST + KEY + b"\r\n"


@pytest.mark.parametrize(("what", "request_"), SMUGGLED, ids=[what for what, _ in SMUGGLED])
def test_a_request_with_two_meanings_is_refused_and_what_follows_it_is_not_read(
    router: Running, what: str, request_: bytes
) -> None:
    """One answer, in the one shape, and the connection ends: a request that hides behind it is not answered."""
    answer = router.ask(request_ + HIDDEN)
    status, headers, body = parsed(answer)
    assert 400 <= status < 500
    assert headers["connection"] == "close"
    assert set(json.loads(body)) == {"error"}
    assert b'"events"' not in answer
    assert answer.count(b"HTTP/1.1 ") == 1


def test_the_connection_is_kept_for_plain_requests(router: Running) -> None:
    once = POST + b"Content-Length: 2\r\n\r\n{}"
    again = POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
    answer = router.ask(once + again + once.replace(HOST, HOST + b"Connection: close\r\n"))
    assert answer.count(b"HTTP/1.1 200") == answer.count(b'"bytes":2') == 3


def test_an_upgrade_is_ignored(router: Running) -> None:
    upgrade = b"Connection: Upgrade, close\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    status, _, body = parsed(
        router.ask(b"GET /health HTTP/1.1\r\n" + HOST + upgrade + b"Sec-WebSocket-Version: 13\r\n\r\n")
    )
    assert (status, body) == (200, b'{"status":"ok"}')


def test_a_large_body_without_a_key_gets_its_answer(router: Running) -> None:
    """It is sent whole by a client that reads only afterwards: the answer must not be lost by a reset."""
    body = b"x" * (8 << 20)
    request = b"POST /v1/completions HTTP/1.1\r\n" + HOST + b"Content-Length: %d\r\n\r\n" % len(body)
    # The router reads on for a second, in which a busy host may not bring all of it.
    before = router.get("/linger/180", KEY.decode().strip())
    try:
        with router.raw(request + body) as connection:
            status, headers, answer = parsed(connection.rest())
    finally:
        router.get(f"/linger/{json.loads(before[2])['before']}", KEY.decode().strip())
    assert (status, json.loads(answer)["error"]["code"]) == (401, "invalid_api_key")
    assert headers["www-authenticate"]


def test_routes_that_are_none_answer_in_the_one_shape(router: Running) -> None:
    for method, path, status, code in (
        ("GET", "/nope", 404, "not_found"),
        ("DELETE", "/v1/completions", 405, "method_not_allowed"),
        ("GET", "/items/PROMPT", 400, "bad_request"),
    ):
        answer = router.ask(f"{method} {path} HTTP/1.1\r\nConnection: close\r\n".encode() + HOST + KEY + b"\r\n")
        found, headers, body = parsed(answer)
        assert (found, json.loads(body)["error"]["code"]) == (status, code)
        assert "server" not in headers
        if path.startswith("/items"):
            assert json.loads(body)["error"] == {
                "message": "the request does not fit: path.number: int_parsing", "type": "invalid_request_error",
                "param": "number", "code": "bad_request",
            }  # fmt: skip


# in this process, where limits can be made small


class Served:
    """uvicorn with our protocol, in a loop of the test."""

    def __init__(self, app: Any, max_connections: int = 100, idle_seconds: float = 60) -> None:
        self.tally = ConnectionTally()
        config = uvicorn.Config(
            app, http=connections.protocol(max_connections, idle_seconds, self.tally), interface="asgi3",
            lifespan="off", log_config=None, access_log=False, proxy_headers=False, **connections.config_arguments(),
        )  # fmt: skip
        self.server = uvicorn.Server(config)
        self.sock = socket.socket()
        self.sock.bind(("127.0.0.1", 0))
        self.port = self.sock.getsockname()[1]

    async def __aenter__(self) -> Served:
        self.server.lifespan = LifespanOff(self.server.config)
        self.server.config.load()
        await self.server.startup(sockets=[self.sock])
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.server.shutdown(sockets=[self.sock])

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)


async def ends(reader: asyncio.StreamReader) -> bool:
    """Whether the other side ends it without a word."""
    try:
        return await asyncio.wait_for(reader.read(), 60) == b""
    except ConnectionError:
        return True


def test_headers_that_do_not_come_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEADER_SECONDS", 0.05)

    async def run() -> None:
        echo = Echo()
        async with Served(echo) as served:
            for begun in (b"", b"G", b"GET / HTTP/1.1\r\nHost: localhost\r\n", b"GET / HTTP/1.1\r\nX: a"):
                reader, writer = await served.connect()
                writer.write(begun)
                assert await ends(reader)
                writer.close()
            assert (served.tally.slow_headers, echo.seen) == (4, [])
            # The next request on a kept connection has the same time, and one that was answered is left alone.
            monkeypatch.setattr(connections, "HEADER_SECONDS", 180.0)
            reader, writer = await served.connect()
            writer.write(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            monkeypatch.setattr(connections, "HEADER_SECONDS", 0.05)
            writer.write(b"GET / HTT")
            assert b"HTTP/1.1" not in await asyncio.wait_for(reader.read(), 60)
            writer.close()
            assert (served.tally.slow_headers, len(echo.seen)) == (5, 1)

    asyncio.run(run())


def test_a_slow_answer_is_no_slow_header() -> None:
    async def app(_: Any, __: Any, send: Any) -> None:
        """Takes ten times as long as headers may, by the clock of the loop."""
        loop = asyncio.get_running_loop()
        now = loop.time
        loop.time = lambda: now() + 10 * connections.HEADER_SECONDS  # type: ignore[method-assign]
        for _ in range(5):  # what is due is done by then
            await asyncio.sleep(0)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    async def run() -> None:
        async with Served(app) as served:
            reader, writer = await served.connect()
            writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            assert await reader.readuntil(b"ok")
            writer.close()
            assert served.tally.slow_headers == 0

    asyncio.run(run())


def test_a_client_that_takes_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []

    async def app(_: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        gone = asyncio.ensure_future(receive())
        while not gone.done():
            await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
            await asyncio.sleep(0)
        closed.append((await gone)["type"])

    async def run() -> None:
        async with Served(app, idle_seconds=0.05) as served:
            with Raw(served.port) as connection:
                connection.socket.sendall(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
                while not closed:
                    await asyncio.sleep(0.01)
            assert served.tally.stalled == 1

    asyncio.run(run())
    assert closed == ["http.disconnect"]


def test_a_client_that_takes_slowly_is_not_left() -> None:
    async def app(_: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(100):
            await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def run() -> None:
        async with Served(app, idle_seconds=60) as served:
            reader, writer = await served.connect()
            writer.write(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
            assert (await reader.read()).count(b"x") == 100 * 65536
            writer.close()
            assert served.tally.stalled == 0

    asyncio.run(run())


def test_there_are_only_as_many_connections_as_may_be() -> None:
    async def run() -> None:
        async with Served(Echo(), max_connections=3) as served:
            kept = [await served.connect() for _ in range(3)]
            for reader, writer in kept:
                writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
                await reader.readuntil(b"\r\n\r\n")
            for _ in range(5):
                reader, writer = await served.connect()
                assert await ends(reader)
                writer.close()
            assert served.tally.too_many == 5
            kept[0][1].close()
            while len(served.server.server_state.connections) > 2:
                await asyncio.sleep(0.01)
            reader, writer = await served.connect()
            writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            for _, one in [*kept, (reader, writer)]:
                one.close()

    asyncio.run(run())


def test_what_is_no_request_is_counted() -> None:
    async def run() -> None:
        async with Served(Echo()) as served:
            reader, writer = await served.connect()
            writer.write(b"NOISE\r\n\r\n")
            assert b'"code": "bad_request"' in await reader.read()
            writer.close()
            assert served.tally.malformed == 1

    asyncio.run(run())
