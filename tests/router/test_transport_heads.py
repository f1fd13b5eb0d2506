"""Heads of answers that the transport reads by itself: what it takes for plain, h11 reads in the same way."""

from __future__ import annotations

from itertools import product

import h11
import pytest

from toktier.router.transport import _plain

PLAIN = b"HTTP/1.1 200 OK\r\nKeep-Alive: timeout=5, max=100\r\nContent-Length: 2\r\nx-a: \r\n\r\nok"
ODD_LINES = (
    *(b"Content-Length: 2", b"content-length: 3", b"content-length: 02", b"content-length: 2, 2", b"content-length:"),
    *(b"content-length: +2", b"content-length: 1_0", b"content-length: -2", b"content-length: 99999999999999999999"),
    *(b"Transfer-Encoding: chunked", b"transfer-encoding: gzip", b"Connection: close", b"connection: keep-alive"),
    *(b"Access-Control-Allow-Origin: ", b"content-type:\ta/b; c=d \t", b"x:y:z", b"Keep-Alive: a", b"upgrade: h2c"),
    *(
        b" folded",
        b"\tfolded",
        b"no colon",
        b": no name",
        b"sp ace: a",
        b"space : a",
        b"x_y!: a",
        b"x: \x7f",
        b"x: \xff",
    ),
    *(b"x: a\rb", b"x: a\nb", b"x: a\0b", b"x: a\vb", b"x:", b"", b"\r", b"\n", b"x" * 20_000 + b": y"),
)
STATUS_LINES = (
    *(b"HTTP/1.1 200 OK", b"HTTP/1.1 500 Internal Server Error", b"HTTP/1.1 200 ", b"HTTP/1.1 200", b"HTTP/1.1 600 X"),
    *(b"HTTP/1.1 204 None", b"HTTP/1.1 304 Same", b"HTTP/1.1 100 Go on", b"HTTP/1.1 101 Other", b"HTTP/1.1 099 X"),
    *(
        b"HTTP/1.0 200 OK",
        b"HTTP/1.2 200 OK",
        b"HTTP/2 200 OK",
        b"http/1.1 200 OK",
        b" HTTP/1.1 200 OK",
        b"",
        b"200 OK",
    ),
    *(b"HTTP/1.1  200 OK", b"HTTP/1.1 2000 OK", b"HTTP/1.1 200 O\xffK", b"HTTP/1.1 200 O\nK", b"HTTP/1.1 200 O\rK"),
)


def is_plain(data: bytes) -> bool:
    """Whether the head is read without h11, which then has to read the same."""
    plain = _plain(data)
    if plain is None:
        return False
    status, headers, length, begin = plain
    body = data[begin:]
    parser = h11.Connection(h11.CLIENT)
    parser.send(h11.Request(method="POST", target="/", headers=[("host", "a")]))
    parser.send(h11.EndOfMessage())
    parser.receive_data(data)
    event = parser.next_event()
    assert isinstance(event, h11.Response)
    assert event.status_code == status
    assert list(event.headers) == list(headers.items())
    read = b""
    while isinstance(event := parser.next_event(), h11.Data):
        read += event.data
    assert read == body[:length]
    if length > len(body):
        assert event is h11.NEED_DATA
    else:
        assert isinstance(event, h11.EndOfMessage)
        assert parser.trailing_data[0] == body[length:]
        assert parser.their_state is h11.DONE  # and not MUST_CLOSE
    return True


def test_a_head_that_is_taken_for_plain_says_the_same_to_h11() -> None:
    found = []
    for status_line, line, end, body in product(STATUS_LINES, ODD_LINES, (b"\r\n", b"\n"), (b"ok", b"", b"okay")):
        for lines in ([line], [b"Content-Length: 2", line], [line, b"Content-Length: 2"]):
            found.append(is_plain(end.join([status_line, *lines, b"", b""]) + body))
    assert 50 < sum(found) < len(found) / 10


def test_a_plain_head_with_one_other_byte_says_the_same_to_h11() -> None:
    found = [
        is_plain(PLAIN[:place] + bytes([byte]) + PLAIN[place + 1 :])
        for place in range(len(PLAIN) - 2)
        for byte in range(256)
    ]
    assert len(found) / 10 < sum(found) < len(found) / 2


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(b"", id="nothing else"),
        pytest.param(
            b"Keep-Alive: timeout=5, max=100\r\nContent-Type: application/json; charset=utf-8\r\n", id="as it is"
        ),
        pytest.param(b"Access-Control-Allow-Origin: \r\n", id="an empty value"),
    ],
)
def test_what_a_llama_server_says_is_plain(said: bytes) -> None:
    data = b"HTTP/1.1 200 OK\r\n" + said + b"Server: llama.cpp\r\nContent-Length: 2\r\n\r\nok"
    plain = _plain(data)
    assert plain is not None
    assert (plain[0], plain[2], data[plain[3] :]) == (200, 2, b"ok")
