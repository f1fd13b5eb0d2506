"""A llama-server that lies, stalls, floods or breaks, behind `Upstream`: each wait ends, each answer has a bound."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

import httpx
import pytest

from tests.router.fake_upstream import FakeUpstream, Handler, Seen, fake_upstream, forever, raw, reply, stream
from toktier.errors import ToktierError, UpstreamBroken, UpstreamLost, UpstreamRefused, UpstreamSilent
from toktier.router.upstream import Bounds, Route, Timeouts, Upstream
from toktier.router.vocabulary import UpstreamState

BODY = b'{"prompt":[1]}'
SHORT = Timeouts(connect=5, question=0.3, first_byte=0.3, whole=0.3, idle=0.3)
PATIENT = Timeouts(connect=180, question=180, first_byte=180, whole=180, idle=180)
OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"


def with_fake(
    use: Callable[[FakeUpstream, Upstream], Awaitable[None]],
    *,
    timeouts: Timeouts = PATIENT,
    bounds: Bounds | None = None,
    probe: bool = True,
    fake_options: dict[str, Any] | None = None,
    **options: Any,
) -> None:
    async def main() -> None:
        async with fake_upstream(**(fake_options or {})) as fake:
            upstream = Upstream(0, fake.url, timeouts=timeouts, bounds=bounds, **options)
            try:
                if probe:
                    assert await upstream.probe() is UpstreamState.UP, upstream.notes
                await use(fake, upstream)
            finally:
                await upstream.close()

    asyncio.run(main())


async def read(upstream: Upstream, route: Route = Route.COMPLETIONS, *, as_stream: bool = True) -> tuple[int, bytes]:
    async with upstream.open(route, BODY, stream=as_stream) as passage:
        return passage.status, await passage.read()


def test_an_answer_passes_with_its_status_and_the_headers_that_are_listed() -> None:
    async def use(fake: FakeUpstream, upstream: Upstream) -> None:
        extra = {
            "retry_after": "3",
            "set_cookie": "a=b",
            "server": "x",
            "location": "/elsewhere",
            "connection": "keep-alive",
        }
        fake.answers["/v1/completions"] = reply({"a": 1}, 418, **extra)
        async with upstream.open(Route.COMPLETIONS, BODY, stream=False) as passage:
            assert passage.status == 418
            assert passage.headers == {"content-type": "application/json", "retry-after": "3"}
            assert not passage.is_stream
            assert await passage.read() == b'{"a":1}'
        assert fake.seen[-1].body == BODY

    with_fake(use)


@pytest.mark.parametrize(("as_stream", "connection"), [(True, "close"), (False, "keep-alive")])
def test_what_goes_up_has_these_headers_and_no_others(as_stream: bool, connection: str) -> None:
    async def use(fake: FakeUpstream, upstream: Upstream) -> None:
        fake.answers["/v1/completions"] = reply({})
        await read(upstream, as_stream=as_stream)
        headers = fake.seen[-1].headers
        assert headers.pop("host") == f"127.0.0.1:{fake.port}"
        assert headers == {
            "accept": "*/*",
            "accept-encoding": "identity",
            "authorization": "Bearer a-key",
            "connection": connection,
            "content-length": str(len(BODY)),
            "content-type": "application/json",
            "user-agent": "toktier",
        }

    with_fake(use, api_key="a-key")


def test_redirects_are_answers_and_are_not_followed() -> None:
    async def use(fake: FakeUpstream, upstream: Upstream) -> None:
        fake.answers["/v1/completions"] = reply(b"", 307, location="http://192.0.2.1/")
        assert await read(upstream) == (307, b"")
        fake.answers["/props"] = reply(b"", 302, location="/elsewhere")
        assert await upstream.probe() is UpstreamState.REFUSED
        assert "/elsewhere" not in [seen.path for seen in fake.seen]

    with_fake(use)


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")

    async def use(_: FakeUpstream, upstream: Upstream) -> None:
        assert upstream.state is UpstreamState.UP

    with_fake(use)


@pytest.mark.parametrize("url", ["", "localhost:8080", "http://host/path", "http://name:secret@host"])
def test_what_is_no_url_of_a_server_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"^expected ") as caught:
        Upstream(0, url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("handler", "error"),
    [
        (raw(b"HTTP/1.1 200 OK\r\nx: " + b"y" * 300_000), UpstreamBroken),
        (raw(b"HTTP/1.1 200 OK\r\n", b"".join(b"x%d: y\r\n" % i for i in range(30_000))), UpstreamBroken),
        (raw(b"SMTP ready\r\n\r\n"), UpstreamBroken),
        (raw(b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\n"), UpstreamBroken),
        (raw(OK + b"transfer-encoding: chunked\r\n\r\nzz\r\n"), UpstreamBroken),
        (raw(OK + b"content-encoding: gzip\r\ncontent-length: 3\r\n\r\nabc"), UpstreamBroken),
        (raw(OK + b"content-encoding: br\r\ncontent-length: 3\r\n\r\nabc"), UpstreamBroken),
        (raw(OK + b"content-length: 100\r\n\r\nabc"), UpstreamLost),
        (raw(OK + b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n"), UpstreamLost),
        (raw(), UpstreamLost),
        (raw(b"HTTP/1.1 200 OK\r\n"), UpstreamLost),
        (raw(then=forever), UpstreamSilent),
        (raw(b"HTTP/1.1 200 OK\r\n", then=forever), UpstreamSilent),
        (raw(*[b"HTTP/1.1 100 Continue\r\n\r\n"] * 50, then=forever), UpstreamSilent),
        (raw(OK + b"content-length: 9\r\n\r\nabc", then=forever), UpstreamSilent),
        (stream(b"data: 1\n\n", then=forever), UpstreamSilent),
    ],
)
@pytest.mark.parametrize("question", [False, True], ids=["passing", "asked"])
def test_an_answer_that_is_none_ends_with_its_error(handler: Any, error: type[ToktierError], question: bool) -> None:
    async def use(fake: FakeUpstream, upstream: Upstream) -> None:
        upstream.timeouts = SHORT if error is UpstreamSilent else PATIENT
        fake.answers["/v1/completions"] = fake.answers["/v1/models"] = handler
        with pytest.raises(error) as caught:
            await (upstream.models() if question else read(upstream))
        assert f"127.0.0.1:{fake.port}" in str(caught.value)
        assert caught.value.remedy
        assert upstream.state is (UpstreamState.DOWN if error is UpstreamLost else UpstreamState.UP)

    with_fake(use)


def test_an_endless_stream_ends_at_the_bound_and_its_connection_is_closed() -> None:
    async def use(fake: FakeUpstream, upstream: Upstream) -> None:
        async def flood(_: Any, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
            while True:
                writer.write(b"400\r\n" + b"x" * 1024 + b"\r\n")
                await writer.drain()

        fake.answers["/v1/completions"] = fake.answers["/v1/models"] = flood
        with pytest.raises(UpstreamBroken, match="more than 50,000 bytes"):
            await read(upstream)
        with pytest.raises(UpstreamBroken, match="more than 8,388,608 bytes"):
            await upstream.models()
        await until(lambda: fake.ended == 2)

    with_fake(use, bounds=Bounds(answer_bytes=50_000))


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(180):
        while not holds():
            await asyncio.sleep(0.002)


def test_leaving_an_answer_early_closes_its_connection() -> None:
    async def use(fake: FakeUpstream, upstream: Upstream) -> None:
        fake.answers["/v1/completions"] = stream(b"data: 1\n\n", then=forever)
        async with upstream.open(Route.COMPLETIONS, BODY, stream=True) as passage:
            assert passage.is_stream
            assert await anext(aiter(passage.chunks())) == b"data: 1\n\n"
        await until(lambda: fake.ended == 1)
        assert upstream.state is UpstreamState.UP

    with_fake(use)


@pytest.mark.parametrize("started", [False, True])
def test_cancelling_a_request_closes_its_connection(started: bool) -> None:
    async def use(fake: FakeUpstream, upstream: Upstream) -> None:
        fake.answers["/v1/completions"] = stream(b"data: 1\n\n", then=forever) if started else raw(then=forever)
        got = asyncio.Event()

        async def ask() -> None:
            async with upstream.open(Route.COMPLETIONS, BODY, stream=True) as passage:
                async for _ in passage.chunks():
                    got.set()

        task = asyncio.create_task(ask())
        await (got.wait() if started else until(lambda: fake.seen[-1].path == "/v1/completions"))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        await until(lambda: fake.ended == 1)
        fake.answers["/v1/completions"] = reply({})
        assert (await read(upstream))[0] == 200  # no connection was lost to the pool

    with_fake(use, bounds=Bounds(connections=1))


def test_connections_are_bounded_and_waiting_for_one_ends() -> None:
    async def use(fake: FakeUpstream, upstream: Upstream) -> None:
        fake.answers["/v1/completions"] = stream(b"data: 1\n\n", then=forever)
        async with upstream.open(Route.COMPLETIONS, BODY, stream=True):
            upstream._transport._connect_seconds = 0.3
            with pytest.raises(UpstreamSilent, match="connections were in use"):
                await read(upstream)
        assert upstream.state is UpstreamState.UP

    with_fake(use, bounds=Bounds(connections=1))


def test_a_server_that_is_not_there_is_down_and_used_when_it_is() -> None:
    async def main() -> None:
        with socket.socket() as taken:  # so that nobody else gets the address, on which nobody listens yet
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
            upstream = Upstream(0, f"http://127.0.0.1:{port}", timeouts=PATIENT)
            assert await upstream.probe() is UpstreamState.DOWN
            assert upstream.notes[0] == f"http://127.0.0.1:{port} cannot be reached: Connection refused"
            assert upstream.epoch == 0
            async with fake_upstream(port=port):
                assert await upstream.probe() is UpstreamState.UP
                assert upstream.epoch == 1
            await upstream.close()

    asyncio.run(main())


def test_a_server_that_loads_its_model_is_not_used_yet() -> None:
    async def use(fake: FakeUpstream, upstream: Upstream) -> None:
        loading = {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}
        fake.answers["/health"] = reply(loading, 503)
        assert await upstream.probe() is UpstreamState.LOADING
        del fake.answers["/health"]
        assert await upstream.probe() is UpstreamState.UP
        assert upstream.epoch == 1

    with_fake(use, probe=False)


@pytest.mark.parametrize(
    ("path", "document"),
    [
        ("/props", []),
        ("/props", b"<html>"),
        ("/props", {}),
        ("/props", {"total_slots": 0, "default_generation_settings": {"n_ctx": 1}}),
        ("/props", {"total_slots": 10**6, "default_generation_settings": {"n_ctx": 1}}),
        ("/props", {"total_slots": True, "default_generation_settings": {"n_ctx": 1}}),
        ("/props", {"total_slots": 4, "default_generation_settings": {"n_ctx": -1}}),
        ("/slots", {}),
        ("/slots", []),
        ("/slots", [{"id": 0}] * 4),
        ("/slots", [{"id": index, "n_ctx": 8, "n_prompt_tokens": -1} for index in range(4)]),
        ("/slots", [{"id": 3 - index, "n_ctx": 8} for index in range(4)]),
        ("/v1/models", b"["),
        ("/v1/models", {"data": [{"meta": {"n_vocab": "many"}}]}),
    ],
)
def test_an_answer_of_something_else_than_a_llama_server_refuses_it(path: str, document: Any) -> None:
    async def use(fake: FakeUpstream, upstream: Upstream) -> None:
        fake.answers[path] = reply(document)
        assert await upstream.probe() is UpstreamState.REFUSED
        assert path in upstream.notes[0]
        del fake.answers[path]
        assert await upstream.probe() is UpstreamState.UP

    with_fake(use, probe=False)


def test_a_difference_that_admission_finds_refuses_the_process_until_there_is_another() -> None:
    found = ["it is of another family"]
    asked: list[int] = []

    async def admission(upstream: Upstream) -> list[str]:
        asked.append(upstream.epoch)
        return found

    async def use(fake: FakeUpstream, upstream: Upstream) -> None:
        assert await upstream.probe() is UpstreamState.REFUSED
        assert upstream.notes[0] == found[0]
        assert await upstream.probe() is UpstreamState.REFUSED
        assert asked == [1]
        fake.marker = "<__media_of_another__>"
        found.clear()
        assert await upstream.probe() is UpstreamState.UP
        assert asked == [1, 2]

    with_fake(use, probe=False, admission=admission)


@pytest.mark.parametrize("path", ["/health", "/props", "/slots"])
@pytest.mark.parametrize("answer", [raw(), reply({}, 503), reply(b"<html>", 502)], ids=["lost", "503", "502"])
def test_what_admission_said_holds_whatever_one_probe_met(answer: Handler, path: str) -> None:
    """Of two servers, the one that fits is used again, and the one that does not is not; neither is asked again."""
    asked: list[int] = []

    async def use(fake: FakeUpstream, upstream: Upstream, after: UpstreamState) -> None:
        assert await upstream.probe() is after
        for _ in range(2):
            fake.answers[path] = answer
            assert await upstream.probe() is not UpstreamState.UP
            del fake.answers[path]
            assert await upstream.probe() is after
        assert (asked, upstream.epoch) == ([1], 1)
        asked.clear()

    for found, after in (([], UpstreamState.UP), (["it is of another family"], UpstreamState.REFUSED)):

        async def admission(upstream: Upstream, found: list[str] = found) -> list[str]:
            asked.append(upstream.epoch)
            return found

        with_fake(partial(use, after=after), probe=False, admission=admission)


def test_one_that_does_not_tell_of_its_slots_in_time_is_slow_and_not_lost() -> None:
    """Between two batches of a long prompt, nobody is told."""

    async def use(fake: FakeUpstream, upstream: Upstream) -> None:
        fake.answers["/slots"] = raw(then=forever)
        upstream.timeouts = replace(upstream.timeouts, question=0.2)
        assert await upstream.probe() is UpstreamState.UP
        assert (upstream.standing.slots, upstream.epoch) == ([], 1)
        del fake.answers["/slots"]
        upstream.timeouts = replace(upstream.timeouts, question=180.0)
        assert await upstream.probe() is UpstreamState.UP
        assert len(upstream.standing.slots) == fake.total_slots

    with_fake(use)


def test_an_admission_that_fails_is_made_again() -> None:
    fails = [True]

    async def admission(upstream: Upstream) -> list[str]:
        if fails:
            await upstream.tokenize("a")
        return []

    async def use(fake: FakeUpstream, upstream: Upstream) -> None:
        fake.answers["/tokenize"] = raw()
        assert await upstream.probe() is UpstreamState.DOWN
        fails.clear()
        assert await upstream.probe() is UpstreamState.UP

    with_fake(use, probe=False, admission=admission)


def test_a_lost_connection_asks_for_a_probe_at_once() -> None:
    async def use(fake: FakeUpstream, upstream: Upstream) -> None:
        fake.answers["/v1/completions"] = raw()
        waiting = asyncio.create_task(upstream.suspected(1000))
        with pytest.raises(UpstreamLost):
            await read(upstream)
        await asyncio.wait_for(waiting, 180)
        assert await upstream.probe() is UpstreamState.UP
        assert upstream.epoch == 1

    with_fake(use)


def test_a_question_that_a_closing_connection_lost_is_asked_again_and_a_request_is_not() -> None:
    async def use(fake: FakeUpstream, upstream: Upstream) -> None:
        async def once(seen: Seen, writer: asyncio.StreamWriter) -> None:
            fake.answers[seen.path] = reply({"tokens": [1]})
            writer.close()

        fake.answers["/tokenize"] = fake.answers["/v1/completions"] = once
        assert await upstream.tokenize("a") == [1]
        assert upstream.state is UpstreamState.UP
        with pytest.raises(UpstreamLost):
            await read(upstream)
        assert [seen.path for seen in fake.seen].count("/v1/completions") == 1

    with_fake(use)


def test_questions_of_a_chat() -> None:
    async def use(fake: FakeUpstream, upstream: Upstream) -> None:
        assert await upstream.tokenize("aé") == [97, 195, 169]
        assert fake.seen[-1].json == {"content": "aé", "add_special": False, "parse_special": True}
        assert await upstream.apply_template(b'{"messages":[{"role":"user","content":"a"}]}') == "user: a\n"
        fake.answers["/apply-template"] = reply({"error": {"code": 400, "message": "no", "type": "x"}}, 400)
        with pytest.raises(UpstreamRefused) as caught:
            await upstream.apply_template(b"{}")
        assert (caught.value.status, caught.value.body) == (400, b'{"error":{"code":400,"message":"no","type":"x"}}')

    with_fake(use)


@pytest.mark.parametrize("tokens", [None, "a", [True], [1.5], [-1], [2**31], ["1"], [[1]], list(range(500))])
def test_ids_that_are_none_are_no_answer(tokens: Any) -> None:
    async def use(fake: FakeUpstream, upstream: Upstream) -> None:
        fake.answers["/tokenize"] = reply({"tokens": tokens})
        with pytest.raises(UpstreamBroken):
            await upstream.tokenize("a text")

    with_fake(use)


def test_errors_of_the_client_library_that_are_no_loss_leave_the_state() -> None:
    async def use(_: FakeUpstream, upstream: Upstream) -> None:
        assert isinstance(upstream.fault(httpx.LocalProtocolError("a header")), UpstreamBroken)
        assert isinstance(upstream.fault(httpx.DecodingError("x")), UpstreamBroken)
        assert upstream.state is UpstreamState.UP

    with_fake(use)
