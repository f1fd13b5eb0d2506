"""What reuse saves of the prefill of conversations that share a few slots, by who chooses the slot.

Every turn is asked of a server that was just started, in each mode with the same prompts: the answers in a history are
those of the mode without reuse, so that one different answer does not change what is asked after it. Answers are
compared, by token IDs where the route gives them. Not here: servers and models, what is printed.
"""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from router_client import Answer, Client
from router_conversations import Turn, messages, order
from server_processes import Server
from slot_optimum import most_spared

from toktier import Tokenizer

COLD: Final = "no reuse"
AT_ONCE, WITH_PAUSES = "at once", "with pauses"  # every conversation is a client of its own
PAUSE_SECONDS: Final = 0.5  # between an answer and the next question, on average

Start = Callable[[], AbstractContextManager[Server]]


@dataclass(frozen=True)
class Traffic:
    """`asked`: of each conversation, what the user says turn by turn; `most`: tokens of an answer."""

    system: str
    asked: list[list[str]]
    most: int

    def history(self, turn: Turn, answers: dict[Turn, Answer]) -> list[dict[str, str]]:
        """The messages that are sent with a turn."""
        earlier = [answers[Turn(turn.conversation, number)].text for number in range(turn.number)]
        sent = messages(self.system, self.asked[turn.conversation], earlier, turn.number)
        return [message._asdict() for message in sent]

    def every(self) -> list[Turn]:
        return order("round robin", len(self.asked), len(self.asked[0]))


@dataclass
class Reference:
    """The answers of a server that reuses nothing, with the prompts as text and as IDs."""

    answers: dict[Turn, Answer] = field(default_factory=dict)
    texts: dict[Turn, str] = field(default_factory=dict)
    prompts: dict[Turn, Any] = field(default_factory=dict)

    def left(self, turn: Turn) -> Any:
        """What a slot holds behind a turn: the last token generated is not evaluated any more."""
        return np.concatenate((self.prompts[turn], np.array(self.answers[turn].ids[:-1], dtype=np.uint32)))


def reference(server: Server, traffic: Traffic, tokenizer: Tokenizer) -> Reference:
    """Asks every turn without reuse, one after the other."""
    found, client = Reference(), Client(server.host, server.port)
    for turn in traffic.every():
        text = client.ask("/apply-template", {"messages": traffic.history(turn, found.answers)})["prompt"]
        ids = np.array(tokenizer.encode(text, True).ids, dtype=np.uint32)
        answer = client.stream("/completion", completion(text, traffic.most, reuse=False))
        if answer.evaluated != len(ids):
            raise SystemExit(f"the server counts {answer.evaluated} tokens in a prompt, toktier {len(ids)}")
        found.answers[turn], found.texts[turn], found.prompts[turn] = answer, text, ids
    return found


def completion(text: str, most: int, *, reuse: bool) -> dict[str, Any]:
    return {"prompt": text, "n_predict": most, "temperature": 0, "return_tokens": True, "cache_prompt": reuse}


def chat(history: list[dict[str, str]], most: int, *, reuse: bool) -> dict[str, Any]:
    return {"messages": history, "max_tokens": most, "temperature": 0, "cache_prompt": reuse}


def measured(
    modes: dict[str, Start], traffic: Traffic, known: Reference, orders: Sequence[str], slots: int, route: str
) -> list[dict[str, Any]]:
    """A row for each order and mode. `route`: "completion" or "chat"; `modes`: how the server of each is started.

    `most_tokens`: what any choice of slots could save; `most_without_bound`: what as many slots as requests could.
    """
    rows = []
    for name in orders:
        for mode, start in modes.items():
            with start() as server:
                asked, answers = _run(server, traffic, known, name, route, reuse=mode != COLD)
            rows.append({"route": route, "order": name, "mode": mode, **_figures(asked, answers, known, slots, route)})
    return rows


def _run(
    server: Server, traffic: Traffic, known: Reference, name: str, route: str, *, reuse: bool
) -> tuple[list[Turn], dict[Turn, Answer]]:
    """The turns in the order in which they were asked, and their answers."""
    asked: list[Turn] = []
    answers: dict[Turn, Answer] = {}

    def ask(client: Client, turn: Turn) -> None:
        asked.append(turn)
        if route == "chat":
            body = chat(traffic.history(turn, known.answers), traffic.most, reuse=reuse)
            answers[turn] = client.stream("/v1/chat/completions", body)
        else:
            answers[turn] = client.stream("/completion", completion(known.texts[turn], traffic.most, reuse=reuse))

    def converse(conversation: int) -> None:
        client, chance = Client(server.host, server.port), random.Random(conversation)
        for number in range(len(traffic.asked[conversation])):
            if name == WITH_PAUSES:
                time.sleep(chance.expovariate(1 / PAUSE_SECONDS))
            ask(client, Turn(conversation, number))

    if name in (AT_ONCE, WITH_PAUSES):
        threads = [threading.Thread(target=converse, args=(number,)) for number in range(len(traffic.asked))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    else:
        client = Client(server.host, server.port)
        for turn in order(name, len(traffic.asked), len(traffic.asked[0])):
            ask(client, turn)
    if len(answers) != len(traffic.every()):
        raise SystemExit(f"{len(answers)} of {len(traffic.every())} turns were answered")
    return asked, answers


def _figures(
    asked: list[Turn], answers: dict[Turn, Answer], known: Reference, slots: int, route: str
) -> dict[str, Any]:
    tokens = sum(len(known.prompts[turn]) for turn in asked)
    evaluated = sum(answers[turn].evaluated for turn in asked)
    miscounted = sum(answers[turn].evaluated + answers[turn].reused != len(known.prompts[turn]) for turn in asked)
    prompts, left = [known.prompts[turn] for turn in asked], [known.left(turn) for turn in asked]
    most, without_bound = most_spared(prompts, left, slots), most_spared(prompts, left, len(asked))
    first = sorted(answers[turn].first for turn in asked)
    different = [turn for turn in asked if not _is_same(answers[turn], known.answers[turn], route)]
    return {
        "requests": len(asked),
        "prompt_tokens": tokens,
        "evaluated_tokens": evaluated,
        "saved_tokens": tokens - evaluated,
        "most_tokens": most,
        "most_without_bound": without_bound,
        "of_most": (tokens - evaluated) / most,
        "miscounted": miscounted,
        "different_answers": [list(turn) for turn in different],
        "first_token_mean": statistics.fmean(first),
        "first_token_p50": first[len(first) // 2],
        "first_token_p95": first[len(first) * 95 // 100],
        "whole_mean": statistics.fmean(answers[turn].whole for turn in asked),
    }


def _is_same(answer: Answer, cold: Answer, route: str) -> bool:
    return answer.text == cold.text and (route == "chat" or answer.ids == cold.ids)
