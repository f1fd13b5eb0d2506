"""Code of others in the middle of a batcher's own: finalizers that the garbage collector runs in its threads, signals,
callbacks, holders who settle a future themselves. Nobody else's answer is lost or changed by it, and no room is."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from tests.serving.held_tokenizer import PATIENCE, HeldTokenizer, wait_until
from tests.support.material import ROOT, SMALL_DIR
from toktier import Tokenizer
from toktier.errors import BatcherClosed
from toktier.serving import Batcher, Limits, batcher, lanes
from toktier.serving.batch_queue import BatchQueue
from toktier.serving.room import Room

QUEUED = Limits(inline_bytes=0)
NOTHING = {"queued": 0, "texts": 0, "bytes": 0}


@pytest.fixture(autouse=True, scope="module")
def collections_are_short() -> None:
    """Thousands of collections look at what these tests made, not at what a worker holds from all tests before."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[type[BaseException]]:
    """What threads would have printed."""
    told: list[type[BaseException]] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: told.append(args.exc_type))
    return told


class Finalizer:
    """Calls back when the garbage collector finds it, on whatever thread that is."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.itself, self.call = self, call

    def __del__(self) -> None:
        self.call()


@contextmanager
def collecting_after(allocations: int) -> Iterator[None]:
    """The garbage collector runs when so many objects more were made."""
    usual = gc.get_threshold()
    gc.set_threshold(allocations)
    gc.enable()
    try:
        yield
    finally:
        gc.set_threshold(*usual)
        gc.collect()


ALLOCATIONS = range(1, 16)


@pytest.mark.parametrize("limits", [Limits(), Limits(max_batch=4)], ids=["all", "the first"])
def test_a_text_that_a_finalizer_withdraws_while_a_batch_is_taken_leaves_texts_with_their_callers(
    limits: Limits,
) -> None:
    for allocations in ALLOCATIONS:
        room = Room(limits)
        queue = BatchQueue(room)
        gc.collect()
        gc.disable()
        for waiter in range(6):
            queue.put(waiter, f"text {waiter}", 10, (False, False, False))
        for waiter in (0, 3, 5):
            Finalizer(partial(queue.withdraw, waiter))
        taken = []
        with collecting_after(gc.get_count()[0] + allocations):
            while len(queue):
                batch = queue.take(None)
                if batch is not None:
                    taken.append((batch, room.texts, room.bytes))
                    queue.leave()
        for batch, texts, weight in taken:
            assert [request[0] for request in batch.requests] == [f"text {waiter}" for waiter in batch.waiters]
            assert batch.weight == 10 * len(batch.waiters)
            assert (texts, weight) >= (len(batch.waiters), batch.weight)
        assert (room.texts, room.bytes, len(queue)) == (0, 0, 0)


@pytest.mark.parametrize("beside", [False, True], ids=["batches", "lanes"])
def test_finalizers_that_cancel_and_ask_lose_and_change_nobodys_answer(
    tok: Tokenizer, told: list[type[BaseException]], beside: bool
) -> None:
    asked: list[tuple[str, Any]] = []
    with Batcher(tok, Limits(inline_bytes=0, max_batch_bytes=1) if beside else QUEUED) as made:

        def ask(text: str) -> tuple[str, Any]:
            return text, made.submit(text)

        def leave(future: Any) -> None:
            future.cancel()
            asked.append(ask(f"of a finalizer {len(asked)}"))

        for allocations in ALLOCATIONS:
            with collecting_after(allocations):
                for i in range(20):
                    mine = [ask(f"text {i} {j}") for j in range(4)]
                    for j in range(4):
                        Finalizer(partial(leave, made.submit(f"given up {i} {j}")))
                    for text, future in mine:
                        assert future.result(PATIENCE).ids == tok.encode(text).ids
        everybody = len(ALLOCATIONS) * 20 * 4
        # Where a thread of the batcher collects, a collection asked for here is none, and its finalizers may go on.
        wait_until(lambda: gc.collect() >= 0 and len(asked) >= everybody)
        for text, future in asked:
            assert future.result(PATIENCE).ids == tok.encode(text).ids
    assert len(asked) == everybody
    assert made.stats()["now"] == NOTHING
    assert told == []


def test_a_callback_that_cancels_another_while_a_batcher_is_abandoned_keeps_nobody_waiting(
    held: HeldTokenizer, told: list[type[BaseException]]
) -> None:
    made = Batcher(held, QUEUED)
    made.submit("running")
    made.submit("running", session="s")
    held.wait_for(2)
    futures = [made.submit("a"), made.submit("b"), made.submit("c", session="s")]
    for future in futures:
        future.add_done_callback(lambda _: [other.cancel() for other in futures])
    made.close(abandon=True, wait=False)
    held.gate.set()
    made.close()
    done, left = concurrent.futures.wait(futures, PATIENCE)
    assert (len(done), len(left)) == (3, 0)
    assert all(isinstance(future.exception(), BatcherClosed) for future in futures)
    assert told == []


def test_a_future_that_its_holder_settles_harms_no_other(held: HeldTokenizer, told: list[type[BaseException]]) -> None:
    with Batcher(held, QUEUED) as made:
        made.submit("running")
        held.wait_for(1)
        own, other = made.submit("own"), made.submit("other")
        lane_own, lane_other = made.submit("own", session="s"), made.submit("other", session="s")
        own.set_result(held.tokenizer.encode("mine"))
        lane_own.set_result(held.tokenizer.encode("mine"))
        held.gate.set()
        for future in (other, lane_other):
            assert future.result(PATIENCE).ids == held.tokenizer.encode("other").ids
        assert own.result().ids == lane_own.result().ids == held.tokenizer.encode("mine").ids
    assert made.stats()["now"] == NOTHING
    assert told == []


def test_a_worker_that_fails_before_it_answers_gives_its_room_back(
    held: HeldTokenizer, told: list[type[BaseException]], monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = batcher.outcome_of

    def no_memory(call: Callable[[], Any]) -> Any:
        monkeypatch.setattr(batcher, "outcome_of", usual)
        raise MemoryError

    monkeypatch.setattr(batcher, "outcome_of", no_memory)
    with Batcher(held, QUEUED) as made:
        held.gate.set()
        assert isinstance(made.submit("first").exception(PATIENCE), MemoryError)
        assert made.submit("second").result(PATIENCE).ids == held.tokenizer.encode("second").ids
        assert made.stats()["now"] == NOTHING
    wait_until(lambda: len(told) >= 1)
    assert told == [MemoryError]


def test_a_signal_that_interrupts_the_start_of_a_thread_starts_no_second_one(
    tok: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        raise KeyboardInterrupt

    for module in (batcher, lanes):
        monkeypatch.setattr(module, "IDLE_SECONDS", PATIENCE)  # none ends before it is counted
    others = set(threading.enumerate())
    with Batcher(tok, QUEUED) as made:
        for session in (None, "s"):
            with monkeypatch.context() as patched:
                patched.setattr(threading.Thread, "start", interrupted)
                with pytest.raises(KeyboardInterrupt):
                    made.submit("interrupted", session=session)
            assert made.submit("text", session=session).result(PATIENCE).ids == tok.encode("text").ids
        assert set(threading.enumerate()) - others == {made._worker, *made._lanes._threads}
        assert made.stats()["now"] == NOTHING


class Stops:
    def __index__(self) -> int:
        raise StopIteration


def test_a_call_that_raises_stop_iteration_is_answered(tok: Tokenizer) -> None:
    """No future of asyncio takes that one."""

    async def main() -> None:
        session = tok.asession()
        await session.append("text")
        with pytest.raises(RuntimeError, match="StopIteration"):
            await asyncio.wait_for(session.replace(Stops(), "more"), PATIENCE)  # type: ignore[arg-type]
        assert (await session.snapshot()).ids == tok.encode("text").ids

    asyncio.run(main())


@pytest.mark.unsanitized  # another interpreter
@pytest.mark.parametrize("session", [None, "s"], ids=["batches", "lanes"])
def test_a_finalizer_that_a_new_thread_runs_may_ask_the_batcher_that_starts_it(session: str | None) -> None:
    """In another interpreter: where it fails, both wait for good."""
    script = f"""
