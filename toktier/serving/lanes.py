"""Calls that are made beside the batches, on a few threads: those of one lane one after the other, in the order in
which they came, those of different lanes at once and in turn.

A session has a lane, so that what is appended comes in order, and one that waits for a slow store takes one thread at
most. A long text, a batch of one caller and a look-up in a store have a lane each, for themselves. Threads are started
when they are needed, and end after a while of nothing to do. Not here: what is called, who waits.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Final, cast

from toktier.serving.room import IDLE_SECONDS, Room
from toktier.serving.tally import Tally
from toktier.serving.threads import BatcherThread
from toktier.serving.waiters import Answer, deliver, outcome_of, tell

THREADS: Final = 4  # the engine shares a long text among the processors by itself: these wait for stores, mostly

Call = Callable[[], Any]
Job = tuple[Call, int]  # and the bytes that it holds


class Lanes:
    """Thread-safe."""

    def __init__(self, room: Room, tally: Tally) -> None:
        self.room, self._tally = room, tally
        self._begin()

    def _begin(self) -> None:
        self._lanes: dict[Hashable, OrderedDict[Any, Job]] = {}
        self._lane_of: dict[Any, Hashable] = {}  # of each waiter whose call has not begun
        self._ready: OrderedDict[Hashable, None] = OrderedDict()  # lanes with a call, and none under way
        self._running: set[Any] = set()  # waiters
        self._idle: list[threading.Lock] = []  # bells of threads that sleep
        self._threads: set[BatcherThread] = set()

    def put(self, waiter: Any, lane: Hashable, call: Call, weight: int) -> None:
        """`lane`: None for one of its own. Raises QueueFull, BatcherClosed."""
        lane = waiter if lane is None else lane
        job: Job = (call, weight)
        fresh = OrderedDict(((waiter, job),))
        starts: BatcherThread | None = None
        try:
            with self.room.lock:
                self.room.enter(1, weight)
                # Nothing is made or called until it is in its place: no finalizer or KeyboardInterrupt comes between.
                self._lane_of[waiter] = lane
                if lane in self._lanes:
                    self._lanes[lane][waiter] = job
                else:
                    self._lanes[lane] = fresh
                    self._ready[lane] = None
                    starts = self._wake()
        finally:
            if starts is not None:
                self._start(starts, waiter)

    def _wake(self) -> BatcherThread | None:
        """Wakes a thread that sleeps, or gives a new one, or neither: as many as may look again before they sleep."""
        if self._idle:
            self._idle.pop().release()
            return None
        if len(self._threads) >= THREADS:
            return None
        thread = BatcherThread(self._run, "toktier-lane")
        self._threads.add(thread)
        return thread

    def _start(self, thread: BatcherThread, waiter: Any) -> None:
        """Without the lock. Where it cannot be started, those that run serve; where none does, everybody who waits is
        told, `waiter` by what this raises."""
        try:
            thread.start()
        except Exception as error:
            with self.room.lock:
                self._threads.discard(thread)
                if self._threads:
                    return
                left = self.clear()
            tell([other for other in left if other is not waiter], error)
            raise

    def withdraw(self, waiter: Any) -> bool:
        """Takes a call out. False: it has begun, or never was here."""
        with self.room.lock:
            lane = self._lane_of.pop(waiter, None)
            if lane is None:
                return False
            self._drop(waiter, lane)
            return True

    def _drop(self, waiter: Any, lane: Hashable) -> None:
        _, weight = self._lanes[lane].pop(waiter)
        self.room.leave(1, weight)
        if not self._lanes[lane] and lane in self._ready:
            del self._ready[lane], self._lanes[lane]

    def __len__(self) -> int:
        return len(self._lane_of)

    def _run(self) -> None:
        this = cast("BatcherThread", threading.current_thread())
        bell = threading.Lock()
        bell.acquire()
        lock = self.room.lock
        while True:
            with lock:
                job = self._next()
                if job is None:
                    if self.room.is_closed:
                        self._threads.discard(this)
                        return
                    self._idle.append(bell)
            if job is not None:
                self._call(*job)
                del job
                continue
            if not bell.acquire(timeout=IDLE_SECONDS):
                with lock:
                    if bell in self._idle:
                        self._idle.remove(bell)
                        self._threads.discard(this)
                        return
                bell.acquire(blocking=False)  # rung before this had the lock; or a signal came before it was

    def _next(self) -> tuple[Hashable, Any, Call, int] | None:
        # A finalizer may withdraw wherever this thread makes an object (batch_queue.py): none is made between the look
        # at a waiter and its removal.
        while self._ready:
            lane, _ = self._ready.popitem(last=False)
            jobs = self._lanes[lane]
            waiter = next(iter(jobs), None)
            if waiter is None:
                del self._lanes[lane]
                continue
            del self._lane_of[waiter]
            call, weight = jobs.pop(waiter)
            self._running.add(waiter)
            return lane, waiter, call, weight
        return None

    def _call(self, lane: Hashable, waiter: Any, call: Call, weight: int) -> None:
        wanted = not isinstance(waiter, Answer) or waiter.begin()
        outcome = outcome_of(call) if wanted else None
        with self.room.lock:  # counted before it is told: who has the answer finds it in the numbers
            self.room.leave(1, weight)
            self._tally.alone += wanted
            self._tally.withdrawn += not wanted
            self._tally.failed += isinstance(outcome, BaseException)
        gone = deliver((waiter,), (outcome,)) if wanted else 0
        with self.room.lock:  # answers of a lane come in its order, too
            self._running.discard(waiter)
            self._tally.gone += gone
            if self._lanes[lane]:
                self._ready[lane] = None
            else:
                del self._lanes[lane]

    def close(self) -> list[BatcherThread]:
        """Wakes everybody, for whom the room is closed; the threads."""
        with self.room.lock:
            for bell in self._idle:
                bell.release()
            self._idle.clear()
            return list(self._threads)

    def clear(self) -> list[Any]:
        """Takes every call out that has not begun; the waiters."""
        with self.room.lock:
            return [waiter for waiter in list(self._lane_of) if self.withdraw(waiter)]

    def renew(self) -> list[Any]:
        """In a forked child: empty. The waiters that the parent will answer."""
        left = [*self._lane_of, *self._running]
        self._begin()
        return left
