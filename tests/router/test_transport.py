"""The transport to an upstream, on real sockets: which connections are used again, and what of an upstream is an error.

A server here says for each connection, request by request, what is written and whether the connection ends then. Laws
about answers that pass are tested behind `Upstream` (test_upstream.py).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import httpx
import pytest

from toktier.router.transport import Transport

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
EOF = b"<the end>"
Use = Callable[[Transport, str, list[int]], Awaitable[Any]]


async def read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    return await reader.readexactly(int(length.split(b":")[1]))


def run(answers: Sequence[Sequence[bytes]], use: Use, *, connections: int = 4, idle: float = 60.0) -> Any:
    """`answers`: of each connection in the order in which they are opened, what is written for each of its requests;
    a list that is over keeps silent, and EOF ends the connection. `use` is given the number of requests that each
    connection had."""

    async def main() -> Any:
        requests: list[int] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            number = len(requests)
            requests.append(0)
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                for answer in answers[number]:
                    await read_request(reader)
                    requests[number] += 1
                    said, end, _ = answer.partition(EOF)
                    writer.write(said)
                    await writer.drain()
                    if end:
                        break
                else:
                    await reader.read()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        transport = Transport(httpx.URL(url), connections=connections, idle_seconds=idle)
        try:
            async with asyncio.timeout(30):
                return await use(transport, url, requests)
        finally:
            await transport.aclose()
            server.close()

    return asyncio.run(main())


def asked(url: str, body: bytes = b"{}", **timeouts: float) -> httpx.Request:
    return httpx.Request("POST", f"{url}/completion", content=body, extensions={"timeout": timeouts})


async def answered(transport: Transport, url: str, body: bytes = b"{}") -> tuple[int, bytes]:
    response = await transport.handle_async_request(asked(url, body))
    try:
        return response.status_code, b"".join([part async for part in response.aiter_raw()])
    finally:
        await response.aclose()


async def turns() -> None:
    """Until all that is on its way over loopback has come."""
    await asyncio.sleep(0.05)


def test_a_connection_is_used_again_behind_a_whole_answer() -> None:
    async def use(transport: Transport, url: str, requests: list[int]) -> None:
        assert [await answered(transport, url) for _ in range(3)] == [(200, b"ok")] * 3
        assert requests == [3]

    run([[OK] * 3], use)


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok", id="said to be the last"),
        pytest.param(OK + EOF, id="ended behind the answer"),
        pytest.param(OK + b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfake", id="an answer to nothing"),
        pytest.param(OK + b"\r\n", id="bytes behind the answer"),
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\nok" + EOF, id="a body up to the end"),
        pytest.param(b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok", id="an old version"),
    ],
)
def test_a_connection_that_may_not_carry_another_answer_is_left(first: bytes) -> None:
    async def use(transport: Transport, url: str, requests: list[int]) -> None:
        assert await answered(transport, url) == (200, b"ok")
        await turns()
        assert await answered(transport, url) == (200, b"ok")
        assert requests == [1, 1]

    run([[first, OK], [OK]], use)


def test_a_connection_that_idled_is_left() -> None:
    async def use(transport: Transport, url: str, requests: list[int]) -> None:
        for _ in range(2):
            assert await answered(transport, url) == (200, b"ok")
        assert requests == [1, 1]

    run([[OK, OK], [OK]], use, idle=0.0)


def test_an_answer_that_nobody_reads_to_its_end_ends_its_connection_at_once() -> None:
    gone = asyncio.Event()

    async def main() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_request(reader)
            writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n")
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            gone.set()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        transport = Transport(httpx.URL(url), connections=1, idle_seconds=60)
        response = await transport.handle_async_request(asked(url))
        assert await anext(response.aiter_raw()) == b"abc"
        await response.aclose()
        async with asyncio.timeout(30):
            await gone.wait()
        server.close()

    asyncio.run(main())


def test_chunks_come_one_by_one_and_as_they_were_sent() -> None:
    answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"".join(
        b"%x\r\n%s\r\n" % (len(part), part) for part in (b"data: 1\n\n", b"data: 22\n\n")
    )

    async def use(transport: Transport, url: str, requests: list[int]) -> None:
        response = await transport.handle_async_request(asked(url))
        assert [part async for part in response.aiter_raw()] == [b"data: 1\n\n", b"data: 22\n\n"]
        assert await answered(transport, url) == (200, b"ok")
        assert requests == [2]

    run([[answer + b"0\r\n\r\n", OK]], use)


def test_what_is_said_before_an_answer_is_passed_over() -> None:
    async def use(transport: Transport, url: str, requests: list[int]) -> None:
        assert await answered(transport, url) == (200, b"ok")

    run([[b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early\r\n\r\n" + OK]], use)


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        pytest.param(EOF, httpx.RemoteProtocolError, "disconnected", id="nothing"),
        pytest.param(b"HTTP/1.1 200 OK\r\nconte" + EOF, httpx.RemoteProtocolError, "disconnected", id="half a head"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf" + EOF,
            httpx.RemoteProtocolError,
            "closed connection",
            id="half a body",
        ),
        pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n\r\n", httpx.RemoteProtocolError, None, id="no HTTP"),
        pytest.param(
            b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
            httpx.RemoteProtocolError,
            None,
            id="an upgrade",
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 40_000, httpx.RemoteProtocolError, None, id="endless headers"
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok",
            httpx.RemoteProtocolError,
            None,
            id="two lengths",
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nok\r\n",
            httpx.RemoteProtocolError,
            None,
            id="no size",
        ),
    ],
)
def test_what_is_no_answer_is_an_error_and_the_next_request_has_a_new_connection(
    answer: bytes, error: type[httpx.HTTPError], words: str | None
) -> None:
    async def use(transport: Transport, url: str, requests: list[int]) -> None:
        with pytest.raises(error, match=words):
            await answered(transport, url)
        assert await answered(transport, url) == (200, b"ok")
        assert requests == [1, 1]

    run([[answer], [OK]], use, connections=1)


def test_nobody_there_is_an_error_of_connecting() -> None:
    async def use(transport: Transport, url: str, requests: list[int]) -> None:
        closed = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        port = closed.sockets[0].getsockname()[1]
        closed.close()
        await closed.wait_closed()
        other = Transport(httpx.URL(f"http://127.0.0.1:{port}"), connections=1, idle_seconds=60)
        for _ in range(2):  # the place that the first had is free again
            with pytest.raises(httpx.ConnectError):
                await other.handle_async_request(asked(f"http://127.0.0.1:{port}", pool=5.0))

    run([], use)


def test_a_server_without_tls_is_no_https() -> None:
    async def use(transport: Transport, url: str, requests: list[int]) -> None:
        secure = url.replace("http:", "https:")
        other = Transport(httpx.URL(secure), connections=1, idle_seconds=60)
        with pytest.raises((httpx.ConnectError, httpx.ConnectTimeout)):
            await other.handle_async_request(asked(secure, connect=0.3))

    run([[b"HTTP/1.1 400 Bad Request\r\n\r\n" + EOF]], use)


def test_requests_beyond_the_connections_wait_and_are_refused_in_time() -> None:
    async def use(transport: Transport, url: str, requests: list[int]) -> None:
        first = await transport.handle_async_request(asked(url))
        with pytest.raises(httpx.PoolTimeout):
            await transport.handle_async_request(asked(url, pool=0.01))
        second = asyncio.ensure_future(answered(transport, url))
        assert b"".join([part async for part in first.aiter_raw()]) == b"ok"
        assert await second == (200, b"ok")
        assert requests == [2]

    run([[OK, OK]], use, connections=1)


def test_a_request_that_is_given_up_gives_its_place_back() -> None:
    async def use(transport: Transport, url: str, requests: list[int]) -> None:
        silent = asyncio.ensure_future(answered(transport, url))
        while requests != [1]:
            await asyncio.sleep(0.001)
        silent.cancel()
        with pytest.raises(asyncio.CancelledError):
            await silent
        assert await answered(transport, url) == (200, b"ok")

    run([[b""], [OK]], use, connections=1)


def test_an_answer_that_is_not_read_makes_the_upstream_wait() -> None:
    part = b"x" * (1 << 16)

    async def main() -> None:
        written = 0

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal written
            await read_request(reader)
            writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
            with contextlib.suppress(ConnectionError):
                while True:
                    writer.write(b"%x\r\n%s\r\n" % (len(part), part))
                    await writer.drain()
                    written += len(part)

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        transport = Transport(httpx.URL(url), connections=1, idle_seconds=60)
        response = await transport.handle_async_request(asked(url))
        before = -1
        while written != before:
            before = written
            await asyncio.sleep(0.1)
        assert written < 64 << 20  # what the buffers of both sockets and of the transport take
        body = response.aiter_raw()
        read = 0
        while read <= before + len(part):  # it goes on where it is read
            read += len(await anext(body))
        await response.aclose()
        server.close()

    asyncio.run(main())


def test_a_large_body_goes_up_whole() -> None:
    body = bytes(range(256)) * (1 << 15)

    async def main() -> None:
        got = b""

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal got
            got = await read_request(reader)
            writer.write(OK)

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        transport = Transport(httpx.URL(url), connections=1, idle_seconds=60)
        assert await answered(transport, url, body) == (200, b"ok")
        assert got == body
        await transport.aclose()
        server.close()

    asyncio.run(main())
