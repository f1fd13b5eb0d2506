"""The whole router in front of a real llama-server: what requests reuse, and what is recorded of it.

Cases D1 to D10, with the router's own choice of slots. Prompts are token IDs, greedy, 8 tokens are generated.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pytest

import toktier
from tests.router.served_router import Served
from tests.router.upstream_calls import other, tokens
from tests.support.llama_server import LlamaServer
from toktier.router.embedders import OpenEmbedder
from toktier.router.embedding import Prompt
from toktier.router.vocabulary import Choice, Ids, Outcome, Reuse

A = tokens(1, 100)


@pytest.fixture
def served(llama: LlamaServer, mini: toktier.Tokenizer) -> Iterator[Served]:
    with Served(llama.url, tokenizer=mini) as served:
        yield served


@pytest.fixture
def alone(llama_of_one: LlamaServer, mini: toktier.Tokenizer) -> Iterator[Served]:
    """In front of a server with one slot."""
    with Served(llama_of_one.url, tokenizer=mini) as served:
        yield served


@pytest.mark.parametrize("native", [True, False])
def test_d1_d2_d3_a_conversation_stays_in_its_slot(served: Served, llama: LlamaServer, native: bool) -> None:
    first = served.complete(A, native=native, return_tokens=True, verbose=True)
    assert first.counts == (0, 100)
    assert (first.facts.predicted, first.facts.measured, first.facts.reuse) == (0, 0, Reuse.MISS)
    assert (first.facts.choice, first.facts.ids, first.facts.outcome) == (Choice.LEAST_RECENT, Ids.SENT, Outcome.DONE)
    assert (first.facts.prompt_tokens, first.facts.generated_tokens) == (100, 8)
    slot = first.facts.slot
    assert slot is not None
    assert served.held()[slot] == ("known", 107, 107)

    again = served.complete(A, native=native)
    assert again.counts == (99, 1)
    assert (again.facts.predicted, again.facts.measured, again.facts.reuse) == (99, 99, Reuse.HIT)
    assert (again.facts.choice, again.facts.slot, again.facts.stale) == (Choice.EXACT, slot, False)

    generated = first.json["tokens"] if native else first.json["__verbose"]["tokens"]
    assert len(generated) == 8
    turn = served.complete([*A, *generated, *tokens(2, 20)], native=native)
    assert turn.counts == (107, 21)
    assert (turn.facts.predicted, turn.facts.measured, turn.facts.slot) == (107, 107, slot)
    assert llama.slots()[slot]["n_prompt_tokens"] == 128 + 8 - 1
    assert served.held()[slot] == ("known", 135, 135)
    assert served.stats()["reuse"] == {"miss": 1, "soft_hit": 0, "hit": 2, "unmeasured": 0}
    assert served.stats()["tokens"] == {
        "prompt": 328,
        "predicted": 206,
        "saved": 206,
        "prefilled": 122,
        "unmeasured": 0,
        "generated": 24,
    }


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_d3_a_conversation_of_a_chat_stays_in_its_slot(served: Served, llama: LlamaServer, stream: bool) -> None:
    """Of a stream llama-server tells no tokens: those of the answer are made of its text, and are not promised."""
    messages: list[dict[str, str]] = []
    evaluated = 0
    for turn in range(5):
        messages.append({"role": "user", "content": f"Question {turn}, and please answer it at some length."})
        body = {"messages": messages, "max_tokens": 12, "temperature": 0, "stream": stream}
        answered = served.ask("/v1/chat/completions", body)
        facts = answered.facts
        assert (facts.ids, facts.outcome, facts.stale) == (Ids.AGREED, Outcome.DONE, False)
        assert facts.measured is not None
        assert facts.measured >= facts.predicted or not turn
        if turn:
            assert (facts.choice, facts.reuse, facts.slot) == (Choice.EXACT, Reuse.HIT, 0)
            assert facts.measured >= evaluated - 1
        evaluated = facts.prompt_tokens
        if stream:
            events = [json.loads(line[6:]) for line in answered.response.text.split("\n") if line.startswith("data: {")]
            said = "".join(event["choices"][0]["delta"].get("content") or "" for event in events if event["choices"])
        else:
            said = answered.json["choices"][0]["message"]["content"]
        assert said
        messages.append({"role": "assistant", "content": said})
    assert served.stats()["hit_rate"] == 0.8


@pytest.mark.parametrize(
    ("common", "reuse", "choice"),
    [
        (0, Reuse.MISS, Choice.LEAST_RECENT),
        (1, Reuse.SOFT_HIT, Choice.LEAST_RECENT),
        (5, Reuse.SOFT_HIT, Choice.LEAST_RECENT),
        (9, Reuse.SOFT_HIT, Choice.LEAST_RECENT),
        (10, Reuse.HIT, Choice.EXACT),
        (11, Reuse.HIT, Choice.EXACT),
        (50, Reuse.HIT, Choice.EXACT),
    ],
)
def test_d4_d5_what_is_reused_is_a_hit_from_ten_tokens_on(
    alone: Served, common: int, reuse: Reuse, choice: Choice
) -> None:
    alone.complete(A)
    prompt = [*A[:common], other(A[common]), *tokens(3, 59)]
    answered = alone.complete(prompt)
    assert answered.counts == (common, 60)
    assert (answered.facts.predicted, answered.facts.measured, answered.facts.reuse) == (common, common, reuse)
    assert (answered.facts.choice, answered.facts.stale) == (choice, False)
    stats = alone.stats()
    assert stats["hit_rate"] == (0.5 if reuse is Reuse.HIT else 0)
    assert stats["soft_hit_rate"] == (0.5 if reuse is Reuse.SOFT_HIT else 0)
    assert stats["tokens"]["saved"] == common


def test_d6_a_shorter_prompt_truncates_what_the_slot_is_thought_to_hold(
    alone: Served, llama_of_one: LlamaServer
) -> None:
    alone.complete(A[:60])
    assert alone.held() == [("known", 67, 67)]
    answered = alone.complete(A[:30])
    assert answered.counts == (29, 1)
    assert answered.facts.predicted == 29
    assert alone.held() == [("known", 37, 37)]
    assert llama_of_one.slots()[0]["n_prompt_tokens"] == 37
    back = alone.complete(A[:60])
    assert back.counts == (30, 30)
    assert (back.facts.predicted, back.facts.stale) == (30, False)


def test_d7_nothing_behind_the_first_difference_is_reused_nor_expected(alone: Served) -> None:
    prompt = tokens(4, 120)
    alone.complete(prompt)
    answered = alone.complete([*prompt[:40], other(prompt[40]), *tokens(5, 2), *prompt[40:]])
    assert answered.counts == (40, 83)
    assert (answered.facts.predicted, answered.facts.measured, answered.facts.reuse) == (40, 40, Reuse.HIT)


def test_d8_a_near_duplicate_whose_first_token_differs_is_no_hit(served: Served) -> None:
    first = served.complete(A)
    answered = served.complete([other(A[0]), *A[1:]])
    assert answered.counts == (0, 100)
    assert (answered.facts.predicted, answered.facts.measured, answered.facts.reuse) == (0, 0, Reuse.MISS)
    assert answered.facts.choice is Choice.LEAST_RECENT
    assert answered.facts.slot != first.facts.slot


def test_d8_between_upstreams_a_near_duplicate_is_a_candidate_and_no_hit(
    llama_of_one: LlamaServer, llama: LlamaServer, mini: toktier.Tokenizer
) -> None:
    """Prompts so short that no slot is dear to anybody: of upstreams that cost the same, the similar prompt decides."""
    with Served(llama_of_one.url, llama.url, tokenizer=mini) as served:
        first, unlike = served.complete(A[:50]), served.complete(tokens(6, 50))
        assert [(one.facts.upstream, one.facts.choice) for one in (first, unlike)] == [
            (0, Choice.LEAST_RECENT),
            (1, Choice.LEAST_RECENT),
        ]
        answered = served.complete([other(A[0]), *A[1:50]])
        assert (answered.facts.upstream, answered.facts.choice) == (0, Choice.SIMILAR)
        assert answered.counts == (0, 50)
        assert (answered.facts.predicted, answered.facts.measured, answered.facts.reuse) == (0, 0, Reuse.MISS)
        assert served.stats()["choice"]["similar"] == 1
        assert served.stats()["hit_rate"] == 0


def test_d9_of_two_exact_prefixes_the_longer_one_is_taken(served: Served) -> None:
    """Whatever is similar: what exact prefixes say, vectors cannot say better."""
    long = tokens(7, 400)
    longer = served.complete(long)
    short = served.complete(long[:12])
    assert short.facts.slot != longer.facts.slot  # 11 tokens are not worth a conversation of somebody else
    assert short.counts == (0, 12)
    answered = served.complete([*long, *tokens(9, 20)])
    assert (answered.facts.choice, answered.facts.slot) == (Choice.EXACT, longer.facts.slot)
    assert answered.counts == (400, 20)
    assert answered.facts.predicted == 400


@pytest.mark.parametrize(("cosine", "chosen"), [(0.96, 1), (0.94, 0)])
def test_d9_of_candidates_within_five_percent_the_longer_one_is_taken(
    llama_of_one: LlamaServer,
    llama: LlamaServer,
    mini: toktier.Tokenizer,
    monkeypatch: pytest.MonkeyPatch,
    cosine: float,
    chosen: int,
) -> None:
    """The prompt of 12 tokens was served by upstream 0, the one of 40 by upstream 1; the shorter is more similar."""

    class Fixed:
        dims = 2

        async def embed(self, prompt: Prompt) -> np.ndarray:
            angle = {12: -np.arccos(0.85), 40: np.arccos(0.85 * cosine), 20: 0.0}[len(prompt.ids)]
            return np.array([np.cos(angle), np.sin(angle)], dtype=np.float32)

    async def fixed(*_: object) -> OpenEmbedder:
        return OpenEmbedder(Fixed(), None)

    monkeypatch.setattr("toktier.router.router.open_embedder", fixed)
    with Served(llama_of_one.url, llama.url, tokenizer=mini) as served:
        short, long = served.complete(tokens(40, 12)), served.complete(tokens(41, 40))
        assert (short.facts.upstream, long.facts.upstream) == (0, 1)
        answered = served.complete(tokens(42, 20))
        assert (answered.facts.choice, answered.facts.upstream) == (Choice.SIMILAR, chosen)
        assert answered.counts == (0, 20)


def test_d10_the_least_recently_used_slot_is_taken(llama_of_two: LlamaServer, mini: toktier.Tokenizer) -> None:
    prompts = [tokens(20 + number, 120) for number in range(5)]
    with Served(llama_of_two.url, tokenizer=mini) as served:
        kept = served.complete(prompts[0]).facts.slot
        for number, prompt in enumerate(prompts[1:], 1):
            answered = served.complete(prompt)
            assert answered.counts == (0, 120)
            assert answered.facts.slot != kept
            touched = served.complete(prompts[0])
            assert touched.counts == (119, 1)
            assert touched.facts.slot == kept
            assert number < 5
        evicted = served.complete(prompts[1])
        assert evicted.counts == (0, 120)
        assert (evicted.facts.reuse, evicted.facts.predicted, evicted.facts.stale) == (Reuse.MISS, 0, False)
        assert evicted.facts.slot != kept
        assert served.stats()["reuse"] == {"miss": 6, "soft_hit": 0, "hit": 4, "unmeasured": 0}