import gc, toktier
from toktier.serving import Batcher, Limits
tok = toktier.from_file({str(SMALL_DIR / "gpt2_like.json")!r}, policy="supported")
class Finalizer:
    def __init__(self, made):
        self.itself, self.made = self, made
    def __del__(self):
        self.made.stats()
usual = gc.get_threshold()
for allocations in range(1, 100):
    made = Batcher(tok, Limits(inline_bytes=0))
    gc.disable()
    Finalizer(made)
    gc.set_threshold(gc.get_count()[0] + allocations)
    gc.enable()
    future = made.submit("text", session={session!r})
    gc.set_threshold(*usual)
    assert future.result().ids == tok.encode("text").ids
    made.close()
print("end")
"""
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (ran.stdout, ran.stderr) == ("end\n", "")


@pytest.mark.parametrize("session", [None, "s"], ids=["batches", "lanes"])
def test_where_no_thread_can_be_started_everybody_who_waits_is_told(
    tok: Tokenizer, told: list[type[BaseException]], monkeypatch: pytest.MonkeyPatch, session: str | None
) -> None:
    others: list[Any] = []

    def refused(_: threading.Thread) -> None:
        others.append(made.submit("meanwhile", session=session))
        raise RuntimeError("can't start new thread")

    with Batcher(tok, QUEUED) as made:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refused)
            with pytest.raises(RuntimeError, match="can't start new thread"):
                made.submit("text", session=session)
        assert [type(other.exception(PATIENCE)) for other in others] == [RuntimeError]
        assert made.stats()["now"] == NOTHING
        assert made.submit("text", session=session).result(PATIENCE).ids == tok.encode("text").ids
    assert told == []


@pytest.mark.unsanitized  # another interpreter
@pytest.mark.parametrize("session", [None, "s"], ids=["batches", "lanes"])
def test_a_caller_who_is_interrupted_anywhere_leaves_nothing_behind(session: str | None) -> None:
    script = f"""
import random, signal, time, toktier
from toktier.serving import Batcher, Limits
tok = toktier.from_file({str(SMALL_DIR / "gpt2_like.json")!r}, policy="supported")
made = Batcher(tok, Limits(inline_bytes=0, queue_texts=10**6))
made.submit("text", session={session!r}).result()
def interrupt(*_): raise KeyboardInterrupt
signal.signal(signal.SIGALRM, interrupt)
chance = random.Random(5)
for _ in range(600):
    try:
        signal.setitimer(signal.ITIMER_REAL, chance.random() * 0.0003 + 1e-6)
        while True: made.submit("text", session={session!r})
    except KeyboardInterrupt: pass
signal.signal(signal.SIGALRM, signal.SIG_IGN)
made.close()
print(made.stats()["now"])
"""
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (ran.stdout, ran.stderr) == (f"{NOTHING}\n", "")
