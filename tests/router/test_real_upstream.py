"""One real llama-server behind `Upstream`, bodies and relay: what slots hold, and what its answers say of it.

The cases D1 to D24 of a prefix-affine router that concern one upstream; the choice of a slot is tested elsewhere.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable

import httpx
import pytest

import toktier
from tests.router.upstream_calls import PATIENT, Result, complete, other, run, tokens, with_upstream
from tests.support.llama_server import LlamaServer
from toktier.router.agreement import fits
from toktier.router.ram_cache import LENGTH, RAM_CACHE_ON
from toktier.router.upstream import Route, Upstream
from toktier.router.vocabulary import Reuse, UpstreamState

A = tokens(1, 100)


def test_a_process_is_known_by_what_it_says(llama: LlamaServer) -> None:
    async def use(upstream: Upstream) -> None:
        facts = upstream.facts
        assert facts is not None
        assert (facts.total_slots, facts.n_ctx, facts.model) == (4, 2048, llama.alias)
        assert facts.n_vocab == 1216
        assert facts.process is not None
        assert facts.shows_slots
        assert upstream.epoch == 1
        assert upstream.notes == ()
        assert [slot.id for slot in await upstream.slots()] == [0, 1, 2, 3]

    with_upstream(llama.url, use)


def test_d1_d2_d3_a_slot_holds_the_prompt_and_all_generated_tokens_but_the_last(llama: LlamaServer) -> None:
    async def use(upstream: Upstream) -> None:
        first = await complete(upstream, A, 0)
        assert first.counts == (0, 100)
        assert first.reuse is Reuse.MISS
        assert first.answer.id_slot == 0
        assert first.answer.generated == len(first.answer.ids) == 8
        again = await complete(upstream, A, 0)
        assert again.counts == (99, 1)
        assert again.reuse is Reuse.HIT
        assert again.answer.ids == first.answer.ids
        assert (await upstream.slots())[0].tokens == 107
        turn = await complete(upstream, [*A, *again.answer.ids, *tokens(2, 20)], 0)
        assert turn.counts == (107, 21)

    with_upstream(llama.url, use)


@pytest.mark.parametrize(
    ("common", "reuse"),
    [
        (0, Reuse.MISS),
        (1, Reuse.SOFT_HIT),
        (5, Reuse.SOFT_HIT),
        (9, Reuse.SOFT_HIT),
        (10, Reuse.HIT),
        (11, Reuse.HIT),
        (50, Reuse.HIT),
    ],
)
def test_d4_d5_the_longest_common_prefix_is_reused(llama: LlamaServer, common: int, reuse: Reuse) -> None:
    async def use(upstream: Upstream) -> None:
        await complete(upstream, A, 1)
        prompt = [*A[:common], other(A[common]), *tokens(3, 59)]
        result = await complete(upstream, prompt, 1)
        assert result.counts == (common, 60)
        assert result.reuse is reuse

    with_upstream(llama.url, use)


def test_d6_a_shorter_prompt_truncates_what_the_slot_holds(llama: LlamaServer) -> None:
    async def use(upstream: Upstream) -> None:
        await complete(upstream, A[:60], 2)
        assert (await complete(upstream, A[:30], 2)).counts == (29, 1)
        assert (await upstream.slots())[2].tokens == 37
        assert (await complete(upstream, A[:60], 2)).answer.cached == 30

    with_upstream(llama.url, use)


def test_d7_nothing_behind_the_first_difference_is_reused(llama: LlamaServer) -> None:
    async def use(upstream: Upstream) -> None:
        prompt = tokens(4, 120)
        await complete(upstream, prompt, 0)
        inserted = [*prompt[:40], other(prompt[40]), *tokens(5, 2), *prompt[40:]]
        assert (await complete(upstream, inserted, 0)).counts == (40, 83)

    with_upstream(llama.url, use)


def test_d11_a_slot_that_is_none_is_replaced_silently_and_the_answer_says_by_which(llama: LlamaServer) -> None:
    async def use(upstream: Upstream) -> None:
        result = await complete(upstream, A, 9)
        assert result.status == 200
        assert result.answer.id_slot in (0, 1, 2, 3)

    with_upstream(llama.url, use)


@pytest.mark.parametrize("native", [True, False])
def test_d14_leaving_a_stream_ends_the_generation_and_keeps_what_was_evaluated(
    llama: LlamaServer, native: bool
) -> None:
    async def use(upstream: Upstream) -> None:
        body = json.dumps(
            {"prompt": A, "n_predict": 1900, "stream": True, "id_slot": 0, "temperature": 0, "ignore_eos": True}
        ).encode()
        async with upstream.open(Route.COMPLETION if native else Route.COMPLETIONS, body, stream=True) as passage:
            chunks = aiter(passage.chunks())
            for _ in range(4):
                await anext(chunks)
        slots = llama.until_idle()
        held = slots[0]["n_prompt_tokens"]
        assert 100 < held < 1900
        assert (await complete(upstream, [*A, 1, 2, 3], 0)).answer.cached in (100, 101, 102)

    with_upstream(llama.url, use)


@pytest.mark.ci
def test_cancelling_a_task_that_waits_for_the_first_byte_ends_the_generation(
    start_llama: Callable[..., LlamaServer],
) -> None:
    """llama-server looks after the connection of an answer in one piece when for a second no result of any request has
    come: it must not be asked more often."""
    server = start_llama("--parallel", "1", "--ctx-size", "32768")

    async def use(upstream: Upstream) -> None:
        body = json.dumps({"prompt": A, "n_predict": 30_000, "id_slot": 0, "ignore_eos": True}).encode()

        async def wait_for_it() -> None:
            async with upstream.open(Route.COMPLETION, body, stream=False):
                raise AssertionError("it was to be cancelled before")

        task = asyncio.create_task(wait_for_it())
        while not server.slots()[0]["is_processing"]:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        slots = server.until_idle(every=1.3)
        assert slots[0]["n_prompt_tokens"] < 30_000
        assert upstream.state is UpstreamState.UP

    with_upstream(server.url, use)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("native", [True, False])
def test_d15_a_prompt_beyond_the_context_is_refused_in_the_servers_words(
    llama: LlamaServer, native: bool, stream: bool
) -> None:
    async def use(upstream: Upstream) -> None:
        before = await upstream.slots()
        result = await complete(upstream, tokens(6, 3000), 0, native=native, stream=stream)
        assert result.status == 400
        assert result.json["error"]["type"] == "exceed_context_size_error"
        # A slot that had no task shows no count, and one whose task was refused shows none held.
        assert [s.tokens or 0 for s in await upstream.slots()] == [s.tokens or 0 for s in before]

    with_upstream(llama.url, use)


@pytest.mark.parametrize("native", [True, False])
def test_d16_an_empty_prompt_is_refused_in_the_servers_words(llama: LlamaServer, native: bool) -> None:
    async def use(upstream: Upstream) -> None:
        result = await complete(upstream, [], 0, native=native)
        assert result.status == 400
        assert result.json["error"]["type"] == "invalid_request_error"

    with_upstream(llama.url, use)


def test_d17_a_restart_is_seen_and_a_lost_connection_alone_is_not_one(
    start_llama: Callable[..., LlamaServer],
) -> None:
    server = start_llama()

    async def use(upstream: Upstream) -> None:
        await complete(upstream, A, 0)
        assert await upstream.probe() is UpstreamState.UP
        assert upstream.epoch == 1
        server.restart()
        assert await upstream.probe() is UpstreamState.UP
        assert upstream.epoch == 2
        assert (await complete(upstream, A, 0)).counts == (0, 100)

        body = json.dumps({"prompt": A, "n_predict": 1900, "stream": True, "ignore_eos": True}).encode()
        with pytest.raises(toktier.errors.UpstreamLost):  # noqa: PT012 - the kill belongs in the middle
            async with upstream.open(Route.COMPLETION, body, stream=True) as passage:
                async for _ in passage.chunks():
                    server.kill()
        assert upstream.state is UpstreamState.DOWN
        assert upstream.epoch == 2
        assert await upstream.probe() is UpstreamState.DOWN
        server.start()
        assert await upstream.probe() is UpstreamState.UP
        assert upstream.epoch == 3

    with_upstream(server.url, use)


def test_a_connection_that_is_lost_while_the_process_lives_keeps_the_epoch(llama: LlamaServer) -> None:
    async def use(upstream: Upstream) -> None:
        upstream.fault(httpx.ReadError("reset"))
        assert upstream.state is UpstreamState.DOWN
        assert await upstream.probe() is UpstreamState.UP
        assert upstream.epoch == 1

    with_upstream(llama.url, use)


def test_d19_the_cache_in_the_hosts_memory_is_seen_at_admission(start_llama: Callable[..., LlamaServer]) -> None:
    server = start_llama("--cache-ram", "64")

    async def use(upstream: Upstream) -> None:
        b = [*A[:30], *tokens(7, 70)]
        await complete(upstream, A, 0)
        await complete(upstream, b, 0)
        assert (await complete(upstream, A, 0)).answer.cached == 99
        assert any("--cache-ram 0" in note for note in upstream.notes)

    with_upstream(server.url, use)


def test_d19_without_that_cache_the_prefix_alone_is_reused(llama: LlamaServer) -> None:
    async def use(upstream: Upstream) -> None:
        b = [*A[:30], other(A[30]), *tokens(7, 69)]
        await complete(upstream, A, 0)
        assert (await complete(upstream, b, 0)).answer.cached == 30
        assert (await complete(upstream, A, 0)).answer.cached == 30
        assert upstream.notes == ()

    with_upstream(llama.url, use)


def test_d19_where_no_slot_is_empty_it_is_not_looked_for(llama: LlamaServer) -> None:
    for slot in range(4):
        llama.post("/completion", {"prompt": A, "id_slot": slot, "n_predict": 1})

    async def use(upstream: Upstream) -> None:
        assert any("could not be seen" in note for note in upstream.notes)
        assert (await complete(upstream, A, 3)).answer.cached == 99

    with_upstream(llama.url, use)


@pytest.mark.parametrize(("flags", "note"), [((), None), (("--cache-ram", "64"), RAM_CACHE_ON)], ids=["off", "on"])
def test_d19_a_router_that_begins_looks_for_it_in_a_slot_that_was_used(
    start_llama: Callable[..., LlamaServer], flags: tuple[str, ...], note: str | None
) -> None:
    """In the one that was used longest ago; and a second trial needs no slot but the one of the first."""
    server = start_llama("--parallel", "2", *flags)
    for slot in (1, 0):
        server.post("/completion", {"prompt": A, "id_slot": slot, "n_predict": 1})

    async def use(upstream: Upstream) -> None:
        assert list(upstream.notes) == ([] if note is None else [note])
        assert upstream.keeps_prompts == (note is not None)
        assert [slot.tokens for slot in await upstream.slots()] == [100, LENGTH]

    with_upstream(server.url, use, may_empty_a_slot=True)
    with_upstream(server.url, use)


def test_d20_embeddings_on_the_same_server_wipe_its_slots(start_llama: Callable[..., LlamaServer]) -> None:
    server = start_llama("--embeddings", "--pooling", "mean", "--parallel", "2")

    async def use(upstream: Upstream) -> None:
        await complete(upstream, A, 0)
        await complete(upstream, tokens(8, 100), 1)
        for text in ("one text", "another"):  # without a common prefix, so that they take one slot each
            server.post("/embedding", {"content": text})
        assert (await complete(upstream, A, 0)).answer.cached == 0
        assert (await complete(upstream, tokens(8, 100), 1)).answer.cached == 0

    with_upstream(server.url, use)


def test_d22_the_same_tokens_come_from_a_reused_prefix_and_from_a_cold_one(llama: LlamaServer) -> None:
    async def use(upstream: Upstream) -> None:
        for number in range(12):
            prompt = tokens(100 + number, 60)
            await complete(upstream, [*prompt[:40], other(prompt[40])], 0)
            warm = await complete(upstream, prompt, 0)
            cold = await complete(upstream, prompt, 1, cache_prompt=False)
            assert (warm.answer.cached, cold.answer.cached) == (40, 0)
            assert warm.answer.ids == cold.answer.ids

    with_upstream(llama.url, use)


def test_d23_shifted_chunks_are_never_asked_for_whatever_the_server_was_started_with(
    start_llama: Callable[..., LlamaServer],
) -> None:
    server = start_llama("--cache-reuse", "16")
    prompt = tokens(9, 120)
    shorter = [*prompt[:40], *prompt[60:]]

    async def use(upstream: Upstream) -> None:
        await complete(upstream, prompt, 0)
        kept = await complete(upstream, shorter, 0)
        cold = await complete(upstream, shorter, 1, cache_prompt=False)
        assert kept.answer.cached == 40
        assert kept.answer.ids == cold.answer.ids

    with_upstream(server.url, use)
    # Without the member the server shifts: the test would see it.
    server.post("/completion", {"prompt": prompt, "id_slot": 2, "n_predict": 1})
    shifted = server.post("/completion", {"prompt": shorter, "id_slot": 2, "n_predict": 1})
    assert shifted["timings"]["cache_n"] > 40


def test_an_answer_says_when_tokens_were_discarded_to_make_room(start_llama: Callable[..., LlamaServer]) -> None:
    server = start_llama("--context-shift", "--parallel", "1", "--ctx-size", "256")

    async def use(upstream: Upstream) -> None:
        for stream in (False, True):
            whole = await complete(upstream, A, 0, stream=stream, n_predict=40, ignore_eos=True)
            shifted = await complete(upstream, A, 0, stream=stream, n_predict=300, ignore_eos=True)
            assert (whole.answer.truncated, shifted.answer.truncated) == (False, True)

    with_upstream(server.url, use)


OPTIONS = [
    {},
    {"stream_options": {"include_usage": True}},
    {"timings_per_token": True},
    {"n_probs": 2},
    {"logprobs": 2},
]


@pytest.mark.parametrize("more", OPTIONS, ids=lambda more: next(iter(more), "plain"))
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("native", [True, False])
def test_a_client_gets_the_bytes_that_it_would_have_got(
    llama: LlamaServer, native: bool, stream: bool, more: dict[str, object]
) -> None:
    """Both answers are of a slot in the same state; what differs by nature is replaced in both."""
    if native and ("logprobs" in more or "stream_options" in more):
        more = {"n_probs": 1}

    async def use(upstream: Upstream) -> tuple[Result, bytes]:
        through = await complete(upstream, A, 0, native=native, stream=stream, **more)
        body = {"prompt": A, "n_predict" if native else "max_tokens": 8, "temperature": 0, "stream": stream, **more}
        llama.erase_slots()
        route = Route.COMPLETION if native else Route.COMPLETIONS
        return through, llama.client.post(route, json={**body, "id_slot": 0}).content

    through, plain = with_upstream(llama.url, use)
    assert _steady(through.body) == _steady(plain)
    assert len(through.answer.ids) == through.answer.generated
    assert through.answer.id_slot == 0
    assert through.answer.notes == ()
    assert through.answer.finished
    assert through.answer.prompt_tokens == 100


def _steady(body: bytes) -> list[object]:
    """The lines of an answer with their members in order, without what the clock, a counter or chance decides."""

    def steady(pairs: list[tuple[str, object]]) -> list[tuple[str, object]]:
        changing = ("id", "created")
        return [(k, "*" if k in changing or k.endswith(("_ms", "_per_second")) else v) for k, v in pairs]

    lines = body.decode().split("\n")
    return [
        json.loads(line.removeprefix("data: "), object_pairs_hook=steady) if "{" in line else line for line in lines
    ]


def test_d24_a_stream_of_a_chat_with_usage_passes_unchanged_and_is_counted(llama: LlamaServer) -> None:
    from toktier.router.bodies import read_chat
    from toktier.router.relay import StreamRelay

    body = {
        "messages": [{"role": "user", "content": "Say something."}],
        "max_tokens": 8,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    request = read_chat(json.dumps(body).encode())

    async def use(upstream: Upstream) -> tuple[bytes, object]:
        for _ in range(2):
            async with upstream.open(Route.CHAT, request.upstream_body(1), stream=True) as passage:
                relay = StreamRelay(request.cut)
                passed = b"".join([relay.feed(chunk) async for chunk in passage.chunks()]) + relay.finish()
        answer = relay.answer()
        assert answer.id_slot == 1
        assert answer.prompt_tokens is not None
        assert answer.cached == answer.prompt_tokens - 1
        assert answer.finished
        assert answer.notes == ()
        return passed, answer.text

    passed, text = with_upstream(llama.url, use)
    llama.erase_slots()
    llama.post("/v1/chat/completions", {**body, "stream": False, "id_slot": 1})
    plain = llama.client.post(Route.CHAT, json={**body, "id_slot": 1}).content
    assert _steady(passed) == _steady(plain)
    assert b"__verbose" not in passed
    last = [json.loads(line[6:]) for line in passed.decode().split("\n") if line.startswith("data: {")][-1]
    assert last["usage"]["prompt_tokens_details"]["cached_tokens"] == last["timings"]["cache_n"]
    assert text


def test_no_request_is_lost_to_a_connection_that_the_server_closes_after_a_stream(llama: LlamaServer) -> None:
    async def use(upstream: Upstream) -> None:
        for number in range(60):
            result = await complete(upstream, A[:5], 0, stream=number % 3 < 2, n_predict=1)
            assert result.answer.finished
            await upstream.slots()

    with_upstream(llama.url, use)


def test_a_client_that_asks_for_verbose_gets_it_as_it_would_have(llama: LlamaServer) -> None:
    async def use(upstream: Upstream) -> Result:
        return await complete(upstream, A, 0, native=False, verbose=True)

    through = with_upstream(llama.url, use)
    llama.erase_slots()
    body = {"prompt": A, "max_tokens": 8, "temperature": 0, "stream": False, "verbose": True, "id_slot": 0}
    plain = llama.client.post(Route.COMPLETIONS, json=body)
    assert "__verbose" in through.json
    assert _steady(through.body) == _steady(plain.content)


def test_a_server_whose_vocabulary_is_this_one_is_admitted(llama: LlamaServer, mini: toktier.Tokenizer) -> None:
    async def use(upstream: Upstream) -> None:
        assert upstream.notes == ()

    with_upstream(llama.url, use, admission=lambda upstream: fits(upstream, mini))


def test_a_frozen_server_is_down_after_the_time_out_and_the_same_one_when_it_thaws(
    start_llama: Callable[..., LlamaServer],
) -> None:
    from toktier.router.upstream import Timeouts

    server = start_llama()

    async def main() -> None:
        upstream = Upstream(0, server.url, timeouts=PATIENT)
        try:
            assert await upstream.probe() is UpstreamState.UP
            upstream.timeouts = Timeouts(question=0.2)
            server.freeze()
            begun = time.monotonic()
            assert await upstream.probe() is UpstreamState.DOWN
            assert time.monotonic() - begun >= 0.2
            server.thaw()
            upstream.timeouts = PATIENT
            assert await upstream.probe() is UpstreamState.UP
            assert upstream.epoch == 1
        finally:
            server.thaw()
            await upstream.close()

    run(main())


def test_a_server_that_wants_a_key_is_refused_without_it_and_used_with_it(
    start_llama: Callable[..., LlamaServer],
) -> None:
    server = start_llama("--api-key", "a-key")

    async def main() -> None:
        without = Upstream(0, server.url, timeouts=PATIENT)
        wrong = Upstream(1, server.url, timeouts=PATIENT, api_key="another")
        right = Upstream(2, server.url, timeouts=PATIENT, api_key="a-key")
        try:
            for upstream in (without, wrong):
                assert await upstream.probe() is UpstreamState.REFUSED
                assert "API key" in upstream.notes[0]
            assert await right.probe() is UpstreamState.UP
            assert (await complete(right, A, 0)).status == 200
        finally:
            for upstream in (without, wrong, right):
                await upstream.close()

    run(main())


def test_a_server_that_hides_its_slots_is_used_with_a_note(start_llama: Callable[..., LlamaServer]) -> None:
    server = start_llama("--no-slots")

    async def use(upstream: Upstream) -> None:
        assert upstream.facts is not None
        assert not upstream.facts.shows_slots
        assert "--no-slots" in upstream.notes[0]
        assert await upstream.slots() == []

    with_upstream(server.url, use)
