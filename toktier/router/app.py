"""The routes of the router, as an ASGI app behind its guards (`guards`).

Bodies are read here as bytes and understood in `bodies`; whatever a route raises is answered in the one shape of errors
(`framework_errors`). Not here: how a request is served (`exchange`), the server that runs this (`server`).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Final

from toktier.router.distributions import missing

try:
    import orjson
    from fastapi import FastAPI, Request
    from starlette.requests import ClientDisconnect
    from starlette.responses import Response
except ImportError:
    raise missing("fastapi") from None

from toktier.router import openapi
from toktier.router.api_keys import read_api_keys, read_upstream_key
from toktier.router.bodies import ChatRequest, CompletionRequest, read_chat, read_completion, read_tokenize
from toktier.router.exchange import RECORDED, Exchange
from toktier.router.framework_errors import exception_handlers
from toktier.router.guards import Guarded
from toktier.router.metrics import RouterMetrics
from toktier.router.refusals import Message, Receive, Scope, Send
from toktier.router.router import Router
from toktier.router.rows import slots_document
from toktier.router.slotless_routes import Embeddings, models_document, tokens_document
from toktier.router.status_page import status_page
from toktier.router.upstream import Route
from toktier.router.vocabulary import UpstreamState
from toktier.version import VERSION

if TYPE_CHECKING:
    from toktier import Tokenizer
    from toktier.router.kv_events import KvEvents
    from toktier.router.records import Records
    from toktier.router.settings import ServeSettings

_JSON: Final = "application/json"
_ASKED: Final = (400, 401, 408, 413, 500, 502, 503, 504)  # what a route that asks an upstream may refuse with


class RouterApp(Guarded):
    """What `create_app` gives: the guarded app, with the router in it."""

    def __init__(self, router: Router, settings: ServeSettings) -> None:
        keys = None if settings.api_key_file is None else read_api_keys(settings.api_key_file)[0]
        self.router = router
        super().__init__(_routes(router, self), settings, keys)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Counts what the router refused by itself: errors of which no exchange has kept a record."""

        async def counted(message: Message) -> None:
            refused = message["type"] == "http.response.start" and message["status"] >= 400
            if refused and not scope.get("state", {}).get(RECORDED):
                self.router.stats.refused(message["status"])
            await send(message)

        await super().__call__(scope, receive, counted)


def create_app(settings: ServeSettings, tokenizer: Tokenizer) -> RouterApp:
    """Connects to nothing before its lifespan begins. Raises ConfigInvalid, EnvironmentFault, BackendUnavailable."""
    key = None if settings.upstream_api_key_file is None else read_upstream_key(settings.upstream_api_key_file)[0]
    router = Router(
        settings, tokenizer, upstream_api_key=key, records=_records(settings), kv_events=_kv_events(settings)
    )
    return RouterApp(router, settings)


async def _left(request: Request, _: Exception) -> Response:
    """A client went away while it sent its body: that is nobody's fault, and nobody reads this."""
    request.scope["state"][RECORDED] = True
    return Response(status_code=400)


def _records(settings: ServeSettings) -> Records | None:
    if settings.records is None:
        return None
    from toktier.router.records import Records

    return Records(settings.records, keep_rows=settings.keep_rows, outputs=settings.record_outputs)


def _kv_events(settings: ServeSettings) -> KvEvents | None:
    if settings.kv_events is None:
        return None
    from toktier.router.kv_events import KvEvents

    return KvEvents(
        settings.kv_events,
        settings.kv_replay,
        topic=settings.kv_topic,
        block_size=settings.kv_block_size,
        scheme=settings.kv_scheme,
        form=settings.kv_form,
        upstreams=len(settings.upstreams),
    )


