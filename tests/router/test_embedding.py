"""Vectors of prompts: what is alike is near, and there always is one."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.router.token_prompts import after, unrelated
from toktier.router.candidates import Vector
from toktier.router.embedding import (
    HashedNgrams,
    OfIds,
    OfText,
    Prompt,
    Unfailing,
    averaged,
    chunks,
    fallback_vector,
)
from toktier.router.token_ids import as_ids


def random_ids(seed: int, length: int) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    return np.random.default_rng(seed).integers(0, 150_000, length, dtype=np.uint32)


def length_of(vector: Vector) -> float:
    return float(np.linalg.norm(vector.astype(np.float64)))


# Hashed n-grams


def test_nine_shared_tenths_are_near_and_nothing_shared_is_not() -> None:
    embedder = HashedNgrams()
    base = random_ids(1, 1000)
    near = after(base[:900], random_ids(2, 100))
    assert float(embedder.embed(base) @ embedder.embed(near)) == pytest.approx(0.9, abs=0.05)
    assert abs(float(embedder.embed(base) @ embedder.embed(random_ids(3, 1000)))) < 0.15


def test_order_of_tokens_counts() -> None:
    embedder = HashedNgrams()
    base = random_ids(1, 300)
    assert float(embedder.embed(base) @ embedder.embed(base[::-1])) == pytest.approx(1 / 3, abs=0.1)


def test_the_end_of_a_long_prompt_is_seen() -> None:
    embedder = HashedNgrams()
    base = random_ids(1, 20_000)
    assert not np.array_equal(embedder.embed(base), embedder.embed(base[:-1]))


@given(st.lists(st.integers(0, 2**32 - 1), max_size=40), st.sampled_from([1, 2, 7, 512]))
def test_every_prompt_has_a_unit_vector(tokens: list[int], dims: int) -> None:
    vector = HashedNgrams(dims).embed(as_ids(tokens))
    assert vector.shape == (dims,)
    assert vector.dtype == np.float32
    assert length_of(vector) == pytest.approx(1, abs=1e-5)


@pytest.mark.unsanitized  # another interpreter
def test_vectors_are_the_same_in_another_process() -> None:
    """D26."""
    script = (
        "import numpy as np\n"
        "from toktier.router.embedding import HashedNgrams, fallback_vector\n"
        "ids = np.arange(50, dtype=np.uint32) ** 2\n"
        "for vector in (HashedNgrams(64).embed(ids), fallback_vector(ids, 64), fallback_vector('Stra\\u00dfe', 64)):\n"
        "    print(vector.tobytes().hex())\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    ids = (np.arange(50, dtype=np.uint32) ** 2).astype(np.uint32)
    here = (HashedNgrams(64).embed(ids), fallback_vector(ids, 64), fallback_vector("Straße", 64))
    assert ran.stdout.split() == [vector.tobytes().hex() for vector in here]


def test_a_fallback_is_near_to_itself_alone() -> None:
    one = fallback_vector("abc", 512)
    assert length_of(one) == pytest.approx(1, abs=1e-5)
    assert np.array_equal(one, fallback_vector("abc", 512))
    for other in ("abd", "", "\ud800", as_ids([1]), as_ids([])):
        assert abs(float(one @ fallback_vector(other, 512))) < 0.25
    assert not np.array_equal(fallback_vector("", 64), fallback_vector(as_ids([]), 64))


# Pieces


@given(st.text(alphabet="abcde", max_size=60), st.integers(1, 12), st.data())
def test_pieces_cover_everything_and_overlap(text: str, window: int, data: st.DataObject) -> None:
    overlap = data.draw(st.integers(0, window - 1))
    pieces = chunks(text, window, overlap, most=1000)
    assert pieces[0] + "".join(piece[overlap:] for piece in pieces[1:]) == text
    assert all(len(piece) <= window for piece in pieces)
    assert all(len(piece) > overlap for piece in pieces[1:])  # none is within the one before


def test_of_too_many_pieces_the_ends_stay() -> None:
    pieces = chunks(unrelated(0, 10_000), 10, 0, most=16)
    assert len(pieces) == 16
    assert (pieces[0][0], pieces[-1][-1]) == (0, 9_999_000)
    assert len(chunks("x" * 100, 10, 0, most=1)) == 1


def test_an_overlap_as_long_as_the_window_is_refused() -> None:
    for window, overlap in ((10, 10), (10, -1), (0, 0)):
        with pytest.raises(ValueError, match="overlap"):
            chunks("", window, overlap)


def test_pieces_are_averaged_at_unit_length() -> None:
    """D26: a prompt longer than the embedder's window."""
    pieces = [np.array(vector, dtype=np.float32) for vector in ((2, 0), (3, 0), (0, 1))]
    assert averaged(pieces, 2).tolist() == pytest.approx([2 / 5**0.5, 1 / 5**0.5])


