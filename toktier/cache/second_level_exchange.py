"""One command and its answer over a connection, ended by a deadline whatever the other side does.

The client library's time-outs are of each read, so that an answer that comes in small pieces, or slowly, takes as long
as it likes; here the deadline is of the whole, and so is the size of an answer. Connecting, TLS, credentials and the
packing of commands are the library's. Not for pipelines: a connection that did not bring its answer is of no use.
"""

from __future__ import annotations

import re
import time
from typing import Any

_LINE_BYTES = 4096
_READ_BYTES = 64 << 10
_WORD = re.compile(rb"[A-Z]{2,24}(?= |$)")


class Refused(Exception):
    """The server answered with an error. `word` names it, nothing else of it is kept: it can quote what was sent."""

    def __init__(self, word: str) -> None:
        super().__init__(word)
        self.word = word


class Garbled(Exception):
    """What came is no answer to what was asked."""


class Exchange:
    """One question at a time. After an error other than Refused, only `close` may follow."""

    def __init__(self, connection: Any) -> None:
        """`connection`: a connected `redis.connection.Connection`, which nobody else uses from now on."""
        self._connection = connection
        self._socket = connection._sock  # the library has no public way to it, and no deadline without it

    def ask(self, *command: bytes | str | int, deadline: float, most: int) -> memoryview | None:
        """The answer, a string of at most `most` bytes or nil. `deadline` is of `time.monotonic`.

        Raises TimeoutError, another OSError when the connection is lost, Refused and Garbled.
        """
        for part in self._connection.pack_command(*command):
            view = memoryview(part)
            while view:
                view = view[self._with(deadline).send(view) :]
        return self._answer(deadline, most)

    def close(self) -> None:
        self._connection.disconnect()

    def _with(self, deadline: float) -> Any:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._socket.settimeout(left)
        return self._socket

    def _answer(self, deadline: float, most: int) -> memoryview | None:
        come = bytearray()
        while (end := come.find(b"\r\n")) < 0:
            if len(come) > _LINE_BYTES:
                raise Garbled
            piece = self._with(deadline).recv(_READ_BYTES)
            if not piece:
                raise ConnectionResetError
            come += piece
        kind, line, rest = come[:1], bytes(come[1:end]), memoryview(come)[end + 2 :]
        if kind == b"$" and line != b"-1":
            return self._string(_number(line, most), rest, deadline)
        if rest:
            raise Garbled
        if kind == b"-":
            word = _WORD.match(line)
            raise Refused("ERR" if word is None else word[0].decode())
        if kind == b"$":
            return None
        if kind in b"+:":
            return memoryview(line)
        raise Garbled

    def _string(self, size: int, begun: memoryview, deadline: float) -> memoryview:
        if len(begun) > size + 2:
            raise Garbled
        whole = memoryview(bytearray(size + 2))
        at = len(begun)
        whole[:at] = begun
        while at < len(whole):
            got = self._with(deadline).recv_into(whole[at:])
            if not got:
                raise ConnectionResetError
            at += got
        if bytes(whole[size:]) != b"\r\n":
            raise Garbled
        return whole[:size].toreadonly()


def _number(digits: bytes, most: int) -> int:
    if not digits.isdigit() or len(digits) > 10 or int(digits) > most:
        raise Garbled
    return int(digits)
