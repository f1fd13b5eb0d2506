"""Upstreams that are hostile or broken, through the whole router: what comes behind an answer, statuses and headers
that HTTP has not, answers in very many pieces, errors in the middle of a line.

Each costs the request that met it. Not here: what answers lie about (`test_serve_slots`, `test_relay`).
"""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack
from typing import cast

import httpx
import pytest

import toktier
from tests.router.fake_upstream import FakeUpstream, Seen, completed, fake_beside, forever, raw, reply
from tests.router.served_router import ROUTES, Served
from tests.router.upstream_calls import tokens
from toktier.router import router
from toktier.router.bodies import Cut
from toktier.router.exchange import MAX_LOST
from toktier.router.relay import StreamRelay
from toktier.router.transport import Head, Reply, Transport
from toktier.router.upstream import MAX_ERROR_BODY, Route, Upstream
from toktier.router.vocabulary import Outcome

A = tokens(1, 90)
CHUNKED = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.fixture
def served(fake: FakeUpstream, mini: toktier.Tokenizer) -> Iterator[Served]:
    with Served(fake.url, tokenizer=mini) as served:
        yield served


def body_of(path: str, stream: bool = False) -> dict[str, object]:
    chat = path == "/v1/chat/completions"
    asked = {"messages": [{"role": "user", "content": "hello"}]} if chat else {"prompt": A}
    return {**asked, "stream": stream}


def answer(text: str, status: int = 200) -> bytes:
    content = json.dumps(completed(0, 90, 0, content=text)).encode()
    return b"HTTP/1.1 %d Status\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (
        status,
        len(content),
        content,
    )


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


class Written:
    """What a handler writes."""

    data = b""

    def write(self, data: bytes) -> None:
        self.data += data

    async def drain(self) -> None: ...


# An answer of another request


@pytest.mark.parametrize(
    "first",
    [answer("one") + answer("of nobody"), answer("none", 204), answer("none", 304), answer("one") + b"HTTP/1.1 20"],
    ids=["two-answers", "204-with-a-body", "304-with-a-body", "an-answer-and-a-half"],
)
@pytest.mark.parametrize("path", ROUTES)
def test_what_comes_behind_an_answer_answers_no_other_request(
    served: Served, fake: FakeUpstream, path: str, first: bytes
) -> None:
    fake.answers[path] = raw(first, close=False)
    served.ask(path, body_of(path))
    for turn in range(4):  # each on a connection that may have been used before
        fake.answers[path] = raw(answer(f"answer {turn}"), close=False)
        answered = served.ask(path, body_of(path))
        assert (answered.status, answered.json["content"]) == (200, f"answer {turn}")
        assert answered.facts.outcome is Outcome.DONE
    assert served.client.get("/v1/models").json()["data"][0]["id"] == "fake"


@pytest.mark.parametrize("question", ["/tokenize", "/apply-template", "/v1/models", "/slots", "/health"])
def test_what_comes_behind_the_answer_to_a_question_answers_no_client(
    served: Served, fake: FakeUpstream, question: str
) -> None:
    async def twice(seen: Seen, writer: asyncio.StreamWriter) -> None:
        del fake.answers[question]
        honest = Written()
        await fake.handle(seen, cast(asyncio.StreamWriter, honest))
        writer.write(
            honest.data + answer("of nobody")
        )  # at once: what comes later finds the connection closed, or used
        await writer.drain()

    fake.answers["/completion"] = reply(completed(0, 90, 0, content="one"))
    for _ in range(3):
        fake.answers[question] = twice
        if question in ("/tokenize", "/apply-template"):
            served.post("/v1/chat/completions", body_of("/v1/chat/completions"))
        elif question == "/v1/models":
            served.client.get(question)
        else:
            served.call(served.router.upstreams[0].probe)
        assert question not in fake.answers
        assert served.complete(A).json["content"] == "one"


