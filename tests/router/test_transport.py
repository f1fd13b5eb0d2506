"""The transport to an upstream, on real sockets: which connections are used again, and what of an upstream is an error.

A server here says for each connection, request by request, what is written and whether the connection ends then. Laws
about answers that pass are tested behind `Upstream` (test_upstream.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import httpx
import pytest

from toktier.router.transport import Head, Reply, Transport, head

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
NOT_PLAIN = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx-odd: \xff\r\n\r\nok"  # h11 reads it
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
EOF = b"<the end>"
Use = Callable[[Transport, str, list[int]], Awaitable[Any]]
SECONDS = 180.0  # until a test gives up


async def read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    return await reader.readexactly(int(length.split(b":")[1]))


def opened(url: str, *, connections: int = 1, idle: float = 60.0, connect: float = SECONDS) -> Transport:
    return Transport(httpx.URL(url), connections=connections, idle_seconds=idle, connect_seconds=connect)


def run(
    answers: Sequence[Sequence[bytes]],
    use: Use,
    *,
    connections: int = 4,
    idle: float = 60.0,
    connect: float = SECONDS,
) -> Any:
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
        transport = opened(url, connections=connections, idle=idle, connect=connect)
        try:
            async with asyncio.timeout(SECONDS):
                return await use(transport, url, requests)
        finally:
            transport.close()
            server.close()

    return asyncio.run(main())


def posts(url: str, *, last: bool = False) -> Head:
    return head("POST", httpx.URL(f"{url}/completion"), {"accept": "*/*"}, last=last)


async def parts(reply: Reply) -> list[bytes]:
    found = []
    while (part := await reply.part()) is not None:
        found.append(part)
    return found


async def answered(transport: Transport, url: str, body: bytes = b"{}", *, last: bool = False) -> tuple[int, bytes]:
    reply = await transport.ask(posts(url, last=last), body)
    try:
        return reply.status, b"".join(await parts(reply))
    finally:
        reply.close()


async def turns() -> None:
    """Until all that is on its way over loopback has come, and both ends have seen it."""
    await asyncio.sleep(0.05)
    for _ in range(20):  # what came while the host was busy elsewhere is seen in these
        await asyncio.sleep(0)


@pytest.mark.parametrize("answer", [OK, NOT_PLAIN, CHUNKED], ids=["plain", "not-plain", "chunked"])
def test_a_connection_is_used_again_behind_a_whole_answer(answer: bytes) -> None:
    async def use(transport: Transport, url: str, requests: list[int]) -> None:
        assert [await answered(transport, url) for _ in range(4)] == [(200, b"ok")] * 4
        assert requests == [4]

    run([[answer, answer, OK, answer]], use)


@pytest.mark.parametrize("answer", [OK, NOT_PLAIN, CHUNKED], ids=["plain", "not-plain", "chunked"])
def test_a_request_that_is_the_last_of_its_connection_is(answer: bytes) -> None:
    async def use(transport: Transport, url: str, requests: list[int]) -> None:
        assert await answered(transport, url, last=True) == (200, b"ok")
        assert await answered(transport, url) == (200, b"ok")
        assert requests == [1, 1]

    run([[answer, OK], [OK]], use)


@pytest.mark.parametrize("answer", [OK, NOT_PLAIN, CHUNKED], ids=["plain", "not-plain", "chunked"])
def test_an_answer_in_single_bytes_is_the_same(answer: bytes) -> None:
    async def main() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(asyncio.IncompleteReadError):
                while True:
                    await read_request(reader)
                    for byte in answer:
                        writer.write(bytes([byte]))
                        await writer.drain()
                        await asyncio.sleep(0.001)
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        transport = opened(url)
        for _ in range(2):
            assert await answered(transport, url) == (200, b"ok")
        transport.close()
        server.close()

    asyncio.run(main())


def test_a_body_goes_on_behind_what_came_with_its_head_and_its_connection_is_free_with_its_end() -> None:
    body = bytes(range(256)) * 2048

    async def use(transport: Transport, url: str, requests: list[int]) -> None:
        reply = await transport.ask(posts(url), b"{}")
        first = reply.at_hand()
        assert first is None or body.startswith(first)
        assert (first or b"") + b"".join(await parts(reply)) == body
        assert reply.is_over
        assert reply.at_hand() is None
        assert await reply.part() is None
        assert await answered(transport, url) == (200, b"ok")  # while the first is not closed by its reader
        reply.close()
        assert requests == [2]

    run([[b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body, OK]], use, connections=1)


@pytest.mark.parametrize("read", [0, 1], ids=["head", "half"])
def test_an_answer_of_a_known_length_that_is_left_early_ends_its_connection(read: int) -> None:
    async def use(transport: Transport, url: str, requests: list[int]) -> None:
        reply = await transport.ask(posts(url), b"{}")
        for _ in range(read):
            assert await reply.part() == b"half"
        reply.close()
        assert await answered(transport, url) == (200, b"ok")
        assert requests == [1, 1]

    run([[b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"], [OK]], use, connections=1)


@pytest.mark.parametrize("name", [b"content-type", b"x-odd"])
def test_values_of_a_header_that_comes_twice_are_joined(name: bytes) -> None:
    async def use(transport: Transport, url: str, requests: list[int]) -> None:
        reply = await transport.ask(posts(url), b"{}")
        assert reply.headers[name] == b"a, b"
        assert await parts(reply) == [b"ok"]

    run([[OK.replace(b"\r\n\r\n", b"\r\n%s: a\r\n%s:b \r\n\r\n" % (name, name.upper()))]], use)


@pytest.mark.parametrize("value", ["a\r\nb: c", "a\nb", "\0"])
def test_what_may_not_stand_in_a_head_is_not_sent(value: str) -> None:
    with pytest.raises(httpx.LocalProtocolError):
        head("POST", httpx.URL("http://127.0.0.1:1/"), {"authorization": value})


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
        transport = opened(url)
        reply = await transport.ask(posts(url), b"{}")
        assert await reply.part() == b"abc"
        reply.close()
        async with asyncio.timeout(SECONDS):
            await gone.wait()
        server.close()

    asyncio.run(main())


def test_chunks_come_one_by_one_and_as_they_were_sent() -> None:
    answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"".join(
        b"%x\r\n%s\r\n" % (len(part), part) for part in (b"data: 1\n\n", b"data: 22\n\n")
    )

    async def use(transport: Transport, url: str, requests: list[int]) -> None:
        reply = await transport.ask(posts(url), b"{}")
        assert await parts(reply) == [b"data: 1\n\n", b"data: 22\n\n"]
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
        with socket.socket() as taken:  # by nobody who listens
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
            other = opened(f"http://127.0.0.1:{port}")
            for _ in range(2):  # the place that the first had is free again
                with pytest.raises(httpx.ConnectError):
                    await other.ask(posts(f"http://127.0.0.1:{port}"), b"{}")

    run([], use)


def test_a_server_without_tls_is_no_https() -> None:
    async def use(transport: Transport, url: str, requests: list[int]) -> None:
        secure = url.replace("http:", "https:")
        other = opened(secure, connect=0.3)
        with pytest.raises((httpx.ConnectError, httpx.ConnectTimeout)):
            await other.ask(posts(secure), b"{}")

    run([[b"HTTP/1.1 400 Bad Request\r\n\r\n" + EOF]], use)


def test_requests_beyond_the_connections_wait_and_are_refused_in_time() -> None:
    async def use(transport: Transport, url: str, requests: list[int]) -> None:
        first = await transport.ask(posts(url), b"{}")
        transport._connect_seconds = 0.2
        with pytest.raises(httpx.PoolTimeout):
            await transport.ask(posts(url), b"{}")
        transport._connect_seconds = SECONDS
        second = asyncio.ensure_future(answered(transport, url))
        await asyncio.sleep(0)  # it waits now
        assert b"".join(await parts(first)) == b"ok"
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
        transport = opened(url)
        reply = await transport.ask(posts(url), b"{}")
        before = -1
        while written != before:
            before = written
            await asyncio.sleep(0.1)
        assert written < 64 << 20  # what the buffers of both sockets and of the transport take
        read = 0
        while read <= before + len(part):  # it goes on where it is read
            read += len(await reply.part() or b"")
        reply.close()
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
        transport = opened(url)
        assert await answered(transport, url, body) == (200, b"ok")
        assert got == body
        transport.close()
        server.close()

    asyncio.run(main())
