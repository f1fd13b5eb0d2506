"""Laws of the batcher for threads: every text is answered once, cancelled or refused, and ids are those of `encode`."""

from __future__ import annotations

import concurrent.futures
import gc
import itertools
import random
import threading
import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toktier
from tests.serving.held_tokenizer import PATIENCE, HeldTokenizer, wait_until
from tests.support.material import SMALL_DIR
from tests.support.tokenizer_maker import HOSTILE
from toktier import Tokenizer
from toktier.errors import BatcherClosed, ConfigInvalid, InvalidText, QueueFull
from toktier.serving import Batcher, Limits, lanes

QUEUED = Limits(inline_bytes=0)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.lists(st.sampled_from(HOSTILE)).map("".join), st.booleans(), st.booleans()), max_size=40))
def test_law_ids_are_those_of_encode_whatever_shares_the_batch(texts: list[tuple[str, bool, bool]]) -> None:
    tok = toktier.from_file(SMALL_DIR / "llama_like.json", policy="supported")
    with Batcher(tok, QUEUED) as batcher:
        futures = [batcher.submit(text, add, plain=plain) for text, add, plain in texts]
        for (text, add, plain), future in zip(texts, futures, strict=True):
            found, expected = future.result(PATIENCE), tok.encode(text, add, plain=plain)
            assert (found.ids, found.offsets, found.tokens) == (expected.ids, expected.offsets, expected.tokens)
            assert found.backend == "fast_cpu"
        stats = batcher.stats()
    assert (stats["texts"], stats["now"]["texts"], stats["now"]["bytes"]) == (len(texts), 0, 0)
    assert stats["tokens"] == sum(len(future.result()) for future in futures)


def test_what_comes_while_a_batch_runs_is_the_next_batch(held: HeldTokenizer) -> None:
    with Batcher(held, QUEUED) as batcher:
        first = batcher.submit("alone")
        held.wait_for(1)
        rest = [batcher.submit(f"text {i}") for i in range(200)]
        held.gate.set()
        assert [f.result(PATIENCE).ids for f in rest] == [held.tokenizer.encode(f"text {i}").ids for i in range(200)]
        assert first.result().ids == held.tokenizer.encode("alone").ids
    assert held.calls == [("alone",), tuple(f"text {i}" for i in range(200))]
    assert batcher.stats()["batch_texts"]["sum"] == 201


def test_rows_share_the_buffer_of_their_batch(held: HeldTokenizer) -> None:
    with Batcher(held, QUEUED) as batcher:
        batcher.submit("first")
        held.wait_for(1)
        futures = [batcher.submit(text) for text in ("hello world", "boats", "on the beach")]
        held.gate.set()
        import numpy as np

        rows = [np.asarray(f.result(PATIENCE)) for f in futures]
    for before, after in itertools.pairwise(rows):
        assert after.ctypes.data == before.ctypes.data + before.nbytes


@pytest.mark.parametrize(
    ("limits", "sizes"),
    [(Limits(inline_bytes=0, max_batch=3), [3, 3, 1]), (Limits(inline_bytes=0, max_batch_bytes=25), [2, 2, 2, 1])],
)
def test_a_batch_has_no_more_than_its_limits(held: HeldTokenizer, limits: Limits, sizes: list[int]) -> None:
    with Batcher(held, limits) as batcher:
        batcher.submit("a")
        held.wait_for(1)
        futures = [batcher.submit("ten bytes!") for _ in range(7)]
        held.gate.set()
        assert {tuple(f.result(PATIENCE)) for f in futures} == {tuple(held.tokenizer.encode("ten bytes!"))}
    assert [len(call) for call in held.calls] == [1, *sizes]


def test_a_text_as_large_as_a_batch_keeps_nobody_waiting(held: HeldTokenizer) -> None:
    long = "word " * 100
    with Batcher(held, Limits(inline_bytes=0, max_batch_bytes=500)) as batcher:
        alone = batcher.submit(long)
        held.wait_for(1)
        short = batcher.submit("short")
        held.wait_for(2)  # while the long one is at the gate
        held.gate.set()
        assert short.result(PATIENCE).ids == held.tokenizer.encode("short").ids
        assert alone.result(PATIENCE).ids == held.tokenizer.encode(long).ids
    assert len(held.threads) == 2


