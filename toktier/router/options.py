"""The options of `toktier serve`: one table of names, helps and checks, that the line, the file and programs share.

Light: a help page loads it. Not here: defaults and what two options say of each other (`settings`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from toktier.labels import MAX_QUOTED
from toktier.router import addresses
from toktier.router.vocabulary import KvForm, KvScheme

LOCAL_EMBEDDINGS: Final = ("hashed", "minilm")
OFF: Final = "off"

_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True, slots=True)
class Option:
    """One setting: `name` is the long option and the key of the file, `field` that of ServeSettings.

    `check` gives the value as ServeSettings holds it, from what the file, the line or a program says; it raises
    ValueError with what was expected. A Path of the file is meant from the directory of that file.
    """

    name: str
    field: str
    metavar: str | None  # None: a flag
    help: str
    check: Callable[[Any], Any]
    repeats: bool = False
    negated: bool = False  # a flag that the line may also switch off

    @property
    def kind(self) -> type:
        """Of the value, as the line and the file have it."""
        return bool if self.metavar is None else {"N": int, "S": float}.get(self.metavar, str)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("expected true or false")
    return value


def _integer(lowest: int, highest: int) -> Callable[[Any], int]:
    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
            raise ValueError(f"expected an integer from {lowest:,} to {highest:,}")
        return value

    return check


def _seconds(lowest: float, highest: float) -> Callable[[Any], float]:
    def check(value: Any) -> float:
        wrong = isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value)
        if wrong or not lowest <= value <= highest:
            raise ValueError(f"expected seconds from {lowest:g} to {highest:,g}")
        return float(value)

    return check


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value or not value.isprintable():
        raise ValueError("expected text on one line")
    return value


def _topic(value: Any) -> str:
    if not isinstance(value, str) or not value.isprintable() or len(value) > 256:
        raise ValueError("expected up to 256 characters on one line")
    return value


def _one_of(*names: str) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if value not in names:
            near = get_close_matches(str(value)[:MAX_QUOTED], names, n=1)
            raise ValueError(f"expected {' or '.join(names)}" + (f"; did you mean {near[0]}?" if near else ""))
        return str(value)

    return check


def _path(value: Any) -> Path:
    if not isinstance(value, str | Path) or not str(value) or "\0" in str(value):
        raise ValueError("expected a path")
    return Path(value)


def _path_or_off(value: Any) -> Path | None:
    return None if value == OFF else _path(value)


def _urls(value: Any) -> tuple[str, ...]:
    given = (value,) if isinstance(value, str) else value
    if not isinstance(given, list | tuple) or not given:
        raise ValueError("expected URLs, one at least")
    found = tuple(addresses.server_url(url) for url in given)
    seen: set[tuple[str, str, int]] = set()
    for url in found:
        if addresses.identity(url) in seen:
            raise ValueError(f"expected different ones, and {url} is there twice")
        seen.add(addresses.identity(url))
    if len(found) > 256:
        raise ValueError("expected at most 256")
    return found


def _embedding(value: Any) -> str:
    if value in LOCAL_EMBEDDINGS:
        return str(value)
    if isinstance(value, str) and "://" not in value:
        near = get_close_matches(value[:MAX_QUOTED], LOCAL_EMBEDDINGS, n=1)
        raise ValueError("expected hashed, minilm or a URL" + (f"; did you mean {near[0]}?" if near else ""))
    return addresses.server_url(value)


def _names(check: Callable[[Any], str]) -> Callable[[Any], tuple[str, ...]]:
    def checked(value: Any) -> tuple[str, ...]:
        given = (value,) if isinstance(value, str) else value
        if not isinstance(given, list | tuple):
            raise ValueError("expected a list of text")
        return tuple(dict.fromkeys(check(name) for name in given))

    return checked


def _optional(check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else check(value)


OPTIONS: Final[tuple[Option, ...]] = (
    Option("upstream", "upstreams", "URL", "A llama-server; may be repeated.", _urls, repeats=True),
    Option(
        "upstream-api-key-file", "upstream_api_key_file", "PATH",
        "The key that upstreams and embedding servers ask for, on one line.", _optional(_path),
    ),
    Option("family", "family", "FAMILY", "The tokenizer of the model: a pinned family.", _optional(_text)),
    Option(
        "tokenizer-file", "tokenizer_file", "PATH",
        "The tokenizer of the model: a tokenizer.json, tekken file or tiktoken ranks.", _optional(_path),
    ),
    Option("policy", "policy", "POLICY", "Which engines may serve it, as for encode.", _text),
    Option("device", "device", "DEVICE", "Where it may be encoded, as for encode.", _text),
    Option("tokenizer", "tokenizer", "BACKEND", "Which engine is to serve it, as for encode.", _optional(_text)),
    Option(
        "no-tokenizer-fallback", "no_tokenizer_fallback", None, "An error where the reference would have to serve.",
        _flag,
    ),
    Option("host", "host", "ADDRESS", "Where to listen: an IP address or localhost.", addresses.listening_host),
    Option("port", "port", "N", "Where to listen; 0: a free port, which is printed.", _integer(0, 65535)),
    Option(
        "api-key-file", "api_key_file", "PATH", "Keys that clients may use, one a line.", _optional(_path)
    ),
    Option("no-auth", "no_auth", None, "Serve other hosts without any key.", _flag),
    Option(
        "allow-host", "allowed_hosts", "NAME", "Another name that clients may call this host by; may be repeated.",
        _names(addresses.host_name), repeats=True,
    ),
    Option(
        "allow-origin", "allowed_origins", "ORIGIN", "A site whose pages may use the router; may be repeated.",
        _names(addresses.origin), repeats=True,
    ),
    Option(
        "embedding", "embedding", "WHICH", "How prompts are compared: hashed, minilm or an embedding server.",
        _embedding,
    ),
    Option(
        "embeddings-upstream", "embeddings_upstream", "URL", "A llama-server of its own for /v1/embeddings.",
        _optional(addresses.server_url),
    ),
    Option(
        "max-body-bytes", "max_body_bytes", "N", "Bytes of one request.", _integer(_KIB, _GIB)
    ),
    Option(
        "max-answer-bytes", "max_answer_bytes", "N", "Bytes of one answer of an upstream.", _integer(_KIB, 16 * _GIB)
    ),
    Option("max-concurrent", "max_concurrent", "N", "Requests that run at once.", _integer(1, 10_000)),
    Option("max-queued", "max_queued", "N", "Requests that wait beyond these.", _integer(0, 10_000)),
    Option(
        "turns-in-a-row", "turns_in_a_row", "N",
        "Turns of one conversation that a slot serves while others wait; 1: strictly in order.", _integer(1, 10_000),
    ),
    Option("queue-seconds", "queue_seconds", "S", "How long one waits at most.", _seconds(0.01, 3600)),
    Option("connect-seconds", "connect_seconds", "S", "For a connection to an upstream.", _seconds(0.01, 300)),
    Option(
        "first-byte-seconds", "first_byte_seconds", "S", "Until an answer of an upstream begins.", _seconds(0.01, 86400)
    ),
    Option("idle-seconds", "idle_seconds", "S", "Between two pieces of an answer.", _seconds(0.01, 86400)),
    Option("whole-seconds", "whole_seconds", "S", "For a whole answer.", _seconds(0.01, 7 * 86400)),
    Option("body-seconds", "body_seconds", "S", "For a client to send a request.", _seconds(0.01, 3600)),
    Option("drain-seconds", "drain_seconds", "S", "For running requests when the router ends.", _seconds(0, 86400)),
    Option("health-seconds", "health_seconds", "S", "Between two health checks.", _seconds(0.05, 3600)),
    Option(
        "records", "records", "PATH", "The database of requests (no text), or off; below the state directory.",
        _optional(_path_or_off),
    ),
    Option("keep-rows", "keep_rows", "N", "Requests that the database keeps.", _integer(1, 100_000_000)),
    Option(
        "record-outputs", "record_outputs", None, "Keep the text of outputs too, for serve report.", _flag, negated=True
    ),
    Option(
        "kv-events", "kv_events", "ENDPOINT", "Publish what slots hold there, as vLLM does over ZMQ.",
        _optional(addresses.zmq_endpoint),
    ),
    Option(
        "kv-replay", "kv_replay", "ENDPOINT", "Answer there who missed some of them.", _optional(addresses.zmq_endpoint)
    ),
    Option("kv-scheme", "kv_scheme", "SCHEME", f"Hashes of blocks: {' or '.join(KvScheme)}.", _one_of(*KvScheme)),
    Option("kv-form", "kv_form", "FORM", f"Form of an event: {' or '.join(KvForm)}.", _one_of(*KvForm)),
    Option("kv-topic", "kv_topic", "TEXT", "Topic of events; {upstream} in it becomes a number.", _topic),
    Option("kv-block-size", "kv_block_size", "N", "Tokens of a block.", _integer(1, 4096)),
    Option("open-metrics", "open_metrics", None, "Give /metrics without a key.", _flag, negated=True),
    Option("access-log", "access_log", None, "One line for each request, without query or text.", _flag, negated=True),
)  # fmt: skip
# Of a help page: the heading over the named option and those behind it.
HEADINGS: Final = {
    "upstream": "Upstreams and their tokenizer",
    "host": "Clients",
    "embedding": "Embeddings",
    "max-body-bytes": "Limits",
    "connect-seconds": "Time-outs",
    "records": "Records of requests",
    "kv-events": "KV events for other routers",
    "open-metrics": "Metrics and log",
}
BY_NAME: Final[Mapping[str, Option]] = MappingProxyType({option.name: option for option in OPTIONS})
BY_FIELD: Final[Mapping[str, Option]] = MappingProxyType({option.field: option for option in OPTIONS})
