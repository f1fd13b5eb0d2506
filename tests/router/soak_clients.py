"""Clients of the soak: what they ask, how they go away, and what they saw of each answer.

Every client is a task with its own random numbers. It sees an answer as whole when its last byte came, and knows of it
the counts that the upstream said in it. Not here: what happens to upstreams, and what must hold in the end (`soak`).
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

_TEXT: Final = (
    "the boats on beach were fourteen captain asked for fuel and pilot at noon because tide was low while wind came "
    "from north east harbour office answered that berth nine is free until evening when ferry needs it again"
)
WORDS: Final = _TEXT.split()
SYSTEM: Final = "You are the assistant of a harbour office. " + _TEXT
MAX_BODY: Final = 1 << 20  # bytes that the router of the soak takes
CONTEXT: Final = 2048  # tokens of a slot
MAX_TURNS: Final = 8
CLIENT_SECONDS: Final = 90.0  # an answer that takes longer is a failure of the soak

# What cannot be answered: the path, the body, and the status that says so.
BAD: Final[tuple[tuple[str, bytes, int], ...]] = (
    ("/v1/completions", b'{"prompt": "the boats', 400),
    ("/v1/completions", b'{"max_tokens": 4}', 400),
    ("/v1/completions", b'{"prompt": [1, 2, -3]}', 400),
    ("/v1/chat/completions", b'{"messages": "the boats"}', 400),
    ("/completion", json.dumps({"prompt": [7] * (CONTEXT + 500), "n_predict": 4}).encode(), 400),
    ("/completion", b'{"prompt": "' + b"x" * MAX_BODY + b'"}', 413),
    ("/v1/nothing", b"{}", 404),
    ("/v1/embeddings", b'{"input": "the boats"}', 501),
)


@dataclass(frozen=True)
class Fixed:
    """A prompt whose greedy answer a server without reuse gave."""

    prompt: str
    ids: list[int]
    text: str


@dataclass
class Seen:
    """Of one request. `id`: of the router, where a head came; `reused`, `prompt`: tokens, as a whole answer says."""

    kind: str
    began: float
    ended: float = 0.0
    id: str | None = None
    status: int | None = None
    whole: bool = False
    failed: str | None = None
    reused: int | None = None
    prompt: int | None = None


@dataclass
class Tally:
    """Of all clients. `seen` has those that came to an end by themselves; `left`: how many went away, by moment."""

    seen: list[Seen] = field(default_factory=list)
    left: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)  # what must not be, in words


class Soaker:
    """One client."""

    def __init__(self, client: httpx.AsyncClient, tally: Tally, fixed: list[Fixed], seed: int) -> None:
        self._client, self._tally, self._fixed = client, tally, fixed
        self._chance = random.Random(seed)
        self._texts: list[str] = []  # of a conversation: what the user and the assistant said in turn

    async def run(self, until: float) -> None:
        ways = (self.talk, self.complete, self.check_fixed, self.leave_stream, self.leave_early, self.send_bad)
        while time.monotonic() < until:
            (way,) = self._chance.choices(ways, (40, 25, 10, 12, 8, 5))
            await way()

    # What is asked

    def words(self, least: int, most: int) -> str:
        return " ".join(self._chance.choices(WORDS, k=self._chance.randint(least, most)))

    async def talk(self) -> None:
        """The next turn of a conversation, as a chat or as the text of one."""
        if len(self._texts) >= 2 * MAX_TURNS:
            self._texts = []
        said = [*self._texts, self.words(5, 40)]
        roles = [("user", "assistant")[number % 2] for number in range(len(said))]
        messages = [{"role": "system", "content": SYSTEM}]
        messages += [{"role": role, "content": content} for role, content in zip(roles, said, strict=True)]
        most = self._chance.randint(4, 24)
        if self._chance.random() < 0.6:
            body: dict[str, Any] = {"messages": messages, "max_tokens": most, "temperature": 0}
            _, text = await self.ask("chat", "/v1/chat/completions", body)
        else:
            rendered = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages)
            prompt = rendered + "<|im_start|>assistant\n"
            _, text = await self.ask(
                "text", "/v1/completions", {"prompt": prompt, "max_tokens": most, "temperature": 0}
            )
        if text is not None:
            self._texts = [*said, text]

    async def complete(self) -> None:
        """A prompt of its own: text, IDs, several, or several answers."""
        kind = self._chance.random()
        if kind < 0.6:
            body: dict[str, Any] = {"prompt": self.words(3, 300), "n_predict": 8}
            await self.ask("native", "/completion", body)
        elif kind < 0.9:
            ids = [self._chance.randrange(300, 1100) for _ in range(self._chance.randint(1, 900))]
            await self.ask("ids", "/v1/completions", {"prompt": ids, "max_tokens": 8})
        else:
            texts = [self.words(3, 20), self.words(3, 20)]
            await self.ask("unrouted", "/v1/completions", {"prompt": texts, "max_tokens": 4}, stream=False)

    async def check_fixed(self) -> None:
        fixed = self._chance.choice(self._fixed)
        await self.ask_fixed(
            fixed, self._chance.choice(("/completion", "/v1/completions")), self._chance.random() < 0.5
        )

    async def ask_fixed(self, fixed: Fixed, path: str, stream: bool) -> None:
        """The answer has to be that of a server without reuse."""
        body: dict[str, Any] = {"prompt": fixed.prompt, "n_predict": len(fixed.ids), "temperature": 0}
        ids, text = await self.ask("fixed", path, {**body, "return_tokens": True}, stream=stream)
        if text is not None and (text != fixed.text or (ids is not None and ids != fixed.ids)):
            self._tally.wrong.append(f"{path} answered {text!r} to {fixed.prompt[:40]!r}: expected {fixed.text!r}")

    async def send_bad(self) -> None:
        path, body, status = self._chance.choice(BAD)
        seen = Seen("bad", time.monotonic())
        try:
            async with asyncio.timeout(CLIENT_SECONDS):
                answer = await self._client.post(path, content=body, headers={"content-type": "application/json"})
            seen.id, seen.status, seen.whole = answer.headers.get("x-request-id"), answer.status_code, True
            if answer.status_code < 500 and answer.status_code != status:
                self._tally.wrong.append(f"{path} with {body[:40]!r} was answered {answer.status_code}, not {status}")
        except (httpx.HTTPError, TimeoutError) as error:
            seen.failed = type(error).__name__
        seen.ended = time.monotonic()
        if not (status >= 500 and seen.status == status):
            self._tally.seen.append(seen)

    # How it goes away

    async def leave_stream(self) -> None:
        """After some events of a stream that would have gone on."""
        body = {"prompt": self.words(3, 200), "n_predict": 200, "stream": True, "ignore_eos": True}
        left = self._chance.randint(1, 12)
        try:
            async with asyncio.timeout(CLIENT_SECONDS), self._client.stream("POST", "/completion", json=body) as answer:
                async for _ in answer.aiter_raw():
                    left -= 1
                    if left <= 0:
                        self._tally.left["in a stream"] += 1
                        return
        except (httpx.HTTPError, TimeoutError):
            self._tally.left["of a stream that failed"] += 1

    async def leave_early(self) -> None:
        """Before anything was answered, while a long prompt waits or is evaluated."""
        ids = [self._chance.randrange(300, 1100) for _ in range(1500)]
        body = {"prompt": ids, "n_predict": 4, "stream": self._chance.random() < 0.5}
        ask = asyncio.ensure_future(self._client.post("/completion", json=body))
        done, _ = await asyncio.wait([ask], timeout=self._chance.choice((0.0, 0.01, 0.05, 0.2, 0.5)))
        self._tally.left["too late" if done else "before an answer"] += 1
        ask.cancel()
        await asyncio.gather(ask, return_exceptions=True)

    # What is seen

    async def ask(
        self, kind: str, path: str, body: dict[str, Any], *, stream: bool | None = None
    ) -> tuple[list[int] | None, str | None]:
        """IDs and text of a whole answer; None: it has none, or was not whole."""
        stream = self._chance.random() < 0.6 if stream is None else stream
        seen = Seen(f"{kind}, {'stream' if stream else 'whole'}", time.monotonic())
        found: tuple[list[int] | None, str | None] = None, None
        try:
            async with (
                asyncio.timeout(CLIENT_SECONDS),
                self._client.stream("POST", path, json={**body, "stream": stream}) as answer,
            ):
                seen.id, seen.status = answer.headers.get("x-request-id"), answer.status_code
                data = b"".join([part async for part in answer.aiter_raw()])
            if seen.status == 200:
                found = _read(seen, data, stream)
            elif seen.status < 500:
                self._tally.wrong.append(f"{kind} was answered {seen.status}: {data[:200]!r}")
        except (httpx.HTTPError, TimeoutError) as error:
            seen.failed = type(error).__name__
        seen.ended = time.monotonic()
        self._tally.seen.append(seen)
        return found


def _read(seen: Seen, data: bytes, stream: bool) -> tuple[list[int] | None, str | None]:
    chunks = [json.loads(line[6:]) for line in data.split(b"\n") if line.startswith(b"data: {")] if stream else []
    if not stream:
        chunks = [json.loads(data)]
    if any("error" in chunk for chunk in chunks):
        seen.failed = "error in a stream"
        return None, None
    timings = next((chunk["timings"] for chunk in reversed(chunks) if chunk.get("timings")), None)
    if timings is None:
        if not seen.kind.startswith("unrouted"):
            seen.failed = "a stream without an end"
        return None, None
    seen.whole = True
    seen.reused, seen.prompt = timings["cache_n"], timings["cache_n"] + timings["prompt_n"]
    ids: list[int] = []
    text = ""
    for chunk in chunks:
        ids += chunk.get("tokens") or []
        text += chunk.get("content") or ""
        for choice in chunk.get("choices", ()):
            message = choice.get("delta") or choice.get("message") or {}
            text += choice.get("text") or message.get("content") or ""
    return ids or None, text
