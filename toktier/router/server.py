"""Runs an ASGI app under uvicorn in this process: one socket, one event loop, and an orderly end.

SIGTERM and SIGINT drain: no connection is accepted any more, what runs may end within `drain_seconds`, the rest is
cancelled, which tells the upstreams. A second signal ends at once. Not here: what the app does, bounds of connections
(`connections`), and what is printed (the command).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from toktier.errors import EnvironmentFault, InternalError, Interrupted, Terminated, ToktierError
from toktier.labels import message
from toktier.router.addresses import bracketed
from toktier.router.distributions import missing
from toktier.router.guards import ConnectionTally
from toktier.router.refusals import App, Message, Receive, Scope, Send
from toktier.router.settings import ServeSettings, require_not_itself

try:
    import uvicorn

    from toktier.router import connections
except ImportError:
    raise missing("uvicorn") from None

BACKLOG: Final = 512
_CANCEL_SECONDS: Final = 5.0  # for cancelled requests to tell their upstreams
_CLOSE_SECONDS: Final = 10.0  # for the app to close what it has open
_AT_ONCE_SECONDS: Final = 2.0  # from the second signal to the end of a process that does not end by itself
_POLL: Final = 0.02
_FILES_BESIDE: Final = 64  # descriptors for all that is no connection
_ERRNO_REMEDIES: Final = {
    errno.EADDRINUSE: "give another --port, or --port 0 for a free one, or end what listens there",
    errno.EACCES: "give a --port from 1024 on",
    errno.EADDRNOTAVAIL: "give a --host that this machine has",
}
_Signals = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How serving ended: requests answered since the start, and those that were cut off when it ended."""

    requests: int
    cut_off: int


def bind(host: str, port: int) -> socket.socket:
    """A socket that is bound and does not listen yet: who connects too early is refused, and does not wait. Raises
    EnvironmentFault."""
    address = "127.0.0.1" if host == "localhost" else host
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    # With its protocol named: else asyncio leaves Nagle's algorithm on, and answers wait 40 ms for acknowledgements.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address, port))
    except OSError as error:
        sock.close()
        raise _cannot_listen(error, host, port) from None
    return sock


def _cannot_listen(error: OSError, host: str, port: int) -> EnvironmentFault:
    reason = os.strerror(error.errno) if error.errno else str(error)
    return EnvironmentFault(
        f"cannot listen on {url_of(host, port)}: {reason}",
        details={"host": host, "port": port, "errno": errno.errorcode.get(error.errno or 0, "")},
        remedy=_ERRNO_REMEDIES.get(error.errno or 0, "give another --host or --port"),
    )


def url_of(host: str, port: int) -> str:
    return f"http://{bracketed(host)}:{port}"


def serve(
    app: App,
    settings: ServeSettings,
    sock: socket.socket,
    *,
    on_ready: Callable[[str], None],
    log: Callable[[str], None],
    log_level: str = "warning",
    tally: ConnectionTally | None = None,
) -> Ended:
    """Serves until a signal says to end. `on_ready` gets the URL once connections are taken; `log` gets lines, of the
    level and those above (as `toktier.config.LOG_LEVELS`), with what others named made printable. `tally`: of the app,
    where it tells what connections came to.

    Raises what the app raised when it began, EnvironmentFault where the socket cannot listen, Interrupted or Terminated
    after a signal before it was ready, or a second one.
    """
    port = sock.getsockname()[1]
    require_not_itself(settings, port)
    _raise_file_limit(settings.max_connections + settings.max_concurrent + _FILES_BESIDE)
    start = _Start(app)
    config = uvicorn.Config(
        start,
        http=connections.protocol(settings.max_connections, settings.idle_seconds, tally or ConnectionTally()),
        interface="asgi3",
        lifespan="on",
        loop="asyncio",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        **connections.config_arguments(),
    )
    server = _Server(config, settings.drain_seconds, lambda: on_ready(url_of(settings.host, port)))
    with _logged(log, log_level), sock:
        try:
            asyncio.run(server.serve(sockets=[sock]))
        except OSError as error:
            if server.started or start.error is not None:
                raise
            raise _cannot_listen(error, settings.host, port) from None
        except (SystemExit, asyncio.CancelledError):
            if server.last_signal is None:
                raise (start.error or InternalError("the router did not begin")) from None
        finally:
            server.ends.set()
    if server.last_signal is not None and (server.force_exit or not server.started):
        when = "at once, by a second signal" if server.force_exit else "before it was ready"
        kind = Interrupted if server.last_signal == signal.SIGINT else Terminated
        raise kind(f"ended {when}", details={"cut_off": server.cut_off})
    return Ended(requests=server.server_state.total_requests, cut_off=server.cut_off)


