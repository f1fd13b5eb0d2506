"""Conversations whose turns come to one server in some order: what is asked, and in which order.

All share a system prompt; each turn sends the whole history again. The same in every run for the same texts and seed.
Not here: answers, which are of a model, and who is asked.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

ORDERS: Final = ("round robin", "random", "bursts")


class Turn(NamedTuple):
    conversation: int
    number: int


class Message(NamedTuple):
    role: str
    content: str


def questions(text: str, conversations: int, turns: int, words: int, seed: int = 1) -> list[list[str]]:
    """For each conversation what the user says, turn by turn: `words` words of `text` each, no two from one place."""
    found = re.findall(r"[A-Za-z]+(?:[,.;:]|)", text)
    starts = list(range(0, len(found) - words, words))
    if len(starts) < conversations * turns:
        raise SystemExit(f"the text has {len(found)} words: expected {conversations * turns * words} or more")
    chosen = iter(random.Random(seed).sample(starts, conversations * turns))
    return [[" ".join(found[(at := next(chosen)) : at + words]) for _ in range(turns)] for _ in range(conversations)]


def order(name: str, conversations: int, turns: int, seed: int = 1) -> list[Turn]:
    """All turns, those of a conversation in sequence. `bursts`: one to four turns of a conversation in a row."""
    if name == "round robin":
        return [Turn(conversation, number) for number in range(turns) for conversation in range(conversations)]
    chance, done = random.Random(seed), [0] * conversations
    found: list[Turn] = []
    while open_ones := [conversation for conversation in range(conversations) if done[conversation] < turns]:
        conversation = chance.choice(open_ones)
        for _ in range(1 if name == "random" else chance.randint(1, 4)):
            if done[conversation] < turns:
                found.append(Turn(conversation, done[conversation]))
                done[conversation] += 1
    return found


def messages(system: str, asked: Sequence[str], answers: Sequence[str], number: int) -> list[Message]:
    """What is sent with turn `number` of a conversation; `answers`: of the turns before, at least."""
    sent = [Message("system", system)]
    for turn in range(number + 1):
        sent.append(Message("user", asked[turn]))
        if turn < number:
            sent.append(Message("assistant", answers[turn]))
    return sent
