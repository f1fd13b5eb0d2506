"""An app that stands in for the router's own, for tests of what carries it: routes that answer, wait, stream and fail.

`python -m tests.router.stub_app ARGUMENTS` is `toktier ARGUMENTS` with it. AT_ONCE_SECONDS in the environment: how long
the process may take to end behind a second signal, before it is ended without a word.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from starlette.responses import StreamingResponse

from toktier.errors import SourceUnreachable
from toktier.router import guards, server
from toktier.router.api_keys import read_api_keys
from toktier.router.framework_errors import exception_handlers
from toktier.router.guards import Guarded
from toktier.router.settings import ServeSettings


def create_app(settings: ServeSettings, tokenizer: Any) -> Guarded:
    """As `toktier.router.app.create_app`. A first upstream called `refuses` or `breaks` keeps it from beginning, one
    called `hangs` from beginning or ending."""
    events: list[str] = []
    waiting: list[asyncio.Event] = []

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        name = settings.upstreams[0].removeprefix("http://")
        if name == "refuses":
            raise SourceUnreachable("the upstream refuses", remedy="ask it nicely")
        if name == "breaks":
            raise KeyError("the PROMPT")
        if name == "hangs":
            say("hanging")
            await asyncio.Event().wait()
        yield
        say("ended")

    def say(event: str) -> None:
        events.append(event)
        sys.stderr.write(f"stub: {event}\n")
        sys.stderr.flush()

    app = FastAPI(lifespan=lifespan, exception_handlers=exception_handlers(), title="stub", version="1")

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/toktier/events")
    async def told() -> dict[str, list[str]]:
        return {"events": events}

    @app.post("/v1/completions")
    async def completions(request: Request) -> dict[str, Any]:
        body = await request.body()
        return {"bytes": len(body), "tokens": len(tokenizer.encode("a"))}

    @app.get("/items/{number}")
    async def items(number: int) -> dict[str, int]:
        return {"number": number}

    @app.get("/boom")
    async def boom() -> None:
        raise KeyError("the PROMPT of a user")

    @app.get("/wait")
    async def wait(request: Request) -> dict[str, str]:
        """Answers when /go was asked, and ends when its client goes away."""
        event = asyncio.Event()
        waiting.append(event)
        say("waiting")
        went, gone = asyncio.ensure_future(event.wait()), asyncio.ensure_future(left(request))
        try:
            await asyncio.wait({went, gone}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            say("cancelled")
            raise
        finally:
            went.cancel()
            gone.cancel()
        return {"answer": "late"}

    async def left(request: Request) -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        say("left")

    @app.get("/stubborn")
    async def stubborn() -> None:
        """Does not let itself be cancelled."""
        say("stubborn")
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                say("not cancelled")

    @app.get("/stream")
    async def stream() -> StreamingResponse:
        """Never ends by itself. 64 KiB pieces, as fast as they are taken."""

        async def pieces() -> AsyncIterator[bytes]:
            say("streaming")
            try:
                while True:
                    yield b"x" * 65536
                    await asyncio.sleep(0)
            finally:
                say("stream closed")

        return StreamingResponse(pieces(), media_type="text/event-stream")

    @app.get("/linger/{seconds}")
    async def linger(seconds: float) -> dict[str, float]:
        """For how long requests are read on that were refused early."""
        before = guards._LINGER_SECONDS
        vars(guards)["_LINGER_SECONDS"] = seconds
        return {"before": before}

    @app.get("/go")
    async def go() -> dict[str, int]:
        for event in waiting:
            event.set()
        return {"went": len(waiting)}

    keys = None if settings.api_key_file is None else read_api_keys(settings.api_key_file)[0]
    return Guarded(app, settings, keys)


if __name__ == "__main__":
    import types

    if "AT_ONCE_SECONDS" in os.environ:
        vars(server)["_AT_ONCE_SECONDS"] = float(os.environ["AT_ONCE_SECONDS"])
    module = types.ModuleType("toktier.router.app")
    module.create_app = create_app  # type: ignore[attr-defined]
    sys.modules["toktier.router.app"] = module
    from toktier_cli.main import main

    sys.exit(main())