class _Start:
    """The app, with what it raised when it began kept: the server tells only that it failed."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.error: BaseException | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            return await self._app(scope, receive, send)
        begun = failed = False

        async def watched(message: Message) -> None:
            nonlocal begun, failed
            begun |= message["type"] == "lifespan.startup.complete"
            if message["type"].endswith(".failed"):  # with a trace in it, which the error tells better
                failed = True
                message = {"type": message["type"], "message": ""}
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except BaseException as error:
            self.error = error
            if not isinstance(error, Exception):
                raise
            if begun:
                logging.getLogger("toktier.router").error("the end failed: %s", _kind(error), exc_info=error)
            if not failed:
                await send({"type": f"lifespan.{'shutdown' if begun else 'startup'}.failed", "message": ""})


def _kind(error: BaseException) -> str:
    return error.code if isinstance(error, ToktierError) else type(error).__name__


class _Server(uvicorn.Server):
    """`cut_off`: requests that were cancelled at the end. `ends`: set when no signal needs to be minded any more."""

    def __init__(self, config: uvicorn.Config, drain_seconds: float, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._drain_seconds, self._on_ready = drain_seconds, on_ready
        self._main: asyncio.Task[Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.last_signal: int | None = None
        self.cut_off = 0
        self.ends = threading.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        self._main, self._loop = asyncio.current_task(), asyncio.get_running_loop()
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._handle) for number in _Signals}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _handle(self, number: int, _: Any) -> None:
        first, self.last_signal = self.last_signal is None, number
        if first:
            self.should_exit = True
            if not self.started:
                self._cancel_main()
            return
        self.force_exit = True
        threading.Thread(target=self._end_at_once, args=(number,), daemon=True).start()

    def _cancel_main(self) -> None:
        if self._loop is not None and self._main is not None:
            self._loop.call_soon_threadsafe(self._main.cancel)

    def _end_at_once(self, number: int) -> None:
        """The last resort: something does not let itself be cancelled."""
        if not self.ends.wait(_AT_ONCE_SECONDS):
            os._exit(128 + number)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets=sockets)
        except OSError:
            await self._close_app()
            raise
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        await self._wait(self._drain_seconds, also_connections=True)
        running = list(self.server_state.tasks)
        self.cut_off = len(running)
        for task in running:
            task.cancel()
        if self.force_exit:
            return
        await self._wait(_CANCEL_SECONDS)
        await self._close_app()

    async def _wait(self, seconds: float, *, also_connections: bool = False) -> None:
        """Until nothing runs, the time is up, or a second signal comes."""
        state, end = self.server_state, time.monotonic() + seconds
        while (state.tasks or (also_connections and state.connections)) and not self.force_exit:
            if time.monotonic() >= end:
                return
            await asyncio.sleep(_POLL)

    async def _close_app(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self.lifespan.shutdown()


class _Lines(logging.Handler):
    """Records as lines: label, time, text; never the trace of an error, but where the level is debug."""

    def __init__(self, log: Callable[[str], None], traces: bool) -> None:
        super().__init__()
        self._log, self._traces = log, traces

    def emit(self, record: logging.LogRecord) -> None:
        try:
            label = "error" if record.levelno >= logging.ERROR else record.levelname.lower()
            at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created))
            self._log(f"{label}: {at} {message(record.getMessage())}")
            if self._traces and record.exc_info and record.exc_info[1] is not None:
                self._log(logging.Formatter().formatException(record.exc_info))
        except Exception:  # as the standard handlers: a log that fails stops nothing
            self.handleError(record)


@contextlib.contextmanager
def _logged(log: Callable[[str], None], level: str) -> Iterator[None]:
    """Lines of the router, and of what it runs on, go to `log` alone."""
    handler = _Lines(log, level == "debug")
    ours = getattr(logging, level.upper())
    levels = {
        "toktier.router": ours,
        "toktier.router.access": logging.INFO if ours <= logging.WARNING else ours,
        # What uvicorn says of requests the guards have said, with the request's id; of its own life the command tells.
        "uvicorn.error": logging.DEBUG if level == "debug" else logging.CRITICAL,
        "asyncio": logging.ERROR,
    }
    before = []
    for name, wanted in levels.items():
        logger = logging.getLogger(name)
        before.append((logger, logger.level, logger.propagate, logger.handlers))
        logger.setLevel(wanted)
        logger.propagate, logger.handlers = False, [handler]
    try:
        yield
    finally:
        for logger, old_level, propagate, handlers in before:
            logger.setLevel(old_level)
            logger.propagate, logger.handlers = propagate, handlers


def _raise_file_limit(wanted: int) -> None:
    """As many open files as connections may need, as far as this process may say so itself."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(
                resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard)
            )
