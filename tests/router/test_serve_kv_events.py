"""KV events of the whole router: a subscriber holds what the slots of a real llama-server hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import toktier
from tests.router.event_sockets import ANY, joined
from tests.router.served_router import Served
from tests.router.upstream_calls import tokens
from tests.support.llama_server import LlamaServer

BLOCK = 16


def test_subscribers_hold_what_the_slots_hold(context: Any, llama: LlamaServer, mini: toktier.Tokenizer) -> None:
    with Served(llama.url, tokenizer=mini, kv_events=ANY, kv_block_size=BLOCK) as served:
        assert served.router.kv_events is not None
        reader = joined(context, served.router.kv_events)
        prompt = tokens(1, 100)
        generated = served.complete(prompt, native=True, return_tokens=True).json["tokens"]
        content = [*prompt, *generated][:-1]
        reader.read_until_it_holds([content], BLOCK)

        other = served.complete(tokens(2, 50), native=True, return_tokens=True).json["tokens"]
        second = [*tokens(2, 50), *other][:-1]
        reader.read_until_it_holds([content, second], BLOCK)

        # The slot of the first goes on elsewhere from its 90th token on, and holds nothing of the old end.
        turn = [*prompt[:90], *tokens(3, 30)]
        answer = served.complete(turn, native=True, return_tokens=True)
        assert answer.counts == (90, 30)
        replaced = [*turn, *answer.json["tokens"]][:-1]
        reader.read_until_it_holds([replaced, second], BLOCK)
        assert served.stats()["kv_events"]["batches"] > 0


def test_a_restart_clears_what_was_published(
    context: Any, start_llama: Callable[..., LlamaServer], mini: toktier.Tokenizer
) -> None:
    server = start_llama()
    with Served(server.url, tokenizer=mini, kv_events=ANY, health_seconds=0.05) as served:
        assert served.router.kv_events is not None
        reader = joined(context, served.router.kv_events)
        served.complete(tokens(1, 100))
        reader.read_until(lambda index: bool(index.prefixes))
        server.kill()
        server.start()
        reader.read_until(lambda index: not index.prefixes)