def _routes(router: Router, guarded: Guarded) -> FastAPI:
    settings = router.settings
    embeddings = Embeddings(settings, router.upstream_api_key)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            if router.records is not None:
                stack.callback(router.records.close)
            if router.kv_events is not None:
                router.kv_events.start()
                stack.callback(router.kv_events.close)
            stack.push_async_callback(embeddings.close)
            stack.push_async_callback(router.stop)
            await router.start()
            yield

    api = FastAPI(
        title="toktier serve",
        version=VERSION,
        description="A router in front of llama-servers. What an upstream refuses is passed on as it came.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        exception_handlers={**exception_handlers(), ClientDisconnect: _left},
    )

    def exchanges(
        route: Route, schema: dict[str, Any], read: Callable[[bytes], CompletionRequest | ChatRequest], said: str
    ) -> None:
        """Adds a route that an upstream answers: `read` understands the body, `schema` describes it."""

        async def exchanged(request: Request) -> Response:
            arrived = time.monotonic()
            asked = read(await request.body())
            return Exchange(router, route, asked, name=request.scope["state"]["request_id"], arrived=arrived)

        api.add_api_route(
            route,
            exchanged,
            methods=["POST"],
            name=route.name.lower(),
            description=said,
            openapi_extra=openapi.body(schema),
            responses=openapi.responses(openapi.OBJECT, stream=True, refusals=_ASKED),
            response_class=Response,
        )

    exchanges(
        Route.COMPLETIONS,
        openapi.COMPLETION,
        functools.partial(read_completion, native=False),
        "OpenAI's completions. The prompt is text or token IDs; it goes up as IDs.",
    )
    exchanges(
        Route.COMPLETION,
        openapi.COMPLETION,
        functools.partial(read_completion, native=True),
        "llama-server's own completions.",
    )
    exchanges(
        Route.CHAT,
        openapi.CHAT,
        read_chat,
        "OpenAI's chat completions. The upstream renders the chat; its IDs are compared with toktier's.",
    )

    @api.post(
        Route.EMBEDDINGS,
        openapi_extra=openapi.body(openapi.EMBEDDINGS),
        responses=openapi.responses(openapi.OBJECT, refusals=(*_ASKED, 501)),
        response_class=Response,
    )
    async def embed(request: Request) -> Response:
        """Embeddings, by a server of their own: one that generates would lose all its slots."""
        return await embeddings.ask(await request.body(), request.receive)

    @api.post(
        "/tokenize",
        openapi_extra=openapi.body(openapi.TOKENIZE),
        responses=openapi.responses(openapi.TOKENS, refusals=(400, 401, 408, 413, 503)),
        response_class=Response,
    )
    async def tokenize(request: Request) -> Response:
        """Token IDs, by toktier itself."""
        asked = read_tokenize(await request.body())
        if asked.is_short:
            return Response(tokens_document(router, asked), media_type=_JSON)
        return Response(await asyncio.to_thread(tokens_document, router, asked), media_type=_JSON)

    @api.get(
        "/v1/models",
        responses=openapi.responses(openapi.OBJECT, refusals=(401, 502, 503, 504)),
        response_class=Response,
    )
    async def models() -> Response:
        """The models of all upstreams."""
        return Response(await models_document(router), media_type=_JSON)

    @api.head("/health", response_class=Response, include_in_schema=False)
    @api.get("/health", responses=openapi.responses(openapi.OBJECT, refusals=(503,)), response_class=Response)
    async def health() -> Response:
        """Whether an upstream can be used. Needs no key."""
        up = sum(upstream.state is UpstreamState.UP for upstream in router.upstreams)
        if not up:
            raise router.no_upstream()
        return Response(orjson.dumps({"status": "ok", "upstreams": len(router.upstreams), "up": up}), media_type=_JSON)

    metrics = RouterMetrics(
        router.stats,
        upstreams=router.upstream_rows,
        slots=router.slot_rows,
        records=None if router.records is None else router.records.state,
        kv_events=None if router.kv_events is None else router.kv_events.counters,
        guards=guarded.counters,
        turns=router.turns.counters,
        tokenizer=router.tokenizer,
    )

    @api.get(
        "/metrics",
        responses={
            **openapi.responses(openapi.OBJECT, refusals=(401,)),
            200: {"description": "The series.", "content": {"text/plain": {"schema": {"type": "string"}}}},
        },
        response_class=Response,
    )
    async def metrics_page(request: Request) -> Response:
        """What a Prometheus server asks for."""
        body, content_type = metrics.page(request.headers.get("accept"))
        return Response(body, headers={"content-type": content_type})

    @api.get("/toktier/stats", responses=openapi.responses(openapi.OBJECT, refusals=(401,)), response_class=Response)
    async def stats() -> Response:
        """Counters since the start, and series over time."""
        document = router.stats.document(
            records=None if router.records is None else router.records.state(),
            kv_events=router.kv_event_counters(),
            guards=guarded.counters(),
            turns=router.turns.counters(),
            missing=router.missing(),
        )
        return Response(orjson.dumps(document), media_type=_JSON)

    @api.get("/toktier/slots", responses=openapi.responses(openapi.OBJECT, refusals=(401,)), response_class=Response)
    async def slots() -> Response:
        """What each slot of each upstream is thought to hold."""
        document = slots_document(router.upstream_rows(), router.slot_rows(), time.time())
        return Response(orjson.dumps(document), media_type=_JSON)

    page = status_page()

    @api.api_route("/", methods=["GET", "HEAD"], response_class=Response, include_in_schema=False)
    @api.api_route("/toktier", methods=["GET", "HEAD"], response_class=Response, include_in_schema=False)
    async def status() -> Response:
        """The page for people."""
        return Response(page.body, headers=dict(page.headers))

    return api
