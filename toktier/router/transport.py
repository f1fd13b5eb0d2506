"""HTTP/1.1 to one upstream, on a protocol of asyncio, with the errors of httpx.

httpx's own transport needs five to ten times the processor time for the same bytes, which shows where a chat asks an
upstream three times (docs/router-benchmarks.md). What may come from an upstream is what h11 lets through. It reads
whatever is out of the ordinary, streams among it: a head that says no more than a length, in characters that leave no
question, is read here, in a fifth of the time. Headers are bounded, bodies by whoever reads. A connection is used again
only when its last answer was whole, nothing came behind that, and it did not idle too long. Not here: proxies,
redirects, HTTP/2, methods but GET and POST, and time-outs but those of connecting.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import h11
import httpx

_BUFFER: Final = 256 << 10  # bytes that wait to be read before the upstream is told to wait

# A head that h11 reads to the same end: visible ASCII, each line ended by CRLF, and none continued. 16 KiB, as h11 has
# it for one that comes in pieces. Possessive: nothing is tried twice.
_PLAIN: Final = re.compile(rb"HTTP/1\.1 ([2-5][0-9]{2}) [ -~]*+\r\n((?:[A-Za-z0-9-]++:[\t -~]*+\r\n)++)\r\n")
_MAX_PLAIN: Final = 16 << 10
_LENGTH: Final = re.compile(rb"[0-9]{1,15}")
_BODILESS: Final = (204, 304)

Headers: TypeAlias = Mapping[bytes, bytes]
"""Of an answer, by names in small letters. Values of a name that came more than once are joined by commas."""


@dataclass(frozen=True, slots=True)
class Head:
    """Of requests: `written`, but for the length of the body and the end. `last`: its connection carries no other."""

    written: bytes
    last: bool


def head(method: str, url: httpx.URL, headers: Mapping[str, str], *, last: bool = False) -> Head:
    """`method`: GET or POST. Raises httpx.LocalProtocolError for what may not stand in a head."""
    given = {"host": url.netloc.decode("ascii"), **headers, "connection": "close" if last else "keep-alive"}
    try:
        written = h11.Connection(h11.CLIENT).send(
            h11.Request(method=method, target=url.raw_path, headers=list(given.items()))
        )
    except h11.LocalProtocolError as error:
        raise httpx.LocalProtocolError(str(error)) from None
    assert written is not None
    return Head(written.removesuffix(b"\r\n"), last)


class Reply:
    """An answer whose head has come. `status`: from 200 on. To be closed, read or not; one that was read to its end is
    closed already."""

    __slots__ = ("_connection", "_open", "_transport", "headers", "status")

    def __init__(self, transport: Transport, connection: _Connection, status: int, headers: Headers) -> None:
        self.status, self.headers = status, headers
        self._transport, self._connection = transport, connection
        self._open = True

    @property
    def is_over(self) -> bool:
        return not self._open

    def at_hand(self) -> bytes | None:
        """The next part of the body, where it came with the head; None: `part` has it, or the body is over."""
        part = self._connection.at_hand() if self._open else None
        if part is not None and self._connection.is_whole():
            self.close()
        return part

    async def part(self) -> bytes | None:
        """The next part of the body; None: it is whole. Raises ReadError, RemoteProtocolError."""
        if not self._open:
            return None
        part = await self._connection.data()
        if part is None or self._connection.is_whole():
            self.close()
        return part

    def close(self) -> None:
        if self._open:
            self._open = False
            self._transport._end(self._connection)


class Transport:
    """To the host and port of `url`. For one event loop.

    Raises as httpx's: ConnectError, ConnectTimeout, PoolTimeout, ReadError, WriteError, RemoteProtocolError.
    """

    def __init__(self, url: httpx.URL, *, connections: int, idle_seconds: float, connect_seconds: float) -> None:
        """`connections`: the most at once; `idle_seconds`: how long one may wait for its next request;
        `connect_seconds`: how long a request may wait for a connection to become free, and again to be made."""
        tls = url.scheme == "https"
        self._host, self._port = url.host, url.port or (443 if tls else 80)
        self._tls = httpx.create_ssl_context(trust_env=False) if tls else None  # 20 ms, which HTTP does not need
        self._idle_seconds, self._connect_seconds = idle_seconds, connect_seconds
        self._room = asyncio.Semaphore(connections)
        self._idle: list[_Connection] = []  # the one used last at the end

    async def ask(self, head: Head, body: bytes | None) -> Reply:
        """`body`: None: of a request that has none."""
        if self._room.locked():
            try:
                async with asyncio.timeout(self._connect_seconds):
                    await self._room.acquire()
            except TimeoutError:
                raise httpx.PoolTimeout("no connection became free") from None
        else:
            await self._room.acquire()  # which does not wait
        connection: _Connection | None = None
        try:
            connection = self._kept() or await self._connected()
            status, headers = await connection.ask(head, body)
        except BaseException:
            self._end(connection)
            raise
        return Reply(self, connection, status, headers)

    def close(self) -> None:
        """Connections that wait for a request."""
        while self._idle:
            self._idle.pop().close()

    def _kept(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_kept(self._idle_seconds):
                return connection
            connection.close()
        return None

    async def _connected(self) -> _Connection:
        loop = asyncio.get_running_loop()
        name = self._host if self._tls is not None else None
        try:
            async with asyncio.timeout(self._connect_seconds):
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


def _plain(data: bytes) -> tuple[int, Headers, int, int] | None:
    """Status, headers, length of the body and where it begins, of an answer with a plain head; None: h11 has to say."""
    found = _PLAIN.match(data, 0, _MAX_PLAIN)
    if found is None or (status := int(found[1])) in _BODILESS:
        return None
    lines = found[2].split(b"\r\n")[:-1]
    headers = {}
    for line in lines:
        name, _, value = line.partition(b":")
        headers[name.lower()] = value.strip(b" \t")
    length = headers.get(b"content-length", b"")
    if len(headers) != len(lines) or not _LENGTH.fullmatch(length):
        return None
    if b"transfer-encoding" in headers or b"connection" in headers:
        return None
    return status, headers, int(length), found.end()


def _parser() -> h11.Connection:
    """For the answer to one request that was written."""
    parser = h11.Connection(h11.CLIENT)
    parser.send(h11.Request(method="GET", target="/", headers=[("host", "upstream")]))
    parser.send(h11.EndOfMessage())
    return parser


def _joined(fields: Iterable[tuple[bytes, bytes]]) -> Headers:
    headers: dict[bytes, bytes] = {}
    for name, value in fields:
        headers[name] = headers[name] + b", " + value if name in headers else value
    return headers


class _Connection(asyncio.Protocol):
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._parser: h11.Connection | None = None  # of an answer whose head is not plain
        self._left = 0  # bytes of the body that nobody has taken yet, where the head is plain
        self._came = b""  # of the body, with a plain head
        self._whole = self._too_much = self._last = False
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
        if self._ended or self._received or self._last or self._too_much or not self._whole:
            return False
        if self._parser is not None:
            if self._parser.their_state is not h11.DONE or self._parser.trailing_data[0]:
                return False
            self._parser = None
        self._since = self._loop.time()
        return True

    def close(self) -> None:
        """Now, and not when the loop comes to it: an upstream that evaluates for nobody holds up others. What was not
        written yet, nobody wants."""
        with contextlib.suppress(OSError):  # it ended by itself
            self._transport.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
        self._transport.abort()

    async def ask(self, head: Head, body: bytes | None) -> tuple[int, Headers]:
        """Status and headers of the answer."""
        self._whole, self._last = False, head.last
        length = b"" if body is None else b"content-length: %d\r\n" % len(body)
        self._transport.write(b"".join((head.written, length, b"\r\n", body or b"")))
        if self._room is not None:
            await self._room
        data = await self._more()
        if not data:
            raise httpx.RemoteProtocolError("server disconnected without sending a response")
        plain = _plain(data)
        if plain is not None:
            status, headers, self._left, begin = plain
            self._came = data[begin : begin + self._left]
            self._too_much = len(data) > begin + self._left
            self._whole = not self._left
            return status, headers
        self._parser = _parser()
        self._parser.receive_data(data)
        while True:
            event = await self._event(self._parser)
            if isinstance(event, h11.Response):
                return event.status_code, _joined(event.headers)
            if not isinstance(event, h11.InformationalResponse) or event.status_code == 101:
                raise httpx.RemoteProtocolError("an upgrade was answered that nobody asked for")

    def is_whole(self) -> bool:
        """Whether the body is known to be over; of one that h11 reads, the call of `data` that gives None says so."""
        return self._whole

    def at_hand(self) -> bytes | None:
        part, self._came = self._came, b""
        self._left -= len(part)
        self._whole = self._whole or (bool(part) and not self._left)
        return part or None

    async def data(self) -> bytes | None:
        """The next part of the body; None: it is whole."""
        if self._whole:
            return None
        if self._parser is not None:
            event = await self._event(self._parser)
            if isinstance(event, h11.Data):
                return bytes(event.data)
            self._whole = True
            return None
        if self._came:
            return self.at_hand()
        part = await self._more()
        if not part:
            raise httpx.RemoteProtocolError("peer closed connection without sending complete message body")
        if len(part) > self._left:
            self._too_much, part = True, part[: self._left]
        self._left -= len(part)
        self._whole = not self._left
        return part

    async def _event(self, parser: h11.Connection) -> h11.Event:
        while True:
            try:
                event = parser.next_event()
                if event is h11.NEED_DATA:
                    data = await self._more()
                    if not data and parser.their_state is h11.SEND_RESPONSE:
                        raise httpx.RemoteProtocolError("server disconnected without sending a response")
                    parser.receive_data(data)
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
