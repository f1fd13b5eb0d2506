"""A separate embedding server: what is asked, what is believed, and when it is left alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest

from tests.router.token_prompts import unrelated
from toktier.errors import BackendExecutionFault, BackendUnavailable, ToktierError
from toktier.router.candidates import Vector
from toktier.router.embedding import Prompt, Unfailing, fallback_vector
from toktier.router.embedding_server import EmbeddingServer, dimensions

PROMPT = Prompt(unrelated(1, 20), "a text")
PATIENCE = 180.0  # seconds, in which whoever answers has done so on any host
Handler = Callable[[httpx.Request], httpx.Response]


def rows(*vectors: list[float]) -> dict[str, Any]:
    return {"object": "list", "data": [{"index": i, "embedding": vector} for i, vector in enumerate(vectors)]}


def asked(handler: Handler, prompt: Prompt = PROMPT, **options: Any) -> Vector:
    async def main() -> Vector:
        async with httpx.AsyncClient(transport=httpx.MockTransport(handler)) as client:
            server = EmbeddingServer(client, "http://embedder", 2, **{"timeout": PATIENCE, **options})
            return await server.embed(prompt)

    return asyncio.run(main())


def test_a_text_is_asked_as_openai_has_it() -> None:
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json=rows([3, 4]))

    assert asked(handler).tolist() == pytest.approx([0.6, 0.8])
    assert (seen[0].method, str(seen[0].url)) == ("POST", "http://embedder/v1/embeddings")
    assert json.loads(seen[0].content) == {"model": "default", "input": ["a text"], "encoding_format": "float"}


def dimensions_of(vector: Any) -> int:
    async def main() -> int:
        transport = httpx.MockTransport(lambda request: httpx.Response(200, json=rows(vector)))
        async with httpx.AsyncClient(transport=transport) as client:
            return await dimensions(client, "http://embedder")

    return asyncio.run(main())


def test_a_server_is_asked_how_long_its_vectors_are() -> None:
    assert dimensions_of([1.0, 2.0, 3.0]) == 3


@pytest.mark.parametrize("vector", [[], "abc", 3, [0.0] * 16_385], ids=["empty", "text", "number", "long"])
def test_vectors_of_no_length_are_refused(vector: Any) -> None:
    with pytest.raises(BackendExecutionFault, match="no vector"):
        dimensions_of(vector)


def test_a_long_text_is_asked_in_pieces_at_once_and_in_any_order() -> None:
    """D26."""

    def handler(request: httpx.Request) -> httpx.Response:
        pieces = json.loads(request.content)["input"]
        assert pieces == ["aaaa", "abbb", "bb"]
        answer = rows(*([1, 0] if piece[0] == "a" else [0, 1] for piece in pieces))
        answer["data"].reverse()
        return httpx.Response(200, json=answer)

    vector = asked(handler, Prompt(PROMPT.ids, "aaaabbbb"), window=4, overlap=1)
    assert vector.tolist() == pytest.approx([2 / 5**0.5, 1 / 5**0.5])


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        b'{"data": []}',
        b'{"data": [{"index": 0}]}',
        b'{"data": [{"index": 1, "embedding": [1, 2]}]}',
        b'{"data": [{"index": 0, "embedding": [1, 2, 3]}]}',
        b'{"data": [{"index": 0, "embedding": [0, 0]}]}',
        b'{"data": [{"index": 0, "embedding": ["x", "y"]}]}',
        b'{"data": [{"index": 0, "embedding": [1e999, 1]}]}',
        b'{"data": [{"index": 0, "embedding": {"a": 1}}]}',
        b'{"data": {"index": 0}}',
    ],
)
def test_an_answer_that_is_none_is_not_believed(content: bytes) -> None:
    with pytest.raises((ToktierError, ValueError, TypeError)):
        asked(lambda request: httpx.Response(200, content=content))


@pytest.mark.parametrize("status", [301, 401, 404, 500, 503])
def test_a_status_of_failure_is_one(status: int) -> None:
    with pytest.raises(BackendExecutionFault, match=str(status)):
        asked(lambda request: httpx.Response(status, headers={"location": "http://elsewhere/"}, json=rows([1, 1])))


class Endless(httpx.AsyncByteStream):
    async def __aiter__(self) -> Any:
        while True:
            yield b" " * (1 << 20)


def test_an_endless_answer_ends() -> None:
    with pytest.raises(BackendExecutionFault, match="bytes"):
        asked(lambda request: httpx.Response(200, stream=Endless()))


def test_without_a_text_nothing_is_asked() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        raise AssertionError

    for text in (None, ""):
        with pytest.raises(BackendUnavailable, match="text"):
            asked(handler, Prompt(PROMPT.ids, text))


class Site:
    """An embedding server that fails on demand, asked through a guard, under a clock that tests set."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls = 0
        self.fails: Exception | None = None
        self.answers: asyncio.Event | None = None  # to be waited for
        client = httpx.AsyncClient(transport=httpx.MockTransport(self.handle))
        self.server = EmbeddingServer(client, "http://embedder", 2, timeout=1.0, clock=lambda: self.now)
        self.server._timeout = PATIENCE  # which is by another clock; pauses are made of the one above
        self.guarded = Unfailing(self.server, timeout=None)

    async def handle(self, request: httpx.Request) -> httpx.Response:
        self.calls += 1
        if self.answers is not None:
            await self.answers.wait()
        if self.fails is not None:
            raise self.fails
        return httpx.Response(200, json=rows([0, 1]))

    async def is_embedded(self) -> bool:
        vector = await self.guarded.embed(PROMPT)
        if vector.tolist() == [0, 1]:
            return True
        assert np.array_equal(vector, fallback_vector("a text", 2))
        return False


