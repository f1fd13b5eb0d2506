"""A deadline is of the whole answer, its size is bounded, and what is no answer is refused."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from toktier.cache.second_level_exchange import Exchange, Garbled, Refused


class Connection:
    """As much of the client library's as an exchange uses."""

    def __init__(self, end: socket.socket) -> None:
        self._sock = end
        self.disconnected = False

    def pack_command(self, *command: Any) -> list[bytes]:
        return [b"".join(part if isinstance(part, bytes) else str(part).encode() for part in command)]

    def disconnect(self) -> None:
        self.disconnected = True
        self._sock.close()


@pytest.fixture
def ends() -> Iterator[tuple[Exchange, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Exchange(Connection(ours)), theirs


def asked(exchange: Exchange, most: int = 100, seconds: float = 60.0) -> bytes | None:
    answer = exchange.ask(b"x", deadline=time.monotonic() + seconds, most=most)
    return None if answer is None else bytes(answer)


@pytest.mark.parametrize(("answer", "expected"), [
    (b"$3\r\nabc\r\n", b"abc"), (b"$0\r\n\r\n", b""), (b"$-1\r\n", None), (b"+OK\r\n", b"OK"), (b":7\r\n", b"7"),
    (b"$4\r\n\r\n\r\n\r\n", b"\r\n\r\n"),
])  # fmt: skip
def test_answers_are_read_whole_however_they_come(
    ends: tuple[Exchange, socket.socket], answer: bytes, expected: bytes | None
) -> None:
    exchange, server = ends
    server.sendall(answer)
    assert asked(exchange) == expected
    for cut in range(1, len(answer)):  # in two pieces: the second comes when the first was read
        server.sendall(answer[:cut])
        timer = threading.Timer(0.002, server.sendall, (answer[cut:],))
        timer.start()
        assert asked(exchange) == expected
        timer.join()


@pytest.mark.parametrize("answer", [
    b"HTTP/1.1 400 Bad Request\r\n\r\n", b"*1\r\n$1\r\na\r\n", b"$101\r\n", b"$99999999999\r\n", b"$x\r\n", b"$\r\n",
    b"$-2\r\n", b"$3\r\nabcde", b"$3\r\nabc\r\n+OK\r\n", b"$-1\r\n$-1\r\n", b"\r\n", b"x" * 80_000,
])  # fmt: skip
def test_what_is_no_answer_is_refused(ends: tuple[Exchange, socket.socket], answer: bytes) -> None:
    exchange, server = ends
    sender = threading.Thread(target=server.sendall, args=(answer,))
    sender.start()
    with pytest.raises(Garbled):
        asked(exchange)
    exchange.close()
    sender.join()


@pytest.mark.parametrize(("line", "word"), [
    (b"-NOSCRIPT No matching script.", "NOSCRIPT"), (b"-OOM", "OOM"), (b"-ERR unknown command 'secret'", "ERR"),
    (b"-what? secret", "ERR"), (b"-WRONGPASSword", "ERR"), (b"-", "ERR"),
])  # fmt: skip
def test_an_error_is_its_word_alone(ends: tuple[Exchange, socket.socket], line: bytes, word: str) -> None:
    exchange, server = ends
    server.sendall(line + b"\r\n$2\r\n")
    with pytest.raises(Garbled):  # something follows: whose is it?
        asked(exchange)
    server.sendall(line + b"\r\n")
    with pytest.raises(Refused) as caught:
        asked(exchange)
    assert caught.value.word == word
    assert str(caught.value) == word


def test_an_answer_that_dribbles_ends_at_the_deadline(ends: tuple[Exchange, socket.socket]) -> None:
    """Each byte comes long before a time-out of single reads; all of them would take minutes."""
    exchange, server = ends
    gone = threading.Event()

    def dribble() -> None:
        server.sendall(b"$60000\r\n")
        while not gone.wait(0.01):
            try:
                server.sendall(b"x")
            except OSError:
                return

    dribbler = threading.Thread(target=dribble)
    dribbler.start()
    with pytest.raises(TimeoutError):
        asked(exchange, 60_000, 0.1)
    exchange.close()
    gone.set()
    dribbler.join()


def test_a_server_that_reads_nothing_ends_at_the_deadline_too(ends: tuple[Exchange, socket.socket]) -> None:
    exchange, _ = ends
    with pytest.raises(TimeoutError):
        exchange.ask(bytes(64 << 20), deadline=time.monotonic() + 0.1, most=1)
    with pytest.raises(TimeoutError):  # a deadline that is over costs nothing
        exchange.ask(b"x", deadline=time.monotonic() - 1, most=1)


@pytest.mark.parametrize("begun", [b"", b"$3", b"$3\r\nab"])
def test_a_connection_that_is_closed_is_lost(ends: tuple[Exchange, socket.socket], begun: bytes) -> None:
    exchange, server = ends
    server.sendall(begun)
    server.close()
    with pytest.raises(ConnectionError):
        asked(exchange)
