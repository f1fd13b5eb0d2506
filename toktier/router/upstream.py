"""One llama-server over HTTP: questions of the router's own, and answers that pass to clients.

Paths are constants, redirects are not followed, proxies of the environment are not used, and no header of a client goes
up. Every wait has an end and every answer a bound: a server that lies, stalls or never ends costs one request. Closing
an answer early closes its connection, by which a llama-server knows that it may stop. Not here: what answers say
(`upstream_facts`, `relay`), and which upstream is asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import httpx
import orjson

from toktier.errors import ToktierError, UpstreamBroken, UpstreamLost, UpstreamRefused, UpstreamSilent
from toktier.labels import shown
from toktier.router.addresses import server_url
from toktier.router.ram_cache import RAM_CACHE_ON, RAM_CACHE_UNSEEN, ram_cache_note
from toktier.router.transport import Head, Reply, Transport, head
from toktier.router.upstream_facts import (
    SlotReport,
    UpstreamFacts,
    read_facts,
    read_ids,
    read_prompt,
    read_slots,
    read_vocabulary_size,
)
from toktier.router.upstream_state import Standing
from toktier.router.vocabulary import UpstreamState

MAX_QUESTION_ANSWER: Final = 8 << 20  # bytes: of /props, with its chat template; of /slots, 1.5 kB each
MAX_ERROR_BODY: Final = 1 << 20
_MAX_GROWTH: Final = 16  # of a chat that is rendered: templates write tools out with indentation, and texts as they are
# Connections that idle shorter than the 5 s after which a llama-server closes them, so that none is used as it closes.
KEEPALIVE_SECONDS: Final = 4.0
# Of an answer, before others have a turn: 64 KiB that came at once may be 10,000 pieces, which nothing else interrupts.
_PIECES_AT_ONCE: Final = 64
PASSED_HEADERS: Final = ("content-type", "retry-after", "x-accel-buffering", "cache-control")
_PASSED: Final = tuple((name, name.encode("ascii")) for name in PASSED_HEADERS)


class Route(StrEnum):
    """What requests of clients become, by path."""

    COMPLETION = "/completion"
    COMPLETIONS = "/v1/completions"
    CHAT = "/v1/chat/completions"
    EMBEDDINGS = "/v1/embeddings"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Seconds. `first_byte`: of a stream: waiting for a slot, and prefill; `whole`: of an answer in one piece:
    the same, and its generation; of one that has begun: until its end; `idle`: between two parts of an answer (a
    llama-server pings every 30); `question`: of the router's own, all in all."""

    connect: float = 5.0
    question: float = 10.0
    first_byte: float = 600.0
    whole: float = 3600.0
    idle: float = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """`connections`: at once; `answer_bytes`: of one answer that passes."""

    connections: int = 256
    answer_bytes: int = 256 << 20


