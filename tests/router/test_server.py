"""The server, from its first line to its last: it tells when it serves, drains, and ends at once when asked twice."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
from pathlib import Path

import pytest

from tests.router.running import UPSTREAM, running
from toktier.errors import EnvironmentFault, ExitCode
from toktier.router import server


def test_it_says_one_line_when_it_serves_and_one_at_its_end(tmp_path: Path) -> None:
    with running(tmp_path, *UPSTREAM) as router:
        router.ready()
        assert router.said == f"serving on http://127.0.0.1:{router.port}; upstreams http://127.0.0.1:9\n"
        assert router.get("/health")[::2] == (200, b'{"status":"ok"}')
        router.signal(signal.SIGTERM)
        assert router.end() == (0, "ended; requests answered: 1\n", "stub: ended")


def test_the_lines_of_json_follow_their_schemas(tmp_path: Path) -> None:
    from tests.cli.command import validator

    with running(tmp_path, *UPSTREAM, "--json", "--quiet") as router:
        ready = json.loads(router.ready().said)
        validator("serve_ready").validate(ready)
        assert (ready["pid"], ready["upstreams"]) == (router.process.pid, ["http://127.0.0.1:9"])
        router.signal(signal.SIGINT)
        code, rest, _ = router.end()
        document = json.loads(rest)
        validator("serve").validate(document)
        assert (code, document["requests"], document["cut_off"], document["exit_code"]) == (0, 0, 0, 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_runs_may_end_and_nothing_new_begins(tmp_path: Path, number: int) -> None:
    with running(tmp_path, *UPSTREAM) as router:
        router.ready()
        with router.raw(b"GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n") as waiting, router.raw(b"") as idle:
            router.wait_for("waiting")
            with router.raw(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n") as kept:
                kept.until(b"ok")
                router.signal(number)
                assert idle.rest() == b""  # connections without a request are closed: it has begun to drain
                assert kept.rest() == b""
                with pytest.raises(ConnectionError):
                    router.raw(b"")
                assert router.process.poll() is None
            waiting.socket.shutdown(socket.SHUT_RDWR)  # the client has enough of it
        code, rest, err = router.end()
        assert (code, rest) == (0, "ended; requests answered: 1\n")
        assert "Traceback" not in err


@pytest.mark.ci
def test_a_request_that_runs_is_answered_whole_while_it_drains(tmp_path: Path) -> None:
    with running(tmp_path, *UPSTREAM) as router:
        router.ready()
        body = b'{"prompt": "' + b"x" * 100_000 + b'"}'
        head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
        with router.raw(head + body[:1000]) as half, router.raw(b"") as idle:
            router.get("/health")  # by now the first request has begun
            router.signal()
            assert idle.rest() == b""
            half.socket.sendall(body[1000:])
            assert b'"bytes":100014' in half.rest()
        assert router.end()[0] == 0


@pytest.mark.ci
def test_what_does_not_end_in_time_is_cut_off_and_told_of(tmp_path: Path) -> None:
    with running(tmp_path, *UPSTREAM, "--drain-seconds", "0.1", "--json") as router:
        router.ready()
        with router.raw(b"GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n") as waiting:
            router.wait_for("waiting")
            router.signal()
            answer = waiting.rest()
        code, rest, err = router.end()
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "shutting_down"
        assert (code, json.loads(rest)["cut_off"]) == (ExitCode.INCOMPLETE, 1)
        assert "stub: cancelled\nstub: ended" in err
        assert "Traceback" not in err


@pytest.mark.ci
@pytest.mark.parametrize(
    ("first", "second", "code", "word"),
    [(signal.SIGTERM, signal.SIGTERM, 143, "TERMINATED"), (signal.SIGTERM, signal.SIGINT, 130, "INTERRUPTED"),
     (signal.SIGINT, signal.SIGINT, 130, "INTERRUPTED")],
)  # fmt: skip
def test_a_second_signal_ends_at_once(tmp_path: Path, first: int, second: int, code: int, word: str) -> None:
    with running(tmp_path, *UPSTREAM, "--json", AT_ONCE_SECONDS="180") as router:
        router.ready()
        with router.raw(b"GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n"), router.raw(b"") as idle:
            router.wait_for("waiting")
            router.signal(first)
            assert idle.rest() == b""
            router.signal(second)
            ended, rest, err = router.end()
        assert ended == code
        assert json.loads(rest)["error"] == {
            "code": word, "message": "ended at once, by a second signal", "details": {"cut_off": 1}, "remedy": None,
        }  # fmt: skip
        assert "Traceback" not in err


@pytest.mark.ci
def test_what_does_not_let_itself_be_cancelled_is_left_behind(tmp_path: Path) -> None:
    with running(tmp_path, *UPSTREAM) as router:
        router.ready()
        with router.raw(b"GET /stubborn HTTP/1.1\r\nHost: localhost\r\n\r\n"), router.raw(b"") as idle:
            router.wait_for("stubborn")
            router.signal()
            assert idle.rest() == b""
            router.signal()
            code, _, err = router.end()
        assert code == 143
        assert "Traceback" not in err


@pytest.mark.ci
@pytest.mark.parametrize(
    ("upstream", "code", "says"),
    [
        ("refuses", 3, "error: the upstream refuses\nhint: ask it nicely"),
        ("breaks", 70, "error: unexpected KeyError: 'the PROMPT'\n"),
    ],
)
def test_an_app_that_does_not_begin_is_the_error_of_the_command(
    tmp_path: Path, upstream: str, code: int, says: str
) -> None:
    with running(tmp_path, "--upstream", f"http://{upstream}", *UPSTREAM[2:]) as router:
        ended, out, err = router.end()
    assert (ended, out) == (code, "")
    assert says in err
    assert "Traceback" not in err


@pytest.mark.ci
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_before_it_serves_ends_it(tmp_path: Path, number: int, code: int) -> None:
    with running(tmp_path, "--upstream", "http://hangs", *UPSTREAM[2:]) as router:
        router.wait_for("hanging")
        router.signal(number)
        ended, out, err = router.end()
    assert (ended, out) == (code, "")
    assert "error: ended before it was ready" in err
    assert "Traceback" not in err


def test_an_address_in_use_is_told_with_what_mends_it(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with running(tmp_path, *UPSTREAM, "--port", str(port)) as router:
            code, out, err = router.end()
    assert (code, out) == (ExitCode.ENVIRONMENT, "")
    assert re.fullmatch(
        rf"error: cannot listen on http://127\.0\.0\.1:{port}: Address already in use\nhint: give another --port.*", err
    )


def test_an_address_that_another_took_meanwhile_is_told_too() -> None:
    """Two may bind an address that nobody listens on; the second to listen is refused."""
    from tests.router.stub_app import create_app
    from toktier.router.settings import ServeSettings

    ready: list[str] = []
    sock = server.bind("127.0.0.1", 0)
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(sock.getsockname())
        taken.listen()
        settings = ServeSettings(upstreams=("http://127.0.0.1:9",), port=0)
        with pytest.raises(EnvironmentFault, match="Address already in use"):
            server.serve(create_app(settings, None), settings, sock, on_ready=ready.append, log=ready.append)
    assert ready == []


def test_an_address_of_another_host_is_told() -> None:
    with pytest.raises(EnvironmentFault, match="Cannot assign requested address") as raised:
        server.bind("192.0.2.1", 8765)
    assert raised.value.remedy == "give a --host that this machine has"
    assert raised.value.details == {"host": "192.0.2.1", "port": 8765, "errno": "EADDRNOTAVAIL"}


@pytest.mark.ci
def test_the_router_serves_on_ipv6(tmp_path: Path) -> None:
    if not socket.has_ipv6:
        pytest.skip("this Python has no IPv6")
    try:
        server.bind("::1", 0).close()
    except EnvironmentFault as error:
        pytest.skip(f"this host has no IPv6: {error}")
    with running(tmp_path, *UPSTREAM, "--host", "::1") as router:
        router.ready()
        assert router.url == f"http://[::1]:{router.port}"
        with socket.create_connection(("::1", router.port)) as connection:
            connection.sendall(f"GET /health HTTP/1.1\r\nHost: [::1]:{router.port}\r\n\r\n".encode())
            assert connection.recv(4096).startswith(b"HTTP/1.1 200")


def test_a_fault_is_one_line_of_the_log_without_what_was_asked(tmp_path: Path) -> None:
    with running(tmp_path, *UPSTREAM) as router:
        router.ready()
        status, headers, body = router.get("/boom?PROMPT")
        router.signal()
        code, _, err = router.end()
    assert (status, json.loads(body)["error"]["code"], code) == (500, "internal_error", 0)
    (line,) = [line for line in err.splitlines() if line.startswith("error:")]
    assert re.fullmatch(
        r"error: \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ "
        + headers["x-request-id"]
        + r" failed: INTERNAL, KeyError at \S+:\d+",
        line,
    )
    assert "PROMPT" not in err
    assert "Traceback" not in err


@pytest.mark.ci
def test_the_log_is_as_quiet_as_it_was_asked_to_be(tmp_path: Path) -> None:
    for level, refusals, traces in (("error", 0, False), ("warning", 0, False), ("info", 1, False), ("debug", 1, True)):
        with running(tmp_path, *UPSTREAM, TOKTIER_LOG_LEVEL=level) as router:
            router.ready()
            router.get("/a/../b")
            router.get("/boom")
            router.signal()
            _, _, err = router.end()
        assert err.count("refused: bad_target") == refusals
        assert err.count("failed: INTERNAL") == 1
        assert ("Traceback" in err) == traces


def test_a_connection_does_not_wait_for_acknowledgements() -> None:
    """The event loop sees to that (TCP_NODELAY), and only where a socket names its protocol."""

    async def delays() -> bool:
        seen: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        class Protocol(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                own = transport.get_extra_info("socket")
                seen.set_result(own.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 0)

        with server.bind("127.0.0.1", 0) as sock:
            listening = await asyncio.get_running_loop().create_server(Protocol, sock=sock)
            async with listening:
                with socket.create_connection(sock.getsockname()):
                    return await seen

    assert asyncio.run(delays()) is False