def test_directions_that_cancel_are_none() -> None:
    with pytest.raises(ValueError, match="finite length"):
        averaged([np.array([1, 0], np.float32), np.array([-1, 0], np.float32)], 2)


# Whatever happens


class Broken:
    """An embedder that does as it is told."""

    dims = 8

    def __init__(self, answer: object) -> None:
        self.answer = answer

    async def embed(self, prompt: Prompt) -> Vector:
        if isinstance(self.answer, BaseException):
            raise self.answer
        if isinstance(self.answer, str):
            await asyncio.Event().wait()
        return self.answer  # type: ignore[return-value]


PROMPT = Prompt(unrelated(1, 20), "a text")


@pytest.mark.parametrize(
    "answer",
    [
        RuntimeError("a prompt, quoted"),
        MemoryError(),
        "hang",
        None,
        np.ones(7, np.float32),
        np.zeros(8, np.float32),
        np.full(8, np.nan, np.float32),
        np.full(8, np.inf, np.float32),
        ["x"] * 8,
    ],
    ids=["raises", "memory", "hangs", "none", "short", "zeros", "nan", "inf", "words"],
)
def test_whatever_an_embedder_does_there_is_a_vector(answer: object) -> None:
    """D26."""
    guarded = Unfailing(Broken(answer), timeout=0.01)
    vector = asyncio.run(guarded.embed(PROMPT))
    assert np.array_equal(vector, fallback_vector("a text", 8))
    assert (guarded.embedded, guarded.failed) == (0, 1)
    assert guarded.last_error
    assert "quoted" not in guarded.last_error


def test_a_good_vector_is_brought_to_unit_length() -> None:
    guarded = Unfailing(Broken(np.full(8, 5, np.float32)), timeout=None)
    assert asyncio.run(guarded.embed(PROMPT)) == pytest.approx(np.full(8, 8**-0.5))
    assert (guarded.embedded, guarded.failed, guarded.last_error) == (1, 0, "")


def test_a_caller_that_is_cancelled_stays_so() -> None:
    async def main() -> Unfailing:
        guarded = Unfailing(Broken("hang"), timeout=None)
        task = asyncio.ensure_future(guarded.embed(PROMPT))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return guarded

    assert asyncio.run(main()).failed == 0


def test_ids_are_embedded_in_place() -> None:
    embedder = OfIds(HashedNgrams(16))
    assert embedder.dims == 16
    vector = asyncio.run(Unfailing(embedder, None).embed(Prompt(PROMPT.ids)))
    assert vector == pytest.approx(HashedNgrams(16).embed(PROMPT.ids), abs=1e-6)


def test_text_is_embedded_beside_the_loop_and_a_slow_embedder_never_gets_behind() -> None:
    may_go = threading.Event()
    threads: set[int] = set()

    def slow(text: str) -> Vector:
        threads.add(threading.get_ident())
        may_go.wait(60)
        return fallback_vector("slow " + text, 8)

    async def main() -> None:
        embedder = OfText(slow, 8, waiting=2)
        guarded = Unfailing(embedder, timeout=None)
        first = [asyncio.ensure_future(guarded.embed(PROMPT)) for _ in range(2)]
        await asyncio.sleep(0)
        assert np.array_equal(await guarded.embed(PROMPT), fallback_vector("a text", 8))
        first[0].cancel()  # it still has the thread
        await asyncio.gather(first[0], return_exceptions=True)
        assert np.array_equal(await guarded.embed(PROMPT), fallback_vector("a text", 8))
        assert (guarded.failed, guarded.last_error) == (2, "TimeoutError")
        may_go.set()
        assert await first[1] == pytest.approx(fallback_vector("slow a text", 8), abs=1e-6)
        assert await guarded.embed(PROMPT) == pytest.approx(fallback_vector("slow a text", 8), abs=1e-6)
        assert await guarded.embed(Prompt(PROMPT.ids)) == pytest.approx(fallback_vector(PROMPT.ids, 8))
        embedder.close()

    asyncio.run(main())
    assert len(threads) == 1
    assert threads != {threading.get_ident()}
