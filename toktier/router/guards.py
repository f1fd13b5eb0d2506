"""What every request passes before a route sees it: plain ASGI middleware, each with one duty and its own counters.

Plain, because wrappers that collect answers break streams and hide that a client went away. From the outside in:
RequestIds, Errors, PlainRequests and KnownHosts (`request_form`), KeysRequired, BodyLimit (`body_limit`), Admission
(`admission`); `Guarded` puts them together. What is refused is answered here and never reaches the app. No line of the
log holds a body, a query, a key or a header. Not here: how long headers may take and how large they may be
(`connections`), and the words of refusals (`refusals`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from toktier.errors import ToktierError
from toktier.labels import shown
from toktier.router.addresses import is_loopback, own_names
from toktier.router.admission import Admission
from toktier.router.api_keys import MAX_KEY, ApiKeys
from toktier.router.body_limit import BodyLimit
from toktier.router.refusals import App, Message, Receive, Refusal, Refused, Scope, Send, as_refused, start_of_error
from toktier.router.request_form import KnownHosts, PlainRequests
from toktier.router.settings import ServeSettings

LOG: Final = logging.getLogger("toktier.router")
ACCESS_LOG: Final = logging.getLogger("toktier.router.access")
REQUEST_ID: Final = b"x-request-id"
# Answered without a key: whether the router is up, and the page that asks for one. What the page shows is behind it.
OPEN_PATHS: Final = frozenset({"/", "/health", "/toktier", "/toktier/"})
METRICS_PATH: Final = "/metrics"

_LINGER_SECONDS: Final = 1.0
_LINGER_BYTES: Final = 64 << 20


class RequestIds:
    """Gives each request an id, in `scope["state"]["request_id"]` and in the answer. One of the client is not kept:
    it could be another's, or a line of a log."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        name = f"req-{os.urandom(12).hex()}"
        scope.setdefault("state", {})["request_id"] = name
        scope["headers"] = [header for header in scope["headers"] if header[0] != REQUEST_ID]
        mark = (REQUEST_ID, name.encode("ascii"))

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [header for header in message.get("headers", ()) if bytes(header[0]).lower() != REQUEST_ID]
                message = {**message, "headers": [*headers, mark]}
            await send(message)

        return await self.app(scope, receive, marked)


@dataclass(slots=True)
class ErrorTally:
    """`refused`: requests by code of the refusal, of the other guards too. `faults`: those that nobody foresaw."""

    refused: Counter[Refusal] = field(default_factory=Counter)
    faults: int = 0


class Errors:
    """Answers what an app raises, with one line in the log: the code, the kind and the place of it, no message of it
    and no trace. An answer that has begun is cut off, so that no client takes it for whole. Refuses what is no HTTP.
    """

    def __init__(self, app: App, tally: ErrorTally | None = None, *, access_log: bool = False) -> None:
        """`tally`: where it counts, which another may do too."""
        self.app, self._access_log = app, access_log
        self._tally = ErrorTally() if tally is None else tally

    @property
    def refused(self) -> Counter[Refusal]:
        return self._tally.refused

    @property
    def faults(self) -> int:
        return self._tally.faults

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            return await send({"type": "websocket.close", "code": 1008})
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        begun = time.monotonic()
        answer = _Answer(receive, send)
        try:
            await self.app(scope, answer.receive, answer.send)
        except Exception as error:
            if isinstance(error, Refused):
                self.refused[error.code] += 1
            self._log(scope, error)
            if not answer.status:
                await answer.fail(error, expects=any(name == b"expect" for name, _ in scope["headers"]))
        except asyncio.CancelledError:  # the router ends; who went away was cancelled further in
            if not answer.status:
                refused = Refused(Refusal.SHUTTING_DOWN, "the router ended before the request had its answer")
                await answer.fail(refused, expects=False)
            raise
        finally:
            if self._access_log:
                ACCESS_LOG.info(
                    "%s %s %s %d %.0f ms",
                    scope["state"]["request_id"],
                    scope["method"],
                    shown(scope["path"]),
                    answer.status,
                    1000 * (time.monotonic() - begun),
                )

    def _log(self, scope: Scope, error: Exception) -> None:
        name = scope.get("state", {}).get("request_id", "-")
        if isinstance(error, Refused):
            LOG.info("%s refused: %s", name, error.code.value)
        elif isinstance(error, ToktierError) and as_refused(error)[0] < 500:
            LOG.info("%s refused: %s", name, error.code)
        else:
            self._tally.faults += 1
            code = error.code if isinstance(error, ToktierError) else "INTERNAL"
            LOG.error("%s failed: %s, %s at %s", name, code, type(error).__name__, _place(error), exc_info=error)


