"""A minute of everything at once: loops in several threads, cancellations, refusals, sessions. Nothing grows."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time

import pytest

from toktier import Tokenizer
from toktier.errors import InvalidText, QueueFull
from toktier.serving import Batcher, Limits

SECONDS = 60.0
GROWTH = 8 << 20  # bytes, from the tenth part of the time on


def resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.full
@pytest.mark.unsanitized  # resident memory
def test_a_minute_of_everything_leaves_nothing_behind(tok: Tokenizer) -> None:
    texts = [f"text {i} " * (i % 40) for i in range(500)]
    expected = {text: tok.encode(text).ids for text in texts}
    begin, errors = time.monotonic(), list[BaseException]()
    batcher = Batcher(tok, Limits(inline_bytes=0, max_batch=50, queue_texts=200))

    async def caller(number: int, chance: random.Random) -> None:
        while time.monotonic() < begin + SECONDS and not errors:
            text, way = chance.choice(texts), chance.random()
            try:
                if way < 0.2:
                    call = asyncio.ensure_future(batcher.aencode(text))
                    await asyncio.sleep(0)
                    call.cancel()
                    await asyncio.wait([call])
                elif way < 0.25:
                    with pytest.raises(InvalidText):
                        await batcher.aencode("\ud800")
                elif way < 0.35:
                    assert (await batcher.asession(f"s{number}").present(text)).ids == expected[text]
                elif way < 0.4:
                    assert (await batcher.aencode_batch([text, text]))[1].ids == expected[text]
                else:
                    assert (await batcher.aencode(text)).ids == expected[text]
            except QueueFull:
                await asyncio.sleep(0.001)

    async def callers(seed: int) -> None:
        try:
            await asyncio.gather(*(caller(i, random.Random(seed * 100 + i)) for i in range(60)))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=lambda seed=seed: asyncio.run(callers(seed))) for seed in range(6)]
    for thread in threads:
        thread.start()
    time.sleep(SECONDS / 10)
    before = resident_bytes()
    for thread in threads:
        thread.join()
    assert errors == []
    stats = batcher.stats()
    assert stats["now"] == {"queued": 0, "texts": 0, "bytes": 0}
    assert min(stats["texts"], stats["alone"], stats["withdrawn"], stats["refused"]) > 100
    assert stats["failed"] == stats["split"] == stats["gone"] == 0
    batcher.close()
    assert resident_bytes() - before < GROWTH
