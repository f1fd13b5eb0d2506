"""The routes that choose no slot: embeddings, the list of models, and token IDs.

Embeddings go to a server of their own: computed by one that generates, they would empty all its slots. Token IDs are
toktier's, in llama-server's format. Not here: completions (`exchange`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson
from starlette.responses import Response

from toktier.errors import UpstreamBroken, UpstreamLost, UpstreamRefused, UpstreamSilent
from toktier.router.bodies import TokenizeRequest, require_few_values
from toktier.router.refusals import Receive, Refusal, Refused
from toktier.router.upstream import Bounds, Route, Timeouts, Upstream
from toktier.router.vocabulary import UpstreamState

if TYPE_CHECKING:
    from toktier.router.router import Router
    from toktier.router.settings import ServeSettings


MAX_PIECES: Final = 131_072  # tokens of a text whose pieces are asked for: 60 MB while they are written


class Embeddings:
    """What /v1/embeddings asks, where the settings name a server for it."""

    def __init__(self, settings: ServeSettings, api_key: str | None) -> None:
        self._upstream: Upstream | None = None
        if settings.embeddings_upstream is not None:
            self._upstream = Upstream(
                len(settings.upstreams),
                settings.embeddings_upstream,
                api_key=api_key,
                timeouts=Timeouts(
                    connect=settings.connect_seconds, whole=settings.whole_seconds, idle=settings.idle_seconds
                ),
                bounds=Bounds(connections=settings.max_concurrent, answer_bytes=settings.max_answer_bytes),
            )

    async def ask(self, body: bytes, receive: Receive) -> Response:
        """`receive`: tells that the client went away, which ends the request. Raises Refused, RequestInvalid,
        UpstreamLost, UpstreamBroken, UpstreamSilent."""
        if self._upstream is None:
            raise Refused(
                Refusal.UNSUPPORTED,
                "there is no server for embeddings: one that generates would lose what its slots hold",
                remedy="start another llama-server with --embeddings, and the router with --embeddings-upstream URL",
            )
        require_few_values(body)
        try:
            if not isinstance(orjson.loads(body), dict):
                raise Refused(Refusal.BAD_REQUEST, "the body is no JSON object")
        except orjson.JSONDecodeError as error:
            raise Refused(Refusal.BAD_REQUEST, f"the body is no JSON: {error.msg}") from None
        asked = asyncio.ensure_future(_asked(self._upstream, body))
        gone = asyncio.ensure_future(_gone(receive))
        try:
            await asyncio.wait((asked, gone), return_when=asyncio.FIRST_COMPLETED)
            return asked.result() if asked.done() else Response()  # which nobody reads
        finally:
            for task in (asked, gone):
                task.cancel()
            await asyncio.gather(asked, gone, return_exceptions=True)

    async def close(self) -> None:
        if self._upstream is not None:
            await self._upstream.close()


async def _asked(upstream: Upstream, body: bytes) -> Response:
    async with upstream.open(Route.EMBEDDINGS, body, stream=False) as passage:
        return Response(await passage.read(), passage.status, headers=passage.headers)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def models_document(router: Router) -> bytes:
    """The answer of the one upstream as it is; of several, what they list, each name once. Raises Refused,
    UpstreamLost, UpstreamBroken, UpstreamSilent."""
    found: dict[str, Any] = {}
    fault: Exception | None = None
    used = [upstream for upstream in router.upstreams if upstream.state is UpstreamState.UP]
    for upstream in used:
        try:
            answer = await upstream.models()
            if len(used) == 1:
                return answer
            for model in orjson.loads(answer)["data"]:
                found.setdefault(model["id"], model)
        except (UpstreamLost, UpstreamBroken, UpstreamSilent) as error:
            router.sync(upstream)
            fault = error
        except (UpstreamRefused, ValueError, LookupError, TypeError):
            fault = Refused(Refusal.UPSTREAM_BROKEN, f"{upstream.url} answered with what is no list of models")
    if not found:
        raise fault or router.no_upstream()
    return orjson.dumps({"object": "list", "data": list(found.values())})


def tokens_document(router: Router, request: TokenizeRequest) -> bytes:
    """The answer to /tokenize; not for the event loop, where the text is long. Raises InvalidText, Refused."""
    tokenizer = router.tokenizer
    parts: list[np.ndarray[Any, np.dtype[np.uint32]]] = []
    for index, part in enumerate(request.content):
        if not isinstance(part, str):
            parts.append(part)
            continue
        special = request.add_special and index == 0
        encoding = tokenizer.encode(part, add_special_tokens=special, plain=not request.parse_special)
        parts.append(np.frombuffer(memoryview(encoding), dtype=np.uint32))
    ids = np.concatenate(parts) if parts else np.empty(0, dtype=np.uint32)
    if not request.with_pieces:
        return orjson.dumps({"tokens": ids}, option=orjson.OPT_SERIALIZE_NUMPY)
    if len(ids) > MAX_PIECES:
        raise Refused(
            Refusal.BAD_REQUEST,
            f"the text has {len(ids):,} tokens: expected up to {MAX_PIECES:,} with pieces",
            param="with_pieces",
            remedy="ask in parts, or without with_pieces",
        )
    pieces = {one: _piece(router, one) for one in np.unique(ids).tolist()}
    return orjson.dumps({"tokens": [{"id": one, "piece": pieces[one]} for one in ids.tolist()]})


def _piece(router: Router, token: int) -> str:
    """The text of an ID; what is no text by itself (a part of a character) is U+FFFD."""
    return router.tokenizer.decode([token], skip_special_tokens=False)
