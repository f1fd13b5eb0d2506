"""The whole router in this process: its app under uvicorn in a thread, a client, and what the router says of requests.

Facts of a request are known when `Served.facts` returns: they are recorded behind the last byte of an answer, which a
client may have before. Not here: signals and kill -9, which need a process (`running`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

import httpx
import uvicorn

import toktier
from tests.router.running import Raw
from toktier.router import connections
from toktier.router.app import RouterApp, create_app
from toktier.router.request_facts import RequestFacts
from toktier.router.server import bind
from toktier.router.settings import ServeSettings

SECONDS = 180.0  # until a test gives up; nothing is judged by time
GRACE = 10.0  # for what runs when the router ends
ROUTES = ("/completion", "/v1/completions", "/v1/chat/completions")


@dataclass(frozen=True)
class Answered:
    """What a client got, and the facts of its request."""

    response: httpx.Response
    facts: RequestFacts

    @property
    def status(self) -> int:
        return self.response.status_code

    @property
    def json(self) -> Any:
        return self.response.json()

    @property
    def counts(self) -> tuple[int, int]:
        """Reused and prefilled tokens, as the answer told the client."""
        timings = self.json["timings"]
        return timings["cache_n"], timings["prompt_n"]


class _Server(uvicorn.Server):
    """As it is, but for its end: uvicorn looks every tenth of a second whether it is to end, and then waits for another
    tenth, which are most of what a test of one request would take. Requests and connections are waited for as before.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ends = asyncio.Event()

    async def main_loop(self) -> None:
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.ends.wait(), 1.0)  # each second has another date

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        deadline = time.monotonic() + GRACE
        while (self.server_state.connections or self.server_state.tasks) and time.monotonic() < deadline:
            await asyncio.sleep(0.002)
        for task in self.server_state.tasks:
            task.cancel()
        await self.lifespan.shutdown()


