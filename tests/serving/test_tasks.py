"""The calls for tasks: under asyncio, trio and anyio, in many loops at once, cancelled, with loops that end first."""

from __future__ import annotations

import asyncio
import concurrent.futures
import random
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
import trio

from tests.serving.held_tokenizer import PATIENCE, HeldTokenizer
from toktier import Encoding, Tokenizer
from toktier.errors import BatcherClosed, InvalidText, QueueFull, UnsupportedConfig
from toktier.serving import Batcher, Limits
from toktier.serving.batcher import INLINE_CALLS
from toktier.serving.waiters import TrioWaiter, task_waiter

QUEUED = Limits(inline_bytes=0)
Run = Callable[[Callable[[], Awaitable[Any]]], Any]


def run_asyncio(main: Callable[[], Any]) -> Any:
    return asyncio.run(main())


RUNS = pytest.mark.parametrize("run", [run_asyncio, trio.run], ids=["asyncio", "trio"])


@RUNS
@pytest.mark.parametrize("limits", [QUEUED, Limits()], ids=["queued", "inline"])
def test_law_each_task_gets_the_ids_of_its_text(tok: Tokenizer, run: Run, limits: Limits) -> None:
    texts = [f"text {i} " + "é→😀"[i % 3] * (i % 7) for i in range(300)]
    found: dict[int, Encoding] = {}
    with Batcher(tok, limits) as batcher:

        async def one(i: int) -> None:
            found[i] = await batcher.aencode(texts[i], bool(i % 2), plain=i % 3 == 0)

        async def main() -> None:
            async with anyio.create_task_group() as group:
                for i in range(len(texts)):
                    group.start_soon(one, i)

        run(main)
        stats = batcher.stats()
    for i, text in enumerate(texts):
        assert found[i].ids == tok.encode(text, bool(i % 2), plain=i % 3 == 0).ids
        assert found[i].backend == "fast_cpu"
    assert stats["texts"] == (len(texts) if limits is QUEUED else 0)


@RUNS
def test_the_calls_of_a_tokenizer_go_through_its_own_batcher(tok: Tokenizer, run: Run) -> None:
    long = "a longer text " * 300

    async def main() -> None:
        assert (await tok.aencode("short", True)).ids == tok.encode("short", True).ids
        assert (await tok.aencode(long, plain=True)).ids == tok.encode(long, plain=True).ids
        batch = await tok.aencode_batch(["a", long])
        assert [row.ids for row in batch] == [tok.encode("a").ids, tok.encode(long).ids]
        with pytest.raises(InvalidText):
            await tok.aencode("\ud800")
        with pytest.raises(InvalidText):
            await tok.aencode("long enough \ud800" * 300)

    run(main)
    assert tok.batcher is tok.batcher
    assert tok.batcher.stats()["texts"] >= 1


@RUNS
def test_a_cancelled_task_takes_its_text_back(held: HeldTokenizer, run: Run) -> None:
    with Batcher(held, QUEUED) as batcher:

        async def main() -> list[list[int]]:
            answers: list[list[int]] = []

            async def one(text: str) -> None:
                answers.append((await batcher.aencode(text)).ids)

            async with anyio.create_task_group() as group:
                group.start_soon(one, "running")
                await anyio.to_thread.run_sync(held.wait_for, 1)
                with anyio.CancelScope() as given_up:
                    async with anyio.create_task_group() as inner:
                        for i in range(5):
                            inner.start_soon(one, f"given up {i}")
                        group.start_soon(one, "kept")
                        await anyio.wait_all_tasks_blocked()
                        assert batcher.stats()["now"]["queued"] == 6
                        given_up.cancel()
                assert batcher.stats()["now"] == {"queued": 1, "texts": 2, "bytes": len("runningkept")}
                with anyio.CancelScope() as too_late:
                    too_late.cancel()
                    await batcher.aencode("cancelled before it waits")
                held.gate.set()
            return answers

        answers = run(main)
    assert sorted(answers) == sorted([held.tokenizer.encode("running").ids, held.tokenizer.encode("kept").ids])
    assert held.calls == [("running",), ("kept",)]
    assert batcher.stats()["withdrawn"] == 6


@RUNS
def test_a_task_that_is_cancelled_while_its_text_is_encoded_harms_no_other(held: HeldTokenizer, run: Run) -> None:
    with Batcher(held, QUEUED) as batcher:

        async def main() -> list[int]:
            with anyio.move_on_after(PATIENCE) as scope:
                async with anyio.create_task_group() as group:
                    group.start_soon(batcher.aencode, "running")
                    await anyio.to_thread.run_sync(held.wait_for, 1)
                    group.cancel_scope.cancel()
            assert not scope.cancelled_caught
            held.gate.set()
            return (await batcher.aencode("next")).ids

        assert run(main) == held.tokenizer.encode("next").ids
        assert batcher.stats()["withdrawn"] == 0


