"""The whole router where more conversations are alive than slots, in front of a real llama-server: whose turn it is."""

from __future__ import annotations

import asyncio
import functools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import toktier
from tests.router.fake_upstream import FakeUpstream, Seen, fake_beside, raw, reply
from tests.router.served_router import SECONDS, Answered, Served
from tests.router.upstream_calls import tokens
from tests.support.llama_server import LlamaServer
from toktier.router import keeping
from toktier.router.reservations import Reservation
from toktier.router.upstream import Upstream
from toktier.router.vocabulary import Choice, Outcome

TURNS = 6
LONG = {"n_predict": 3000, "temperature": 0, "ignore_eos": True}


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slot is kept for as long as a client of a busy machine may take."""
    monkeypatch.setattr(keeping, "LONGEST", 30.0)
    monkeypatch.setattr(keeping, "_FIRST_GAP", 10.0)


def begun(served: Served) -> None:
    """The upstream is as slow as is worth keeping slots, however fast this machine is."""
    rates = served.router.table.rates(0)
    assert rates is not None
    rates.prefill = 1.0
    rates.measured = lambda **_: None  # type: ignore[method-assign]


def converse(served: Served, prompt: list[int]) -> list[Answered]:
    answers = []
    for number in range(TURNS):
        answers.append(served.complete(prompt))
        prompt = [*prompt, *answers[-1].json["tokens"], *tokens(900 + number, 5)]
    return answers


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("in_a_row", [1, 3])
def test_a_conversation_has_its_turns_in_a_row_and_then_the_other(
    llama_of_one: LlamaServer, mini: toktier.Tokenizer, in_a_row: int
) -> None:
    with Served(llama_of_one.url, tokenizer=mini, turns_in_a_row=in_a_row) as served, ThreadPoolExecutor(2) as pool:
        begun(served)
        with served.streaming("/completion", {"prompt": tokens(1, 50), **LONG}) as stream:
            stream.take(1)
            with llama_of_one.frozen():
                one = pool.submit(converse, served, tokens(10, 300))
                served.until(lambda: served.router.turns.waiting == 1)
                other = pool.submit(converse, served, tokens(20, 300))
                served.until(lambda: served.router.turns.waiting == 2)
        answers = [*one.result(SECONDS), *other.result(SECONDS)]
        assert all(answer.facts.outcome is Outcome.DONE and not answer.facts.stale for answer in answers)
        cold = [number for number, answer in enumerate(one.result()) if answer.counts[0] < 200]
        assert cold == list(range(0, TURNS, in_a_row))
        turns = served.stats()["turns"]
        assert (turns["let_pass"] > 0) == (in_a_row > 1)
        assert turns["waiting"] == served.in_flight() == 0


def test_who_waits_is_bound_to_the_slot_that_comes_free_first(
    llama_of_two: LlamaServer, mini: toktier.Tokenizer
) -> None:
    with Served(llama_of_two.url, tokenizer=mini) as served, ThreadPoolExecutor(1) as pool:
        with served.streaming("/completion", {"prompt": tokens(1, 50), **LONG}) as first:
            first.take(1)
            with served.streaming("/completion", {"prompt": tokens(2, 50), **LONG}) as second:
                second.take(1)
                with llama_of_two.frozen():
                    third = pool.submit(served.complete, tokens(3, 50))
                    served.until(lambda: served.router.turns.waiting == 1)
                    assert [row["requests"] for row in served.slots()] == [1, 1]
            answer = third.result(SECONDS)  # while the first is still generating
            assert served.in_flight() == 1
        assert (answer.facts.slot, answer.facts.choice) == (1, Choice.LEAST_RECENT)
        assert answer.facts.router_ms is not None
        assert answer.facts.first_byte_ms is not None
        assert answer.facts.router_ms < answer.facts.first_byte_ms


@pytest.mark.ci
def test_eight_conversations_at_once_on_two_slots_reuse_most_and_are_all_answered(
    llama_of_two: LlamaServer, mini: toktier.Tokenizer
) -> None:
    with Served(llama_of_two.url, tokenizer=mini) as served, ThreadPoolExecutor(8) as pool:
        begun(served)
        prompts = [tokens(100 + number, 600) for number in range(8)]
        answers = [a for one in pool.map(lambda prompt: converse(served, prompt), prompts) for a in one]
        assert all(answer.facts.outcome is Outcome.DONE and not answer.facts.stale for answer in answers)
        reused = sum(answer.counts[0] for answer in answers)
        assert reused > 0.4 * sum(sum(answer.counts) for answer in answers)  # in order: next to nothing
        turns = served.stats()["turns"]
        assert turns["waited"] > 0
        assert turns["let_pass"] > 0
        assert turns["waiting"] == turns["left"] == served.in_flight() == 0


def renders(fake: FakeUpstream, mark: str) -> None:
    """A template of its own, and an answer to every chat."""

    async def template(seen: Seen, writer: asyncio.StreamWriter) -> None:
        await reply({"prompt": mark + "".join(message["content"] for message in seen.json["messages"])})(seen, writer)

    fake.answers["/apply-template"] = template
    fake.answers["/v1/chat/completions"] = reply({"choices": [{"message": {"content": mark}, "index": 0}]})


@pytest.mark.parametrize("asked", [True, False])
def test_an_upstream_that_is_lost_while_it_renders_a_chat_again_costs_it_nothing(
    fake: FakeUpstream, mini: toktier.Tokenizer, monkeypatch: pytest.MonkeyPatch, asked: bool
) -> None:
    """It was rendered by the first, and had its turn at the second, whose template is another. `asked`: whether that
    is lost by its answer, or is found to be down before."""
    with fake_beside(tokenize=fake.tokenize) as other:
        renders(fake, "one ")
        renders(other, "other ")
        with Served(fake.url, other.url, tokenizer=mini, turns_in_a_row=1) as served:
            before = len(other.seen)
            other.answers["/apply-template"] = raw(b"")
            prepare = served.router.prepare

            async def is_down(*arguments: Any, only: Upstream | None = None) -> Any:
                if only is not None and not asked:
                    raise served.router.no_upstream()
                return await prepare(*arguments, only=only)

            monkeypatch.setattr(served.router, "prepare", is_down)
            # A request for each slot of the first: the second is the cheaper one.
            first, *_ = [served.call(functools.partial(_occupied, served, slot)) for slot in range(4)]
            with ThreadPoolExecutor(1) as pool:
                chat = pool.submit(served.chat, "Say something.")
                served.until(lambda: served.router.turns.waiting == 1)  # for the first, as the second was lost
                served.call(functools.partial(_ended, served, first))
                answered = chat.result(SECONDS)
            posted = {seen.path for seen in other.seen[before:] if seen.method == "POST"}
            assert ("/apply-template" in posted) == asked
            assert (answered.status, answered.facts.upstream) == (200, 0)
            assert served.in_flight() == 3


async def _occupied(served: Served, slot: int) -> Reservation:
    return served.router.table.reserve(0, slot, [1, 2, 3], limit=1)


async def _ended(served: Served, reservation: Reservation) -> None:
    served.router.table.settle(reservation, finished=True)
    served.router.turns.ended(reservation, whole=True)
