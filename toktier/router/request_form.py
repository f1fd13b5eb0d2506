"""Guards on the form of a request: what two readers could understand differently, and what pages of other sites send.

Not here: bodies (`body_limit`) and keys (`guards`). What is no HTTP at all never comes this far (`connections`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from typing import Final

from toktier.router.refusals import App, Receive, Refusal, Refused, Scope, Send

_MAX_TARGET: Final = 2048
_MAX_QUERY: Final = 4096
_MAX_HEADERS: Final = 100
# All names and values. The server bounds what it waits for; what comes in one piece it takes whatever its length.
MAX_HEADER_BYTES: Final = 32 << 10
_ONCE: Final = frozenset(
    {
        b"host",
        b"content-length",
        b"transfer-encoding",
        b"content-type",
        b"content-encoding",
        b"authorization",
        b"origin",
    }
)
# An escape that is none, or that hides what others decode: / \ . %, NUL and other control characters.
_BAD_ESCAPE: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})|%(?:2[EeFf5]|5[Cc]|[01][0-9A-Fa-f]|7[Ff])")
_BAD_PATH: Final = re.compile(rb"//|/\.{1,2}(?:/|\Z)|[^\x21-\x7e]|[\\#?<>\"^`{|}]|;")


class PlainRequests:
    """Refuses requests that two readers could understand differently: doubled or contradicting headers, targets with
    dot segments, doubled or hidden slashes, absolute form; and compressed bodies, which are small until they are read.
    """

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            if scope.get("http_version") not in ("1.0", "1.1"):
                raise Refused(Refusal.BAD_HEADERS, "expected HTTP/1.1")
            _check_target(scope)
            _check_headers(scope)
        return await self.app(scope, receive, send)


def _check_target(scope: Scope) -> None:
    path: bytes = scope.get("raw_path") or scope["path"].encode("utf-8", "surrogateescape")
    query: bytes = scope.get("query_string", b"")
    if len(path) > _MAX_TARGET or len(query) > _MAX_QUERY:
        raise Refused(
            Refusal.BAD_TARGET, f"expected a path of at most {_MAX_TARGET:,} and a query of {_MAX_QUERY:,} bytes"
        )
    if not path.startswith(b"/"):
        raise Refused(Refusal.BAD_TARGET, "expected a path that begins with /")
    if _BAD_PATH.search(path) or _BAD_ESCAPE.search(path) or any(not 0x21 <= byte <= 0x7E for byte in query):
        raise Refused(Refusal.BAD_TARGET, "expected a path without dot segments, doubled slashes and hidden characters")


def _check_headers(scope: Scope) -> None:
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    if len(headers) > _MAX_HEADERS:
        raise Refused(Refusal.BAD_HEADERS, f"expected at most {_MAX_HEADERS} headers")
    if sum(len(name) + len(value) for name, value in headers) > MAX_HEADER_BYTES:
        raise Refused(Refusal.BAD_HEADERS, f"expected headers of at most {MAX_HEADER_BYTES:,} bytes")
    count = Counter(name for name, _ in headers if name in _ONCE)
    twice = [name.decode("ascii") for name, number in count.items() if number > 1]
    if twice:
        raise Refused(Refusal.BAD_HEADERS, f"expected one header {twice[0]}")
    found = dict(headers)
    if b"host" not in found:
        raise Refused(Refusal.BAD_HEADERS, "expected a header host")
    if b"transfer-encoding" in found and (
        b"content-length" in found
        or found[b"transfer-encoding"].strip().lower() != b"chunked"
        or scope.get("http_version") == "1.0"
    ):
        raise Refused(Refusal.BAD_HEADERS, "expected a length or transfer-encoding: chunked, not both or another one")
    if not found.get(b"content-length", b"0").isdigit():
        raise Refused(Refusal.BAD_HEADERS, "expected content-length to be a number")
    if found.get(b"content-encoding", b"identity").strip().lower() not in (b"identity", b""):
        raise Refused(Refusal.BODY_ENCODED, "expected a body that is not compressed")


class KnownHosts:
    """Refuses requests of pages of other sites. On loopback the Host header must name this host, or a page whose own
    name was made to lead here could ask (DNS rebinding); anywhere, an Origin must be this host's or an allowed one.

    `hosts`: names that Host may have, any port; None: any. `origins`: allowed beside the router's own.
    """

    def __init__(self, app: App, hosts: Collection[str] | None, origins: Collection[str] = ()) -> None:
        self.app = app
        self._hosts = None if hosts is None else frozenset(hosts)
        self._origins = frozenset(origin.encode("ascii") for origin in origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            found = dict(scope["headers"])
            host = found[b"host"]
            if self._hosts is not None and _name_of(host) not in self._hosts:
                raise Refused(
                    Refusal.FOREIGN_HOST,
                    "the router listens for this host alone, and the request names another",
                    remedy="use http://127.0.0.1, or start the router with --allow-host NAME",
                )
            origin = found.get(b"origin")
            if origin is not None and origin not in self._origins and origin.lower() != b"http://" + host.lower():
                raise Refused(
                    Refusal.FOREIGN_ORIGIN,
                    "a page of another site may not use the router",
                    remedy="start the router with --allow-origin ORIGIN",
                )
        return await self.app(scope, receive, send)


def _name_of(host: bytes) -> str:
    """The name in a Host header, without its port."""
    text = host.decode("latin-1").lower()
    name, colon, port = text.rpartition(":")
    if colon and port.isdigit() and not name.endswith(":"):
        text = name
    return text.rstrip(".") if not text.startswith("[") else text
