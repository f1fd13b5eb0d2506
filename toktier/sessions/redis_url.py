"""Where a Redis store lies: `redis://`, `rediss://`, `unix://`, and `redis+cluster://` and `rediss+cluster://`.

What is shown of a URL never holds its credentials, nor what could be a part of them in a URL that was meant otherwise.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from toktier.config import STORE_SCHEMES
from toktier.errors import ConfigInvalid
from toktier.labels import shown

OPTIONS = frozenset(
    ("db", "client_name", "ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs")
)
NAMESPACE = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_EXPECTED = "expected redis://[[user]:[password]@]host[:port][/db], rediss://… or unix:///path[?db=0]"


@dataclass(frozen=True, slots=True)
class Address:
    """`url` is for the client alone: it can hold a password, and so is in no representation."""

    url: str = field(repr=False)
    shown: str
    cluster: bool


def address(url: str) -> Address:
    """Raises CONFIG_INVALID, and quotes nothing of what it does not understand."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise _invalid("is no URL") from None
    if parts.scheme not in STORE_SCHEMES:
        raise _invalid("has another scheme")
    if "@" not in parts.netloc and "@" in url:
        raise _invalid("has an @ that is not in its place: percent-encode the password")
    _refuse_options(parts)
    cluster = parts.scheme.endswith("+cluster")
    if parts.scheme == "unix":
        if parts.netloc.rpartition("@")[2] or len(parts.path) < 2:
            raise _invalid("names no socket")
        place = f"unix://{shown(unquote(parts.path))}"
    else:
        if not re.fullmatch(r"|/|/[0-9]{1,9}", parts.path) or (cluster and parts.path.strip("/0")):
            raise _invalid("names no database by number" if not cluster else "names a database, and a cluster has one")
        if not parts.hostname:
            raise _invalid("names no host")
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        place = f"{parts.scheme}://{shown(host)}:{port or 6379}" + ("" if cluster else f"/{parts.path.strip('/') or 0}")
    scheme = parts.scheme.removesuffix("+cluster")  # in small letters: the client takes no others
    return Address(scheme + url.lstrip()[len(parts.scheme) :], place, cluster)


def namespace(name: str) -> str:
    if NAMESPACE.fullmatch(name) is None:
        raise ConfigInvalid(
            "the namespace of a Redis store is 1 to 64 letters, digits, and . _ : -",
            remedy="choose another namespace",
        )
    return name


def _refuse_options(parts: SplitResult) -> None:
    if parts.fragment:
        raise _invalid("has a fragment: percent-encode #")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if not options.keys() <= OPTIONS:
        raise _invalid(f"has other options than {', '.join(sorted(OPTIONS))}")
    if not re.fullmatch(r"[0-9]{1,9}", options.get("db", "0")):
        raise _invalid("names no database by number")


def _invalid(what: str) -> ConfigInvalid:
    return ConfigInvalid(f"the URL of the Redis store {what}: {_EXPECTED}", remedy="correct store=")
