"""Vectors of prompts, for finding similar ones: hashed n-grams of token IDs by default, chunks, and what is left when
an embedder fails.

The default needs no model, sees the whole prompt and takes 0.1 ms at 1,024 tokens: two prompts that share nine tenths
have a cosine of about 0.9, unrelated ones 0. Embedders by meaning take text; they are asked in a thread or on a server,
within a time-out. Whatever they do, there is a vector in the end: a request is never lost to an embedder. Not here: the
server (`embedding_server`), MiniLM (`minilm`), what vectors are compared with (`candidates`).
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple, Protocol, TypeVar

import numpy as np

from toktier.router.candidates import Vector
from toktier.router.splitmix64 import mixed
from toktier.router.token_ids import TokenIds

DIMS: Final = 512
MAX_CHUNKS: Final = 16  # of one prompt: more would take longer than the prefill that they may spare
_NEXT: Final = np.uint64(0x9E3779B97F4A7C15)


class Prompt(NamedTuple):
    """`text`: what embedders by meaning read; None: it is not known, and they fail."""

    ids: TokenIds
    text: str | None = None


class Embedder(Protocol):
    @property
    def dims(self) -> int: ...

    async def embed(self, prompt: Prompt) -> Vector:
        """A float32 vector of `dims` numbers. May raise anything."""
        ...


class HashedNgrams:
    """Counts of the 1-, 2- and 3-grams of token IDs, each added with a sign to one of `dims` places by its hash."""

    def __init__(self, dims: int = DIMS) -> None:
        if dims < 1:
            raise ValueError(f"{dims} dimensions: expected 1 or more")
        self.dims = dims

    def embed(self, ids: TokenIds) -> Vector:
        """A unit vector; the same in every process."""
        if len(ids) == 0:
            return fallback_vector(ids, self.dims)
        gram = mixed(ids.astype(np.uint64) + np.uint64(1))
        hashes = [gram]
        for n in (2, 3):
            if len(ids) < n:
                break
            gram = mixed(gram[:-1] * _NEXT ^ hashes[0][n - 1 :])
            hashes.append(gram)
        every = np.concatenate(hashes)
        places = ((every >> np.uint64(1)) % np.uint64(self.dims)).astype(np.int64)
        signs = 1.0 - 2.0 * (every & np.uint64(1)).astype(np.float64)
        sums = np.bincount(places, weights=signs, minlength=self.dims)
        unit = _unit(sums.astype(np.float32))
        return fallback_vector(ids, self.dims) if unit is None else unit  # signs may cancel in few places


def _unit(vector: Vector) -> Vector | None:
    """None: its length is 0 or not finite."""
    norm = float(np.linalg.norm(vector.astype(np.float64)))
    if not (math.isfinite(norm) and norm > 0):
        return None
    return (vector / norm).astype(np.float32)


def fallback_vector(prompt: str | TokenIds, dims: int) -> Vector:
    """A unit vector that is a hash of the prompt: the same for the same prompt in every process, and near no other."""
    if isinstance(prompt, str):
        data = b"text\0" + prompt.encode("utf-8", "surrogatepass")
    else:
        data = b"ids\0" + np.ascontiguousarray(prompt, dtype="<u4").tobytes()
    words = np.frombuffer(hashlib.shake_128(data).digest(4 * dims), dtype="<u4")
    return _checked(words.astype(np.float32) / np.float32(2**31) - np.float32(1), dims)


def _checked(vector: object, dims: int) -> Vector:
    """`vector` at unit length. Raises ValueError where it is no vector of `dims` finite numbers, or has no length."""
    array = np.asarray(vector, dtype=np.float32)
    if array.shape != (dims,):
        raise ValueError(f"a vector of shape {array.shape}: expected {dims} numbers")
    unit = _unit(array)
    if unit is None:
        raise ValueError("a vector without a finite length")
    return unit


SequenceT = TypeVar("SequenceT", str, TokenIds)


def chunks(whole: SequenceT, window: int, overlap: int, most: int = MAX_CHUNKS) -> list[SequenceT]:
    """Pieces of at most `window` units (characters, IDs), each beginning `window - overlap` behind the one before.
    Of more than `most` some are left out, evenly, and neither the first nor the last."""
    if not 0 <= overlap < window:
        raise ValueError(f"an overlap of {overlap} in a window of {window}: expected 0 or more, and less than it")
    step = window - overlap
    starts = list(range(0, max(len(whole) - overlap, 1), step))
    if len(starts) > most:
        starts = [starts[round(i * (len(starts) - 1) / max(most - 1, 1))] for i in range(most)]
    return [whole[start : start + window] for start in starts]


def averaged(vectors: Sequence[Vector], dims: int) -> Vector:
    """The mean direction, at unit length. Raises ValueError where there is none."""
    return _checked(np.mean([_checked(vector, dims) for vector in vectors], axis=0), dims)


class OfIds:
    """What embeds IDs in no time, as an `Embedder`."""

    def __init__(self, embedder: HashedNgrams) -> None:
        self._embedder = embedder

    @property
    def dims(self) -> int:
        return self._embedder.dims

    async def embed(self, prompt: Prompt) -> Vector:
        return self._embedder.embed(prompt.ids)


class OfText:
    """What embeds text in milliseconds, as an `Embedder`: in one thread of its own. Whoever comes while `waiting`
    others wait is refused, so that a slow one never gets behind by more."""

    def __init__(self, embed: Callable[[str], Vector], dims: int, waiting: int = 4) -> None:
        self._embed = embed
        self._dims = dims
        self._room = waiting
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="toktier-embedder")

    @property
    def dims(self) -> int:
        return self._dims

    async def embed(self, prompt: Prompt) -> Vector:
        if prompt.text is None:
            raise ValueError("the text is not known")
        if self._room <= 0:
            raise TimeoutError("the embedder is behind")
        self._room -= 1
        future = self._thread.submit(self._embed, prompt.text)
        loop = asyncio.get_running_loop()
        # The room is free when the thread is done, not when the caller has left.
        future.add_done_callback(lambda _: _call_soon(loop, self._leave))
        return await asyncio.wrap_future(future)

    def _leave(self) -> None:
        self._room += 1

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)


def _call_soon(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:  # the loop has ended, and nobody waits
        return


class Unfailing:
    """An embedder that always answers in time: after an error, or `timeout` seconds, with `fallback_vector`.

    `timeout` None: the embedder has one of its own."""

    def __init__(self, embedder: Embedder, timeout: float | None) -> None:
        self._embedder = embedder
        self._timeout = timeout
        self.embedded = 0
        self.failed = 0
        self.last_error = ""  # the name of its class alone: a message may quote a prompt

    @property
    def dims(self) -> int:
        return self._embedder.dims

    async def embed(self, prompt: Prompt) -> Vector:
        """Raises nothing but the cancellation of its caller."""
        try:
            async with asyncio.timeout(self._timeout):
                vector = _checked(await self._embedder.embed(prompt), self.dims)
        except Exception as error:
            self.failed += 1
            self.last_error = type(error).__name__
            return fallback_vector(prompt.ids if prompt.text is None else prompt.text, self.dims)
        self.embedded += 1
        return vector
