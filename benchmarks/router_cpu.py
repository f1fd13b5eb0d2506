"""Processor time and latency that the router adds to a request, beside those of a bare pass-through.

Requests go directly to a llama-server, through the pass-through and through the router, a few of each in turn, so that
all meet the same seconds of the machine. Each prompt is a known history with a new end, as in a conversation: the
server evaluates the end alone, and nothing that was asked before is asked again. The router has a llama-server of its
own, because what others ask of its slots would be a disturbance to it. Not here: what reuse saves.
"""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from router_client import Client
from server_processes import Server

from toktier import Tokenizer

WAYS: Final = ("direct", "pass-through", "router")
HISTORIES: Final = 4
NEW: Final = 64  # tokens at the end of a prompt that no prompt had before
MESSAGES: Final = 8  # of a chat
WARM_UP: Final = 2  # requests of each history and way that are not counted


@dataclass(frozen=True)
class Kind:
    name: str
    path: str
    stream: bool
    body: Callable[[str], dict[str, Any]]  # of a prompt


@dataclass
class Taken:
    """Of one way: processor seconds of its process in all, and seconds of each request."""

    cpu: float = 0.0
    first: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)


def kinds(tokenizer: Tokenizer, tokens: int, most: int) -> list[Kind]:
    common = {"max_tokens": most, "temperature": 0}

    def as_text(prompt: str) -> dict[str, Any]:
        return {"prompt": prompt, **common}

    def as_ids(prompt: str) -> dict[str, Any]:
        return {"prompt": tokenizer.encode(prompt, True).ids, **common}

    def as_chat(prompt: str) -> dict[str, Any]:
        """A conversation of which the last message alone is new."""
        size = len(prompt) * NEW // tokens
        known, new = prompt[:-size], prompt[-size:]
        step = len(known) // (MESSAGES - 1)
        parts = [known[step * i : step * (i + 1) if i < MESSAGES - 2 else None] for i in range(MESSAGES - 1)]
        roles = ["system", *(("user", "assistant")[i % 2] for i in range(MESSAGES - 1))]
        messages = [{"role": role, "content": part} for role, part in zip(roles, [*parts, new], strict=True)]
        return {"messages": messages, **common}

    ways = (("text", "/v1/completions", as_text), ("ids", "/v1/completions", as_ids))
    ways += (("chat", "/v1/chat/completions", as_chat),)
    return [Kind(name, path, stream, body) for name, path, body in ways for stream in (False, True)]


def prompts(text: str, tokenizer: Tokenizer, tokens: int) -> Iterator[str]:
    """Of about `tokens` tokens, without end: histories in turn, each with NEW other tokens at its end."""
    per_token = len(text) / len(tokenizer.encode(text))
    size, tail = int(per_token * (tokens - NEW)), int(per_token * NEW)
    if len(text) < HISTORIES * size + 2 * tail:
        raise SystemExit(f"the text has {len(text)} characters: expected {HISTORIES * size + 2 * tail} or more")
    rest = text[HISTORIES * size :]
    for number in itertools.count():
        at, begin = (number * 37) % (len(rest) - tail), number % HISTORIES * size
        yield f"{text[begin : begin + size]}{number:06}: {rest[at : at + tail - 8]}"


def measured(
    servers: dict[str, Server], tokenizer: Tokenizer, text: str, *, tokens: int, most: int, rounds: int, each: int
) -> list[dict[str, Any]]:
    """A row for each kind of request. `servers`: by way; `rounds` of `each` requests of each way."""
    clients = {way: Client(server.host, server.port) for way, server in servers.items()}
    source = prompts(text, tokenizer, tokens)
    rows = []
    for kind in kinds(tokenizer, tokens, most):
        taken = {way: Taken() for way in WAYS}
        lengths = [len(tokenizer.encode(next(source))) for _ in range(HISTORIES)]
        _round(kind, clients, servers, source, HISTORIES * WARM_UP, {way: Taken() for way in WAYS}, 0)
        for number in range(rounds):
            _round(kind, clients, servers, source, each, taken, number)
        rows.append(_row(kind, taken, rounds * each, lengths))
    return rows


def _round(
    kind: Kind,
    clients: dict[str, Client],
    servers: dict[str, Server],
    source: Iterator[str],
    each: int,
    taken: dict[str, Taken],
    number: int,
) -> None:
    bodies = [json.dumps({**kind.body(next(source)), "stream": kind.stream}).encode() for _ in range(each)]
    for way in (*WAYS[number % 3 :], *WAYS[: number % 3]):
        client, mine = clients[way], taken[way]
        before = servers[way].cpu_seconds()
        for body in bodies:
            first, whole = client.timed(kind.path, body)
            mine.first.append(first)
            mine.whole.append(whole)
        mine.cpu += servers[way].cpu_seconds() - before


def _row(kind: Kind, taken: dict[str, Taken], requests: int, lengths: list[int]) -> dict[str, Any]:
    cpu = {way: 1000 * taken[way].cpu / requests for way in WAYS if way != "direct"}
    return {
        "kind": kind.name,
        "stream": kind.stream,
        "requests": requests,
        "prompt_tokens": statistics.fmean(lengths),
        "cpu_ms": cpu,
        "cpu_ratio": cpu["router"] / cpu["pass-through"],
        "first_byte_ms": {way: _quantiles(taken[way].first) for way in WAYS},
        "whole_ms": {way: _quantiles(taken[way].whole) for way in WAYS},
    }


def _quantiles(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {"p50": 1000 * ordered[len(ordered) // 2], "p99": 1000 * ordered[len(ordered) * 99 // 100]}
