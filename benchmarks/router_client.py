"""A client of llama-server's routes that measures: when the first token came, what was evaluated, what was answered.

The standard library's HTTP, so that little of the time is the client's. Every request has a connection of its own,
opened before the clock starts: llama-server closes one behind a stream without saying so, and all that are compared
are asked alike. Not here: what is asked.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

TIMEOUT_SECONDS = 300.0


@dataclass
class Answer:
    """`first`: seconds from the request to the first token, `whole`: to the end; `evaluated`, `reused`: tokens of the
    prompt, as the server says; `ids`: generated, where the route gives them."""

    text: str = ""
    ids: list[int] = field(default_factory=list)
    first: float = 0.0
    whole: float = 0.0
    evaluated: int = -1
    reused: int = -1


class Client:
    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port

    @contextmanager
    def _connected(self) -> Iterator[http.client.HTTPConnection]:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_SECONDS)
        try:
            connection.connect()
            yield connection
        finally:
            connection.close()

    def ask(self, path: str, body: dict[str, Any]) -> Any:
        """A JSON answer."""
        with self._connected() as connection:
            return json.loads(_sent(connection, path, json.dumps(body).encode()).read())

    def timed(self, path: str, body: bytes) -> tuple[float, float]:
        """Seconds to the first byte of an answer's body and to its end, whatever it says."""
        with self._connected() as connection:
            begin = time.perf_counter()
            response = _sent(connection, path, body)
            response.read(1)
            first = time.perf_counter() - begin
            response.read()
            return first, time.perf_counter() - begin

    def stream(self, path: str, body: dict[str, Any]) -> Answer:
        """The answer of a route that streams; bodies of /completion, /v1/completions and /v1/chat/completions."""
        data = json.dumps({**body, "stream": True}).encode()
        answer = Answer()
        with self._connected() as connection:
            begin = time.perf_counter()
            response = _sent(connection, path, data)
            while line := response.readline():
                if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                    continue
                chunk = json.loads(line[6:])
                if "error" in chunk:
                    raise SystemExit(f"{path} was answered with {chunk['error']}")
                text, ids = _said(chunk)
                if (text or ids) and not answer.first:
                    answer.first = time.perf_counter() - begin
                answer.text += text
                answer.ids += ids
                timings = chunk.get("timings")
                if timings:
                    answer.evaluated, answer.reused = timings["prompt_n"], timings["cache_n"]
            answer.whole = time.perf_counter() - begin
        return answer


def _sent(connection: http.client.HTTPConnection, path: str, body: bytes) -> http.client.HTTPResponse:
    """SystemExit where the answer is an error."""
    connection.request("POST", path, body, {"content-type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        raise SystemExit(f"{path} was answered with status {response.status}: {response.read(500)!r}")
    return response


def _said(chunk: dict[str, Any]) -> tuple[str, list[int]]:
    if "choices" not in chunk:
        return chunk.get("content", ""), chunk.get("tokens", [])
    text = ""
    for choice in chunk["choices"]:
        text += choice.get("text") or (choice.get("delta") or {}).get("content") or ""
    return text, []