def test_short_texts_are_encoded_by_their_caller_and_longer_ones_are_not(tok: Tokenizer) -> None:
    with Batcher(tok, Limits(inline_bytes=8)) as batcher:
        future = batcher.submit("8 bytes!")
        assert future.done()
        assert future.result().ids == tok.encode("8 bytes!").ids
        assert batcher.stats()["texts"] == 0
        assert batcher.submit("9 bytes !").result(PATIENCE).ids == tok.encode("9 bytes !").ids
        assert batcher.submit("ééééé").result(PATIENCE).ids == tok.encode("ééééé").ids
        assert batcher.submit("→→→→→").result(PATIENCE).ids == tok.encode("→→→→→").ids
        assert batcher.stats()["texts"] == 2  # characters of one byte in memory, and of two
        with pytest.raises(InvalidText) as caught:
            batcher.submit("a\ud800")
        assert caught.value.details == {"position": 1}


def test_a_text_that_is_none_is_refused_on_its_callers_thread_and_fails_nobody_else(held: HeldTokenizer) -> None:
    with Batcher(held, QUEUED) as batcher:
        good = [batcher.submit("good")]
        for bad in ("lone \udc80", b"malformed \xff", "x" * 3000 + "\ud800"):
            with pytest.raises(InvalidText):
                batcher.submit(bad)
        with pytest.raises(TypeError):
            batcher.submit(7)
        good.append(batcher.submit(b"bytes of \xc3\xa9"))
        held.gate.set()
        assert [f.result(PATIENCE).ids for f in good] == [held.tokenizer.encode(t).ids for t in ("good", "bytes of é")]
        assert batcher.stats()["failed"] == 0


def test_what_a_caller_writes_into_a_buffer_afterwards_changes_nothing(held: HeldTokenizer) -> None:
    for limits in (QUEUED, Limits(inline_bytes=0, max_batch_bytes=4)):
        buffer = bytearray(b"as it was")
        with Batcher(held, limits) as batcher:
            future = batcher.submit(buffer)
            batch = batcher.submit_batch([buffer, "b"])
            buffer[:] = b"something"
            held.gate.set()
            assert future.result(PATIENCE).ids == held.tokenizer.encode("as it was").ids
            assert batch.result(PATIENCE)[0].ids == held.tokenizer.encode("as it was").ids
        held.gate.clear()


def test_an_error_in_a_batch_is_of_the_text_that_made_it(held: HeldTokenizer) -> None:
    held.fails["poison"] = MemoryError("no memory for this one")
    with Batcher(held, QUEUED) as batcher:
        batcher.submit("first")
        held.wait_for(1)
        futures = {text: batcher.submit(text) for text in ("a", "poison", "b", "c")}
        held.gate.set()
        for text in "abc":
            assert futures[text].result(PATIENCE).ids == held.tokenizer.encode(text).ids
        with pytest.raises(MemoryError):
            futures["poison"].result(PATIENCE)
        assert batcher.submit("later").result(PATIENCE).ids == held.tokenizer.encode("later").ids
        stats = batcher.stats()
    assert (stats["failed"], stats["split"], stats["now"]["texts"]) == (1, 1, 0)


def test_stored_padding_and_truncation_are_of_each_text_alone(tmp_path: object) -> None:
    import json
    from pathlib import Path

    document = json.loads((SMALL_DIR / "llama_like.json").read_text())
    document["padding"] = {
        "strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": 4, "pad_id": 0, "pad_type_id": 0,
        "pad_token": "<unk>",
    }  # fmt: skip
    document["truncation"] = {"direction": "Right", "max_length": 9, "strategy": "LongestFirst", "stride": 0}
    path = Path(str(tmp_path)) / "padded.json"
    path.write_text(json.dumps(document))
    texts = ["a", "a longer text of several words that is cut", "", "two words"]
    for backend in ("fast_cpu", "hf"):
        tok = toktier.from_file(path, policy="supported", tokenizer=backend)
        held = HeldTokenizer(tok)
        with Batcher(held, QUEUED) as batcher:
            batcher.submit("first")
            held.wait_for(1)
            futures = [batcher.submit(text) for text in texts]
            held.gate.set()
            found = [f.result(PATIENCE) for f in futures]
        assert [e.ids for e in found] == [tok.encode(text).ids for text in texts]
        assert len({len(e) for e in found}) > 1
        assert {e.backend for e in found} == {backend}


