#!/usr/bin/env python3
"""What the router's choice of slots spares, without a server: conversations that share a system prompt take turns.

Prefilled tokens spared are compared with those of llama-server's own choice (the slot with the most similar prompt,
else the least recently used), of a router that gives each conversation its slot and takes the least recently used for
others, and with the most that any choice could spare (`slot_optimum`), which knows the future. Orders: in turn, at
random, in bursts of one conversation, and at once, where every conversation is a client that waits for its answer; for
these the mean time to the first token stands beside. Not here: a real server.

    python benchmarks/router_policy.py [--seeds 5] [--json PATH]
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from slot_optimum import Ids, most_spared, shared

from toktier.router.decide import decide
from toktier.router.slots import Reservation, SlotTable

PREFILL, GENERATION = 1000.0, 50.0  # tokens a second, of the simulated server


@dataclass(frozen=True)
class Shape:
    """A traffic: how many conversations and turns, and lengths in tokens."""

    conversations: int = 8
    turns: int = 10
    system: int = 60
    user: tuple[int, int] = (20, 120)
    answer: tuple[int, int] = (20, 120)
    once: float = 0.0  # part of requests that belong to no conversation


@dataclass(frozen=True)
class Turn:
    prompt: Ids
    answer: Ids

    @property
    def content(self) -> Ids:
        return np.concatenate((self.prompt, self.answer[:-1]))


def conversations(shape: Shape, seed: int) -> list[list[Turn]]:
    rng = random.Random(seed)
    numbers = np.random.default_rng(seed)

    def tokens(length: int) -> Ids:
        return numbers.integers(0, 30_000, length, dtype=np.uint32)

    system = tokens(shape.system)
    made = []
    for _ in range(shape.conversations):
        text, turns = system, []
        for _ in range(shape.turns):
            prompt = np.concatenate((text, tokens(rng.randint(*shape.user))))
            answer = tokens(rng.randint(*shape.answer))
            turns.append(Turn(prompt, answer))
            text = np.concatenate((prompt, answer))
        made.append(turns)
    extra = int(shape.once * shape.conversations * shape.turns)
    made += [[Turn(np.concatenate((system, tokens(rng.randint(*shape.user) * 3))), tokens(20))] for _ in range(extra)]
    return made


def in_turn(lengths: list[int], rng: random.Random) -> Iterator[int]:
    left = list(lengths)
    while any(left):
        for who, count in enumerate(left):
            if count:
                left[who] -= 1
                yield who


def at_random(lengths: list[int], rng: random.Random) -> Iterator[int]:
    order = [who for who, count in enumerate(lengths) for _ in range(count)]
    rng.shuffle(order)
    yield from order


def in_bursts(lengths: list[int], rng: random.Random) -> Iterator[int]:
    left = list(lengths)
    while any(left):
        who = rng.choice([who for who, count in enumerate(left) if count])
        for _ in range(min(left[who], rng.randint(1, 5))):
            left[who] -= 1
            yield who


ORDERS: dict[str, Callable[[list[int], random.Random], Iterator[int]]] = {
    "in turn": in_turn,
    "at random": at_random,
    "in bursts": in_bursts,
}


class Slots:
    """A simulated llama-server: what its slots hold, and who chooses. A busy slot keeps its queue."""

    def __init__(self, count: int) -> None:
        self.contents: list[Ids | None] = [None] * count
        self.used = [0] * count
        self.busy = [0] * count
        self.requests = 0

    def run(self, slot: int, turn: Turn) -> int:
        """Tokens reused."""
        self.requests += 1
        held = self.contents[slot]
        reused = 0 if held is None else min(shared(held, turn.prompt), len(turn.prompt) - 1)
        self.contents[slot] = turn.content
        self.used[slot] = self.requests
        return reused

    def free(self) -> list[int]:
        return [slot for slot, count in enumerate(self.busy) if not count]


class Own:
    """llama-server's: a slot whose common prefix is over a tenth of the prompt, the most similar; else LRU."""

    def __init__(self, server: Slots, clock: Callable[[], float]) -> None:
        self.server = server

    def choose(self, who: int, turn: Turn) -> int | None:
        free = self.server.free()
        if not free:
            return None
        prompts = [self.server.contents[slot] for slot in free]
        similar = [0.0 if p is None else shared(p, turn.prompt) / len(turn.prompt) for p in prompts]
        best = max(range(len(free)), key=lambda i: similar[i])
        if similar[best] > 0.1:
            return free[best]
        return min(free, key=lambda slot: self.server.used[slot])

    def done(self, slot: int, turn: Turn, reused: int) -> None:
        return


