"""Texts that wait for a batch, in the order in which they came, and when the next batch is to begin.

The policy: the worker takes what is there as soon as it is free. While it encodes, the next batch gathers, so that
batches grow with the load and a lone caller waits for nobody. It holds back only for a GPU: when the bytes that wait
are too few for it, and would be enough within `max_wait` if they kept coming at the pace of the last batch's time.
Not here: encoding, answers, threads.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from time import monotonic
from typing import Any, NamedTuple

from toktier.serving.room import Room

Options = tuple[bool, bool, bool]  # add_special_tokens, plain, whether to be looked up in a cache of prefixes
Request = tuple[Any, int, Options, float]  # text, bytes, options, time of arrival


class Batch(NamedTuple):
    waiters: list[Any]
    requests: list[Request]
    weight: int
    began: float

    @property
    def wait(self) -> float:
        """Seconds that its oldest text waited."""
        return self.began - self.requests[0][3]


class BatchQueue:
    """Thread-safe, with one thread that takes. `put` and `wait` are called with the room's lock held."""

    def __init__(self, room: Room) -> None:
        self.room, self.limits = room, room.limits
        self._begin()

    def _begin(self) -> None:
        self._items: OrderedDict[Any, Request] = OrderedDict()
        self._weight = 0  # bytes of the items
        self._arrived = 0  # bytes that came since the last batch was taken
        self._taken_at = monotonic()
        self._ring_from: int | None = None  # bytes that wait, from which on the sleeping worker is woken
        self._bell = threading.Lock()
        self._bell.acquire()
        self.running: list[Any] = []  # waiters of the batch that is being encoded
        self._unanswered = 0, 0  # texts of it, and their bytes, as long as they count

    def put(self, waiter: Any, text: Any, weight: int, options: Options) -> None:
        """Raises QueueFull, BatcherClosed."""
        request: Request = (text, weight, options, monotonic())
        self.room.enter(1, weight)
        self._items[waiter] = request  # next to it: a KeyboardInterrupt comes where something is called
        self._weight += weight
        self._arrived += weight
        if self._ring_from is not None and (self._weight >= self._ring_from or self._is_full):
            self._ring()

    def leave(self) -> None:
        """The batch is encoded, or has failed: its texts count no more. With the lock held."""
        self.room.leave(*self._unanswered)
        self._unanswered = 0, 0

    def withdraw(self, waiter: Any) -> bool:
        """Takes a text out. False: it is not here any more, or never was."""
        with self.room.lock:
            request = self._items.pop(waiter, None)
            if request is None:
                return False
            self._weight -= request[1]
            self.room.leave(1, request[1])
            return True

    def __len__(self) -> int:
        return len(self._items)

    @property
    def _is_full(self) -> bool:
        return self._weight >= self.limits.max_batch_bytes or len(self._items) >= self.limits.max_batch

    def _ring(self) -> None:
        self._ring_from = None
        self._bell.release()

    def _sleep(self, seconds: float) -> None:
        """Until rung, with the lock held before and after."""
        bell, lock = self._bell, self.room.lock
        lock.release()
        try:
            rung = bell.acquire(timeout=seconds)
        finally:
            lock.acquire()
        if not rung and self._ring_from is None:
            bell.acquire(blocking=False)  # rung after all, before this had the lock; or a signal came before it was
        self._ring_from = None

    def wait(self, seconds: float) -> bool:
        """Until something is there. False: nothing is, and the room is closed or the time is over."""
        if not self._items and not self.room.is_closed:
            self._ring_from = 0
            self._sleep(seconds)
        return bool(self._items)

    def take(self, gpu_from: int | None) -> Batch | None:
        """The next batch, at most as large as the limits say, but for a first text that is larger. None: those that
        waited have left. `gpu_from`: bytes from which on a GPU takes a batch."""
        with self.room.lock:
            if gpu_from is not None:
                self._hold(min(gpu_from, self.limits.max_batch_bytes))
            if not self._items:
                return None
            if self._weight <= self.limits.max_batch_bytes and len(self._items) <= self.limits.max_batch:
                items, weight = self._all()
                waiters, requests = list(items), list(items.values())
            else:
                waiters, requests, weight = self._first_of_many()
            if not waiters:
                return None
            self._arrived, self._taken_at = 0, monotonic()
            self.running, self._unanswered = waiters, (len(waiters), weight)
            return Batch(waiters, requests, weight, self._taken_at)

    # The lock keeps other threads out, and not its own: a finalizer that the garbage collector runs in it, or a handler
    # of a signal, may put and withdraw between any two allocations here. So everything is taken in one step, and the
    # first ones one by one; what is taken is looked at when nobody else can reach it.

    def _all(self) -> tuple[OrderedDict[Any, Request], int]:
        fresh: OrderedDict[Any, Request] = OrderedDict()
        items = self._items
        self._items = fresh
        weight = self._weight  # not in one assignment with the items, for which a tuple would be made
        self._weight = 0
        return items, weight

    def _first_of_many(self) -> tuple[list[Any], list[Request], int]:
        waiters: list[Any] = []
        requests: list[Request] = []
        weight = 0
        while self._items and len(waiters) < self.limits.max_batch:
            waiter, request = self._items.popitem(last=False)
            if waiters and weight + request[1] > self.limits.max_batch_bytes:
                self._items[waiter] = request
                self._items.move_to_end(waiter, last=False)
                break
            self._weight -= request[1]
            waiters.append(waiter)
            requests.append(request)
            weight += request[1]
        return waiters, requests, weight

    def _hold(self, goal: int) -> None:
        """Gives a batch that is too small for a GPU the time to grow, where the pace promises that it will."""
        while self._items and self._weight < goal and not self._is_full and not self.room.is_closed:
            now = monotonic()
            oldest = next(iter(self._items.values()), None)
            left = (now if oldest is None else oldest[3]) + self.limits.max_wait - now
            pace = self._arrived / max(now - self._taken_at, 1e-6)  # bytes a second
            if left <= 0 or self._weight + pace * left < goal:
                return
            self._ring_from = goal
            self._sleep(left)

    def wake(self) -> None:
        """Wakes the worker, which finds the room closed."""
        with self.room.lock:
            if self._ring_from is not None:
                self._ring()

    def clear(self) -> list[Any]:
        """Takes everything out; the waiters."""
        with self.room.lock:
            items, weight = self._all()
            self.room.leave(len(items), weight)
            return list(items)

    def renew(self) -> list[Any]:
        """In a forked child: empty. The waiters that the parent will answer."""
        left = [*self._items, *self.running]
        self._begin()
        return left
