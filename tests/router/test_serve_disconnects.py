"""Clients that go away, through the whole router: case D14.

The upstream stops, what the slot holds by then is known as far as it was told, and nothing stays behind.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

import toktier
from tests.router.fake_upstream import FakeUpstream, forever, raw, stream
from tests.router.served_router import ROUTES, SECONDS, Served
from tests.router.upstream_calls import tokens
from tests.support.llama_server import LlamaServer
from toktier.router.vocabulary import Choice, Outcome, Reuse

A = tokens(1, 90)


@pytest.fixture
def served(llama: LlamaServer, mini: toktier.Tokenizer) -> Iterator[Served]:
    with Served(llama.url, tokenizer=mini) as served:
        yield served


def endless(path: str, prompt: list[int] = A, count: int = 1900) -> dict[str, Any]:
    """A request whose answer takes longer than its client stays."""
    more = {"temperature": 0, "ignore_eos": True}
    if path == "/v1/chat/completions":
        return {"messages": [{"role": "user", "content": "Say something."}], "max_tokens": count, **more}
    return {"prompt": prompt, "n_predict" if path == "/completion" else "max_tokens": count, **more}


@pytest.mark.parametrize("path", ROUTES)
def test_d14_leaving_a_stream_ends_the_generation(served: Served, llama: LlamaServer, path: str) -> None:
    with served.streaming(path, endless(path)) as one:
        one.take(4)
        with llama.frozen():
            assert served.in_flight() == 1
    served.recorded(lambda: served.requests)
    facts = served.requests[0]
    assert (facts.outcome, facts.status, facts.stream) == (Outcome.DISCONNECTED, 200, True)
    slots = llama.until_idle()
    assert facts.slot is not None
    assert facts.prompt_tokens < slots[facts.slot]["n_prompt_tokens"] < 1900
    served.until_settled()
    state, held, sure = served.held()[facts.slot]
    assert state == "known"
    assert facts.prompt_tokens <= sure <= held <= slots[facts.slot]["n_prompt_tokens"]


@pytest.mark.parametrize("native", [True, False])
def test_d14_what_was_generated_until_then_is_reused(served: Served, llama: LlamaServer, native: bool) -> None:
    path = "/completion" if native else "/v1/completions"
    with served.streaming(path, {**endless(path), "verbose": True}) as one:
        events = one.take(4)
    generated = [token for event in events for token in (event if native else event["__verbose"])["tokens"]]
    assert len(generated) >= 4
    served.recorded(lambda: served.requests)
    slot = served.requests[0].slot
    served.until_settled()
    answered = served.complete([*A, *generated, 7, 8, 9], native=native)
    assert (answered.facts.choice, answered.facts.slot, answered.facts.stale) == (Choice.EXACT, slot, False)
    assert answered.facts.measured is not None
    assert answered.facts.measured >= answered.facts.predicted >= 90 + len(generated) - 1
    assert answered.facts.reuse is Reuse.HIT


def test_d14_leaving_while_all_slots_are_busy_is_never_told_to_the_upstream(
    llama_of_one: LlamaServer, mini: toktier.Tokenizer
) -> None:
    with Served(llama_of_one.url, tokenizer=mini) as served:
        turns = served.router.turns
        with served.streaming("/completion", endless("/completion", count=1500)) as first:
            first.take(1)
            with llama_of_one.frozen():
                with served.begin("/completion", endless("/completion", tokens(2, 200), 8)):
                    served.until(lambda: turns.waiting == 1)
                    assert served.in_flight() == 1
                served.until(lambda: turns.waiting == 0)
                assert (turns.counts.waited, turns.counts.left, served.requests) == (1, 1, [])
            *_, last = first.events()
            assert last["timings"]["predicted_n"] == 1500
        served.recorded(lambda: len(served.requests) == 1)
        answered = served.complete([*A, 3])
        assert (answered.counts, answered.facts.predicted, answered.facts.stale) == ((90, 1), 90, False)


@pytest.mark.ci
@pytest.mark.parametrize("path", ROUTES)
def test_d14_leaving_before_an_answer_in_one_piece_ends_the_generation(
    start_llama: Callable[..., LlamaServer], mini: toktier.Tokenizer, path: str
) -> None:
    """llama-server looks after the connection of such an answer when for a second nobody asked it anything."""
    server = start_llama("--parallel", "1", "--ctx-size", "32768")
    with Served(server.url, tokenizer=mini) as served:
        with served.begin(path, endless(path, count=30_000)):
            served.until(lambda: server.slots()[0]["is_processing"])
        served.recorded(lambda: served.requests)
        facts = served.requests[0]
        assert (facts.outcome, facts.status, facts.measured) == (Outcome.DISCONNECTED, None, None)
        slots = server.until_idle(every=1.3)
        assert slots[0]["n_prompt_tokens"] < 30_000
        served.until_settled()
        later = served.complete([*A, 3]) if path != "/v1/chat/completions" else served.chat("Say something.")
        assert later.facts.stale is False


def test_d14_leaving_before_the_first_byte_closes_the_connection_to_the_upstream(
    fake: FakeUpstream, mini: toktier.Tokenizer
) -> None:
    with Served(fake.url, tokenizer=mini) as served:
        for path in ("/completion", "/v1/completions"):
            for streamed in (True, False):
                fake.answers[path] = raw(then=forever)
                seen, ended = len(fake.seen), fake.ended
                with served.begin(path, {"prompt": A, "stream": streamed}):
                    served.until(lambda seen=seen: len(fake.seen) > seen)
                    assert served.in_flight() == 1
                served.until(lambda ended=ended: fake.ended == ended + 1)
                served.recorded(
                    lambda path=path, streamed=streamed: (
                        served.requests[-1:]
                        and (served.requests[-1].route, served.requests[-1].stream) == (path, streamed)
                    )
                )
                assert served.requests[-1].outcome is Outcome.DISCONNECTED
                served.until_settled()
                assert all(sure == 0 for _, _, sure in served.held())


def test_d14_leaving_while_the_chat_is_rendered(fake: FakeUpstream, mini: toktier.Tokenizer) -> None:
    with Served(fake.url, tokenizer=mini) as served:
        fake.answers["/apply-template"] = raw(then=forever)
        seen, ended = len(fake.seen), fake.ended
        with served.begin("/v1/chat/completions", endless("/v1/chat/completions")):
            served.until(lambda: len(fake.seen) > seen)
        served.until(lambda: fake.ended == ended + 1)
        served.recorded(lambda: served.requests)
        facts = served.requests[0]
        assert (facts.outcome, facts.upstream, facts.slot) == (Outcome.DISCONNECTED, 0, None)
        served.until_settled()


def asked(fake: FakeUpstream) -> int:
    """How often for a completion of A."""
    return [seen.json["prompt"] for seen in list(fake.seen) if seen.path == "/completion"].count(A)


def test_d14_leaving_the_queue(fake: FakeUpstream, mini: toktier.Tokenizer) -> None:
    with Served(fake.url, tokenizer=mini, max_concurrent=1, max_queued=1) as served:
        fake.answers["/completion"] = raw(then=forever)
        with served.begin("/completion", {"prompt": A}):
            served.until(lambda: served.stats()["guards"]["running"] == 1)
            served.until(lambda: asked(fake) == 1)  # who runs has not asked yet
            with served.begin("/completion", {"prompt": A}):
                served.until(lambda: served.stats()["guards"]["queued"] == 1)
            served.until(lambda: served.stats()["guards"]["left"] == 1)
            assert served.stats()["guards"]["queued"] == 0
            assert asked(fake) == 1
        served.until(lambda: served.stats()["guards"]["running"] == 0)
        served.until_settled()


def test_d14_a_client_that_reads_nothing_of_a_stream_that_goes_on_is_let_go(
    fake: FakeUpstream, mini: toktier.Tokenizer
) -> None:
    """Its buffers and the router's are full; then the upstream is told, as if it had gone away."""
    event = b"data: " + json.dumps({"content": "x" * 60_000, "tokens": [1], "stop": False}).encode() + b"\n\n"
    with Served(fake.url, tokenizer=mini, idle_seconds=0.3) as served:
        (upstream,) = served.router.upstreams  # which may take its time, as it does on a busy host
        upstream.timeouts = replace(upstream.timeouts, idle=SECONDS)
        fake.answers["/completion"] = stream(*[event] * 500, then=forever)
        ended = fake.ended
        with served.begin("/completion", {"prompt": A, "stream": True}):
            served.until(lambda: fake.ended == ended + 1)
            served.recorded(lambda: served.requests)
            assert served.requests[0].outcome is Outcome.DISCONNECTED
        served.until_settled()
        assert served.stats()["guards"]["connections_stalled"] == 1