class Sticky(Own):
    """LRU by conversation: its slot while nobody took it."""

    def __init__(self, server: Slots, clock: Callable[[], float]) -> None:
        super().__init__(server, clock)
        self.owner: dict[int, int] = {}

    def choose(self, who: int, turn: Turn) -> int | None:
        free = self.server.free()
        own = next((slot for slot, owner in self.owner.items() if owner == who), None)
        if own is None:
            own = min(free, key=lambda slot: self.server.used[slot], default=None)
        if own is not None and own in free:
            self.owner[own] = who
            return own
        return None


class Router:
    """Ours."""

    def __init__(self, server: Slots, clock: Callable[[], float]) -> None:
        self.server = server
        self.table = SlotTable(clock)
        self.table.open_upstream(0, len(server.contents), 1 << 20)
        self.pinned: dict[int, list[Reservation]] = {}

    def choose(self, who: int, turn: Turn) -> int | None:
        decision = decide(len(turn.prompt), self.table.views(turn.prompt))
        assert decision is not None
        reservation = self.table.reserve(0, decision.slot, turn.prompt, decision.predicted)
        self.pinned.setdefault(decision.slot, []).append(reservation)
        return decision.slot

    def done(self, slot: int, turn: Turn, reused: int) -> None:
        reservation = self.pinned[slot].pop(0)
        novel = len(turn.prompt) - reused
        self.table.rates(0).measured(  # type: ignore[union-attr]
            prompt_tokens=novel,
            prompt_ms=1000 * novel / PREFILL,
            generated_tokens=len(turn.answer),
            generated_ms=1000 * len(turn.answer) / GENERATION,
        )
        settled = self.table.settle(
            reservation, generated=turn.answer, measured=reused, actual_slot=slot, finished=True
        )
        assert not settled.stale


POLICIES: dict[str, type[Own] | type[Router]] = {"llama-server": Own, "lru": Sticky, "toktier": Router}


def one_by_one(talks: list[list[Turn]], order: list[int], slots: int, policy: str) -> int:
    """Tokens spared by a policy."""
    server = Slots(slots)
    now = [0.0]
    chooser = POLICIES[policy](server, lambda: now[0])
    turns = [iter(talk) for talk in talks]
    spared = 0
    for who in order:
        now[0] += 1.0
        turn = next(turns[who])
        slot = chooser.choose(who, turn)
        assert slot is not None
        reused = server.run(slot, turn)
        chooser.done(slot, turn, reused)
        spared += reused
    return spared


def at_once(talks: list[list[Turn]], slots: int, policy: str, think: float, seed: int) -> tuple[int, float, list[int]]:
    """Every conversation waits for its answer, thinks, and goes on. Tokens spared, mean seconds to the first token, and
    the order in which requests came. Slots work side by side at full speed each."""
    server = Slots(slots)
    thoughts = [random.Random(1000 * seed + who) for who in range(len(talks))]
    now = [0.0]
    chooser = POLICIES[policy](server, lambda: now[0])
    turns = [list(talk) for talk in talks]
    waiting: list[tuple[int, Turn]] = []  # for any slot, in the order of arrival
    queues: list[list[tuple[int, Turn]]] = [[] for _ in range(slots)]
    events: list[tuple[float, int, str, int]] = []
    count = 0
    spared = 0
    order: list[int] = []
    asked = [0.0] * len(talks)
    first_token: list[float] = []
    running: list[tuple[int, Turn, int] | None] = [None] * slots

    def at(when: float, kind: str, which: int) -> None:
        nonlocal count
        count += 1
        heapq.heappush(events, (when, count, kind, which))

    def start(slot: int) -> None:
        nonlocal spared
        if running[slot] is None and queues[slot]:
            who, turn = queues[slot].pop(0)
            reused = server.run(slot, turn)
            spared += reused
            running[slot] = (who, turn, reused)
            begins = now[0] + (len(turn.prompt) - reused) / PREFILL
            first_token.append(begins - asked[who])
            at(begins + len(turn.answer) / GENERATION, "end", slot)

    def place(who: int, turn: Turn) -> bool:
        slot = chooser.choose(who, turn)
        if slot is None:
            return False
        server.busy[slot] += 1
        queues[slot].append((who, turn))
        start(slot)
        return True

    for who in range(len(talks)):
        at(thoughts[who].random() * think, "ask", who)
    while events:
        now[0], _, kind, which = heapq.heappop(events)
        if kind == "ask":
            turn = turns[which].pop(0)
            asked[which] = now[0]
            order.append(which)
            if not place(which, turn):
                waiting.append((which, turn))
            continue
        ended = running[which]
        assert ended is not None
        running[which] = None
        who, turn, reused = ended
        server.busy[which] -= 1
        chooser.done(which, turn, reused)
        if turns[who]:
            at(now[0] + thoughts[who].expovariate(1 / think), "ask", who)
        start(which)
        waiting = [(w, t) for w, t in waiting if not place(w, t)]
    return spared, statistics.mean(first_token), order


