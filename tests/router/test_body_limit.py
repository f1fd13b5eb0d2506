"""A body is as large as it may be, or its request is refused and the app sees a client that went away."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.router.asgi import Echo, Exchange, ask, headers
from toktier.router.body_limit import BodyLimit
from toktier.router.refusals import Refusal, Refused


@given(st.lists(st.integers(0, 40), min_size=1, max_size=8))
def test_a_body_passes_if_it_is_within_the_limit_however_it_is_cut(sizes: list[int]) -> None:
    echo = Echo()
    limit = BodyLimit(echo, 100, 60)
    body = [b"x" * size for size in sizes]
    if sum(sizes) <= 100:
        exchange = ask(limit, method="POST", body=list(body))
        assert exchange.answer == b"".join(body)
        assert echo.seen[0][1] == b"".join(body)
    else:
        with pytest.raises(Refused) as raised:
            ask(limit, method="POST", body=list(body))
        assert raised.value.code is Refusal.BODY_TOO_LARGE
        assert (echo.seen, echo.gone) == ([], 1)
    assert limit.bytes_read <= 100 + max(sizes)  # of what is refused nothing more is read


@pytest.mark.parametrize("length", ["101", "999999999999999999", "9" * 4000])
def test_a_length_beyond_the_limit_is_refused_before_anything_is_read(length: str) -> None:
    echo = Echo()
    exchange = Exchange(method="POST", headers=headers(content_length=length), body=[b"x"])
    with pytest.raises(Refused) as raised:
        asyncio.run(exchange.through(BodyLimit(echo, 100, 60)))
    assert raised.value.code is Refusal.BODY_TOO_LARGE
    assert exchange.asked == 0
    assert (echo.seen, echo.gone) == ([], 0)


def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    echo = Echo()
    with pytest.raises(Refused) as raised:
        ask(BodyLimit(echo, 100, 0.01), method="POST", body=[b"x"], stalls=True)
    assert raised.value.code is Refusal.BODY_TOO_SLOW
    assert (echo.seen, echo.gone) == ([], 1)


def test_a_whole_body_may_wait_for_its_answer_as_long_as_it_takes() -> None:
    """The time is of the body alone: afterwards an app asks for the next message to learn that the client went away."""

    async def run() -> Exchange:
        exchange = Exchange(method="POST", body=[b"x"])

        async def app(_: Any, receive: Any, send: Any) -> None:
            assert (await receive())["body"] == b"x"
            gone = asyncio.ensure_future(receive())
            await asyncio.sleep(0.05)
            assert not gone.done()
            exchange.gone.set()
            assert (await gone)["type"] == "http.disconnect"

        return await exchange.through(BodyLimit(app, 100, 0.01))

    assert asyncio.run(run()).sent == []


def test_an_app_that_hides_what_it_met_does_not_hide_the_refusal() -> None:
    """Frameworks turn whatever a body raised into an answer of their own."""

    async def app(_: Any, receive: Any, send: Any) -> None:
        while (await receive())["type"] == "http.request":
            pass
        await send({"type": "http.response.start", "status": 400, "headers": []})
        await send({"type": "http.response.body", "body": b"bad"})
        raise ValueError("hidden")

    exchange = Exchange(method="POST", body=[b"x" * 101, b""])
    with pytest.raises(Refused) as raised:
        asyncio.run(exchange.through(BodyLimit(app, 100, 60)))
    assert raised.value.code is Refusal.BODY_TOO_LARGE
    assert exchange.sent == []


def test_errors_of_the_app_are_its_own() -> None:
    async def app(_: Any, __: Any, ___: Any) -> None:
        raise KeyError("of the app")

    with pytest.raises(KeyError, match="of the app"):
        ask(BodyLimit(app, 100, 60))


def test_what_is_no_request_passes() -> None:
    seen: list[str] = []

    async def app(scope: Any, _: Any, __: Any) -> None:
        seen.append(scope["type"])

    async def nothing(*_: Any) -> Any:
        raise AssertionError

    asyncio.run(BodyLimit(app, 1, 1)({"type": "lifespan"}, nothing, nothing))
    assert seen == ["lifespan"]
