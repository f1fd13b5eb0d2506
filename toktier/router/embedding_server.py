"""An embedding server beside the upstreams: an OpenAI-style /v1/embeddings, asked within a time-out.

It has to be a server of its own: embeddings on a llama-server that generates wipe its slots. One that failed is left
alone for a while and then probed by one request (`toktier.cache.second_level_breaker`). Whatever it says is checked and
bounded. Not here: what happens when it fails (`embedding.Unfailing`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import httpx
import orjson

from toktier.cache.second_level_breaker import Breaker
from toktier.errors import BackendExecutionFault, BackendUnavailable
from toktier.router.candidates import Vector
from toktier.router.embedding import Prompt, averaged, chunks

WINDOW: Final = 1000  # characters: under the 512 tokens of common embedding models, also where a word is two tokens
OVERLAP: Final = 200
TIMEOUT_SECONDS: Final = 0.5
FIRST_SECONDS: Final = 10.0  # a model may have to be loaded first
_MAX_DIMS: Final = 16_384
_MAX_ANSWER_BYTES: Final = 16 << 20


class EmbeddingServer:
    """An `Embedder`, for one event loop."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        url: str,
        dims: int,
        *,
        timeout: float = TIMEOUT_SECONDS,
        window: int = WINDOW,
        overlap: int = OVERLAP,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`client`: somebody else's, who closes it; `url`: of the server; `dims`: of its vectors; `timeout`: seconds
        for one prompt; `window`, `overlap`: characters of a piece."""
        self._client, self._url, self._dims = client, url, dims
        self._timeout = timeout
        self._window, self._overlap = window, overlap
        self._clock = clock
        self.breaker = Breaker(timeout)
        self._probing = False

    @property
    def dims(self) -> int:
        return self._dims

    async def embed(self, prompt: Prompt) -> Vector:
        """Raises BACKEND_UNAVAILABLE where the server is left alone or the text is not known, BACKEND_EXECUTION_FAULT
        for an answer that is none, and what httpx raises."""
        if not prompt.text:
            raise BackendUnavailable("an embedding server needs text, and of this prompt only token IDs are known")
        probe = self.breaker.is_open
        if probe and (self._probing or self.breaker.until_probe(self._clock()) > 0):
            raise BackendUnavailable("the embedding server failed a moment ago, and is left alone")
        self._probing = self._probing or probe
        try:
            async with asyncio.timeout(self._timeout):
                vectors = await _asked(self._client, self._url, chunks(prompt.text, self._window, self._overlap))
            vector = averaged(vectors, self._dims)
        except Exception:
            (self.breaker.probe_failed if probe else self.breaker.failed)(self._clock())
            raise
        finally:  # a caller that left proves nothing
            self._probing = self._probing and not probe
        if probe:
            self.breaker.probe_answered()
        self.breaker.answered()
        return vector


async def dimensions(client: httpx.AsyncClient, url: str) -> int:
    """Of the vectors of a server, which is asked for one. Raises TimeoutError, BACKEND_EXECUTION_FAULT, and what httpx
    raises."""
    async with asyncio.timeout(FIRST_SECONDS):
        (vector,) = await _asked(client, url, ["a"])
    if not isinstance(vector, list) or not 1 <= len(vector) <= _MAX_DIMS:
        raise BackendExecutionFault(f"the embedding server answered with no vector of 1 to {_MAX_DIMS:,} numbers")
    return len(vector)


async def _asked(client: httpx.AsyncClient, url: str, pieces: Sequence[str]) -> list[Any]:
    """What a server says are the vectors of these texts. How long it takes is the caller's to bound."""
    request = client.build_request(
        "POST",
        f"{url}/v1/embeddings",
        content=orjson.dumps({"model": "default", "input": list(pieces), "encoding_format": "float"}),
        headers={"content-type": "application/json"},
        timeout=None,
    )
    response = await client.send(request, stream=True, follow_redirects=False)
    try:
        if response.status_code != 200:
            raise BackendExecutionFault(f"the embedding server answered with status {response.status_code}")
        answer = bytearray()
        async for part in response.aiter_bytes():
            answer += part
            if len(answer) > _MAX_ANSWER_BYTES:
                raise BackendExecutionFault(f"the embedding server answered with over {_MAX_ANSWER_BYTES:,} bytes")
    finally:
        await response.aclose()
    return _vectors(answer, len(pieces))


def _vectors(answer: bytes | bytearray, count: int) -> list[Any]:
    """In the order of `index`, which a server need not keep."""
    try:
        rows: list[Any] = orjson.loads(answer)["data"]
        found = {int(row["index"]): row["embedding"] for row in rows}
        return [found[index] for index in range(count)]
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise BackendExecutionFault("the embedding server answered with what is no list of vectors") from error
