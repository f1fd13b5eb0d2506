"""What a client gets through the whole router, against what the llama-server gives it directly: case D24.

Both answers are of a slot in the same state. What the clock, a counter or chance decides is replaced in both; the rest
is equal byte for byte. And what of a request the router decides itself, whatever the client says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

import toktier
from tests.router.served_router import ROUTES, Answered, Served
from tests.router.upstream_calls import tokens
from tests.support.llama_server import LlamaServer
from toktier.router.vocabulary import Ids, Outcome, Reuse

A = tokens(1, 100)
BY_CHANCE = re.compile(rb'"(id|created|[a-z_]+_ms|[a-z_]+_per_second)":("[^"]*"|[-+.\deE]+)')


@pytest.fixture
def served(llama: LlamaServer, mini: toktier.Tokenizer) -> Iterator[Served]:
    with Served(llama.url, tokenizer=mini) as served:
        yield served


def steady(body: bytes) -> bytes:
    return BY_CHANCE.sub(rb'"\1":*', body)


def body_of(path: str, **more: Any) -> dict[str, Any]:
    if path == "/v1/chat/completions":
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say something."}]
        return {"messages": messages, "max_tokens": 8, "temperature": 0, **more}
    return {"prompt": A, "n_predict" if path == "/completion" else "max_tokens": 8, "temperature": 0, **more}


def both(served: Served, llama: LlamaServer, path: str, body: dict[str, Any]) -> tuple[Answered, bytes]:
    """The second of two equal requests, through the router and directly."""
    served.ask(path, body)
    through = served.ask(path, body)
    llama.erase_slots()
    for _ in range(2):
        direct = llama.client.post(path, json={**body, "id_slot": through.facts.slot})
    assert through.status == direct.status_code == 200
    assert through.response.headers["content-type"] == direct.headers["content-type"]
    return through, direct.content


OPTIONS: list[tuple[str, dict[str, Any]]] = [
    *[(path, {}) for path in ROUTES],
    *[(path, {"stream_options": {"include_usage": True}}) for path in ROUTES[1:]],
    *[(path, {"timings_per_token": True}) for path in ROUTES],
    *[(path, {"stop": ["e"]}) for path in ROUTES],
    *[(path, {"verbose": True}) for path in ROUTES],
    *[(path, {"return_tokens": True}) for path in ROUTES],
    *[(path, {"verbose": True, "return_tokens": True}) for path in ROUTES],
    *[(path, {"verbose": False, "return_tokens": False}) for path in ROUTES],
    ("/completion", {"n_probs": 2}),
    ("/completion", {"response_fields": ["content", "timings/cache_n"]}),
    ("/completion", {"return_progress": True}),
    ("/v1/completions", {"logprobs": 2}),
    ("/v1/completions", {"echo": True}),
    ("/v1/completions", {"model": "any", "user": "somebody", "unheard": {"of": [1.5, None, "\u20ac"]}}),
    ("/v1/chat/completions", {"logprobs": True, "top_logprobs": 2}),
    ("/v1/chat/completions", {"return_progress": True}),
]


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize(
    ("path", "more"), OPTIONS, ids=[f"{path.split('/')[-1]}-{'-'.join(more) or 'plain'}" for path, more in OPTIONS]
)
def test_d24_a_client_gets_the_bytes_that_it_would_have_got(
    served: Served, llama: LlamaServer, path: str, more: dict[str, Any], stream: bool
) -> None:
    through, direct = both(served, llama, path, body_of(path, stream=stream, **more))
    assert steady(through.response.content) == steady(direct)
    assert through.facts.outcome is Outcome.DONE
    if "response_fields" not in more:  # of which the client wanted no count, and so the router has none
        assert through.facts.measured == through.facts.prompt_tokens - 1
        assert through.facts.reuse is Reuse.HIT
    assert through.facts.stale is False


@pytest.mark.parametrize("path", ROUTES)
def test_d24_the_last_chunk_has_what_the_record_is_made_of(served: Served, path: str) -> None:
    body = body_of(path, stream_options={"include_usage": True})
    served.ask(path, body)
    with served.streaming(path, body) as one:
        events = list(one.events())
    if path != "/completion":
        assert events.pop() == "[DONE]"
        usage = events[-1]["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] == events[-1]["timings"]["cache_n"]
        assert usage["prompt_tokens"] == events[-1]["timings"]["cache_n"] + events[-1]["timings"]["prompt_n"]
    served.recorded(lambda: len(served.requests) == 2)
    facts, timings = served.requests[1], events[-1]["timings"]
    assert (facts.stream, facts.measured, facts.prompt_tokens) == (
        True,
        timings["cache_n"],
        timings["cache_n"] + timings["prompt_n"],
    )
    assert (facts.generated_tokens, facts.prompt_ms, facts.generated_ms) == (
        timings["predicted_n"],
        timings["prompt_ms"],
        timings["predicted_ms"],
    )
    assert facts.ids is (Ids.AGREED if path == "/v1/chat/completions" else Ids.SENT)
    assert "__verbose" not in one.body.decode()


def test_a_stream_passes_event_by_event(served: Served, llama: LlamaServer) -> None:
    """The first one is there long before the last is made."""
    with served.streaming("/v1/completions", body_of("/v1/completions", max_tokens=1500, ignore_eos=True)) as one:
        one.take(1)
        with llama.frozen():
            assert served.in_flight() == 1
        rest = list(one.events())
    assert len(rest) > 1000


@pytest.mark.parametrize("path", ROUTES)
def test_the_slot_is_the_routers_choice_whatever_a_client_says(served: Served, llama: LlamaServer, path: str) -> None:
    answered = served.ask(path, body_of(path, id_slot=3))
    assert answered.facts.slot == 0
    assert llama.slots()[0]["n_prompt_tokens"] > 0
    again = served.ask(path, body_of(path, id_slot=2, cache_prompt=True))
    assert (again.facts.slot, again.facts.reuse, again.facts.stale) == (0, Reuse.HIT, False)


@pytest.mark.parametrize("path", ROUTES)
def test_a_client_that_wants_no_prefix_reused_gets_none(served: Served, path: str) -> None:
    served.ask(path, body_of(path))
    answered = served.ask(path, body_of(path, cache_prompt=False))
    assert (answered.facts.predicted, answered.facts.measured, answered.facts.reuse) == (0, 0, Reuse.MISS)
    assert answered.facts.stale is False
    later = served.ask(path, body_of(path))
    assert later.facts.measured == later.facts.prompt_tokens - 1
    assert later.facts.stale is False


def test_only_tokens_that_were_asked_for_are_in_an_answer(served: Served) -> None:
    assert served.complete(A).json["tokens"] == []
    assert len(served.complete(A, return_tokens=True).json["tokens"]) == 8
    assert "__verbose" not in served.complete(A, native=False).json
    assert len(served.complete(A, native=False, verbose=True, return_tokens=True).json["__verbose"]["tokens"]) == 8


@pytest.mark.parametrize("path", ROUTES)
def test_d23_a_client_cannot_ask_for_chunks_at_another_position(served: Served, path: str) -> None:
    refused = served.post(path, body_of(path, n_cache_reuse=16))
    assert refused.status_code == 400
    assert "n_cache_reuse" in json.loads(refused.content)["error"]["message"]
    assert served.requests == []
    assert served.ask(path, body_of(path, n_cache_reuse=0)).status == 200
