"""The status page with documents that a test sets: a real server on a loopback port, which can go away and come back.

The documents are those of the modules that make them for the router; the key is checked as the router does. Not here:
the router, and the browser.
"""

from __future__ import annotations

import socket
import threading
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from starlette.responses import JSONResponse, Response

from tests.cli.command import validator
from tests.router.finished_requests import NOW, three_slots, two_upstreams
from toktier.router.rows import slots_document
from toktier.router.stats import Stats
from toktier.router.status_page import status_page


class Clock:
    """Seconds since some beginning, which a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class PageServer:
    """`key`: what requests for documents must bring, None: nothing. `asked`: their targets, as they came."""

    def __init__(self) -> None:
        self.key: str | None = None
        self.asked: list[str] = []
        self.forget()
        # Its address is nobody else's while it is away: it is bound here, too, and nobody listens by this.
        self._address = socket.socket()
        self._address.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._address.bind(("127.0.0.1", 0))
        self.port = int(self._address.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self.start()

    def forget(self) -> None:
        """As a router that has just begun, with two upstreams and three slots."""
        self.clock = Clock()
        self.stats = Stats(self.clock, epoch=lambda: NOW)
        self.upstreams, self.slots = two_upstreams(), three_slots()
        self.parts: dict[str, Any] = {}
        self.broken: dict[str, Any] | None = None  # a document that is none

    def start(self) -> None:
        listening = socket.create_server(("127.0.0.1", self.port))
        config = uvicorn.Config(self._app(), log_level="error", lifespan="off", timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [listening]})
        self._thread.start()

    def stop(self) -> None:
        """Goes away: connections to its port are refused."""
        assert self._server is not None
        assert self._thread is not None
        self._server.should_exit = True
        self._thread.join()

    def close(self) -> None:
        self.stop()
        self._address.close()

    def _app(self) -> FastAPI:
        app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

        @app.get("/")
        @app.get("/toktier")
        async def page() -> Response:
            found = status_page()
            return Response(found.body, headers=dict(found.headers))

        @app.get("/toktier/stats")
        async def stats(request: Request) -> Response:
            return self._answer(request, "serve_stats", self.stats.document(**self.parts))

        @app.get("/toktier/slots")
        async def slots(request: Request) -> Response:
            return self._answer(request, "serve_slots", slots_document(self.upstreams, self.slots, NOW))

        return app

    def _answer(self, request: Request, name: str, document: dict[str, Any]) -> Response:
        self.asked.append(str(request.url))
        if self.key is not None and request.headers.get("authorization") != f"Bearer {self.key}":
            return JSONResponse({"error": {"message": "no key"}}, 401)
        if self.broken is not None:
            return JSONResponse(self.broken)
        validator(name).validate(document)
        return JSONResponse(document)
