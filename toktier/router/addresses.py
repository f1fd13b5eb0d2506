"""Addresses that settings name: URLs of servers, where to listen, names of hosts, origins of pages, ZMQ endpoints.

Each check gives the one spelling that is used from then on, and raises ValueError with what was expected; no message
holds credentials. Names are not looked up. Not here: connections to any of them.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

_MAX_URL: Final = 2048
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NAME: Final = re.compile(rf"(?=.{{1,253}}\.?\Z){_LABEL}(?:\.{_LABEL})*\.?")
_NUMERIC: Final = re.compile(r"(?:.*\.)?(?:\d+|0[xX][0-9A-Fa-f]*)\.?")  # what resolvers read as an IPv4 address
_PORTS: Final = {"http": 80, "https": 443}
LOCALHOST: Final = "localhost"
_LOOPBACK: Final = (ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1"))
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def server_url(value: Any) -> str:
    """`http://host:port` of a server, without a path, a port that its scheme implies, or anything else."""
    if not isinstance(value, str):
        raise ValueError("expected http://HOST:PORT or https://HOST:PORT")
    parts = _split(value)
    if parts.scheme not in _PORTS:
        near = _near("http://" + value) if "://" not in value else ""
        raise ValueError(f"expected http://HOST:PORT or https://HOST:PORT{near}")
    if "@" in parts.netloc:
        raise ValueError("expected no user or password in it: a key belongs in a file")
    if parts.path not in ("", "/") or parts.query or parts.fragment or "?" in value or "#" in value:
        near = _near(f"{parts.scheme}://{parts.netloc}")
        raise ValueError(f"expected the server alone, without a path or query{near}")
    host, port = _host_of(parts), _port_of(parts)
    return f"{parts.scheme}://{bracketed(host)}" + ("" if port == _PORTS[parts.scheme] else f":{port}")


def _near(url: str) -> str:
    try:
        return f"; did you mean {server_url(url)}?"
    except ValueError:
        return ""


def identity(url: str) -> tuple[str, str, int]:
    """Equal for two URLs of `server_url` that name one server."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    return parts.scheme, "127.0.0.1" if host == LOCALHOST else host, parts.port or _PORTS[parts.scheme]


def leads_to(url: str, host: str, port: int) -> bool:
    """Whether a URL of `server_url` is a socket that listens on `host` and `port`, as far as it shows without a look
    at the names and interfaces of this host."""
    _, other, other_port = identity(url)
    if port != other_port:
        return False
    listening, asked = _address(host), _address(other)
    if asked is None:
        return other == host
    if asked.is_unspecified:  # which connects to this host
        asked = _LOOPBACK[asked.version == 6]
    if listening is None:  # localhost
        return asked in _LOOPBACK
    return asked == listening or (listening.is_unspecified and asked.is_loopback)


def listening_host(value: Any) -> str:
    """An IP address, or localhost."""
    if value == LOCALHOST:
        return LOCALHOST
    address = _address(value) if isinstance(value, str) else None
    if address is None:
        raise ValueError("expected an IP address or localhost")
    return str(address)


def is_loopback(host: str) -> bool:
    """Whether what listens there is reached from this host alone."""
    address = _address(host)
    return host == LOCALHOST or (address is not None and address.is_loopback)


def host_name(value: Any) -> str:
    """A name or an address as the Host header has it, without a port, in small letters."""
    if not isinstance(value, str) or len(value) > _MAX_URL:
        raise ValueError("expected the name of a host")
    bare = value[1:-1] if value.startswith("[") and value.endswith("]") else value
    address = _address(bare)
    if address is not None:
        return bracketed(str(address))
    if not _NAME.fullmatch(value) or _NUMERIC.fullmatch(value):
        raise ValueError("expected the name of a host, without a port")
    return value.lower().rstrip(".")


def origin(value: Any) -> str:
    """`scheme://host[:port]` as browsers send it."""
    if not isinstance(value, str) or "://" not in value:
        raise ValueError("expected an origin, as https://host:port")
    return server_url(value)


def zmq_endpoint(value: Any) -> str:
    """`tcp://ADDRESS:PORT` to bind (`*` as address: every interface, as port: a free one), or `ipc://PATH`."""
    expected = "expected tcp://ADDRESS:PORT, tcp://*:PORT or ipc:///PATH"
    if not isinstance(value, str) or len(value) > _MAX_URL or not value.isprintable() or " " in value:
        raise ValueError(expected)
    scheme, _, rest = value.partition("://")
    if scheme == "ipc" and rest.startswith("/") and len(rest.encode()) < 108:  # of sockaddr_un
        return value
    host, _, port = rest.rpartition(":")
    if scheme != "tcp" or not (port == "*" or (port.isascii() and port.isdigit() and 1 <= int(port[:6]) <= 65535)):
        raise ValueError(expected)
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if host != "*" and _address(bare) is None:
        raise ValueError(expected)
    return value


def is_local_endpoint(endpoint: str) -> bool:
    """Whether a ZMQ endpoint is reached from this host alone."""
    scheme, _, rest = endpoint.partition("://")
    return scheme == "ipc" or is_loopback(rest.rpartition(":")[0].strip("[]"))


def own_names(host: str) -> frozenset[str]:
    """What a Host header may say where `host` is loopback: it, and the usual names of it."""
    address = _address(host)
    return frozenset({LOCALHOST, "127.0.0.1", "[::1]", *(() if address is None else (bracketed(str(address)),))})


def _split(text: str) -> SplitResult:
    # The standard library drops line ends and tabs out of URLs by itself: they are refused before it sees them.
    if len(text) > _MAX_URL or not text.isascii() or not text.isprintable() or any(c in text for c in ' \\"<>^`{|}'):
        raise ValueError("expected a URL of plain characters")
    try:
        return urlsplit(text)
    except ValueError:
        raise ValueError("expected a URL") from None


def _host_of(parts: SplitResult) -> str:
    host = parts.hostname or ""
    address = _address(host)
    if address is not None:
        return str(address)
    if "%" in host or not _NAME.fullmatch(host) or _NUMERIC.fullmatch(host):
        raise ValueError("expected a host in it: a name or an IP address")
    return host.rstrip(".")


def _port_of(parts: SplitResult) -> int:
    try:
        port = parts.port
    except ValueError:
        port = 0
    if parts.netloc.endswith(":") or port == 0:
        raise ValueError("expected a port from 1 to 65535")
    return port or _PORTS[parts.scheme]


def _address(text: str) -> _Address | None:
    """None also for one with a zone: it means another interface on another host."""
    if "%" in text:
        return None
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def bracketed(host: str) -> str:
    """A host as it stands before the port of a URL."""
    return f"[{host}]" if ":" in host else host
