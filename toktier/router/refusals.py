"""Why the router itself answers a request with an error: one table of codes, and the one shape that they are told in.

The shape is that of OpenAI's API, which clients know: `{"error": {"message", "type", "param", "code"}}`, with `remedy`
beside them where something mends it. Errors of an upstream are passed on in the upstream's own shape. Not here: who
decides (`guards`, the routes), and what a request that was passed on came to (`vocabulary.Outcome`).
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from enum import StrEnum
from typing import Any, Final

from toktier.errors import (
    ExitCode,
    RequestInvalid,
    ToktierError,
    UpstreamBroken,
    UpstreamLost,
    UpstreamRefused,
    UpstreamSilent,
)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Refusal(StrEnum):
    """The `code` of an error."""

    NO_KEY = "invalid_api_key"
    BAD_TARGET = "bad_target"
    BAD_HEADERS = "bad_headers"
    BAD_REQUEST = "bad_request"
    BODY_ENCODED = "body_encoded"
    BODY_TOO_LARGE = "body_too_large"
    BODY_TOO_SLOW = "body_too_slow"
    FOREIGN_HOST = "foreign_host"
    FOREIGN_ORIGIN = "foreign_origin"
    OVERLOADED = "overloaded"
    SHUTTING_DOWN = "shutting_down"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    UNSUPPORTED = "unsupported"
    NO_UPSTREAM = "no_upstream"
    UPSTREAM_BROKEN = "upstream_broken"
    UPSTREAM_TIMEOUT = "upstream_timeout"
    INTERNAL = "internal_error"


_CLIENT, _SERVER = "invalid_request_error", "server_error"
# code: (HTTP status, type, meaning)
REFUSALS: Final[dict[Refusal, tuple[int, str, str]]] = {
    Refusal.NO_KEY: (401, "authentication_error", "no key, or none of those that are accepted"),
    Refusal.BAD_TARGET: (400, _CLIENT, "the path or query could mean another one to somebody else"),
    Refusal.BAD_HEADERS: (400, _CLIENT, "a header is missing, doubled or contradicts another"),
    Refusal.BAD_REQUEST: (400, _CLIENT, "the body is not what the route takes"),
    Refusal.BODY_ENCODED: (415, _CLIENT, "the body is compressed or of another type than the route takes"),
    Refusal.BODY_TOO_LARGE: (413, _CLIENT, "the body is larger than the limit"),
    Refusal.BODY_TOO_SLOW: (408, _CLIENT, "the body did not arrive in time"),
    Refusal.FOREIGN_HOST: (421, _CLIENT, "the request names a host that this router is not"),
    Refusal.FOREIGN_ORIGIN: (403, _CLIENT, "a page of another site may not use the router"),
    Refusal.OVERLOADED: (503, _SERVER, "as many requests run and wait as may"),
    Refusal.SHUTTING_DOWN: (503, _SERVER, "the router ends"),
    Refusal.NOT_FOUND: (404, _CLIENT, "there is no such route"),
    Refusal.METHOD_NOT_ALLOWED: (405, _CLIENT, "the route does not take this method"),
    Refusal.UNSUPPORTED: (501, _CLIENT, "the router does not do this"),
    Refusal.NO_UPSTREAM: (503, _SERVER, "no upstream answers"),
    Refusal.UPSTREAM_BROKEN: (
        502,
        _SERVER,
        "the upstream went away, or answered with what is no answer or beyond the bounds",
    ),
    Refusal.UPSTREAM_TIMEOUT: (504, _SERVER, "the upstream was silent for too long"),
    Refusal.INTERNAL: (500, _SERVER, "a fault of the router itself"),
}
# What a ToktierError that reaches a client comes to: a refusal of the table, by its code; else a status, by its exit
# code; else a fault of ours.
_REFUSAL_OF_CODE: Final = {
    RequestInvalid.code: Refusal.BAD_REQUEST,
    UpstreamLost.code: Refusal.NO_UPSTREAM,
    UpstreamBroken.code: Refusal.UPSTREAM_BROKEN,
    UpstreamRefused.code: Refusal.UPSTREAM_BROKEN,
    UpstreamSilent.code: Refusal.UPSTREAM_TIMEOUT,
}
_STATUS_OF_EXIT: Final[dict[ExitCode, int]] = {
    ExitCode.USAGE: 400,
    ExitCode.NOT_FOUND: 503,
    ExitCode.UNAVAILABLE: 503,
}
UPSTREAM_RETRY_SECONDS: Final = 2.0  # when to come again where no upstream answers
Headers = Iterable[tuple[bytes, bytes]]
_RETRY_AFTER: Final = b"retry-after"


class Refused(Exception):
    """Raised by a route to answer with a refusal. `param`: the member of the body that is meant."""

    def __init__(
        self,
        code: Refusal,
        message: str,
        *,
        remedy: str | None = None,
        param: str | None = None,
        headers: Headers = (),
    ) -> None:
        super().__init__(message)
        self.code, self.message, self.remedy, self.param = code, message, remedy, param
        self.headers = tuple(headers)

    @property
    def status(self) -> int:
        return REFUSALS[self.code][0]

    def body(self) -> bytes:
        return error_body(REFUSALS[self.code][1], self.code.value, self.message, self.remedy, self.param)


def error_body(kind: str, code: str, message: str, remedy: str | None = None, param: str | None = None) -> bytes:
    """The bytes of an error document."""
    error: dict[str, Any] = {"message": message, "type": kind, "param": param, "code": code}
    if remedy is not None:
        error["remedy"] = remedy
    return json.dumps({"error": error}, ensure_ascii=False).encode("utf-8", "backslashreplace")


def as_refused(error: BaseException) -> tuple[int, bytes, tuple[tuple[bytes, bytes], ...]]:
    """Status, body and headers for what was raised while a request was answered. What nobody foresaw says nothing of
    itself: neither its message nor where it was raised."""
    if isinstance(error, Refused):
        return error.status, error.body(), error.headers
    if isinstance(error, ToktierError):
        if error.code in _REFUSAL_OF_CODE:
            refusal = _REFUSAL_OF_CODE[error.code]
            headers = [retry_after(UPSTREAM_RETRY_SECONDS)] if refusal is Refusal.NO_UPSTREAM else []
            return as_refused(Refused(refusal, error.message, remedy=error.remedy, headers=headers))
        if error.exit_code in _STATUS_OF_EXIT:
            status = _STATUS_OF_EXIT[error.exit_code]
            kind = _CLIENT if status < 500 else _SERVER
            return status, error_body(kind, error.code.lower(), error.message, error.remedy), ()
    fault = Refused(Refusal.INTERNAL, "the router failed; its log has the kind of the fault under this request's id")
    return fault.status, fault.body(), ()


def start_of_error(status: int, body: bytes, headers: Headers = (), *, close: bool = False) -> Message:
    """The first message of such an answer."""
    own = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode("ascii"))]
    if close:
        own.append((b"connection", b"close"))
    return {"type": "http.response.start", "status": status, "headers": [*own, *headers]}


def retry_after(seconds: float) -> tuple[bytes, bytes]:
    """The header that says when to ask again, in whole seconds."""
    return _RETRY_AFTER, str(max(1, round(seconds))).encode("ascii")
