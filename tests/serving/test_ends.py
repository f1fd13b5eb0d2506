"""How threads of a batcher begin and end: at first use, by idleness, with the interpreter, and never by a fork."""

from __future__ import annotations

import concurrent.futures
import os
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable

import pytest

from tests.serving.held_tokenizer import PATIENCE, HeldTokenizer, wait_until
from tests.support.material import ROOT, SMALL_DIR
from toktier import Tokenizer
from toktier.serving import Batcher, Limits, batcher, lanes
from toktier.serving import waiters as waiters_module

QUEUED = Limits(inline_bytes=0)
OF_BATCHERS = ("toktier-batcher", "toktier-lane")


def threads_of(batcher: Batcher) -> list[threading.Thread]:
    return [thread for thread in (batcher._worker, *batcher._lanes._threads) if thread is not None]


def test_no_thread_is_started_before_the_first_call(tok: Tokenizer) -> None:
    with Batcher(tok, QUEUED) as batcher:
        assert threads_of(batcher) == []
        batcher.asession("not used")
        assert threads_of(batcher) == []
        batcher.submit("text").result(PATIENCE)
        (thread,) = threads_of(batcher)
        assert (thread.name, thread.is_alive()) == ("toktier-batcher", True)
    assert not thread.is_alive()


def test_threads_with_nothing_to_do_end_and_others_take_their_place(
    tok: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batcher, "IDLE_SECONDS", 0.01)
    monkeypatch.setattr(lanes, "IDLE_SECONDS", 0.01)
    with Batcher(tok, QUEUED) as made:
        for i in range(30):
            assert made.submit(f"text {i}").result(PATIENCE).ids == tok.encode(f"text {i}").ids
            assert made.submit_batch([f"text {i}"]).result(PATIENCE)[0].ids == tok.encode(f"text {i}").ids
            if i % 3 == 0:
                for thread in threads_of(made):
                    thread.join(PATIENCE)
                assert threads_of(made) == []


def in_child(check: Callable[[], None]) -> int:
    """Exit status of a fork in which `check` runs."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            check()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.unsanitized  # forks
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_an_empty_batcher_that_works_and_the_parent_keeps_its_texts(held: HeldTokenizer) -> None:
    with Batcher(held, QUEUED) as made:
        futures = [made.submit("running"), made.submit_batch(["running"])]
        held.wait_for(2)
        futures += [made.submit("waits"), made.submit("waits", session="s")]
        done = made.submit("given up")
        assert done.cancel()

        def check() -> None:
            assert [future.cancelled() for future in futures] == [True] * 4
            concurrent.futures.wait(futures, PATIENCE)
            assert threads_of(made) == []
            assert made.stats()["now"] == {"queued": 0, "texts": 0, "bytes": 0}
            held.gate.set()
            assert made.submit("of the child").result(PATIENCE).ids == held.tokenizer.encode("of the child").ids
            assert made.submit("of the child", session="s").result(PATIENCE)
            assert in_child(lambda: made.close()) == 0
            made.close()

        assert in_child(check) == 0
        held.gate.set()
        assert all(future.result(PATIENCE) for future in futures)


@pytest.mark.unsanitized  # forks
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_may_come_while_other_threads_ask(tok: Tokenizer) -> None:
    with Batcher(tok, QUEUED) as made:
        ended = threading.Event()

        def ask() -> None:
            while not ended.is_set():
                made.submit("text").result(PATIENCE)
                made.submit("text", session="s").result(PATIENCE)

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()

        def check() -> None:
            for _ in range(3):
                assert made.submit("of the child").result(PATIENCE).ids == tok.encode("of the child").ids

        try:
            statuses = [in_child(check) for _ in range(10)]
        finally:
            ended.set()
            for thread in threads:
                thread.join(PATIENCE)
    assert statuses == [0] * 10


SCRIPTS = {
    "idle": "tok.batcher.submit('a' * 3000).result(); tok.batcher.submit_batch(['b']).result()",
    "busy": "kept = [tok.batcher.submit('word ' * 5000) for _ in range(400)]",
    "busy lanes": "kept = [tok.batcher.submit_batch(['word ' * 5000] * 20) for _ in range(40)]",
    "in a daemon": (
        "import threading\n"
        "def ask():\n"
        "    while True:\n"
        "        try: tok.batcher.submit('word ' * 1000).result()\n"
        "        except toktier.errors.BatcherClosed: return\n"
        "for _ in range(3): threading.Thread(target=ask, daemon=True).start()\n"
        "tok.batcher.submit('a' * 3000).result()"
    ),
    "a loop that was interrupted": (
        "import asyncio\n"
        "async def main():\n"
        "    asyncio.ensure_future(tok.aencode('word ' * 5000))\n"
        "    await asyncio.sleep(0)\n"
        "asyncio.run(main())"
    ),
}


@pytest.mark.unsanitized  # another interpreter
@pytest.mark.parametrize("what", SCRIPTS)
def test_the_interpreter_ends_whatever_is_queued(what: str) -> None:
    script = f"import toktier\ntok = toktier.from_file({str(SMALL_DIR / 'gpt2_like.json')!r}, policy='supported')\n"
    ran = subprocess.run(
        [sys.executable, "-c", script + SCRIPTS[what] + "\nprint('end')"],
        cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "end\n", "")


def test_a_batcher_nobody_holds_is_freed_with_its_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    import gc
    import weakref

    import toktier

    monkeypatch.setattr(batcher, "IDLE_SECONDS", 0.01)
    tok = toktier.from_file(SMALL_DIR / "gpt2_like.json", policy="supported")
    tok.batcher.submit("text " * 1000).result(PATIENCE)
    of_batcher, of_tokenizer = weakref.ref(tok.batcher), weakref.ref(tok)
    del tok
    # The thread that encoded is of the batcher, and keeps it until it ends.
    wait_until(lambda: gc.collect() >= 0 and (of_batcher(), of_tokenizer()) == (None, None))


def test_a_worker_that_fails_is_replaced(held: HeldTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[type[BaseException]] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: told.append(args.exc_type))
    with Batcher(held, Limits(inline_bytes=0, max_batch=1)) as made:
        first = made.submit("first")
        held.wait_for(1)
        futures = [made.submit(f"text {i}") for i in range(3)]
        broken = [batcher.deliver]

        def fails(waiters: list[object], outcomes: list[object]) -> int:
            if broken:
                broken.pop()
                raise MemoryError
            return waiters_module.deliver(waiters, outcomes)

        monkeypatch.setattr(batcher, "deliver", fails)
        held.gate.set()
        assert isinstance(first.exception(PATIENCE), MemoryError)
        assert [future.result(PATIENCE).ids for future in futures] == [
            held.tokenizer.encode(f"text {i}").ids for i in range(3)
        ]
        assert made.stats()["now"] == {"queued": 0, "texts": 0, "bytes": 0}
    wait_until(lambda: len(told) >= 1)
    assert told == [MemoryError]
