"""Requests of these tests to one upstream, and what came back."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import orjson

from toktier.router.bodies import CompletionRequest, read_completion
from toktier.router.relay import Answer, StreamRelay, read_answer
from toktier.router.upstream import Route, Timeouts, Upstream
from toktier.router.vocabulary import Reuse, UpstreamState, reuse_of

T = TypeVar("T")
PATIENT = Timeouts(connect=180, question=180)  # a busy host must not look like an upstream that is silent


@dataclass(frozen=True)
class Result:
    status: int
    body: bytes
    answer: Answer

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)

    @property
    def reuse(self) -> Reuse:
        return reuse_of(self.answer.cached)

    @property
    def counts(self) -> tuple[int | None, int | None]:
        """Reused and prefilled tokens."""
        return self.answer.cached, self.answer.evaluated


def tokens(seed: int, count: int, below: int = 900) -> list[int]:
    """IDs that are no special tokens, the same for the same seed."""
    return [random.Random(f"{seed} {index}").randrange(below) for index in range(count)]


def other(token: int) -> int:
    """Another ID."""
    return (token + 1) % 900


def with_upstream(url: str, use: Callable[[Upstream], Awaitable[T]], **options: Any) -> T:
    """`use`, in a loop of its own, with an upstream that was probed and is closed afterwards."""

    async def main() -> T:
        upstream = Upstream(0, url, **{"timeouts": PATIENT, **options})
        try:
            assert await upstream.probe() is UpstreamState.UP, upstream.notes
            return await use(upstream)
        finally:
            await upstream.close()

    return asyncio.run(main())


def run(main: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(main)


async def complete(
    upstream: Upstream,
    prompt: Sequence[int] | str,
    id_slot: int | None,
    *,
    native: bool = True,
    stream: bool = False,
    n_predict: int = 8,
    **more: Any,
) -> Result:
    """A greedy completion, as the router sends it."""
    limit = "n_predict" if native else "max_tokens"
    body = {"prompt": prompt, limit: n_predict, "temperature": 0, "stream": stream, **more}
    request = read_completion(orjson.dumps(body), native)
    return await passed(upstream, request, id_slot)


async def passed(upstream: Upstream, request: CompletionRequest, id_slot: int | None) -> Result:
    ids = request.prompt[0] if request.prompt and isinstance(request.prompt[0], np.ndarray) else None
    body = request.upstream_body(ids, id_slot)
    route = Route.COMPLETION if request.native else Route.COMPLETIONS
    async with upstream.open(route, body, stream=request.stream) as passage:
        if not passage.is_stream:
            kept, answer = read_answer(await passage.read(), request.cut)
            return Result(passage.status, kept, answer)
        relay = StreamRelay(request.cut)
        parts = [relay.feed(chunk) async for chunk in passage.chunks()]
        return Result(passage.status, b"".join(parts) + relay.finish(), relay.answer())