@RUNS
def test_refusals_and_errors_come_to_the_task_that_asked(held: HeldTokenizer, run: Run) -> None:
    held.fails["poison"] = BatcherClosed("something that goes wrong")
    with Batcher(held, Limits(inline_bytes=0, queue_texts=3)) as batcher:

        async def main() -> None:
            errors: list[str] = []

            async def one(text: str) -> None:
                try:
                    await batcher.aencode(text)
                except (QueueFull, BatcherClosed) as error:
                    errors.append(f"{text}: {error.code}")

            async with anyio.create_task_group() as group:
                group.start_soon(one, "running")
                await anyio.to_thread.run_sync(held.wait_for, 1)
                group.start_soon(one, "poison")
                group.start_soon(one, "good")
                await anyio.wait_all_tasks_blocked()
                group.start_soon(one, "too many")
                await anyio.wait_all_tasks_blocked()
                held.gate.set()
            assert sorted(errors) == ["poison: BATCHER_CLOSED", "too many: QUEUE_FULL"]

        run(main)


def test_law_many_loops_share_a_tokenizer_through_a_storm_of_cancellations(tok: Tokenizer) -> None:
    answered: list[int] = []
    with Batcher(tok, Limits(inline_bytes=0, max_batch=11)) as batcher:

        async def one(text: str) -> None:
            assert (await batcher.aencode(text)).ids == tok.encode(text).ids
            answered.append(1)

        async def with_asyncio(number: int) -> None:
            chance = random.Random(number)
            tasks = [asyncio.ensure_future(one(f"{number} {i}")) for i in range(150)]
            while not all(task.done() for task in tasks):
                chance.choice(tasks).cancel()
                await asyncio.sleep(0)
            await asyncio.gather(*tasks, return_exceptions=True)
            assert all(task.cancelled() or task.exception() is None for task in tasks)

        async def with_trio(number: int) -> None:
            chance = random.Random(number)

            async def doomed(text: str) -> None:
                with trio.CancelScope() as scope:
                    if chance.random() < 0.5:
                        nursery.start_soon(cancel_soon, scope)
                    await one(text)

            async def cancel_soon(scope: trio.CancelScope) -> None:
                for _ in range(chance.randrange(4)):
                    await trio.lowlevel.checkpoint()
                scope.cancel()

            async with trio.open_nursery() as nursery:
                for i in range(150):
                    nursery.start_soon(doomed, f"{number} {i}")

        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            runs = [pool.submit(asyncio.run, with_asyncio(number)) for number in range(3)]
            runs += [pool.submit(trio.run, with_trio, number) for number in range(3, 6)]
            for future in runs:
                future.result(PATIENCE)
        stats = batcher.stats()
    assert stats["now"] == {"queued": 0, "texts": 0, "bytes": 0}
    assert 0 < len(answered) <= stats["texts"]
    assert stats["failed"] == stats["gone"] == 0


@RUNS
def test_a_loop_that_ends_before_its_answers_leaves_no_trace(
    held: HeldTokenizer, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised: list[object] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    with Batcher(held, QUEUED) as batcher:

        async def main() -> None:
            # A task that cannot be cancelled before its loop ends: it is dropped with it.
            batcher._accept(task_waiter(), "of a loop that is gone", False, None, None, False)
            await anyio.to_thread.run_sync(held.wait_for, 1)

        run(main)
        held.gate.set()
        assert batcher.submit("later").result(PATIENCE).ids == held.tokenizer.encode("later").ids
        assert (batcher.stats()["gone"], batcher.stats()["now"]["texts"]) == (1, 0)
    assert raised == []


def test_trio_as_the_guest_of_asyncio_waits_in_trio(tok: Tokenizer) -> None:
    async def host() -> Any:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()

        async def guest() -> Any:
            assert isinstance(task_waiter(), TrioWaiter)
            with Batcher(tok, QUEUED) as batcher:
                return (await batcher.aencode("of a guest")).ids

        trio.lowlevel.start_guest_run(
            guest, run_sync_soon_threadsafe=loop.call_soon_threadsafe, done_callback=done.set_result
        )
        assert (await tok.aencode("a long text " * 300)).ids == tok.encode("a long text " * 300).ids
        return (await done).unwrap()

    assert asyncio.run(host()) == tok.encode("of a guest").ids


def test_without_a_task_the_remedy_names_the_call_for_threads(tok: Tokenizer) -> None:
    assert "trio" in sys.modules
    for text in ("short", "long " * 1000):
        with pytest.raises(UnsupportedConfig, match="no running task") as caught:
            tok.aencode(text).send(None)
        assert "submit" in str(caught.value.remedy)


def test_awaiting_one_call_after_another_lets_other_tasks_run(tok: Tokenizer) -> None:
    async def main() -> int:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.ensure_future(other())
        for _ in range(10 * INLINE_CALLS):
            await tok.aencode("short")
        task.cancel()
        return turns

    assert asyncio.run(main()) >= 9