class Served:
    """One router in front of `upstreams`. `requests`: facts in the order in which they were recorded."""

    def __init__(
        self,
        *upstreams: str,
        tokenizer: toktier.Tokenizer,
        prepare: Callable[[RouterApp], None] | None = None,
        **settings: Any,
    ) -> None:
        """`settings`: of ServeSettings; `prepare`: what is done to the app before it begins."""
        # Health checks would ask slots in between: a test that wants them says how often.
        patient = {"health_seconds": 3600.0, "connect_seconds": SECONDS}
        self.settings = ServeSettings(upstreams=upstreams, **{**patient, **settings})
        self.app = create_app(self.settings, tokenizer)
        self.router = self.app.router
        for upstream in self.router.upstreams:  # a busy host must not look like an upstream that is silent
            upstream.timeouts = replace(upstream.timeouts, question=SECONDS)
        self.requests: list[RequestFacts] = []
        self._recorded = threading.Condition()
        record = self.router.record

        def recorded(facts: RequestFacts) -> None:
            record(facts)
            with self._recorded:
                self.requests.append(facts)
                self._recorded.notify_all()

        self.router.record = recorded  # type: ignore[method-assign]
        if prepare is not None:
            prepare(self.app)
        self._sock = bind("127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._sock.getsockname()[1]}"
        config = uvicorn.Config(
            self.app,
            http=connections.protocol(self.settings.max_connections, self.settings.idle_seconds, self.app.connections),
            interface="asgi3",
            lifespan="on",
            loop="asyncio",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            **connections.config_arguments(),
        )
        self._server = _Server(config)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.loop: asyncio.AbstractEventLoop | None = None
        self.client = httpx.Client(base_url=self.url, trust_env=False, verify=False, timeout=SECONDS)

    def _run(self) -> None:
        async def main() -> None:
            self.loop = asyncio.get_running_loop()
            await self._server.serve(sockets=[self._sock])

        with self._sock:
            asyncio.run(main())

    def __enter__(self) -> Served:
        self._thread.start()
        self.until(lambda: self._server.started or not self._thread.is_alive())
        assert self._server.started
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        self.client.close()
        self._server.should_exit = True
        assert self.loop is not None
        self.loop.call_soon_threadsafe(self._server.ends.set)
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()
        assert kind is not None or self.app.errors.faults == 0

    def until_settled(self) -> None:
        """Requests that were left are settled when their slots are seen to be idle."""
        self.until(lambda: not self.in_flight())

    def until(self, condition: Callable[[], Any], every: float = 0.002) -> Any:
        """What `condition` gives when it is true, asked again and again; the test fails in the end."""
        deadline = time.monotonic() + SECONDS
        while not (found := condition()):
            assert time.monotonic() < deadline
            time.sleep(every)
        return found

    # Asking

    def post(self, path: str, body: Any, **more: Any) -> httpx.Response:
        return self.client.post(path, json=body, **more)

    def ask(self, path: str, body: dict[str, Any]) -> Answered:
        """A request that reaches an upstream."""
        response = self.post(path, body)
        return Answered(response, self.facts(response))

    def complete(self, prompt: Sequence[int] | str, *, native: bool = True, n: int = 8, **more: Any) -> Answered:
        """A greedy completion, which has to be answered with 200."""
        path, limit = ("/completion", "n_predict") if native else ("/v1/completions", "max_tokens")
        answered = self.ask(path, {"prompt": prompt, limit: n, "temperature": 0, **more})
        assert answered.status == 200, answered.response.text
        return answered

    def chat(self, text: str, **more: Any) -> Answered:
        messages = [{"role": "user", "content": text}]
        body = {"messages": messages, "max_tokens": 8, "temperature": 0, **more}
        answered = self.ask("/v1/chat/completions", body)
        assert answered.status == 200, answered.response.text
        return answered

    @contextlib.contextmanager
    def streaming(self, path: str, body: dict[str, Any]) -> Iterator[Streaming]:
        with self.client.stream("POST", path, json={**body, "stream": True}) as response:
            yield Streaming(response)

    def begin(self, path: str, body: dict[str, Any]) -> Raw:
        """A connection on which a request was sent; closed, its client has gone away."""
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n".encode()
        return Raw(int(self.url.rpartition(":")[2]), head + data)

    # What the router says

    def facts(self, response: httpx.Response) -> RequestFacts:
        """Of the request that was answered so."""
        name = response.headers["x-request-id"]
        found: RequestFacts = self.recorded(lambda: next((one for one in self.requests if one.id == name), None))
        return found

    def recorded(self, condition: Callable[[], Any]) -> Any:
        """What `condition` gives when it is true, asked again after each request that ends."""
        with self._recorded:
            found = self._recorded.wait_for(condition, SECONDS)
        assert found, self.requests
        return found

    def stats(self) -> dict[str, Any]:
        document: dict[str, Any] = self.client.get("/toktier/stats").json()
        return document

    def slots(self, upstream: int = 0) -> list[dict[str, Any]]:
        rows = self.client.get("/toktier/slots").json()["slots"]
        return [row for row in rows if row["upstream"] == upstream]

    def held(self, upstream: int = 0) -> list[tuple[str, int, int]]:
        """Of each slot: state, tokens, and how many of them are sure."""
        return [(row["state"], row["tokens"], row["sure"]) for row in self.slots(upstream)]

    def upstream_rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.client.get("/toktier/slots").json()["upstreams"]
        return rows

    def until_restarted(self) -> None:
        """Until the first upstream is known to be another process, and is used again."""

        def known() -> bool:
            row = self.upstream_rows()[0]
            return (row["restarts"], row["state"]) == (1, "up")

        self.until(known)

    def in_flight(self) -> int:
        return sum(row["requests"] for row in self.client.get("/toktier/slots").json()["slots"])

    def call(self, coroutine: Callable[[], Any]) -> Any:
        """What a coroutine function gives, run in the loop of the router."""
        assert self.loop is not None
        return asyncio.run_coroutine_threadsafe(coroutine(), self.loop).result(SECONDS)


class Streaming:
    """A stream that is read event by event."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.body = b""
        self._lines = self._read()

    def _read(self) -> Iterator[bytes]:
        rest = b""
        for chunk in self.response.iter_raw():
            self.body += chunk
            *lines, rest = (rest + chunk).split(b"\n")
            yield from lines

    def events(self) -> Iterator[Any]:
        """What is JSON, as it is; of the others the text."""
        for line in self._lines:
            if line.startswith(b"data:"):
                data = line[5:].strip()
                yield json.loads(data) if data[:1] == b"{" else data.decode()

    def take(self, count: int) -> list[Any]:
        events = self.events()
        return [next(events) for _ in range(count)]
