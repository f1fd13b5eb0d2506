"""What the shared look-up costs: tokens a second inserted, nanoseconds a proposal, memory, several threads.

    python benchmarks/shared_lookup.py [--tokens 100000000] [--budget-mb 64] [--scopes 4]

Calls are those of Python users. Figures are of processor time of the calling thread, because a busy machine takes wall
time away; wall time and load stand beside. Tokens are random ones out of 150,000, which is the worst case: every n-gram
is new, every line of table and ring comes from memory. Targets (one core, key_len 8): 20 M tokens/s inserted, 1 µs a
proposal.
"""

from __future__ import annotations

import argparse
import collections
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy
from machine import facts, load_average

from toktier.speculative import SharedTokenCache

SCOPE = ("model", "tokenizer", "adapter", "tenant")
VOCABULARY, DOCUMENT, KEY_LEN, DRAFT = 150_000, 20_000, 8, 8
Tokens = numpy.ndarray[tuple[int], numpy.dtype[numpy.uint32]]


def documents(tokens: int, seed: int) -> Iterator[Tokens]:
    generator = numpy.random.default_rng(seed)
    for _ in range(tokens // DOCUMENT):
        yield generator.integers(0, VOCABULARY, DOCUMENT, dtype=numpy.uint32)


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Timer:
    """Processor and wall time of what is called through it."""

    def __init__(self) -> None:
        self.processor = self.wall = 0

    def __call__(self, work: Callable[[], object]) -> None:
        processor, wall = time.thread_time_ns(), time.perf_counter_ns()
        work()
        self.processor += time.thread_time_ns() - processor
        self.wall += time.perf_counter_ns() - wall


def told(what: str, count: int, timer: Timer, *, each: bool = False) -> None:
    if each:
        figures = f"{timer.processor / count:10,.0f} ns each     wall {timer.wall / count:10,.0f} ns"
    else:
        figures = f"{count * 1000 / timer.processor:10,.1f} M tokens/s  wall {count * 1000 / timer.wall:10,.1f}"
    print(f"{what:44} {figures}   load {load_average()}", flush=True)


def insert_new(cache: SharedTokenCache, tokens: int) -> None:
    """The first fill touches fresh memory; after it, every token overwrites one."""
    steps = (("inserted, ring being filled", cache.ring_tokens), ("inserted, ring full", tokens))
    for name, count in steps:
        timer, before = Timer(), resident()
        for document in documents(count, len(name)):
            timer(lambda document=document: cache.insert(SCOPE, document))  # type: ignore[misc]
        told(name, count // DOCUMENT * DOCUMENT, timer)
        print(f"{'':44} resident memory {(resident() - before) / 1e6:+,.1f} MB; bytes {cache.stats()['bytes']:,}")


def insert_again(cache: SharedTokenCache) -> None:
    """A conversation that is sent again with 500 tokens more, 40 times."""
    (text,) = documents(DOCUMENT, 7)
    timer, before = Timer(), cache.stored(SCOPE)
    for end in range(500, DOCUMENT + 1, 500):
        timer(lambda end=end: cache.insert(SCOPE, text[:end]))  # type: ignore[misc]
    told("inserted, a growing conversation again", sum(range(500, DOCUMENT + 1, 500)), timer)
    print(f"{'':44} ring tokens {cache.stored(SCOPE) - before:,} for {DOCUMENT:,} tokens in 40 turns")


def propose(cache: SharedTokenCache, calls: int = 100_000) -> None:
    recent = list(documents(cache.ring_tokens // 4, 11))
    for document in recent:
        cache.insert(SCOPE, document)
    generator = numpy.random.default_rng(13)
    which = generator.integers(0, len(recent), calls).tolist()
    ends = generator.integers(64, DOCUMENT - DRAFT, calls).tolist()
    found = [recent[i][end - 64 : end] for i, end in zip(which, ends, strict=True)]
    out = numpy.zeros(DRAFT, numpy.uint32)
    asked: list[tuple[str, list[object], Callable[[object], object]]] = [
        ("proposed, found, uint32 buffer to list", list(found), lambda h: cache.propose(SCOPE, h, DRAFT)),
        ("proposed, found, list to list", [h.tolist() for h in found], lambda h: cache.propose(SCOPE, h, DRAFT)),
        ("proposed, found, buffer into a buffer", list(found), lambda h: cache.propose_into(SCOPE, h, out)),
        ("proposed, not found", [[1] * 64] * calls, lambda h: cache.propose(SCOPE, h, DRAFT)),
        ("the loop alone", [None] * calls, lambda h: None),
    ]
    for name, histories, ask in asked:
        before, timer = cache.stats()["copies"], Timer()
        timer(lambda histories=histories, ask=ask: collections.deque(map(ask, histories), maxlen=0))  # type: ignore[misc]
        told(name, calls, timer, each=True)
        if "not" not in name and "loop" not in name and cache.stats()["copies"] - before != calls:
            raise SystemExit("a proposal found nothing: the figures are of something else")


def several_threads(cache: SharedTokenCache, threads: int, tokens: int) -> None:
    """Each thread inserts into a scope of its own and asks for what it inserted."""
    shares = [list(documents(tokens // threads, 100 + t)) for t in range(threads)]
    slowest: list[int] = []

    def work(number: int) -> None:
        scope, worst = (*SCOPE[:3], number), 0
        for document in shares[number]:
            cache.insert(scope, document)
            for end in range(1000, DOCUMENT, 1000):
                begin = time.perf_counter_ns()
                copy = cache.propose(scope, document[:end], DRAFT)
                worst = max(worst, time.perf_counter_ns() - begin)
                if copy != document[end : end + DRAFT].tolist():
                    raise SystemExit("a proposal was wrong")
        slowest.append(worst)

    running = [threading.Thread(target=work, args=(t,)) for t in range(threads)]
    processor, wall = time.process_time_ns(), time.perf_counter_ns()
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    timer = Timer()
    timer.processor, timer.wall = time.process_time_ns() - processor, time.perf_counter_ns() - wall
    told(f"{threads} threads, 19 proposals an insert", tokens, timer)
    typical = statistics.median(slowest) / 1e6
    print(f"{'':44} slowest proposal of a thread, median {typical:,.2f} ms (waits for the GIL too)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=100_000_000, help="inserted into the full ring")
    parser.add_argument("--budget-mb", type=int, default=64, help="of all scopes, MiB")
    parser.add_argument("--scopes", type=int, default=4)
    options = parser.parse_args()
    machine = facts()
    print(f"{machine['processor']}, {machine['cores']} cores, caches {machine['caches']}, Python {machine['python']}")
    cache = SharedTokenCache(options.budget_mb << 20, options.scopes, KEY_LEN)
    print(f"{cache.bytes_per_scope:,} bytes a scope: {cache.slots:,} slots, ring of {cache.ring_tokens:,} tokens")
    insert_new(cache, options.tokens)
    insert_again(cache)
    propose(cache)
    several_threads(SharedTokenCache(options.budget_mb * 2 << 20, 8, KEY_LEN), 8, options.tokens // 5)


if __name__ == "__main__":
    main()
