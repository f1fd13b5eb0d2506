"""The embedder that the settings name, ready to be asked: hashed n-grams, MiniLM in this process, or a server.

One that cannot be had is no reason to serve nothing: hashed n-grams stand in, and `note` says so. Not here: how each
embeds (`embedding`, `minilm`, `embedding_server`), and what vectors are for (`candidates`).
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

import httpx

from toktier.errors import ToktierError
from toktier.labels import message
from toktier.router.embedding import Embedder, HashedNgrams, OfIds, OfText, Unfailing
from toktier.router.embedding_server import EmbeddingServer, dimensions

if TYPE_CHECKING:
    from toktier.router.settings import ServeSettings

_LOCAL_SECONDS: Final = 0.25  # for a model in this process: ten chunks


class OpenEmbedder:
    """`embedder`: which never raises. `note`: why it is not the one that was asked for."""

    def __init__(self, embedder: Embedder, timeout: float | None, note: str | None = None) -> None:
        self.embedder, self.note = Unfailing(embedder, timeout), note
        self._stack = contextlib.AsyncExitStack()

    async def close(self) -> None:
        await self._stack.aclose()

    def closes(self, stack: contextlib.AsyncExitStack) -> OpenEmbedder:
        """`stack`: closed with it."""
        self._stack = stack.pop_all()
        return self


async def open_embedder(settings: ServeSettings, api_key: str | None) -> OpenEmbedder:
    """`api_key`: that a server may ask for, as upstreams do. Raises nothing of an embedder's."""
    if settings.embedding == "hashed":
        return _hashed()
    try:
        if settings.embedding_url is None:
            return await _minilm()
        return await _server(settings.embedding_url, api_key)
    except (ToktierError, OSError, httpx.HTTPError, TimeoutError, ValueError) as error:
        said = error.message if isinstance(error, ToktierError) else type(error).__name__
        return _hashed(message(f"prompts are compared by hashed n-grams, not by {settings.embedding}: {said}"))


def _hashed(note: str | None = None) -> OpenEmbedder:
    return OpenEmbedder(OfIds(HashedNgrams()), None, note)


async def _minilm() -> OpenEmbedder:
    from toktier.router.minilm import DIMENSIONS, MiniLm

    model = await asyncio.to_thread(MiniLm)
    of_text = OfText(model.embed_text, DIMENSIONS)
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(of_text.close)
        return OpenEmbedder(of_text, _LOCAL_SECONDS).closes(stack)


async def _server(url: str, api_key: str | None) -> OpenEmbedder:
    """Asked once, for the length of its vectors."""
    headers = {} if api_key is None else {"authorization": f"Bearer {api_key}"}
    async with contextlib.AsyncExitStack() as stack:
        made = httpx.AsyncClient(headers=headers, trust_env=False, follow_redirects=False)
        client = await stack.enter_async_context(made)
        dims = await dimensions(client, url)
        return OpenEmbedder(EmbeddingServer(client, url, dims), None).closes(stack)
