"""Batcher: one tokenizer for many callers, who are threads, tasks of asyncio and tasks of trio, in any number of loops.

What callers give goes into a bounded queue; one thread encodes what has gathered with one call, and each gets his row,
an Encoding that shares the buffer of its batch. When a batch begins: `batch_queue`. A text so short that the engine
needs less than a hand-over would is encoded by its caller. Calls that cannot be rows, or should not make others wait,
are made beside: `lanes`. No way changes an id: the answer is that of `Tokenizer.encode`.
"""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from collections.abc import Hashable, Iterable
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from toktier._native import Encoding, EncodingBatch, text_of, text_weight
from toktier.errors import BatcherClosed
from toktier.routing.vocabulary import BackendId
from toktier.serving.async_session import AsyncSession
from toktier.serving.batch_queue import Batch, BatchQueue, Options
from toktier.serving.encoder import Encoder, Text, traits_of
from toktier.serving.lanes import Call, Lanes
from toktier.serving.limits import Limits
from toktier.serving.room import IDLE_SECONDS, Room
from toktier.serving.tally import Tally
from toktier.serving.threads import BatcherThread
from toktier.serving.waiters import Answer, Outcome, checkpoint, deliver, outcome_of, task_waiter, tell
from toktier.sessions.session import Session

# Inline calls after which a task of asyncio gives way to others: to do so costs half of what a short text does. Under
# trio every call does: there a call that may wait is a checkpoint always.
INLINE_CALLS: Final = 16