@pytest.mark.parametrize("limits", [Limits(inline_bytes=0, queue_texts=5), Limits(inline_bytes=0, queue_bytes=50)])
def test_a_full_queue_refuses_and_takes_again_what_has_room(held: HeldTokenizer, limits: Limits) -> None:
    with Batcher(held, limits) as batcher:
        futures = [batcher.submit("ten bytes!")]
        held.wait_for(1)
        futures += [batcher.submit("ten bytes!") for _ in range(4)]
        for call in (
            batcher.submit,
            lambda text: batcher.submit(text, session="s"),
            lambda t: batcher.submit_batch([t]),
        ):
            with pytest.raises(QueueFull) as caught:
                call("ten bytes!")
        assert (caught.value.details["texts"], caught.value.details["bytes"]) == (5, 50)
        assert "queue_texts" in str(caught.value.remedy)
        assert futures[3].cancel()
        futures[3] = batcher.submit("ten bytes!")
        held.gate.set()
        assert all(f.result(PATIENCE).ids for f in futures)
        stats = batcher.stats()
        assert (stats["refused"], stats["withdrawn"], stats["now"]) == (3, 1, {"queued": 0, "texts": 0, "bytes": 0})
        assert batcher.submit("again").result(PATIENCE)


def test_a_text_larger_than_the_queue_is_taken_when_there_is_no_other(held: HeldTokenizer) -> None:
    held.gate.set()
    with Batcher(held, Limits(inline_bytes=0, queue_bytes=10)) as batcher:
        assert batcher.submit("much more than ten bytes").result(PATIENCE)


def test_a_cancelled_text_is_not_encoded_and_one_that_is_being_encoded_stays(held: HeldTokenizer) -> None:
    with Batcher(held, QUEUED) as batcher:
        running = batcher.submit("running")
        held.wait_for(1)
        futures = [batcher.submit(f"text {i}") for i in range(6)]
        assert [futures[i].cancel() for i in (0, 3, 5)] == [True] * 3
        assert futures[3].cancel()  # again
        assert not running.cancel()
        done, _ = concurrent.futures.wait([futures[0]], PATIENCE)
        assert done  # whoever waits for several is told
        held.gate.set()
        assert running.result(PATIENCE).ids == held.tokenizer.encode("running").ids
        for i in (1, 2, 4):
            assert futures[i].result(PATIENCE).ids == held.tokenizer.encode(f"text {i}").ids
        assert batcher.stats()["withdrawn"] == 3
    assert held.calls[1:] == [("text 1", "text 2", "text 4")]


