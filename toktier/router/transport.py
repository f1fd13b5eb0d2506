"""HTTP/1.1 to one upstream: h11 on a protocol of asyncio, as a transport of httpx.

httpx's own transport needs five to ten times the processor time for the same bytes, which shows where a chat asks an
upstream three times (docs/router-benchmarks.md). What may come from an upstream is what h11 lets through; headers are
bounded by it, bodies by whoever reads. A connection is used again only when its last answer was whole, nothing came
behind that, and it did not idle too long. Not here: proxies, redirects, HTTP/2, and time-outs but those of connecting.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import AsyncIterator
from typing import Final

import h11
import httpx

_BUFFER: Final = 256 << 10  # bytes that wait to be read before the upstream is told to wait


class Transport(httpx.AsyncBaseTransport):
    """To the host and port of `url`. For one event loop.

    Raises as httpx's: ConnectError, ConnectTimeout, PoolTimeout, ReadError, WriteError, RemoteProtocolError,
    LocalProtocolError. `connect` and `pool` of a request's time-outs are minded, others are not.
    """

    def __init__(self, url: httpx.URL, *, connections: int, idle_seconds: float) -> None:
        """`connections`: the most at once; `idle_seconds`: how long one may wait for its next request."""
        tls = url.scheme == "https"
        self._host, self._port = url.host, url.port or (443 if tls else 80)
        self._tls = httpx.create_ssl_context(trust_env=False) if tls else None  # 20 ms, which HTTP does not need
        self._idle_seconds = idle_seconds
        self._room = asyncio.Semaphore(connections)
        self._idle: list[_Connection] = []  # the one used last at the end

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        timeouts = request.extensions.get("timeout", {})
        try:
            async with asyncio.timeout(timeouts.get("pool")):
                await self._room.acquire()
        except TimeoutError:
            raise httpx.PoolTimeout("no connection became free") from None
        connection: _Connection | None = None
        try:
            connection = self._kept() or await self._connected(timeouts.get("connect"))
            head = await connection.ask(request)
        except BaseException:
            self._end(connection)
            raise
        return httpx.Response(head.status_code, headers=head.headers.raw_items(), stream=_Body(self, connection))

    async def aclose(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _kept(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_kept(self._idle_seconds):
                return connection
            connection.close()
        return None

    async def _connected(self, seconds: float | None) -> _Connection:
        loop = asyncio.get_running_loop()
        name = self._host if self._tls is not None else None
        try:
            async with asyncio.timeout(seconds):
                _, connection = await loop.create_connection(
                    lambda: _Connection(loop), self._host, self._port, ssl=self._tls, server_hostname=name
                )
        except TimeoutError:
            raise httpx.ConnectTimeout("the connection took too long") from None
        except OSError as error:
            raise httpx.ConnectError(_why(error)) from None
        return connection

    def _end(self, connection: _Connection | None) -> None:
        """Of one request; its connection waits for the next where it can."""
        self._room.release()
        if connection is not None:
            if connection.begin_anew():
                self._idle.append(connection)
            else:
                connection.close()
        # Those at the front have idled longest, and one that is not used is nobody's to close.
        while self._idle and not self._idle[0].is_kept(self._idle_seconds):
            self._idle.pop(0).close()


def _why(error: OSError) -> str:
    """In the system's words, without addresses: asyncio's own message has them, and of several addresses all."""
    if isinstance(error, socket.gaierror | ssl.SSLError):  # their numbers are not those of the system
        return error.strerror or type(error).__name__
    return os.strerror(error.errno) if error.errno else "none of its addresses takes the connection"


class _Body(httpx.AsyncByteStream):
    def __init__(self, transport: Transport, connection: _Connection) -> None:
        self._transport, self._connection = transport, connection
        self._open = True

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (data := await self._connection.data()) is not None:
            yield data

    async def aclose(self) -> None:
        if self._open:
            self._open = False
            self._transport._end(self._connection)


class _Connection(asyncio.Protocol):
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._parser = h11.Connection(h11.CLIENT)
        self._received: list[bytes] = []
        self._size = 0
        self._paused = self._ended = False
        self._failure: Exception | None = None
        self._arrival: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None  # while the transport takes no more to write
        self._since = 0.0

    # As asyncio calls it

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received.append(data)
        self._size += len(data)
        if self._size > _BUFFER and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        _wake(self._arrival)

    def eof_received(self) -> bool:
        self._ended = True
        _wake(self._arrival)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended, self._failure = True, exc
        _wake(self._arrival)
        _wake(self._room)

    def pause_writing(self) -> None:
        self._room = self._loop.create_future()

    def resume_writing(self) -> None:
        _wake(self._room)
        self._room = None

    # As the transport uses it

    def is_kept(self, idle_seconds: float) -> bool:
        """Whether it may carry another request: what came unasked would be taken for its answer."""
        return not self._ended and not self._received and self._loop.time() - self._since < idle_seconds

    def begin_anew(self) -> bool:
        """Behind an answer. False: it was not read whole, or is the last of the connection."""
        if self._ended or self._received or self._parser.their_state is not h11.DONE:
            return False
        if self._parser.our_state is not h11.DONE or self._parser.trailing_data[0]:
            return False
        self._parser.start_next_cycle()
        self._since = self._loop.time()
        return True

    def close(self) -> None:
        """Now, and not when the loop comes to it: an upstream that evaluates for nobody holds up others. What was not
        written yet, nobody wants."""
        with contextlib.suppress(OSError):  # it ended by itself
            self._transport.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
        self._transport.abort()

    async def ask(self, request: httpx.Request) -> h11.Response:
        """The head of the answer."""
        head = h11.Request(method=request.method, target=request.url.raw_path, headers=request.headers.raw)
        try:
            parts = [self._parser.send(event) for event in (head, h11.Data(data=request.content), h11.EndOfMessage())]
        except h11.LocalProtocolError as error:
            raise httpx.LocalProtocolError(str(error)) from None
        self._transport.write(b"".join(part for part in parts if part))
        if self._room is not None:
            await self._room
        while True:
            event = await self._event()
            if isinstance(event, h11.Response):
                return event
            if not isinstance(event, h11.InformationalResponse) or event.status_code == 101:
                raise httpx.RemoteProtocolError("an upgrade was answered that nobody asked for")

    async def data(self) -> bytes | None:
        """The next part of the body; None: it is whole."""
        event = await self._event()
        return bytes(event.data) if isinstance(event, h11.Data) else None

    async def _event(self) -> h11.Event:
        while True:
            try:
                event = self._parser.next_event()
                if event is h11.NEED_DATA:
                    self._parser.receive_data(await self._more())
                    continue
            except h11.RemoteProtocolError as error:
                raise httpx.RemoteProtocolError(str(error)) from None
            if isinstance(event, h11.ConnectionClosed) or not isinstance(event, h11.Event):
                raise httpx.RemoteProtocolError("server disconnected without sending a response")
            return event

    async def _more(self) -> bytes:
        """What came; empty: the other side has ended."""
        while not self._received:
            if self._failure is not None:
                raise httpx.ReadError(str(self._failure))
            if self._ended:
                if self._parser.their_state is h11.SEND_RESPONSE:
                    raise httpx.RemoteProtocolError("server disconnected without sending a response")
                return b""
            self._arrival = self._loop.create_future()
            try:
                await self._arrival
            finally:
                self._arrival = None
        data = b"".join(self._received)
        self._received.clear()
        self._size = 0
        if self._paused:
            self._paused = False
            self._transport.resume_reading()
        return data


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