class Batcher:
    """Thread-safe. A context manager: leaving it is `close`. In a forked child it is empty and works; texts that were
    unanswered are the parent's, and their futures are cancelled in the child.

    An Encoding of a batch keeps the ids and texts of the whole batch alive: at most about `Limits.max_batch_bytes` of
    either.
    """

    def __init__(self, tokenizer: Encoder, limits: Limits | None = None) -> None:
        """`tokenizer`: a Tokenizer, or a PrefixCache over one. No thread is started before the first call, and none
        lives longer than 10 s without one."""
        if limits is not None and not isinstance(limits, Limits):
            raise TypeError(f"limits must be Limits, not {type(limits).__name__}")
        if not callable(getattr(tokenizer, "encode_batch", None)):
            raise TypeError(f"tokenizer must be a Tokenizer or a PrefixCache, not {type(tokenizer).__name__}")
        self.tokenizer = tokenizer
        self.limits = Limits() if limits is None else limits
        self._traits = traits_of(tokenizer)
        # A text that may be in the store is not short.
        short = min(self.limits.inline_bytes, self._traits.store_from - 1) or -1  # 0: not even empty ones
        self._inline_bytes = short if self._traits.inline else -1
        self._inline_calls = 0
        self._may_use_gpu, self._encode_inline = self._traits.gpu, tokenizer.encode
        self._tally = Tally()
        self._room = Room(self.limits)
        self._queue = BatchQueue(self._room)
        self._lanes = Lanes(self._room, self._tally)
        self._worker: BatcherThread | None = None
        _all.add(self)

    # for callers

    def submit(
        self,
        text: Text,
        add_special_tokens: bool = False,
        *,
        session: str | Session | None = None,
        lookup: str | None = None,
        plain: bool = False,
    ) -> Answer[Encoding]:
        """A future of `Tokenizer.encode` with these arguments, for threads. Cancelling it takes the text out as long as
        it is not being encoded. Callbacks run on the batcher's thread: they must not block.

        Raises QueueFull, InvalidText and BatcherClosed at once; what else encoding raises is the future's, but for a
        text that is encoded by its caller.
        """
        waiter: Answer[Encoding] = Answer(self)
        inline = self._inline(text, add_special_tokens, lookup, plain) if session is None else None
        if inline is None:
            self._accept(waiter, text, add_special_tokens, session, lookup, plain)
        else:
            waiter.set_running_or_notify_cancel()
            waiter.set_result(inline)
        return waiter

    async def aencode(
        self,
        text: Text,
        add_special_tokens: bool = False,
        *,
        session: str | Session | None = None,
        lookup: str | None = None,
        plain: bool = False,
    ) -> Encoding:
        """`Tokenizer.encode` with these arguments, for tasks of asyncio and trio. A task that is cancelled takes its
        text out as long as it is not being encoded. With a `session`, calls for the same one are made in the order in
        which they were awaited; one that has begun is made whole, whoever waits.

        Raises also QueueFull and BatcherClosed.
        """
        if session is None:
            inline = self._inline(text, add_special_tokens, lookup, plain)
            if inline is not None:
                self._inline_calls = calls = self._inline_calls + 1
                if calls % INLINE_CALLS == 0 or "trio" in sys.modules:
                    await checkpoint()
                return inline
        waiter = task_waiter()
        self._accept(waiter, text, add_special_tokens, session, lookup, plain)
        try:
            answer: Encoding = await waiter
        except BaseException:
            self._withdraw(waiter)
            raise
        return answer

    def submit_batch(
        self, texts: Iterable[Text], add_special_tokens: bool = False, *, plain: bool = False
    ) -> Answer[EncodingBatch]:
        """A future of `Tokenizer.encode_batch`; the rest as `submit`."""
        call, weight = self._call_of_batch(texts, add_special_tokens, plain)
        waiter: Answer[EncodingBatch] = Answer(self)
        self._lanes.put(waiter, None, call, weight)
        return waiter

    async def aencode_batch(
        self, texts: Iterable[Text], add_special_tokens: bool = False, *, plain: bool = False
    ) -> EncodingBatch:
        """`Tokenizer.encode_batch`, beside the batches of others; the rest as `aencode`."""
        call, weight = self._call_of_batch(texts, add_special_tokens, plain)
        batch: EncodingBatch = await self._alone(None, call, weight)
        return batch

    def asession(self, name: str | None = None, *, keep_text: bool = False) -> AsyncSession:
        """`Tokenizer.session` for tasks. It is opened by its first call."""
        return AsyncSession(self._alone, self.tokenizer, name, keep_text)

    def close(self, *, wait: bool = True, abandon: bool = False) -> None:
        """Refuses further calls, and ends when those that it has are answered. `wait`: until then. `abandon`: those
        that have not begun get BatcherClosed."""
        with self._room.lock:
            self._room.is_closed = True
            worker = self._worker
        if abandon:
            left = [*self._queue.clear(), *self._lanes.clear()]
            tell(left, BatcherClosed("the batcher was closed before its turn came"))
        self._queue.wake()
        for thread in [*self._lanes.close(), worker]:
            if wait and thread is not None:
                thread.end()

    def stats(self) -> dict[str, Any]:
        """What it holds now (`queued` of the `texts` and `bytes` that are unanswered), and what it did: `tally.py` says
        what each number counts. JSON-able."""
        with self._room.lock:
            room = self._room
            now = {"queued": len(self._queue) + len(self._lanes), "texts": room.texts, "bytes": room.bytes}
            return {"now": now, "refused": room.refused, **self._tally.to_dict()}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a Batcher cannot be pickled or copied: make one of the tokenizer")

    # accepting

    def _inline(self, text: Text, add_special_tokens: bool, lookup: str | None, plain: bool) -> Encoding | None:
        """The answer of a text that its caller encodes; None: it is none of these."""
        weight = len(text) if type(text) is str and text.isascii() else text_weight(text)
        if weight > self._inline_bytes or (lookup is not None and lookup != "off"):
            return None
        if self._may_use_gpu and getattr(self.tokenizer, "_gpu_from", None) is not None:
            return None
        if self._room.is_closed:
            raise BatcherClosed("the batcher is closed")
        if plain is not False or lookup is not None:
            more = _more(plain=_flag(plain, "plain") or None, lookup=lookup)
            return self._encode_inline(text, add_special_tokens, **more)
        return self._encode_inline(text, add_special_tokens)

    def _accept(
        self,
        waiter: Any,
        text: Text,
        add_special_tokens: bool,
        session: str | Session | None,
        lookup: str | None,
        plain: bool,
    ) -> None:
        options = _flag(add_special_tokens, "add_special_tokens"), _flag(plain, "plain")
        is_ascii = type(text) is str and text.isascii()
        weight = len(text) if is_ascii else text_weight(text)
        traits = self._traits
        asks_store = traits.asks_store and weight >= traits.store_from and lookup is None and not plain
        if session is not None or asks_store or lookup not in (None, "off") or weight >= self.limits.max_batch_bytes:
            if type(text) not in (str, bytes):
                text = text_of(text)  # what may be written to afterwards, as it is now
            more = _more(session=session, lookup=lookup, plain=plain or None)
            call = partial(self.tokenizer.encode, text, add_special_tokens, **more)
            self._lanes.put(waiter, None if session is None else lane_of(session), call, weight)
            return
        if not is_ascii:
            text = text_of(text)
        # A text that is no Unicode was refused now, on the thread of its caller: it fails no batch of others.
        starts: BatcherThread | None = None
        try:
            with self._room.lock:
                self._queue.put(waiter, text, weight, (*options, traits.cached and lookup is None and not plain))
                starts = self._new_worker()
        finally:
            if starts is not None:
                self._start(starts, waiter)

    def _call_of_batch(self, texts: Iterable[Text], add_special_tokens: bool, plain: bool) -> tuple[Call, int]:
        if isinstance(texts, (str, bytes, bytearray)):
            raise TypeError(f"expected several texts, not one {type(texts).__name__}")
        more = _more(plain=_flag(plain, "plain") or None)
        taken = tuple(text if type(text) in (str, bytes) else text_of(text, i) for i, text in enumerate(texts))
        call = partial(self.tokenizer.encode_batch, taken, _flag(add_special_tokens, "add_special_tokens"), **more)
        return call, sum(text_weight(text) for text in taken)

    async def _alone(self, lane: Hashable, call: Call, weight: int) -> Any:
        waiter = task_waiter()
        self._lanes.put(waiter, lane, call, weight)
        try:
            return await waiter
        except BaseException:
            self._withdraw(waiter)
            raise

    def _withdraw(self, waiter: Any) -> None:
        if not (self._queue.withdraw(waiter) or self._lanes.withdraw(waiter)):
            return
        with self._room.lock:
            self._tally.withdrawn += 1
        if isinstance(waiter, Answer):
            waiter.set_running_or_notify_cancel()  # whoever waits for several futures is told

    def _new_worker(self) -> BatcherThread | None:
        """With the lock held: one to be started, where there is none."""
        if self._worker is not None:
            return None
        worker = BatcherThread(self._work, "toktier-batcher")
        if self._worker is not None:  # by a finalizer meanwhile
            return None
        self._worker = worker
        return worker

    def _start(self, worker: BatcherThread, waiter: Any = None) -> None:
        """Without the lock. Where it cannot be started, everybody who waits is told; `waiter` by what this raises."""
        try:
            worker.start()
        except Exception as error:
            with self._room.lock:
                self._worker = None
                left = self._queue.clear()
            tell([other for other in left if other is not waiter], error)
            raise

    # encoding, on the worker

    def _work(self) -> None:
        try:
            while self._work_once():
                pass
        except BaseException as error:
            # No memory for a batch of its own, say: those in it are told, and another thread takes the others.
            with self._room.lock:
                self._queue.leave()
                left, self._queue.running, self._worker = self._queue.running, [], None
                next_one = self._new_worker() if len(self._queue) else None
            deliver(left, [error] * len(left))
            if next_one is not None:
                self._start(next_one)
            raise

    def _work_once(self) -> bool:
        with self._room.lock:
            if not self._queue.wait(IDLE_SECONDS):
                self._worker = None
                return False
        batch = self._queue.take(getattr(self.tokenizer, "_gpu_from", None))
        if batch is not None:
            self._encode(batch)
        return True

    def _encode(self, batch: Batch) -> None:
        waiters, requests = batch.waiters, batch.requests
        left = [i for i, w in enumerate(waiters) if isinstance(w, Answer) and not w.begin()]
        for i in reversed(left):  # cancelled in the moment in which it was taken
            del waiters[i], requests[i]
        outcomes = outcome_of(partial(self._outcomes, requests))
        if isinstance(outcomes, BaseException):
            outcomes = [outcomes] * len(waiters)
        tally = self._tally
        with self._room.lock:
            self._queue.leave()
            tally.batches += 1
            tally.texts += len(waiters)
            tally.bytes += batch.weight
            tally.withdrawn += len(left)
            tally.batch_texts.observe(len(waiters))
            tally.batch_bytes.observe(batch.weight)
            tally.waits.observe(batch.wait)
        gone = deliver(waiters, outcomes)
        with self._room.lock:
            self._queue.running = []
            tally.gone += gone

    def _outcomes(self, requests: list[tuple[Any, int, Options, float]]) -> list[Outcome]:
        options = {request[2] for request in requests}
        if len(options) == 1:
            return self._rows([request[0] for request in requests], *options.pop())
        outcomes: list[Outcome] = [None] * len(requests)
        for given in options:
            places = [i for i, request in enumerate(requests) if request[2] == given]
            for i, row in zip(places, self._rows([requests[i][0] for i in places], *given), strict=True):
                outcomes[i] = row
        return outcomes

    def _rows(self, texts: list[Any], add_special_tokens: bool, plain: bool, cached: bool) -> list[Outcome]:
        encode_batch, tally = self.tokenizer.encode_batch, self._tally
        if not self._traits.apart and not cached:
            try:
                batch = encode_batch(tuple(texts), add_special_tokens, **_more(plain=plain or None))
            except BaseException:
                tally.split += len(texts) > 1  # one of them is at fault: each alone gets what is its own
            else:
                tally.tokens += batch.row_splits[-1]
                tally.gpu_batches += batch.backend == BackendId.GPU
                return list(batch)
        rows = [outcome_of(partial(self._row, text, add_special_tokens, plain, cached)) for text in texts]
        with self._room.lock:
            tally.failed += sum(isinstance(row, BaseException) for row in rows)
        return rows

    def _row(self, text: Any, add_special_tokens: bool, plain: bool, cached: bool) -> Encoding:
        if cached:
            encoding = self.tokenizer.encode(text, add_special_tokens)
        else:
            encoding = self.tokenizer.encode_batch((text,), add_special_tokens, **_more(plain=plain or None))[0]
        self._tally.tokens += len(encoding)
        return encoding

    # forks

    def _in_child(self) -> None:
        self._room.renew()
        self._worker = None
        for waiter in [*self._queue.renew(), *self._lanes.renew()]:
            if isinstance(waiter, Answer):
                waiter.abandon()


def _more(**given: Any) -> dict[str, Any]:
    """Arguments that are not at their default, which is None here: an encoder need not know the others."""
    return {name: value for name, value in given.items() if value is not None}


def _flag(value: Any, name: str) -> bool:
    """As `encode` takes it: "no" is no flag."""
    if value is True or value is False:
        return bool(value)
    raise TypeError(f"{name} must be True or False, not {type(value).__name__}")


def lane_of(session: str | Session) -> Hashable:
    """Of a name or a session: the same name is the same lane. TypeError for what is neither."""
    if isinstance(session, str):
        return "session", str.__str__(session)
    if not isinstance(session, Session):
        raise TypeError(f"session must be a name or a Session, not {type(session).__name__}")
    return session if session.name is None else ("session", session.name)


_all: weakref.WeakSet[Batcher] = weakref.WeakSet()


def _children_begin_anew() -> None:
    for batcher in list(_all):
        batcher._in_child()


def _end_threads() -> None:
    """Before the interpreter takes itself apart under threads that call native code: every thread that must not be
    waited for has ended, so that nobody but a daemon still waits for what is queued."""
    for batcher in list(_all):
        batcher.close(abandon=True)


os.register_at_fork(after_in_child=_children_begin_anew)
atexit.register(_end_threads)