def test_a_storm_of_cancellations_loses_nobodys_answer(tok: Tokenizer) -> None:
    answered = [0] * 4
    with Batcher(tok, Limits(inline_bytes=0, max_batch=7)) as batcher:

        def storm(number: int) -> None:
            chance = random.Random(number)
            waiting = []
            for i in range(400):
                future = batcher.submit(f"{number} {i}")
                if chance.random() < 0.5 and future.cancel():
                    continue
                waiting.append((i, future))
            for i, future in waiting:
                assert future.result(PATIENCE).ids == tok.encode(f"{number} {i}").ids
                answered[number] += 1

        threads = [threading.Thread(target=storm, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        stats = batcher.stats()
    assert stats["now"] == {"queued": 0, "texts": 0, "bytes": 0}
    assert sum(answered) == stats["texts"] == 1600 - stats["withdrawn"]


def test_a_callback_that_raises_or_ends_its_thread_harms_no_other(
    held: HeldTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[type[BaseException]] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: told.append(args.exc_type))

    def leave(_: object) -> None:
        raise SystemExit

    with Batcher(held, QUEUED) as batcher:
        batcher.submit("first").add_done_callback(leave)
        held.wait_for(1)
        futures = [batcher.submit(text) for text in "abc"]
        futures[0].add_done_callback(leave)
        held.gate.set()
        assert [f.result(PATIENCE).ids for f in futures] == [held.tokenizer.encode(t).ids for t in "abc"]
        assert batcher.submit("later").result(PATIENCE)
    wait_until(lambda: len(told) >= 2)
    assert told == [SystemExit, SystemExit]


def test_a_callback_may_ask_again_and_close(tok: Tokenizer) -> None:
    batcher = Batcher(tok, QUEUED)
    asked: concurrent.futures.Future[object] = concurrent.futures.Future()
    batcher.submit("one").add_done_callback(lambda _: asked.set_result(batcher.submit("two")))
    assert asked.result(PATIENCE).result(PATIENCE).ids == tok.encode("two").ids  # type: ignore[attr-defined]
    closed = threading.Event()
    batcher.submit("three").add_done_callback(lambda _: (batcher.close(), closed.set()))
    assert closed.wait(PATIENCE)


def test_a_batch_of_ones_own_is_one_answer(held: HeldTokenizer) -> None:
    held.gate.set()
    with Batcher(held) as batcher:
        batch = batcher.submit_batch(iter(["a", "two words", ""]), True).result(PATIENCE)
        assert [row.ids for row in batch] == [held.tokenizer.encode(t, True).ids for t in ("a", "two words", "")]
        with pytest.raises(TypeError):
            batcher.submit_batch("one text")
        with pytest.raises(InvalidText):
            batcher.submit_batch(["good", b"\xff"]).result(PATIENCE)
    assert held.calls[0] == ("a", "two words", "")


def test_a_closed_batcher_answers_what_it_has_and_takes_no_more(held: HeldTokenizer) -> None:
    batcher = Batcher(held, QUEUED)
    futures = [batcher.submit(f"text {i}") for i in range(5)]
    batcher.close(wait=False)
    for call in (batcher.submit, lambda text: batcher.submit_batch([text])):
        with pytest.raises(BatcherClosed):
            call("more")
    held.gate.set()
    batcher.close()
    assert all(f.done() for f in futures)
    with Batcher(held.tokenizer) as inline:
        pass
    with pytest.raises(BatcherClosed):
        inline.submit("short")


def occupied(batcher: Batcher, held: HeldTokenizer) -> list[concurrent.futures.Future[object]]:
    """The worker and every lane, at the gate."""
    running: list[concurrent.futures.Future[object]] = [batcher.submit("running")]  # type: ignore[list-item]
    running += [batcher.submit_batch(["running"]) for _ in range(lanes.THREADS)]  # type: ignore[list-item]
    held.wait_for(1 + lanes.THREADS)
    return running


def test_an_abandoned_batcher_tells_those_that_wait(held: HeldTokenizer) -> None:
    batcher = Batcher(held, QUEUED)
    running = occupied(batcher, held)
    waiting = [batcher.submit("waits"), batcher.submit("waits", session="s"), batcher.submit_batch(["waits"])]
    batcher.close(wait=False, abandon=True)
    for future in waiting:
        with pytest.raises(BatcherClosed):
            future.result(PATIENCE)
    held.gate.set()
    assert all(future.result(PATIENCE) for future in running)
    batcher.close()


def test_nothing_is_kept_of_a_text_that_was_answered_or_withdrawn(held: HeldTokenizer) -> None:
    batcher = Batcher(held, Limits(inline_bytes=0, queue_texts=6))
    running = occupied(batcher, held)
    for _ in range(2000):
        assert batcher.submit("given up").cancel()
        assert batcher.submit("given up", session="s").cancel()
        assert batcher.submit_batch(["given up"]).cancel()
    assert (len(batcher._queue), len(batcher._lanes), len(batcher._lanes._ready)) == (0, 0, 0)
    assert len(batcher._lanes._lanes) == lanes.THREADS
    held.gate.set()
    concurrent.futures.wait(running, PATIENCE)
    batcher.close()
    assert (batcher._room.texts, batcher._room.bytes, batcher._queue.running) == (0, 0, [])
    assert (batcher._lanes._lanes, batcher._lanes._running) == ({}, set())
    futures = [weakref.ref(future) for future in running]
    running.clear()
    gc.collect()
    assert [future() for future in futures] == [None] * len(futures)


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_batch": 0}, {"max_batch_bytes": True}, {"max_wait": -0.1}, {"max_wait": float("nan")}, {"max_wait": 11},
        {"queue_texts": 1.5}, {"queue_bytes": "9"}, {"inline_bytes": -1},
    ],
)  # fmt: skip
def test_limits_that_make_no_sense_are_named(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigInvalid, match=next(iter(wrong))):
        Limits(**wrong)  # type: ignore[arg-type]