def test_connections_are_used_again_where_nothing_came_behind_an_answer(served: Served, fake: FakeUpstream) -> None:
    """Else the tests above would hold without a guard."""
    served.router.upstreams[0]._transport._idle_seconds = 3600.0  # and not the four in which the next has to come
    ended = fake.ended
    fake.answers["/completion"] = reply(completed(0, 90, 0))
    for _ in range(5):
        served.complete(A)
    assert fake.ended == ended


# Heads


@pytest.mark.parametrize("status", [600, 799, 999])
@pytest.mark.parametrize("route", [*ROUTES, "/apply-template"])
def test_a_status_that_http_has_not_is_told_as_one_of_a_broken_upstream(
    served: Served, fake: FakeUpstream, route: str, status: int
) -> None:
    fake.answers[route] = reply({"error": {"type": "odd"}}, status)
    path = route if route in ROUTES else "/v1/chat/completions"
    answered = served.ask(path, body_of(path))
    assert (answered.status, answered.json["error"]["code"]) == (502, "upstream_broken")
    assert answered.facts.outcome is Outcome.UPSTREAM_BROKEN
    served.until_settled()


@pytest.mark.parametrize("value", [b"text/plain; \xe2\x82\xac", b"text/plain; \xff\xfe", "é".encode()], ids=repr)
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", [b"content-type", b"retry-after", b"cache-control"])
def test_bytes_of_a_header_pass_as_they_are(
    served: Served, fake: FakeUpstream, name: bytes, stream: bool, value: bytes
) -> None:
    content = json.dumps(completed(0, 90, 0)).encode()
    fake.answers["/completion"] = raw(
        b"HTTP/1.1 200 OK\r\n%s: %s\r\ncontent-length: %d\r\n\r\n%s" % (name, value, len(content), content)
    )
    response = served.post("/completion", {"prompt": A, "stream": stream})
    assert response.status_code == 200
    assert [found for header, found in response.headers.raw if header.lower() == name] == [value]


# Bodies