def measured(shape: Shape, slots: int, seeds: int) -> dict[str, dict[str, float]]:
    """For each order: tokens spared by each policy as a part of the most, the most as a part of all prompt tokens."""
    rows: dict[str, dict[str, float]] = {}
    for name, ordered in ORDERS.items():
        parts: dict[str, list[float]] = {}
        for seed in range(seeds):
            talks = conversations(shape, seed)
            order = list(ordered([len(talk) for talk in talks], random.Random(seed + 1000)))
            turns = [iter(talk) for talk in talks]
            flat = [next(turns[who]) for who in order]
            most = most_spared([t.prompt for t in flat], [t.content for t in flat], slots)
            for policy in POLICIES:
                spared = one_by_one(talks, order, slots, policy)
                assert spared <= most
                parts.setdefault(policy, []).append(spared / most)
            parts.setdefault("most", []).append(most / sum(len(t.prompt) for t in flat))
        rows[name] = {key: statistics.mean(values) for key, values in parts.items()}
    parts = {}
    for seed in range(seeds):
        talks = conversations(shape, seed)
        for policy in POLICIES:
            spared, seconds, order = at_once(talks, slots, policy, 2.0, seed)
            turns = [iter(talk) for talk in talks]
            flat = [next(turns[who]) for who in order]
            most = most_spared([t.prompt for t in flat], [t.content for t in flat], slots)
            parts.setdefault(policy, []).append(spared / most)
            parts.setdefault(f"{policy} seconds", []).append(seconds)
        parts.setdefault("most", []).append(most / sum(len(t.prompt) for t in flat))
    rows["at once"] = {key: statistics.mean(values) for key, values in parts.items()}
    return rows


SHAPES = {
    "chat": Shape(),
    "long system": Shape(system=800),
    "no system": Shape(system=0, user=(60, 180)),
    "long turns": Shape(user=(100, 1000), answer=(50, 400)),
    "few": Shape(conversations=3),
    "many": Shape(conversations=16, turns=6),
    "with others": Shape(once=0.5),
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5, help="traffics of each shape")
    parser.add_argument("--slots", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--json", type=Path, help="where the figures go as well")
    options = parser.parse_args(arguments)
    every = {}
    head = ("SHAPE", "SLOTS", "ORDER", "MOST", "LLAMA", "LRU", "TOKTIER", "FIRST TOKEN, SECONDS")
    print("{:14}{:>6}  {:10}  {:>6}  {:>6}  {:>6}  {:>7}  {}".format(*head))
    for name in options.shapes:
        for slots in options.slots:
            rows = measured(SHAPES[name], slots, options.seeds)
            every[f"{name}, {slots} slots"] = rows
            for order, row in rows.items():
                parts = "  ".join(
                    f"{row[policy]:{width}.1%}" for policy, width in zip(POLICIES, (6, 6, 7), strict=True)
                )
                seconds = "  ".join(f"{row[key]:.2f}" for key in row if key.endswith("seconds"))
                print(f"{name:14}{slots:6}  {order:10}  {row['most']:6.1%}  {parts}  {seconds}", flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(every, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