class Passage:
    """An answer that passes. `headers`: those that a client may see. Ends with `Upstream.open`'s block."""

    def __init__(self, upstream: Upstream, reply: Reply) -> None:
        self.status = reply.status
        given = reply.headers  # every byte is a character, and becomes that byte again
        self.headers = {name: given[key].decode("latin-1") for name, key in _PASSED if key in given}
        self.bytes = 0
        self._upstream, self._reply = upstream, reply

    @property
    def is_stream(self) -> bool:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower() == "text/event-stream"

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body, as it comes. Raises UpstreamLost, UpstreamSilent, UpstreamBroken."""
        idle, most = self._upstream.timeouts.idle, self._upstream.bounds.answer_bytes
        clock = asyncio.get_running_loop().time
        end = clock() + self._upstream.timeouts.whole
        for number in itertools.count(1):
            if number % _PIECES_AT_ONCE == 0:
                await asyncio.sleep(0)
            chunk = self._reply.at_hand()
            if chunk is None and self._reply.is_over:
                return
            if chunk is None:
                try:
                    async with asyncio.timeout(min(idle, end - clock())):
                        chunk = await self._reply.part()
                except TimeoutError:
                    raise self._slow(clock() >= end) from None
                except httpx.HTTPError as error:
                    raise self._upstream.fault(error) from None
            if chunk is None:
                return
            self.bytes += len(chunk)
            if self.bytes > most:
                raise UpstreamBroken(f"{self._upstream.url} sent more than {most:,} bytes as one answer")
            if chunk:
                yield chunk

    def _slow(self, whole: bool) -> UpstreamSilent:
        url, timeouts = self._upstream.url, self._upstream.timeouts
        if whole:  # a byte now and then is no silence, and would hold its slot and its place for ever
            return UpstreamSilent(f"{url} did not come to the end of an answer within {timeouts.whole:g} s")
        return UpstreamSilent(f"{url} sent nothing for {timeouts.idle:g} s of an answer")

    async def read(self) -> bytes:
        """The whole body; of an error at most MAX_ERROR_BODY. Raises as `chunks`."""
        most = self._upstream.bounds.answer_bytes if self.status == 200 else MAX_ERROR_BODY
        body = bytearray()  # a chunk may be one byte, and an object for each is 50
        async for chunk in self.chunks():
            body += chunk
            if len(body) > most:
                raise UpstreamBroken(f"{self._upstream.url} sent more than {most:,} bytes as one error")
        return bytes(body)


class Upstream:
    """One llama-server. For one event loop; `probe` before anything else, `close` at the end.

    `admission`: asked of every process that is new; differences that it gives are reasons to refuse it.
    """

    def __init__(
        self,
        index: int,
        url: str,
        *,
        api_key: str | None = None,
        timeouts: Timeouts | None = None,
        bounds: Bounds | None = None,
        admission: Callable[[Upstream], Awaitable[list[str]]] | None = None,
        transport: Transport | None = None,
        may_empty_a_slot: bool = False,
    ) -> None:
        """`index`: its number among the upstreams. `url`: as `addresses.server_url` takes it, which raises ValueError.
        `transport`: for tests. `may_empty_a_slot`: for a trial, at the admission of a process that was used before."""
        self.index = index
        self.url = server_url(url)
        self.timeouts = timeouts or Timeouts()
        self.bounds = bounds or Bounds()
        self.standing = Standing()
        self.keeps_prompts = False  # in the host's memory: requests may not be pinned to its slots
        self._admission = admission
        self._may_empty_a_slot = may_empty_a_slot
        self._tried: str | None = None  # the process of which `_ram_cache` was seen
        self._ram_cache: str | None = None
        self._probing = asyncio.Lock()
        self._suspected = asyncio.Event()
        self._headers = {"accept": "*/*", "accept-encoding": "identity", "user-agent": "toktier"}
        if api_key is not None:
            self._headers["authorization"] = f"Bearer {api_key}"
        # Reads end by the time-outs of this module, which differ before and after the first byte.
        self._transport = transport or Transport(
            httpx.URL(self.url),
            connections=self.bounds.connections,
            idle_seconds=KEEPALIVE_SECONDS,
            connect_seconds=self.timeouts.connect,
        )
        self._heads: dict[tuple[str, str, bool], Head] = {}

    def __repr__(self) -> str:
        return f"Upstream({self.index}, {self.url!r})"

    @property
    def state(self) -> UpstreamState:
        return self.standing.state

    @property
    def epoch(self) -> int:
        return self.standing.epoch

    @property
    def facts(self) -> UpstreamFacts | None:
        return self.standing.facts

    @property
    def notes(self) -> tuple[str, ...]:
        why = self.standing.why
        return (*(() if why is None else (why,)), *self.standing.notes)

    async def close(self) -> None:
        self._transport.close()

    # health

    async def probe(self) -> UpstreamState:
        """Ask how it is, and admit it where it is another process than before. Raises nothing of the upstream's."""
        async with self._probing:
            self._suspected.clear()
            try:
                await self._probe()
            except UpstreamRefused as error:
                self.standing.unusable(f"{self.url}: {error}")
            except UpstreamBroken as error:
                self.standing.unusable(f"{error}")
            except (UpstreamLost, UpstreamSilent) as error:
                self.standing.lost(f"{error}")
            return self.state

    def suspect(self) -> None:
        """What it answered gives reason to ask it at once how it is."""
        self._suspected.set()

    async def suspected(self, seconds: float) -> None:
        """Returns when it became suspect since the last probe, or after `seconds`: when the next one is due."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._suspected.wait()

    async def _probe(self) -> None:
        status, body = await self._ask("GET", "/health")
        if status == 503:
            self.standing.loading()
            return
        if status != 200:
            raise _refusal("/health", status, body)
        facts = read_facts(await self._answer("GET", "/props"))
        slots: list[SlotReport] | None = []
        if facts.shows_slots:
            try:
                status, body = await self._ask("GET", "/slots")
            except UpstreamSilent:  # it answers this one between two batches alone, which may take a CPU a minute
                status, body, slots = 0, b"", None
            if status == 200:
                slots = read_slots(body, facts.total_slots)
            elif status in (404, 501):
                facts = replace(facts, shows_slots=False)
            elif slots is not None:
                raise _refusal("/slots", status, body)
        if self.standing.answered(facts, slots):
            await self._admit(facts)

    async def _admit(self, facts: UpstreamFacts) -> None:
        """Whatever ends this before a verdict, the next answer is judged anew."""
        facts = replace(facts, n_vocab=read_vocabulary_size(await self._answer("GET", "/v1/models")))
        self.standing.facts = facts
        if not facts.shows_slots:
            self.standing.note("it does not show its slots (--no-slots): what they hold cannot be compared")
        self.keeps_prompts = False
        if facts.process is None or facts.process != self._tried:  # what was seen of a process holds while it lives
            self._tried, self._ram_cache = facts.process, await ram_cache_note(self, in_any=self._may_empty_a_slot)
            if self._ram_cache == RAM_CACHE_UNSEEN:
                self._tried = None
        if self._ram_cache is not None:
            self.keeps_prompts = self._ram_cache == RAM_CACHE_ON
            self.standing.note(self._ram_cache)
        differences = [] if self._admission is None else await self._admission(self)
        if differences:
            self.standing.refused(differences[0])
        else:
            self.standing.admitted(facts)

    # questions

    async def slots(self) -> list[SlotReport]:
        """GET /slots; empty where it is not shown."""
        facts = self.facts
        if facts is None or not facts.shows_slots:
            return []
        return read_slots(await self._answer("GET", "/slots"), facts.total_slots)

    async def models(self) -> bytes:
        """The answer of GET /v1/models."""
        return await self._answer("GET", "/v1/models")

    async def apply_template(self, body: bytes) -> str:
        """The prompt of a chat. Raises UpstreamRefused with the answer of an upstream that refuses it."""
        most = min(MAX_QUESTION_ANSWER + _MAX_GROWTH * len(body), self.bounds.answer_bytes)
        return read_prompt(await self._answer("POST", "/apply-template", body, most))

    async def tokenize(self, text: str, *, add_special: bool = False, parse_special: bool = True) -> list[int]:
        """IDs of its own tokenizer."""
        question = {"content": text, "add_special": add_special, "parse_special": parse_special}
        size = 4 * len(text) + 64  # a code point is four bytes at most, and no token is less than one
        answer = await self._answer("POST", "/tokenize", orjson.dumps(question), 12 * size)
        return read_ids(answer, size)

    async def complete(self, body: bytes) -> bytes:
        """A completion that no client asked for: the answer of /completion."""
        return await self._answer("POST", Route.COMPLETION, body)

    async def _answer(
        self, method: str, path: str, body: bytes | None = None, limit: int = MAX_QUESTION_ANSWER
    ) -> bytes:
        status, answer = await self._ask(method, path, body, limit)
        if status != 200:
            raise _refusal(path, status, answer)
        return answer

    async def _ask(
        self, method: str, path: str, body: bytes | None = None, limit: int = MAX_QUESTION_ANSWER
    ) -> tuple[int, bytes]:
        try:
            async with asyncio.timeout(self.timeouts.question):
                try:
                    return await self._asked(method, path, body, limit)
                except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError) as error:
                    if isinstance(error, httpx.RemoteProtocolError) and not _ended_early(error):
                        raise
                # A connection that idled may end as it is used. A question may be asked twice: it changes nothing.
                return await self._asked(method, path, body, limit)
        except TimeoutError:
            raise UpstreamSilent(f"{self.url} did not answer {path} within {self.timeouts.question:g} s") from None
        except httpx.HTTPError as error:
            raise self.fault(error) from None

    async def _asked(self, method: str, path: str, body: bytes | None, limit: int) -> tuple[int, bytes]:
        reply = await self._transport.ask(self._head(method, path), body)
        try:
            _check_head(self.url, reply)
            answer = bytearray()
            while (part := await reply.part()) is not None:
                answer += part
                if len(answer) > limit:
                    raise UpstreamBroken(f"{self.url} answered {path} with more than {limit:,} bytes")
            return reply.status, bytes(answer)
        finally:
            reply.close()

    # answers that pass

    @contextlib.asynccontextmanager
    async def open(self, route: Route, body: bytes, *, stream: bool) -> AsyncIterator[Passage]:
        """Send a request, and wait for the head of its answer. Leaving the block ends the answer, read or not.

        Raises UpstreamLost, UpstreamSilent, UpstreamBroken; an error status is an answer like any other.
        """
        seconds = self.timeouts.first_byte if stream else self.timeouts.whole
        try:
            async with asyncio.timeout(seconds):
                reply = await self._transport.ask(self._head("POST", route, last=stream), body)
        except TimeoutError:
            raise UpstreamSilent(f"{self.url} did not begin to answer within {seconds:g} s") from None
        except httpx.HTTPError as error:
            raise self.fault(error) from None
        try:
            _check_head(self.url, reply)
            yield Passage(self, reply)
        finally:
            reply.close()

    def fault(self, error: httpx.HTTPError) -> ToktierError:
        """The error of toktier for one of the client library; a lost connection takes the upstream out of use until
        it is asked again."""
        if isinstance(error, httpx.PoolTimeout):
            return UpstreamSilent(
                f"{self.url}: all {self.bounds.connections} connections were in use for {self.timeouts.connect:g} s"
            )
        if isinstance(error, httpx.RemoteProtocolError) and not _ended_early(error):
            return UpstreamBroken(f"{self.url} answered with what is no HTTP")
        if isinstance(error, httpx.TransportError) and not isinstance(error, httpx.LocalProtocolError):
            lost = UpstreamLost(f"{self.url} {_lost(error)}")
            lost.was_asked = not isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout))
            if self.state is UpstreamState.UP:
                self.standing.lost(lost.message)
                self.suspect()
            return lost
        return UpstreamBroken(f"{self.url} could not be asked ({type(error).__name__})")

    def _head(self, method: str, path: str, *, last: bool = False) -> Head:
        """`last`: on its connection. A llama-server closes it after a stream, without having said so: the next request
        would be lost that is sent before the end is seen."""
        known = self._heads.get((method, path, last))
        if known is None:  # of few paths, all written in this module
            headers = {**self._headers, **({"content-type": "application/json"} if method == "POST" else {})}
            known = self._heads[method, path, last] = head(method, httpx.URL(self.url + path), headers, last=last)
        return known


def _check_head(url: str, reply: Reply) -> None:
    """Compressed answers are not asked for: a few bytes could be any number. Nor are statuses that HTTP has not."""
    if not 200 <= reply.status <= 599:
        raise UpstreamBroken(f"{url} answered with the status {reply.status}, which is none of HTTP")
    encoding = reply.headers.get(b"content-encoding", b"identity").decode("latin-1").strip().lower()
    if encoding not in ("", "identity"):
        raise UpstreamBroken(
            f"{url} answered with the content encoding {shown(encoding, 40)}, which it was not asked for"
        )


def _lost(error: httpx.TransportError) -> str:
    if isinstance(error, httpx.ConnectTimeout):
        return "cannot be reached: it did not take the connection in time"
    if isinstance(error, httpx.ConnectError):
        return f"cannot be reached: {error}"
    return "ended the connection"


def _ended_early(error: httpx.RemoteProtocolError) -> bool:
    """The library has one class for a connection that ended and for bytes that are no HTTP."""
    text = str(error)
    return "disconnected" in text or "closed connection" in text


def _refusal(path: str, status: int, body: bytes) -> UpstreamRefused:
    error = UpstreamRefused(f"{path} was answered with status {status}")
    if status in (404, 405, 501) and path in ("/health", "/props"):
        error = UpstreamRefused(f"{path} was answered with status {status}: expected a llama-server, and it is none")
    if status in (401, 403):
        error = UpstreamRefused(
            f"{path} was answered with status {status}: the API key is missing or wrong",
            remedy="give the key that the llama-server was started with",
        )
    error.status, error.body = status, body[:MAX_ERROR_BODY]
    return error