def test_an_error_without_end_is_cut_off(served: Served, fake: FakeUpstream) -> None:
    async def endless(_: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 500 Status\r\ncontent-type: application/json\r\n\r\n")
        while True:
            writer.write(b"x" * 65_536)
            await writer.drain()

    fake.answers["/completion"] = endless
    answered = served.ask("/completion", {"prompt": A})
    assert (answered.status, answered.facts.outcome) == (502, Outcome.UPSTREAM_BROKEN)
    fake.answers["/completion"] = reply(b"x" * MAX_ERROR_BODY, 500)
    answered = served.ask("/completion", {"prompt": A})
    assert (answered.status, len(answered.response.content)) == (500, MAX_ERROR_BODY)
    served.until_settled()


# Ends of streams


@pytest.mark.parametrize(
    "passed",
    [b'data: {"content":"a"}\n', b'data: {"content":"a"}\n\n', b": pin", b"event: x", b'data: {"content":"a"}\r\n'],
    ids=repr,
)
def test_the_error_that_ends_a_stream_is_an_event_of_its_own(served: Served, fake: FakeUpstream, passed: bytes) -> None:
    """Whatever of a line or an event has passed by then, a reader of events finds the error."""
    fake.answers["/completion"] = raw(CHUNKED, chunk(passed))
    response = served.post("/completion", {"prompt": A, "stream": True})
    assert response.content.startswith(passed)
    events = response.content.replace(b"\r\n", b"\n").split(b"\n\n")
    *before, last = [event for event in (event.strip(b"\n") for event in events) if event]
    assert last.startswith(b"data: ")
    assert json.loads(last[6:])["error"]["code"] == "no_upstream"
    assert all(b"error" not in event for event in before)


@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_that_drips_for_ever_ends(fake: FakeUpstream, mini: toktier.Tokenizer, stream: bool) -> None:
    """Something comes before silence is too long, and nothing is the end."""

    async def dripping(_: Seen, writer: asyncio.StreamWriter) -> None:
        head = CHUNKED if stream else CHUNKED.replace(b"text/event-stream", b"application/json")
        while True:  # the first part comes with the head: no time-out can end before it
            writer.write(head + chunk(b":\n\n" if stream else b" "))
            head = b""
            await writer.drain()
            await asyncio.sleep(0.01)

    with Served(fake.url, tokenizer=mini, whole_seconds=0.5) as served:
        fake.answers["/completion"] = dripping
        response = served.post("/completion", {"prompt": A, "stream": stream})
        facts = served.facts(response)
        assert facts.outcome is Outcome.TIMED_OUT
        assert response.status_code == (200 if stream else 504)
        assert b"upstream_timeout" in response.content
        served.until_settled()
        served.until(lambda: fake.ended)


def test_an_answer_in_very_many_pieces_takes_no_more_memory_than_its_bytes() -> None:
    """Two bytes as an object of their own are more than fifty."""
    pieces = 1 << 15

    class Pieces:
        status, headers, is_over, left = 200, dict[bytes, bytes](), False, pieces

        def at_hand(self) -> None:
            return None

        async def part(self) -> bytes | None:
            self.left -= 1
            return None if self.left < 0 else bytes(bytearray(b"xx"))

        def close(self) -> None: ...

    class OfPieces(Transport):
        async def ask(self, head: Head, body: bytes | None) -> Reply:
            return cast(Reply, Pieces())

    async def main() -> tuple[int, int]:
        url = "http://127.0.0.1:9"
        transport = OfPieces(httpx.URL(url), connections=1, idle_seconds=1, connect_seconds=1)
        upstream = Upstream(0, url, transport=transport)
        async with upstream.open(Route.COMPLETION, b"{}", stream=False) as passage:
            return len(await passage.read()), len(await upstream.models())

    tracemalloc.start()
    try:
        assert asyncio.run(main()) == (2 * pieces, 2 * pieces)
        relay = StreamRelay(Cut(verbose=True))
        relay.feed(b"data:")
        for _ in range(pieces):
            assert relay.feed(bytes(bytearray(b"xx"))) == b""
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 24 * pieces
    assert len(relay.finish()) == 5 + 2 * pieces


# Several upstreams, and those beside


def test_a_request_that_ends_upstreams_does_not_end_all_of_them(mini: toktier.Tokenizer) -> None:
    with ExitStack() as stack:
        fakes = [stack.enter_context(fake_beside()) for _ in range(4)]
        for fake in fakes:
            fake.tokenize = lambda text: mini.encode(text, add_special_tokens=False).ids
        served = stack.enter_context(Served(*(fake.url for fake in fakes), tokenizer=mini))
        for fake in fakes:
            fake.answers["/completion"] = raw()
        answered = served.ask("/completion", {"prompt": A})
        assert answered.facts.outcome is Outcome.UPSTREAM_LOST
        asked = [
            seen for fake in fakes for seen in fake.seen if seen.path == "/completion" and seen.json["prompt"] == A
        ]
        assert len(asked) == MAX_LOST


def test_requests_are_taken_while_one_upstream_takes_its_time(
    fake: FakeUpstream, mini: toktier.Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(router, "_START_SECONDS", 0.3)
    with fake_beside(tokenize=fake.tokenize) as slow:
        slow.answers["/props"] = raw(then=forever)
        with Served(slow.url, fake.url, tokenizer=mini) as served:
            fake.answers["/completion"] = reply(completed(0, 90, 0))
            served.until(lambda: served.upstream_rows()[1]["state"] == "up")
            assert served.complete(A).facts.upstream == 1
            assert [row["state"] for row in served.upstream_rows()] == ["down", "up"]


def test_leaving_a_request_for_embeddings_ends_it(fake: FakeUpstream, mini: toktier.Tokenizer) -> None:
    with fake_beside() as embedder, Served(fake.url, tokenizer=mini, embeddings_upstream=embedder.url) as served:
        embedder.answers["/v1/embeddings"] = raw(then=forever)
        with served.begin("/v1/embeddings", {"input": "a text"}):
            served.until(lambda: embedder.seen)
        served.until(lambda: embedder.ended == 1)
        served.until(lambda: served.stats()["guards"]["running"] == 0)
        embedder.answers["/v1/embeddings"] = reply({"data": []})
        assert served.post("/v1/embeddings", {"input": "a text"}).json() == {"data": []}
