"""What the router calls certain is what slots hold, by real servers: whatever passed there, and however it ended.

Each case is followed by a health check, which compares lengths, and by a prompt that goes on from what is certain, of
which the server reuses all. Not here: the table by itself (`test_slots`, `test_slots_model`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import toktier
from tests.router.served_router import ROUTES, Served
from tests.router.upstream_calls import tokens
from tests.support.llama_server import LlamaServer
from toktier.router.vocabulary import Ids, Outcome

A = tokens(1, 100)
SPLIT = 'root ::= "a🙂é世界🙂 b"'  # characters of several tokens of the vocabulary
TALK = [{"role": "user", "content": "hello there my dear friend of old"}]


def certain(served: Served, server: LlamaServer) -> list[int]:
    """Of each slot how many tokens are certain, once the server has confirmed them; at the end of a test, for it
    lengthens what slots hold."""

    async def check() -> None:
        upstream = served.router.upstreams[0]
        await served.router._probe(upstream)

    async def contents() -> list[Any]:
        return [slot.content for slot in served.router.table._upstreams[0].slots]

    served.until(lambda: not served.in_flight())
    server.until_idle()
    before = [sure for _, _, sure in served.held()]
    served.call(check)
    assert [sure for _, _, sure in served.held()] == before
    found = served.call(contents)
    for slot, content in enumerate(found):
        if content is not None and content.sure:
            sure = content.ids[: content.sure].tolist()
            timings = server.post("/completion", {"prompt": [*sure, 3], "id_slot": slot, "n_predict": 0})["timings"]
            assert timings["cache_n"] == len(sure)
    return [0 if content is None else content.sure for content in found]


@pytest.mark.parametrize("limit", [30, 2])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", ROUTES)
def test_characters_of_several_tokens(
    llama: LlamaServer, mini: toktier.Tokenizer, path: str, stream: bool, limit: int
) -> None:
    body: dict[str, Any] = {"messages": TALK} if "chat" in path else {"prompt": A}
    body |= {"grammar": SPLIT, "n_predict" if path == "/completion" else "max_tokens": limit, "stream": stream}
    with Served(llama.url, tokenizer=mini) as served:
        asked = served.ask(path, {**body, "temperature": 0})
        assert asked.facts.outcome is Outcome.DONE
        assert max(certain(served, llama)) >= asked.facts.prompt_tokens


@pytest.mark.parametrize("fields", [["content"], ["tokens"], ["timings"], ["model"]])
def test_answers_with_the_members_that_a_client_names(
    llama: LlamaServer, mini: toktier.Tokenizer, fields: list[str]
) -> None:
    with Served(llama.url, tokenizer=mini) as served:
        served.complete(A, response_fields=fields)
        assert max(certain(served, llama)) >= len(A)


@pytest.mark.parametrize("left", [False, True])
def test_slots_that_a_request_took_by_itself(llama: LlamaServer, mini: toktier.Tokenizer, left: bool) -> None:
    """Several prompts, whose client may be gone as soon as it has its answer, or before."""
    with Served(llama.url, tokenizer=mini) as served:
        for seed in range(1, 5):
            served.complete(tokens(seed, 100))
        assert served.held() == [("known", 107, 107)] * 4
        body = {"prompt": [tokens(6, 40), tokens(7, 40)], "n_predict": 1900 if left else 4, "temperature": 0}
        before = len(served.requests)
        client = served.begin("/completion", {**body, "stream": left, "ignore_eos": left})
        assert client.socket.recv(1)
        client.socket.close()
        served.recorded(lambda: len(served.requests) > before)
        llama.until_idle()
        assert served.requests[-1].outcome is (Outcome.DISCONNECTED if left else Outcome.DONE)
        kept = certain(served, llama)
        assert sum(one > 0 for one in kept) <= 2


@pytest.mark.parametrize("path", ["/completion", "/v1/chat/completions"])
@pytest.mark.parametrize("shift", [True, False])
@pytest.mark.parametrize("leave", [True, False])
def test_slots_that_were_full(
    start_llama: Callable[..., LlamaServer], mini: toktier.Tokenizer, path: str, shift: bool, leave: bool
) -> None:
    server = start_llama("--parallel", "1", "--ctx-size", "256", *(["--context-shift"] if shift else []))
    chat = {"messages": [{"role": "user", "content": "hello there " * 40}], "max_tokens": 200}
    body = chat if "chat" in path else {"prompt": tokens(1, 150), "n_predict": 200}
    with Served(server.url, tokenizer=mini) as served:
        with served.streaming(path, {**body, "temperature": 0, "ignore_eos": True}) as stream:
            for count, _ in enumerate(stream.events()):
                if leave and count == 40:
                    break
        served.recorded(lambda: served.requests)
        if leave:  # before the end or behind it, which is the server's to say
            certain(served, server)
        elif shift:
            assert certain(served, server) == [0]
        else:  # it ended where the slot was full, and has lost nothing
            again = served.ask(path, {**body, "max_tokens": 1, "n_predict": 1})
            assert again.facts.measured == again.facts.predicted == again.facts.prompt_tokens - 1


def test_servers_of_one_model_that_render_otherwise(
    start_llama: Callable[..., LlamaServer], mini: toktier.Tokenizer
) -> None:
    """A chat is rendered by the one that answers it."""
    turn = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>"
    servers = [start_llama("--parallel", "1", "--chat-template", turn + name) for name in ("assistant", "assistans")]
    with Served(*(server.url for server in servers), tokenizer=mini) as served:
        barrier = threading.Barrier(2)

        def ask(text: str) -> None:
            barrier.wait()
            served.chat(text * 30)

        threads = [threading.Thread(target=ask, args=(text,)) for text in ("alpha beta ", "gamma delta ")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {one.upstream for one in served.requests} == {0, 1}
        assert {one.ids for one in served.requests} == {Ids.AGREED}
        for number, server in enumerate(servers):

            async def content(number: int = number) -> list[int]:
                held = served.router.table._upstreams[number].slots[0].content
                assert held is not None
                ids: list[int] = held.ids[: held.sure].tolist()
                return ids

            sure = served.call(content)
            body = {"prompt": [*sure, 3], "id_slot": 0, "n_predict": 0}
            assert server.post("/completion", body)["timings"]["cache_n"] == len(sure)