class _Answer:
    """What was read of a request and sent of its answer."""

    __slots__ = ("_complete", "_invited", "_receive", "_send", "status")

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive, self._send, self.status = receive, send, 0
        self._complete = self._invited = False

    async def receive(self) -> Message:
        self._invited = True
        message = await self._receive()
        if message["type"] != "http.request" or not message.get("more_body", False):
            self._complete = True
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self._send(message)

    async def fail(self, error: Exception, *, expects: bool) -> None:
        """Answers with an error. What the client still sends is read for a second and dropped: a connection that is
        closed while data comes in is reset, and the answer would be lost with it. `expects`: the client sends a body
        only after it was asked to go on."""
        status, body, headers = as_refused(error)
        await self.send(start_of_error(status, body, headers, close=not self._complete))
        await self.send({"type": "http.response.body", "body": body, "more_body": True})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LINGER_SECONDS):
                size = 0
                while not self._complete and (self._invited or not expects) and size < _LINGER_BYTES:
                    size += len((await self.receive()).get("body", b""))
        await self.send({"type": "http.response.body", "body": b""})


def _place(error: BaseException) -> str:
    """Module and line where it was raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "?" if trace is None else f"{trace.tb_frame.f_globals.get('__name__', '?')}:{trace.tb_lineno}"


class KeysRequired:
    """Asks for `Authorization: Bearer KEY`, and keeps the header from everything behind it. `keys` None: nobody needs
    one. `open_paths` are answered without, where they are only looked at."""

    def __init__(self, app: App, keys: ApiKeys | None, open_paths: Collection[str] = OPEN_PATHS) -> None:
        self.app, self._keys, self._open = app, keys, frozenset(open_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            said = [value for name, value in scope["headers"] if name == b"authorization"]
            scope["headers"] = [header for header in scope["headers"] if header[0] != b"authorization"]
            is_open = scope["path"] in self._open and scope["method"] in ("GET", "HEAD")
            if self._keys is not None and not is_open and not _has_key(self._keys, said):
                raise Refused(
                    Refusal.NO_KEY,
                    "expected a key that this router accepts" if said else "expected a key, and there is none",
                    remedy="send the header Authorization: Bearer KEY",
                    headers=[(b"www-authenticate", b'Bearer realm="toktier"')],
                )
        return await self.app(scope, receive, send)


def _has_key(keys: ApiKeys, said: list[bytes]) -> bool:
    if len(said) != 1:
        return False
    scheme, _, key = said[0].partition(b" ")
    return scheme.lower() == b"bearer" and len(key) <= MAX_KEY + 16 and keys.accepts(key.strip(b" \t"))


class ConnectionTally:
    """What connections came to that never became requests, as the server counts them: closed at once because there were
    `too_many`, with `slow_headers`, `stalled` because nobody took an answer, `malformed` because it was no HTTP."""

    __slots__ = ("malformed", "slow_headers", "stalled", "too_many")

    def __init__(self) -> None:
        self.too_many = self.slow_headers = self.stalled = self.malformed = 0


class Guarded:
    """An app behind all guards. Its parts hold the counters; `connections` is the server's to count in."""

    def __init__(self, app: App, settings: ServeSettings, keys: ApiKeys | None) -> None:
        is_local = is_loopback(settings.host)
        hosts = own_names(settings.host) | set(settings.allowed_hosts) if is_local else None
        open_paths = OPEN_PATHS | ({METRICS_PATH} if settings.open_metrics else set())
        self.admission = Admission(app, settings.max_concurrent, settings.max_queued, settings.queue_seconds)
        self.body = BodyLimit(self.admission, settings.max_body_bytes, settings.body_seconds)
        inner: App = KeysRequired(self.body, keys, open_paths)
        tally = ErrorTally()
        if settings.allowed_origins:  # a page of one of them may read why it was refused
            inner = _with_cors(Errors(inner, tally), settings.allowed_origins)
        known = KnownHosts(inner, hosts, settings.allowed_origins)
        self.errors = Errors(PlainRequests(known), tally, access_log=settings.access_log)
        self.connections = ConnectionTally()
        self._app = RequestIds(self.errors)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    def counters(self) -> dict[str, int]:
        """Requests `running` and `queued` now, and so far: `admitted`, `rejected`, `left`, `faults`, `body_bytes`,
        `connections_…` as in ConnectionTally, and `refused_CODE` of each refusal that happened."""
        admission = self.admission
        return {
            "running": admission.running,
            "queued": admission.queued,
            "admitted": admission.admitted,
            "rejected": admission.rejected,
            "left": admission.left,
            "faults": self.errors.faults,
            "body_bytes": self.body.bytes_read,
            **{f"connections_{name}": getattr(self.connections, name) for name in ConnectionTally.__slots__},
            **{f"refused_{code.value}": count for code, count in self.errors.refused.items()},
        }


def _with_cors(app: App, origins: tuple[str, ...]) -> App:
    """Pages of these origins may read answers. Preflights have no key: they are answered before it is asked for."""
    from starlette.middleware.cors import CORSMiddleware

    return CORSMiddleware(
        app,
        allow_origins=origins,
        allow_methods=("GET", "POST"),
        allow_headers=("authorization", "content-type"),
        expose_headers=(REQUEST_ID.decode("ascii"), "retry-after"),
    )
