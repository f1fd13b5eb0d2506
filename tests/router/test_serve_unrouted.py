"""Requests that cannot be pinned to a slot, through the whole router: they leave no false knowledge behind.

Each is answered as the llama-server answers it; afterwards a conversation that was in a slot is found there, or is a
miss that nobody had promised to be a hit.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import toktier
from tests.router.fake_upstream import FakeUpstream, completed, raw, reply
from tests.router.served_router import SECONDS, Served
from tests.router.upstream_calls import tokens
from tests.support.llama_server import LlamaServer
from toktier.router.vocabulary import Choice, Ids, Outcome, Unrouted

A, B = tokens(1, 100), tokens(2, 100)
CHAT = [{"role": "user", "content": "Say something."}]
IMAGE = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJgg"
    "g=="
)
UNROUTED: list[tuple[str, dict[str, Any], Unrouted]] = [
    ("/v1/completions", {"prompt": B, "n": 2}, Unrouted.SEVERAL_CHOICES),
    ("/v1/chat/completions", {"messages": CHAT, "n": 2}, Unrouted.SEVERAL_CHOICES),
    ("/completion", {"prompt": B, "n_cmpl": 2}, Unrouted.SEVERAL_CHOICES),
    ("/completion", {"prompt": [A, B]}, Unrouted.SEVERAL_PROMPTS),
    ("/v1/completions", {"prompt": ["one text", "another"]}, Unrouted.SEVERAL_PROMPTS),
    ("/completion", {"prompt": B, "lora": []}, Unrouted.ADAPTER),
    ("/v1/completions", {"prompt": A, "lora": []}, Unrouted.ADAPTER),
    ("/v1/chat/completions", {"messages": CHAT, "lora": []}, Unrouted.ADAPTER),
    (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": IMAGE}}]}]},
        Unrouted.MEDIA,
    ),
    ("/completion", {"prompt": {"prompt_string": "a", "multimodal_data": [IMAGE]}}, Unrouted.MEDIA),
]


@pytest.fixture
def served(llama: LlamaServer, mini: toktier.Tokenizer) -> Iterator[Served]:
    with Served(llama.url, tokenizer=mini) as served:
        yield served


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(
    ("path", "body", "why"), UNROUTED, ids=[f"{why.value}-{path.split('/')[-1]}" for path, _, why in UNROUTED]
)
def test_a_request_without_a_slot_leaves_no_false_knowledge(
    served: Served, llama: LlamaServer, path: str, body: dict[str, Any], why: Unrouted, stream: bool
) -> None:
    conversations = [A, tokens(3, 100), tokens(4, 100), tokens(5, 100)]
    for conversation in conversations:
        served.complete(conversation)
    body = {**body, "stream": stream, "temperature": 0, "max_tokens": 4, "n_predict": 4}
    answered = served.ask(path, body)
    direct = llama.client.post(path, json=body)
    assert answered.status == direct.status_code
    if direct.status_code != 200:
        assert answered.response.content == direct.content
    facts = answered.facts
    assert (facts.choice, facts.unrouted, facts.ids, facts.slot) == (Choice.UNROUTED, why, Ids.UPSTREAM, None)
    assert facts.outcome is (Outcome.DONE if answered.status == 200 else Outcome.REFUSED_UPSTREAM)
    assert (facts.predicted, facts.stale) == (0, False)
    assert served.stats()["unrouted"][why.value] == 1
    served.until_settled()
    # What is thought to be sure is there: every slot's count agrees, or nothing is said of it. (The direct request of
    # this test took a slot behind the router's back, which the audit of a health check finds.)
    served.call(lambda: served.router._probe(served.router.upstreams[0]))
    counts = [slot.get("n_prompt_tokens", 0) for slot in llama.slots()]
    assert all(not sure or tokens == count for (_, tokens, sure), count in zip(served.held(), counts, strict=True))
    assert all(not served.complete(conversation).facts.stale for conversation in conversations)


def test_without_that_audit_only_the_slots_that_were_used_are_unknown(served: Served) -> None:
    conversations = [A, tokens(3, 100), tokens(4, 100), tokens(5, 100)]
    slots = [served.complete(conversation).facts.slot for conversation in conversations]
    assert slots == [0, 1, 2, 3]
    served.ask("/completion", {"prompt": [B, tokens(6, 50)], "n_predict": 4})
    assert [state for state, _, _ in served.held()].count("unknown") == 2
    answers = [served.complete(conversation) for conversation in conversations]
    assert sum(one.facts.reuse == "hit" for one in answers) >= 2
    assert not any(one.facts.stale for one in answers)


def test_what_ran_beside_it_is_not_forgotten_and_not_believed_too_much(served: Served) -> None:
    with ThreadPoolExecutor(8) as pool:
        jobs: list[Any] = []
        for number in range(24):
            if number % 3 == 0:
                jobs.append(pool.submit(served.ask, "/completion", {"prompt": [B, A], "n_predict": 4}))
            else:
                jobs.append(pool.submit(served.complete, [*tokens(10 + number % 4, 60), number]))
        assert all(job.result(SECONDS).status == 200 for job in jobs)
    served.until_settled()
    assert served.stats()["unrouted"]["several_prompts"] == 8
    assert served.stats()["outcome"]["done"] == 24


def test_a_client_that_goes_away_leaves_the_slot_unknown_that_it_used(served: Served, llama: LlamaServer) -> None:
    for number in range(4):
        served.complete(tokens(20 + number, 100))
    body = {"prompt": B, "lora": [], "n_predict": 1900, "ignore_eos": True}
    with served.streaming("/completion", body) as one:
        one.take(3)
    served.recorded(lambda: len(served.requests) == 5)
    assert served.requests[-1].outcome is Outcome.DISCONNECTED
    assert [state for state, _, _ in served.held()].count("unknown") == 1
    llama.until_idle()
    assert not any(served.complete(tokens(20 + number, 100)).facts.stale for number in range(4))


def test_where_the_slots_cannot_be_asked_all_are_unknown(fake: FakeUpstream, mini: toktier.Tokenizer) -> None:
    with Served(fake.url, tokenizer=mini) as served:
        fake.answers["/completion"] = reply(completed(0, 100, 0))
        served.complete(A)
        assert served.held()[0][0] == "known"
        fake.answers["/slots"] = reply({"error": {"code": 500, "message": "no"}}, 500)
        assert served.ask("/completion", {"prompt": [A, B]}).status == 200
        assert [state for state, _, _ in served.held()] == ["unknown"] * 4


def test_an_upstream_that_is_lost_meanwhile(fake: FakeUpstream, mini: toktier.Tokenizer) -> None:
    with Served(fake.url, tokenizer=mini) as served:
        fake.answers["/completion"] = raw()
        answered = served.ask("/completion", {"prompt": [A, B]})
        assert (answered.status, answered.json["error"]["code"]) == (503, "no_upstream")
        assert answered.facts.outcome is Outcome.UPSTREAM_LOST
