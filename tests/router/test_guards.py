"""All guards together: without a key nothing passes, every error has one shape, and no error says what it must not."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.router.asgi import Echo, Exchange, ask, headers
from toktier.errors import BackendUnavailable, InvalidText, UpstreamBroken, UpstreamLost, UpstreamSilent
from toktier.router.api_keys import ApiKeys
from toktier.router.guards import ACCESS_LOG, LOG, Errors, Guarded, KeysRequired, RequestIds
from toktier.router.refusals import App, Refusal, Refused
from toktier.router.settings import ServeSettings

KEY = "sk-0123456789abcdef"
PROMPT = "the PROMPT of a user"


def guarded(app: App, keys: ApiKeys | None = None, **named: Any) -> Guarded:
    return Guarded(app, ServeSettings(upstreams=("http://127.0.0.1:8080",), **named), keys)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, LOG.name)
    caplog.set_level(logging.INFO, ACCESS_LOG.name)
    return caplog


# keys

WITHOUT: list[list[tuple[bytes, bytes]]] = [
    [],
    headers(authorization=""),
    headers(authorization="Bearer"),
    headers(authorization="Bearer "),
    headers(authorization=f"Bearer {KEY}x"),
    headers(authorization=f"Bearer {KEY[:-1]}"),
    headers(authorization=f"Basic {KEY}"),
    headers(authorization=KEY),
    headers(authorization=f"Bearer {KEY} {KEY}"),
    headers(authorization=f"Bearer {KEY.upper()}"),
    headers(authorization="Bearer " + "x" * 20_000),
    headers(x_api_key=KEY),
    headers(cookie=f"key={KEY}"),
    headers(authorization=f"Bearer\t{KEY}"),
    headers(authorization=f"Bearer {hashlib.sha256(KEY.encode()).hexdigest()}"),
]


@pytest.mark.parametrize("given_headers", WITHOUT, ids=range(len(WITHOUT)))
def test_without_a_key_nothing_is_forwarded(given_headers: list[tuple[bytes, bytes]]) -> None:
    echo = Echo()
    app = guarded(echo, ApiKeys([KEY.encode()]))
    for method, path in (
        ("POST", b"/v1/completions"),
        ("GET", b"/metrics"),
        ("GET", b"/toktier/stats"),
        ("POST", b"/health"),
    ):
        exchange = ask(app, method=method, path=path, headers=given_headers, body=[b"{}"])
        assert exchange.status == 401
        assert exchange.error["code"] == "invalid_api_key"
        assert exchange.error["type"] == "authentication_error"
        assert exchange.answer_headers["www-authenticate"] == 'Bearer realm="toktier"'
        assert KEY not in exchange.answer.decode()
    assert echo.seen == []
    assert app.counters()["refused_invalid_api_key"] == 4


def test_with_a_key_the_request_passes_and_the_key_does_not() -> None:
    echo = Echo()
    app = guarded(echo, ApiKeys([KEY.encode(), b"another-key-of-the-file"]))
    for key in (KEY, "another-key-of-the-file"):
        assert ask(app, method="POST", headers=headers(authorization=f"bearer {key}"), body=[b"x"]).answer == b"x"
    assert [name for scope, _ in echo.seen for name, _ in scope["headers"]] == [b"host", b"host"]


def test_a_key_that_nobody_asked_for_is_not_passed_on_either() -> None:
    echo = Echo()
    assert ask(guarded(echo), headers=headers(authorization=f"Bearer {KEY}")).status == 200
    assert [name for name, _ in echo.seen[0][0]["headers"]] == [b"host"]


def test_health_and_the_bare_page_are_open_and_metrics_where_it_is_said() -> None:
    keys = ApiKeys([KEY.encode()])
    closed, open_ = guarded(Echo(), keys), guarded(Echo(), keys, open_metrics=True)
    for path in (b"/health", b"/", b"/toktier", b"/toktier/"):
        assert ask(closed, path=path).status == ask(closed, path=path, method="HEAD").status == 200
    assert (ask(closed, path=b"/metrics").status, ask(open_, path=b"/metrics").status) == (401, 200)


@given(st.binary(max_size=40))
def test_no_other_header_opens(value: bytes) -> None:
    echo = Echo()
    guard = KeysRequired(echo, ApiKeys([KEY.encode()]))
    right = value.partition(b" ")[0].lower() == b"bearer" and value.partition(b" ")[2].strip(b" \t") == KEY.encode()
    try:
        ask(guard, path=b"/v1/models", headers=[(b"authorization", value)])
        assert right
    except Refused:
        assert not right
        assert echo.seen == []


# request ids


def test_an_id_is_ours_whatever_the_client_says() -> None:
    async def app(scope: Any, _: Any, send: Any) -> None:
        seen.append((scope["state"]["request_id"], scope["headers"]))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"X-Request-Id", b"of the app")]})
        await send({"type": "http.response.body", "body": b""})

    seen: list[tuple[str, Any]] = []
    answers = [ask(RequestIds(app), headers=headers(x_request_id="evil\r\nid")) for _ in range(3)]
    names = [name for name, _ in seen]
    assert len(set(names)) == 3
    assert all(re.fullmatch(r"req-[0-9a-f]{24}", name) for name in names)
    assert all(b"x-request-id" not in dict(found) for _, found in seen)
    for answer, name in zip(answers, names, strict=True):
        assert [v for k, v in answer.sent[0]["headers"] if k.lower() == b"x-request-id"] == [name.encode()]


# errors


def raising(error: Exception, after: int = 0) -> App:
    async def app(_: Any, __: Any, send: Any) -> None:
        if after:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        if after > 1:
            await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise error

    return app


def test_what_nobody_foresaw_says_nothing_of_itself(lines: pytest.LogCaptureFixture) -> None:
    app = guarded(raising(KeyError(PROMPT)))
    exchange = ask(app, method="POST", path=b"/v1/completions", body=[PROMPT.encode()])
    assert (exchange.status, exchange.error["code"]) == (500, "internal_error")
    assert "PROMPT" not in exchange.answer.decode()
    assert "Traceback" not in exchange.answer.decode()
    (record,) = lines.records
    assert record.levelno == logging.ERROR
    name = exchange.answer_headers["x-request-id"]
    assert re.fullmatch(rf"{name} failed: INTERNAL, KeyError at tests\.router\.test_guards:\d+", record.getMessage())
    assert app.counters()["faults"] == 1


@pytest.mark.parametrize(
    ("error", "status", "code", "kind"),
    [
        (InvalidText("malformed UTF-8 at byte 3"), 400, "invalid_text", "invalid_request_error"),
        (UpstreamLost("gone"), 503, "no_upstream", "server_error"),
        (UpstreamBroken("broken"), 502, "upstream_broken", "server_error"),
        (UpstreamSilent("silent"), 504, "upstream_timeout", "server_error"),
        (BackendUnavailable("none"), 503, "backend_unavailable", "server_error"),
        (Refused(Refusal.UNSUPPORTED, "not done"), 501, "unsupported", "invalid_request_error"),
    ],
    ids=lambda v: v if isinstance(v, str | int) else type(v).__name__,
)
def test_errors_of_toktier_are_told_with_their_remedy(error: Exception, status: int, code: str, kind: str) -> None:
    exchange = ask(guarded(raising(error)), path=b"/v1/models")
    assert (exchange.status, exchange.error["code"], exchange.error["type"]) == (status, code, kind)
    assert exchange.error["message"] == (error.args[0])
    assert exchange.error.get("remedy") == getattr(error, "remedy", None)


@pytest.mark.parametrize("after", [1, 2])
def test_an_answer_that_has_begun_is_cut_off_and_nothing_is_added(after: int) -> None:
    exchange = ask(guarded(raising(KeyError(PROMPT), after)))
    assert exchange.status == 200
    assert len(exchange.sent) == after
    assert all(message.get("more_body", True) for message in exchange.sent)


def test_what_the_client_still_sends_is_read_before_an_early_answer_ends() -> None:
    exchange = ask(
        guarded(Echo(), ApiKeys([KEY.encode()])), method="POST", path=b"/v1/completions", body=[b"x" * 1000] * 50
    )
    assert exchange.status == 401
    assert exchange.asked == 50
    assert exchange.answer_headers["connection"] == "close"
    assert len(exchange.answer) == int(exchange.answer_headers["content-length"])


def test_a_client_that_waits_to_be_asked_for_its_body_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    exchange = ask(
        guarded(Echo(), ApiKeys([KEY.encode()])),
        method="POST",
        path=b"/v1/completions",
        headers=headers(expect="100-continue"),
    )
    assert (exchange.status, exchange.asked) == (401, 0)


def test_an_endless_body_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toktier.router.guards._LINGER_SECONDS", 0.01)
    exchange = ask(guarded(Echo(), ApiKeys([])), method="POST", path=b"/v1/completions", body=[b"x"], stalls=True)
    assert exchange.status == 401
    assert exchange.answer


def test_cancellation_is_no_error() -> None:
    async def run() -> None:
        async def app(_: Any, __: Any, ___: Any) -> None:
            await asyncio.Event().wait()

        errors = Errors(app)
        task = asyncio.ensure_future(Exchange().through(RequestIds(errors)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert errors.faults == 0

    asyncio.run(run())


def test_sockets_of_the_web_are_closed() -> None:
    sent: list[Any] = []

    async def run() -> None:
        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> Any:
            raise AssertionError

        await guarded(Echo())({"type": "websocket", "path": "/v1/realtime", "headers": []}, receive, send)

    asyncio.run(run())
    assert sent == [{"type": "websocket.close", "code": 1008}]


# the whole


def test_refusals_of_every_guard_have_the_one_shape_and_are_counted() -> None:
    app = guarded(Echo(), None, max_body_bytes=1024)
    for request, status, code in (
        ({"path": b"/a/../b"}, 400, "bad_target"),
        ({"headers": headers(content_encoding="gzip")}, 415, "body_encoded"),
        ({"headers": headers(host="evil.com")}, 421, "foreign_host"),
        ({"headers": headers(origin="http://evil.com")}, 403, "foreign_origin"),
        ({"method": "POST", "headers": headers(content_length="1025")}, 413, "body_too_large"),
        ({"method": "POST", "body": [b"x" * 1025]}, 413, "body_too_large"),
    ):
        exchange = ask(app, **request)  # type: ignore[arg-type]
        assert (exchange.status, exchange.error["code"]) == (status, code)
        assert "x-request-id" in exchange.answer_headers
    assert app.counters()["refused_body_too_large"] == 2


def test_the_access_log_says_nothing_but_where_and_how_long(lines: pytest.LogCaptureFixture) -> None:
    ask(
        guarded(Echo(), None, access_log=True), method="POST", path=b"/v1/completions", query=b"q=PROMPT",
        headers=headers(authorization=f"Bearer {KEY}", user_agent="PROMPT"), body=[PROMPT.encode()],
    )  # fmt: skip
    (record,) = lines.records
    assert re.fullmatch(r"req-[0-9a-f]{24} POST /v1/completions 200 \d+ ms", record.getMessage())
    lines.clear()
    ask(guarded(Echo()), method="POST", body=[PROMPT.encode()])
    assert lines.records == []


def test_pages_are_answered_only_where_an_origin_is_allowed() -> None:
    page = headers(origin="https://app.example", access_control_request_method="POST", host="localhost:8765")
    closed, open_ = guarded(Echo()), guarded(Echo(), ApiKeys([KEY.encode()]), allowed_origins=("https://app.example",))
    refused = ask(closed, method="OPTIONS", path=b"/v1/completions", headers=page)
    assert (refused.status, "access-control-allow-origin" in refused.answer_headers) == (403, False)
    allowed = ask(open_, method="OPTIONS", path=b"/v1/completions", headers=page)
    assert (allowed.status, allowed.answer_headers["access-control-allow-origin"]) == (200, "https://app.example")
    told = ask(open_, method="POST", path=b"/v1/completions", headers=page)  # why, which a page may read
    assert (told.status, told.answer_headers["access-control-allow-origin"]) == (401, "https://app.example")
    assert open_.counters()["refused_invalid_api_key"] == 1


def test_other_names_of_this_host_and_other_hosts() -> None:
    assert (
        ask(guarded(Echo(), None, allowed_hosts=("router.example",)), headers=headers(host="Router.example:80")).status
        == 200
    )
    assert ask(guarded(Echo(), None, host="0.0.0.0", no_auth=True), headers=headers(host="anything")).status == 200
