"""The least that a proxy of FastAPI and httpx does: every request goes up as it came, every answer comes back so.

What the router costs is measured beside it, on the same server settings. Not here: anything that a router is for.

    python benchmarks/pass_through.py http://127.0.0.1:8080 8765
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import Response, StreamingResponse
from starlette.background import BackgroundTask


def application(upstream: str) -> FastAPI:
    client = httpx.AsyncClient(base_url=upstream, timeout=None, trust_env=False)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await client.aclose()

    app = FastAPI(lifespan=lifespan)

    @app.api_route("/{path:path}", methods=["GET", "POST"], response_model=None)
    async def passed(path: str, request: Request) -> Response:
        body = await request.body()
        headers = {"content-type": request.headers.get("content-type", "application/json")}
        asked = client.build_request(request.method, f"/{path}", content=body, headers=headers)
        try:
            answer = await client.send(asked, stream=True)
        # llama-server closes a connection behind a stream, at times after its reuse.
        except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
            answer = await client.send(asked, stream=True)
        kind = answer.headers.get("content-type")
        if kind is not None and kind.startswith("text/event-stream"):
            return StreamingResponse(
                answer.aiter_raw(), answer.status_code, media_type=kind, background=BackgroundTask(answer.aclose)
            )
        return Response(await answer.aread(), answer.status_code, media_type=kind)

    return app


# As `toktier.router.server` has them.
SETTINGS: dict[str, Any] = {
    "http": "h11",
    "interface": "asgi3",
    "loop": "asyncio",
    "log_config": None,
    "access_log": False,
    "proxy_headers": False,
    "server_header": False,
    "backlog": 512,
}


if __name__ == "__main__":
    uvicorn.run(application(sys.argv[1]), host="127.0.0.1", port=int(sys.argv[2]), **SETTINGS)
