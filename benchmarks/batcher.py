#!/usr/bin/env python3
"""The batcher: many callers with one short text each, beside one large `encode_batch` of the same texts.

Ways take turns in each round, so that all meet the same seconds of the machine; the best round of each makes its
figure. The first round is not timed: the caches of the engine know the words then, for every way alike. Waits are
measured in passes of their own, because measuring costs: from the call to the beginning of the batch that the text is
in. Then what must hold at any speed: nobody loses an answer while others cancel, and a producer that never waits is
refused. Not here: the speed of the engine (`benchmarks/run.py`), laws (tests/serving).

    python benchmarks/batcher.py tokenizer.json --text corpus.txt --json batcher.json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import toktier
from toktier import Encoding, EncodingBatch, Tokenizer
from toktier.errors import QueueFull
from toktier.serving import Batcher, Limits
from toktier.serving.encoder import Traits

ROOT = Path(__file__).resolve().parents[1]
QUEUED = Limits(inline_bytes=0)
CALLERS = ("tasks", "tasks, queued", "threads", "threads, queued")  # the ways of many callers
MOST_TEXTS = 2000  # unanswered, of a producer that never waits
TARGET_RATIO, TARGET_WAIT_SECONDS = 0.8, Limits().max_wait + 0.001


def texts_of(files: list[Path], size: int, count: int) -> list[str]:
    """`count` texts of `size` code points from the files, one after the other, from the start again where they end."""
    whole = "".join(file.read_text("utf-8") for file in files)
    if len(whole) <= size:
        raise SystemExit(f"the texts have {len(whole)} code points: expected more than {size}")
    starts = range(0, len(whole) - size, size)
    return [whole[(start := starts[i % len(starts)]) : start + size] for i in range(count)]


async def by_tasks(batcher: Batcher, texts: Iterable[str], callers: int) -> None:
    shared = iter(texts)

    async def caller() -> None:
        for text in shared:
            await batcher.aencode(text)

    await asyncio.gather(*(caller() for _ in range(callers)))


def by_threads(batcher: Batcher, texts: Iterable[str], callers: int) -> None:
    shared, lock = iter(texts), threading.Lock()

    def locked() -> Iterator[str]:
        while True:
            with lock:
                text = next(shared, None)
            if text is None:
                return
            yield text

    def caller() -> None:
        for text in locked():
            batcher.submit(text).result()

    threads = [threading.Thread(target=caller) for _ in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def timed(call: Callable[[], object]) -> tuple[float, float]:
    """Wall and CPU seconds; threads that a call uses are paid for."""
    cpu, wall = time.process_time(), time.perf_counter()
    call()
    return time.perf_counter() - wall, time.process_time() - cpu


def throughput(tok: Tokenizer, texts: list[str], callers: int, rounds: int) -> dict[str, dict[str, float]]:
    with Batcher(tok) as defaults, Batcher(tok, QUEUED) as queued:
        ways: dict[str, Callable[[], object]] = {
            "one encode_batch": lambda: tok.encode_batch(texts),
            "one encode_batch, one worker": lambda: tok.encode_batch(texts, workers=1),
            "encode in a loop": lambda: [tok.encode(text) for text in texts],
            "tasks": lambda: asyncio.run(by_tasks(defaults, texts, callers)),
            "tasks, queued": lambda: asyncio.run(by_tasks(queued, texts, callers)),
            "threads": lambda: by_threads(defaults, texts, callers),
            "threads, queued": lambda: by_threads(queued, texts, callers),
        }
        best: dict[str, tuple[float, float]] = {}
        for number in range(rounds + 1):
            for name, call in ways.items():
                wall, cpu = timed(call)
                if number:
                    before = best.get(name, (wall, cpu))
                    best[name] = (min(before[0], wall), min(before[1], cpu))
    size = sum(len(text.encode()) for text in texts)
    whole_wall, whole_cpu = best["one encode_batch"]
    return {
        name: {
            "megabytes_per_second": size / wall / 1e6,
            "cpu_microseconds_per_text": cpu / len(texts) * 1e6,
            "of_one_batch": whole_wall / wall,
            "of_one_batch_by_cpu": whole_cpu / cpu,
        }
        for name, (wall, cpu) in best.items()
    }


class Watched:
    """An `Encoder` that notes when the encoding of each text begins, by its identity."""

    def __init__(self, tok: Tokenizer) -> None:
        self._tok, self.began = tok, dict[int, float]()
        self.encode, self.session = tok.encode, tok.session

    @property
    def _batch_traits(self) -> Traits:
        return self._tok._batch_traits

    @property
    def _gpu_from(self) -> int | None:
        return self._tok._gpu_from

    def encode_batch(self, texts: Iterable[Any], add_special_tokens: bool = False, **named: Any) -> EncodingBatch:
        taken, now = tuple(texts), time.perf_counter()
        self.began.update((id(text), now) for text in taken)
        return self._tok.encode_batch(taken, add_special_tokens, **named)


def waits(tok: Tokenizer, texts: list[str], callers: int) -> dict[str, float]:
    """Seconds from a call to the beginning of its batch, and to its answer, under `callers` tasks that ask all the
    time. Each text is an object of its own."""
    watched = Watched(tok)
    asked: dict[int, float] = {}
    latencies: list[float] = []

    async def main(batcher: Batcher) -> None:
        shared = iter(texts)

        async def caller() -> None:
            for text in shared:
                asked[id(text)] = begin = time.perf_counter()
                await batcher.aencode(text)
                latencies.append(time.perf_counter() - begin)

        await asyncio.gather(*(caller() for _ in range(callers)))

    with Batcher(watched, QUEUED) as batcher:
        asyncio.run(main(batcher))
    waited = sorted(watched.began[key] - begin for key, begin in asked.items())
    latencies.sort()
    return {
        "wait_p50": waited[len(waited) // 2],
        "wait_p99": waited[len(waited) * 99 // 100],
        "latency_p50": latencies[len(latencies) // 2],
        "latency_p99": latencies[len(latencies) * 99 // 100],
    }


def cancellations(tok: Tokenizer, texts: list[str], callers: int) -> dict[str, int]:
    """Half of the calls are cancelled at a moment of their own. Counts; `wrong` and `lost` must be 0."""
    expected = {text: tok.encode(text).ids for text in set(texts)}
    chance, counts = random.Random(1), {"answered": 0, "cancelled": 0, "wrong": 0, "lost": 0}

    async def main(batcher: Batcher) -> None:
        shared = iter(texts)

        async def caller() -> None:
            for text in shared:
                call = asyncio.ensure_future(batcher.aencode(text))
                if chance.random() < 0.5:
                    await asyncio.sleep(chance.choice((0, 0, 0.0005)))
                    call.cancel()
                try:
                    encoding: Encoding = await call
                except asyncio.CancelledError:
                    counts["cancelled"] += 1
                else:
                    counts["answered"] += 1
                    counts["wrong"] += encoding.ids != expected[text]

        await asyncio.gather(*(caller() for _ in range(callers)))

    with Batcher(tok, QUEUED) as batcher:
        asyncio.run(main(batcher))
    counts["lost"] = len(texts) - counts["answered"] - counts["cancelled"]
    return counts


def back_pressure(tok: Tokenizer, texts: list[str], seconds: float) -> dict[str, int]:
    """A producer that never waits, for a while. `most_bytes`: unanswered at any time; `grown_bytes`: of the process's
    greatest resident memory."""
    limits = Limits(inline_bytes=0, queue_texts=MOST_TEXTS)
    counts = {"accepted": 0, "refused": 0, "most_texts": 0, "most_bytes": 0, "grown_bytes": 0}
    with Batcher(tok, limits) as batcher:
        for text in texts[: limits.queue_texts]:
            batcher.submit(text)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        until, number = time.perf_counter() + seconds, 0
        while time.perf_counter() < until:
            number += 1
            try:
                batcher.submit(texts[number % len(texts)])
                counts["accepted"] += 1
            except QueueFull as error:
                counts["refused"] += 1
                counts["most_texts"] = max(counts["most_texts"], error.details["texts"])
                counts["most_bytes"] = max(counts["most_bytes"], error.details["bytes"])
    counts["grown_bytes"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    return counts


def measured(tok: Tokenizer, texts: list[str], callers: int, rounds: int, seconds: float) -> dict[str, Any]:
    own = [text[:1] + text[1:] for text in texts]  # one object for each
    return {
        "load_before": os.getloadavg()[0],
        "backend": tok.explain(summary=True)["backend"],
        "texts": len(texts),
        "bytes_per_text": sum(len(text.encode()) for text in texts) / len(texts),
        "callers": callers,
        "throughput": throughput(tok, texts, callers, rounds),
        "waits": waits(tok, own, callers),
        "waits_of_one_caller": waits(tok, own[:500], 1),
        "cancellations": cancellations(tok, texts, callers),
        "back_pressure": back_pressure(tok, texts, seconds),
        "load_after": os.getloadavg()[0],
    }


def lines(document: dict[str, Any]) -> Iterator[str]:
    yield (
        f"{document['backend']}, {document['texts']} texts of {document['bytes_per_text']:.0f} bytes, "
        f"{document['callers']} callers, load {document['load_before']:.1f} to {document['load_after']:.1f}"
    )
    yield f"{'':30}{'MB/s':>8}{'CPU us/text':>13}{'of one batch':>14}{'by CPU':>8}"
    for name, row in document["throughput"].items():
        yield (
            f"{name:30}{row['megabytes_per_second']:8.1f}{row['cpu_microseconds_per_text']:13.2f}"
            f"{row['of_one_batch']:14.2f}{row['of_one_batch_by_cpu']:8.2f}"
        )
    reached = max(row["of_one_batch"] for name, row in document["throughput"].items() if name in CALLERS)
    yield f"target: {TARGET_RATIO} of one batch; reached {reached:.2f}"
    for name in ("waits", "waits_of_one_caller"):
        told = {key: f"{1000 * value:.2f} ms" for key, value in document[name].items()}
        yield f"{name.replace('_', ' ')}: {', '.join(f'{key} {value}' for key, value in told.items())}"
    yield f"target: wait_p99 at most {1000 * TARGET_WAIT_SECONDS:.0f} ms"
    for name in ("cancellations", "back_pressure"):
        yield f"{name.replace('_', ' ')}: {', '.join(f'{key} {value}' for key, value in document[name].items())}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("tokenizer", type=Path, help="a tokenizer.json")
    parser.add_argument("--text", type=Path, action="append", help="a file of text; repeatable; default: docs/*.md")
    parser.add_argument("--backend", default="fast_cpu", help="fast_cpu or hf")
    parser.add_argument("--callers", type=int, default=64)
    parser.add_argument("--texts", type=int, default=4096)
    parser.add_argument("--size", type=int, default=1024, help="code points of a text")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of the producer that never waits")
    parser.add_argument("--json", type=Path, help="where the figures are written")
    given = parser.parse_args(arguments)
    tok = toktier.from_file(given.tokenizer, policy="supported", tokenizer=given.backend, device="cpu")
    texts = texts_of(given.text or sorted((ROOT / "docs").glob("*.md")), given.size, given.texts)
    document = measured(tok, texts, given.callers, given.rounds, given.seconds)
    for line in lines(document):
        print(line)
    if given.json:
        given.json.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    held = document["cancellations"]
    return int(bool(held["wrong"] or held["lost"] or document["back_pressure"]["most_texts"] > MOST_TEXTS))


if __name__ == "__main__":
    sys.exit(main())
