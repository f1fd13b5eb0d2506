"""The embedder that the settings name, ready to be asked: hashed n-grams, MiniLM in this process, or a server.

One that cannot be had is no reason to serve nothing: hashed n-grams stand in, and `note` says so. Not here: how each
embeds (`embedding`, `minilm`, `embedding_server`), and what vectors are for (`candidates`).
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

import httpx
import orjson

from toktier.errors import ToktierError
from toktier.labels import message
from toktier.router.embedding import Chunked, Embedder, Guarded, HashedNgrams, OfIds, OfText
from toktier.router.embedding_server import EmbeddingServer

if TYPE_CHECKING:
    from toktier.router.settings import ServeSettings

_LOCAL_SECONDS: Final = 0.25  # for a model in this process: ten chunks
_FIRST_SECONDS: Final = 10.0
_CHARACTERS: Final = (1000, 100)  # of a chunk for MiniLM, some 256 tokens, and those that neighbours share
_MAX_DIMS: Final = 16_384
_MAX_ANSWER: Final = 4 << 20


class OpenEmbedder:
    """`embedder`: which never raises. `note`: why it is not the one that was asked for."""

    def __init__(self, embedder: Embedder, timeout: float | None, note: str | None = None) -> None:
        self.embedder, self.note = Guarded(embedder, timeout), note
        self._stack = contextlib.AsyncExitStack()

    async def close(self) -> None:
        await self._stack.aclose()

    def closes(self, stack: contextlib.AsyncExitStack) -> OpenEmbedder:
        """`stack`: closed with it."""
        self._stack = stack.pop_all()
        return self


async def open_embedder(settings: ServeSettings) -> OpenEmbedder:
    """Raises nothing of an embedder's."""
    if settings.embedding == "hashed":
        return _hashed()
    try:
        if settings.embedding_url is None:
            return await _minilm()
        return await _server(settings.embedding_url)
    except (ToktierError, OSError, httpx.HTTPError, TimeoutError, ValueError) as error:
        said = error.message if isinstance(error, ToktierError) else type(error).__name__
        return _hashed(message(f"prompts are compared by hashed n-grams, not by {settings.embedding}: {said}"))


def _hashed(note: str | None = None) -> OpenEmbedder:
    return OpenEmbedder(OfIds(HashedNgrams()), None, note)


async def _minilm() -> OpenEmbedder:
    from toktier.router.minilm import DIMENSIONS, MiniLm

    model = await asyncio.to_thread(MiniLm)
    of_text = OfText(Chunked(model.embed_text, DIMENSIONS, *_CHARACTERS).embed, DIMENSIONS)
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(of_text.close)
        return OpenEmbedder(of_text, _LOCAL_SECONDS).closes(stack)


async def _server(url: str) -> OpenEmbedder:
    """Asked once, for the length of its vectors."""
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(httpx.AsyncClient(trust_env=False, follow_redirects=False))
        async with asyncio.timeout(_FIRST_SECONDS):
            body = orjson.dumps({"model": "default", "input": ["a"], "encoding_format": "float"})
            path = "/embeddings" if url.endswith("/v1") else "/v1/embeddings"
            async with client.stream(
                "POST", url + path, content=body, headers={"content-type": "application/json"}
            ) as response:
                answer = bytearray()
                async for part in response.aiter_bytes():
                    answer += part
                    if len(answer) > _MAX_ANSWER:
                        raise ValueError("an answer beyond the bounds")
        try:
            dims = len(orjson.loads(answer)["data"][0]["embedding"])
        except (LookupError, TypeError):
            raise ValueError("an answer without a vector") from None
        if not 1 <= dims <= _MAX_DIMS:
            raise ValueError(f"vectors of {dims} numbers")
        return OpenEmbedder(EmbeddingServer(client, url, dims), None).closes(stack)
