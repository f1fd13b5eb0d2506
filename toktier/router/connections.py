"""One HTTP connection: the protocol of uvicorn, with the bounds that it leaves out.

A connection ends when headers take longer than `HEADER_SECONDS` to arrive, when its client takes nothing of an answer
for `idle` seconds (the app then sees that it went away, and tells the upstream), and at once when there are too many
connections. What is no HTTP is answered in the router's shape of errors. Upgrades are ignored, as HTTP allows. Not
here: requests (`guards`), the server (`server`).
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from toktier.router.guards import ConnectionTally
from toktier.router.refusals import Refusal, Refused, start_of_error
from toktier.router.request_form import MAX_HEADER_BYTES

HEADER_SECONDS: Final = 15.0
KEEP_ALIVE_SECONDS: Final = 30


def protocol(max_connections: int, idle_seconds: float, tally: ConnectionTally) -> type[H11Protocol]:
    """The class of connections of one server. `max_connections`: at once. `idle_seconds`: for a client to take some of
    an answer when the buffers are full."""

    class Connection(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            self._header_timer: asyncio.TimerHandle | None = None
            self._stall_timer: asyncio.TimerHandle | None = None
            super().connection_made(transport)
            if len(self.connections) > max_connections:
                tally.too_many += 1
                transport.abort()
                return
            self._await_headers()

        def connection_lost(self, exc: Exception | None) -> None:
            self._clear()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self._header_timer is None and self._idle():
                self._await_headers()
            super().data_received(data)
            if self._header_timer is not None and not self._idle():
                self._header_timer.cancel()
                self._header_timer = None

        def pause_writing(self) -> None:
            super().pause_writing()
            if self._stall_timer is None:
                self._stall_timer = self.loop.call_later(idle_seconds, self._stalled)

        def resume_writing(self) -> None:
            super().resume_writing()
            if self._stall_timer is not None:
                self._stall_timer.cancel()
                self._stall_timer = None

        def send_400_response(self, msg: str) -> None:
            tally.malformed += 1
            if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):  # an answer has begun: nothing can be added
                self.transport.close()
                return
            refused = Refused(Refusal.BAD_REQUEST, "what was sent is no HTTP request")
            start = start_of_error(refused.status, refused.body(), close=True)
            for event in (
                h11.Response(status_code=start["status"], headers=start["headers"], reason=b"Bad Request"),
                h11.Data(data=refused.body()),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
            self.transport.close()

        def _should_upgrade(self) -> bool:
            return False

        def _idle(self) -> bool:
            """Whether no request is being answered, and none has arrived whole."""
            return self.cycle is None or self.cycle.response_complete

        def _await_headers(self) -> None:
            self._header_timer = self.loop.call_later(HEADER_SECONDS, self._slow_headers)

        def _slow_headers(self) -> None:
            self._header_timer = None
            tally.slow_headers += 1
            self.transport.abort()

        def _stalled(self) -> None:
            self._stall_timer = None
            tally.stalled += 1
            self.transport.abort()

        def _clear(self) -> None:
            for timer in (self._header_timer, self._stall_timer):
                if timer is not None:
                    timer.cancel()
            self._header_timer = self._stall_timer = None

    return Connection


def config_arguments() -> dict[str, Any]:
    """What of uvicorn's configuration belongs to this protocol."""
    return {
        "h11_max_incomplete_event_size": MAX_HEADER_BYTES,
        "timeout_keep_alive": KEEP_ALIVE_SECONDS,
        "ws": "none",
    }
