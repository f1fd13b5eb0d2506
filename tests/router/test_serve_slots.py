"""The whole router where a slot is not what it was asked for, or not free: cases D11, D12, D13, D18 and D19."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import toktier
from tests.router.fake_upstream import FakeUpstream, completed, reply
from tests.router.served_router import SECONDS, Served
from tests.router.upstream_calls import other, tokens
from tests.support.llama_server import LlamaServer
from toktier.router.vocabulary import Choice, Ids, Outcome, Reuse, Unrouted

A = tokens(1, 100)


def asked(fake: FakeUpstream) -> dict[str, Any]:
    """The last completion that it was asked for; health checks may have come since."""
    body: dict[str, Any] = next(seen for seen in reversed(fake.seen) if seen.path == "/completion").json
    return body


def says(fake: FakeUpstream, cached: int, evaluated: int, slot: int, **more: object) -> None:
    fake.answers["/completion"] = reply(completed(cached, evaluated, slot, **more))


# D11


def test_d11_what_another_slot_answered_is_known_of_that_one(fake: FakeUpstream, mini: toktier.Tokenizer) -> None:
    with Served(fake.url, tokenizer=mini) as served:
        says(fake, 0, 100, slot=2)
        answered = served.complete(A)
        assert asked(fake)["id_slot"] == 0
        assert answered.facts.slot == 2
        assert [row[0] for row in served.held()] == ["empty", "empty", "known", "empty"]
        says(fake, 99, 1, slot=2)
        again = served.complete(A)
        assert asked(fake)["id_slot"] == 2
        assert (again.facts.predicted, again.facts.measured, again.facts.reuse) == (99, 99, Reuse.HIT)


def test_d11_a_slot_that_is_none_teaches_nothing(fake: FakeUpstream, mini: toktier.Tokenizer) -> None:
    with Served(fake.url, tokenizer=mini) as served:
        says(fake, 0, 100, slot=7)
        answered = served.complete(A)
        assert answered.facts.outcome is Outcome.DONE
        assert all(tokens == 0 for _, tokens, _ in served.held())
        served.until_settled()


def test_d11_a_server_that_has_fewer_slots_since_it_was_restarted(
    start_llama: Callable[..., LlamaServer], mini: toktier.Tokenizer
) -> None:
    server = start_llama()
    with Served(server.url, tokenizer=mini) as served:
        prompts = [tokens(50 + number, 100) for number in range(4)]
        assert [served.complete(prompt).facts.slot for prompt in prompts] == [0, 1, 2, 3]
        server.flags = ["--parallel", "2"]
        server.restart()
        answered = served.complete(prompts[3])
        assert answered.counts == (0, 100)
        assert answered.facts.slot in (0, 1)
        assert answered.facts.reuse is Reuse.MISS
        # What came back made it suspect, and it is asked at once who it is.
        served.until_restarted()
        assert len(served.slots()) == 2
        later = served.complete(prompts[0])
        assert later.counts == (0, 100)
        assert (later.facts.predicted, later.facts.stale) == (0, False)


# D12, D13


def test_d12_prompts_that_begin_alike_and_come_together_use_two_slots(
    llama_of_two: LlamaServer, mini: toktier.Tokenizer
) -> None:
    common = tokens(60, 300)
    with (
        Served(llama_of_two.url, tokenizer=mini) as served,
        served.streaming(
            "/completion", {"prompt": [*common, 1], "n_predict": 3000, "temperature": 0, "ignore_eos": True}
        ) as first,
    ):
        first.take(1)
        second = served.complete([*common, 2])
        assert second.counts == (0, 301)
        assert second.facts.choice is Choice.LEAST_RECENT
        assert second.facts.slot == 1
        assert served.in_flight() == 1


def test_d12_d13_where_there_is_one_slot_the_second_waits_and_both_are_answered(
    llama_of_one: LlamaServer, mini: toktier.Tokenizer
) -> None:
    common = tokens(61, 300)
    with Served(llama_of_one.url, tokenizer=mini) as served, ThreadPoolExecutor(1) as pool:
        with served.streaming(
            "/completion", {"prompt": [*common, 1], "n_predict": 600, "temperature": 0, "ignore_eos": True}
        ) as first:
            first.take(1)
            with llama_of_one.frozen():
                second = pool.submit(served.complete, [*common, 2])
                served.until(lambda: served.router.turns.waiting == 1)
            *_, last = first.events()
            assert last["timings"]["predicted_n"] == 600
        waited = second.result(SECONDS)
        assert waited.counts == (300, 1)
        assert (waited.facts.predicted, waited.facts.measured, waited.facts.stale) == (300, 300, False)
        assert waited.facts.choice is Choice.EXACT
        served.until_settled()
        assert served.held() == [("known", 308, 308)]


def test_d13_a_busy_slot_is_waited_for_only_where_that_costs_less(
    llama_of_two: LlamaServer, mini: toktier.Tokenizer
) -> None:
    """Rates are set, so that the load of the machine decides nothing: a generated token costs as much as 8 of a prompt,
    and requests generate 104 on average: 1,664 tokens, as each of waiting counts twice. To evaluate anew takes 240 s by
    these rates, for which it waits at most. What a slot is busy with would take seconds, and is left when that was
    seen."""

    def busy_with(prompt: list[int]) -> dict[str, object]:
        return {"prompt": prompt, "n_predict": 1600, "temperature": 0, "ignore_eos": True}

    short, long = tokens(62, 400), tokens(63, 2400)
    with Served(llama_of_two.url, tokenizer=mini) as served, ThreadPoolExecutor(1) as pool:

        def set_rates() -> None:
            rates = served.router.table.rates(0)
            assert rates is not None
            rates.prefill, rates.generation, rates.generated = 10.0, 1.25, 104.0
            rates.measured = lambda **_: None  # type: ignore[method-assign]

        with served.streaming("/completion", busy_with(short)) as first:
            first.take(1)
            set_rates()
            beside = served.complete([*short, 5])
            assert beside.counts == (0, 401)
        served.until(lambda: not served.in_flight())
        llama_of_two.until_idle()
        with served.streaming("/completion", busy_with(long)) as first:
            first.take(1)
            set_rates()
            with llama_of_two.frozen():
                second = pool.submit(served.complete, [*long, 5])
                served.until(lambda: served.router.turns.waiting == 1)
            # Meanwhile the other slot answers somebody else.
            assert served.complete(tokens(64, 50)).facts.outcome is Outcome.DONE
            assert not second.done()
        assert second.result(SECONDS).counts == (2400, 1)


def test_d12_many_at_once_are_all_answered(llama_of_two: LlamaServer, mini: toktier.Tokenizer) -> None:
    common = tokens(65, 300)
    with Served(llama_of_two.url, tokenizer=mini) as served, ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda number: served.complete([*common, number]), range(12)))
        assert all(one.facts.outcome is Outcome.DONE for one in answers)
        assert all(sum(one.counts) == 301 for one in answers)
        assert sum(one.facts.stale for one in answers) == 0
        served.until_settled()
        assert served.stats()["requests"] == 12


# D18


def test_d18_the_record_has_what_was_measured_and_a_stale_slot_is_marked(
    fake: FakeUpstream, mini: toktier.Tokenizer
) -> None:
    with Served(fake.url, tokenizer=mini) as served:
        says(fake, 0, 100, slot=0)
        served.complete(A)
        says(fake, 3, 97, slot=0)
        answered = served.complete(A)
        assert (answered.facts.predicted, answered.facts.measured) == (99, 3)
        assert (answered.facts.reuse, answered.facts.stale) == (Reuse.SOFT_HIT, True)
        stats = served.stats()
        assert (stats["stale"], stats["hit_rate"], stats["tokens"]["saved"]) == (1, 0, 3)
        assert served.slots()[0]["reuses"] == 0
        assert served.held()[0] == ("known", 102, 102)  # what it holds now is of this request


@pytest.mark.parametrize(
    "timings",
    [
        {"cache_n": 100, "prompt_n": 0},
        {"cache_n": 5000, "prompt_n": 1},
        {"cache_n": -1, "prompt_n": 100},
        {"cache_n": "99", "prompt_n": 1},
        {"cache_n": 99.0, "prompt_n": 1},
        {"cache_n": True, "prompt_n": 1},
        {"cache_n": None, "prompt_n": 100},
        {},
    ],
    ids=lambda timings: str(timings.get("cache_n", "none")),
)
def test_d18_a_figure_that_cannot_be_is_no_hit(
    fake: FakeUpstream, mini: toktier.Tokenizer, timings: dict[str, object]
) -> None:
    with Served(fake.url, tokenizer=mini) as served:
        says(fake, 0, 100, slot=0)
        served.complete(A)
        fake.answers["/completion"] = reply({**completed(0, 100, 0), "timings": timings})
        answered = served.complete(A)
        assert answered.json["timings"] == timings
        assert (answered.facts.measured, answered.facts.reuse) == (None, Reuse.UNMEASURED)
        assert answered.facts.stale is False
        assert served.stats()["hit_rate"] == 0  # of what was measured


def test_d18_more_than_was_known_is_believed_and_no_sign_of_anything(
    fake: FakeUpstream, mini: toktier.Tokenizer
) -> None:
    with Served(fake.url, tokenizer=mini) as served:
        says(fake, 50, 50, slot=0)
        answered = served.complete(A)
        assert (answered.facts.predicted, answered.facts.measured, answered.facts.reuse) == (0, 50, Reuse.HIT)
        assert answered.facts.stale is False


def test_d18_a_slot_that_was_emptied_behind_the_routers_back_is_stale_once(
    llama: LlamaServer, mini: toktier.Tokenizer
) -> None:
    with Served(llama.url, tokenizer=mini) as served:
        slot = served.complete(A).facts.slot
        llama.post(f"/slots/{slot}?action=erase", {})
        answered = served.complete(A)
        assert answered.counts == (0, 100)
        assert (answered.facts.slot, answered.facts.predicted, answered.facts.measured) == (slot, 99, 0)
        assert (answered.facts.reuse, answered.facts.stale) == (Reuse.MISS, True)
        again = served.complete(A)
        assert (again.facts.predicted, again.facts.measured, again.facts.stale) == (99, 99, False)
        assert served.stats()["stale"] == 1


# D19


def test_d19_what_the_host_keeps_beside_slots_is_recorded_as_measured(
    start_llama: Callable[..., LlamaServer], mini: toktier.Tokenizer
) -> None:
    server = start_llama("--parallel", "2", "--cache-ram", "256")
    a = tokens(70, 231)
    b = [*a[:74], other(a[74]), *tokens(71, 156)]
    with Served(server.url, tokenizer=mini) as served:
        assert any("--cache-ram 0" in note for note in served.upstream_rows()[0]["notes"])
        first = served.complete(a)
        served.complete(b)
        answered = served.complete(a)
        assert answered.counts == (230, 1)
        assert (answered.facts.predicted, answered.facts.measured) == (0, 230)
        assert (answered.facts.reuse, answered.facts.stale) == (Reuse.HIT, False)
        # Its IDs are toktier's; pinned it is not, nor is it known what the slots hold.
        assert (answered.facts.choice, answered.facts.unrouted) == (Choice.UNROUTED, Unrouted.HOST_CACHE)
        assert answered.facts.ids is Ids.SENT
        assert answered.json["content"] == first.json["content"]
        assert {state for state, _, _ in served.held()} <= {"empty", "unknown"}
        assert served.stats()["unrouted"]["host_cache"] == 3


def test_d19_without_it_the_common_prefix_is_reused(llama_of_one: LlamaServer, mini: toktier.Tokenizer) -> None:
    a = tokens(70, 231)
    b = [*a[:74], other(a[74]), *tokens(71, 156)]
    with Served(llama_of_one.url, tokenizer=mini) as served:
        served.complete(a)
        served.complete(b)
        answered = served.complete(a)
        assert answered.counts == (74, 157)
        assert (answered.facts.predicted, answered.facts.measured) == (74, 74)