def test_a_server_that_failed_is_left_alone_and_probed() -> None:
    async def main() -> None:
        site = Site()
        assert await site.is_embedded()
        site.fails = httpx.ConnectError("refused")
        assert not await site.is_embedded()
        assert not await site.is_embedded()
        assert site.calls == 2  # the last one was not asked
        site.now += 5.1
        assert not await site.is_embedded()  # the probe
        assert not await site.is_embedded()
        assert site.calls == 3
        site.fails = None
        site.now += 5.1
        assert not await site.is_embedded()  # after a probe that failed the pause is longer
        site.now += 5.1
        assert await site.is_embedded()
        assert await site.is_embedded()
        assert (site.calls, site.guarded.failed) == (5, 5)

    asyncio.run(main())


def test_one_request_probes_and_the_others_do_not_wait_for_it() -> None:
    async def main() -> None:
        site = Site()
        site.fails = httpx.ReadError("reset")
        assert not await site.is_embedded()
        site.now += 5.1
        site.fails, site.answers = None, asyncio.Event()
        probe = asyncio.ensure_future(site.is_embedded())
        while site.calls < 2:
            await asyncio.sleep(0)
        assert not await site.is_embedded()
        assert site.calls == 2
        site.answers.set()
        assert await probe
        assert await site.is_embedded()

    asyncio.run(main())


def test_a_server_that_hangs_is_given_up_in_time() -> None:
    async def main() -> None:
        site = Site()
        site.server = EmbeddingServer(site.server._client, "http://embedder", 2, timeout=0.01, clock=lambda: site.now)
        site.guarded = Unfailing(site.server, timeout=None)
        site.answers = asyncio.Event()
        assert not await site.is_embedded()
        assert site.guarded.last_error == "TimeoutError"
        assert not await site.is_embedded()
        assert site.calls == 1

    asyncio.run(main())


def test_a_caller_that_left_proves_nothing() -> None:
    async def main() -> None:
        site = Site()
        site.answers = asyncio.Event()
        task = asyncio.ensure_future(site.is_embedded())
        while not site.calls:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        site.answers = None
        assert await site.is_embedded()
        assert not site.server.breaker.is_open

    asyncio.run(main())
