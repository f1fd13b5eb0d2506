"""When a batch begins: at once, unless a GPU would take a larger one and the pace promises it in time. On a clock that
the test moves."""

from __future__ import annotations

import pytest

from toktier.serving import Limits, batch_queue
from toktier.serving.batch_queue import BatchQueue
from toktier.serving.room import Room


class Clock:
    """`arrivals`: (time, bytes) of texts that come while the worker sleeps."""

    def __init__(self, queue: BatchQueue, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.queue, self.slept = 100.0, queue, 0.0
        self.arrivals: list[tuple[float, int]] = []
        monkeypatch.setattr(batch_queue, "monotonic", lambda: self.now)
        monkeypatch.setattr(BatchQueue, "_sleep", lambda _, seconds: self.sleep(seconds))
        queue._begin()

    def put(self, weight: int) -> None:
        self.queue.put(object(), "x", weight, (False, False, False))

    def sleep(self, seconds: float) -> None:
        began, until = self.now, self.now + seconds
        while self.arrivals and self.arrivals[0][0] <= until and self.queue._ring_from is not None:
            self.now, weight = self.arrivals.pop(0)
            self.put(weight)
        if self.queue._ring_from is not None:
            self.now = until
        self.queue._ring_from = None
        self.slept += self.now - began


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    queue = BatchQueue(Room(Limits(max_wait=0.010, max_batch_bytes=5000, max_batch=50)))
    monkeypatch.setattr(BatchQueue, "_ring", lambda self: setattr(self, "_ring_from", None))
    return Clock(queue, monkeypatch)


def taken(clock: Clock, gpu_from: int | None = 1000) -> tuple[int, float]:
    """Texts of the next batch, and for how long it was held back."""
    before = clock.slept
    batch = clock.queue.take(gpu_from)
    assert batch is not None
    return len(batch.waiters), clock.slept - before


def test_without_a_gpu_nothing_is_held_back(clock: Clock) -> None:
    for _ in range(9):
        clock.put(100)
    assert taken(clock, None) == (9, 0.0)


def test_a_lone_text_is_not_held_back(clock: Clock) -> None:
    clock.now += 5.0
    clock.put(100)
    clock.arrivals = [(clock.now + 0.001, 900)]
    assert taken(clock) == (1, 0.0)


def test_a_pace_that_fills_a_gpu_batch_in_time_is_waited_for_until_it_does(clock: Clock) -> None:
    clock.now += 0.001
    for _ in range(3):
        clock.put(100)  # 300 bytes in a millisecond
    clock.arrivals = [(clock.now + 0.001 * i, 200) for i in range(1, 9)]
    size, held = taken(clock)
    assert (size, held) == (3 + 4, pytest.approx(0.004))


def test_no_text_is_held_back_longer_than_max_wait(clock: Clock) -> None:
    clock.now += 0.001
    for _ in range(9):
        clock.put(100)
    size, held = taken(clock)  # nothing more comes
    assert (size, held) == (9, pytest.approx(0.010))
    batch_wait = clock.queue
    clock.put(900)
    clock.now += 0.011  # it waited that long already
    assert taken(clock) == (1, 0.0)
    assert len(batch_wait) == 0


def test_a_pace_that_is_too_slow_is_not_waited_for(clock: Clock) -> None:
    clock.now += 1.0
    for _ in range(5):
        clock.put(100)  # 500 bytes in a second
    assert taken(clock) == (5, 0.0)


def test_a_batch_that_is_full_or_closed_begins(clock: Clock) -> None:
    clock.now += 0.001
    for _ in range(50):
        clock.put(10)  # as many texts as a batch may have, and too few bytes
    assert taken(clock) == (50, 0.0)
    clock.now += 0.001
    for _ in range(9):
        clock.put(100)
    clock.queue.room.is_closed = True
    assert taken(clock) == (9, 0.0)


def test_a_goal_beyond_the_largest_batch_is_that_batch(clock: Clock) -> None:
    clock.now += 0.001
    for _ in range(12):
        clock.put(400)
    clock.arrivals = [(clock.now + 0.001, 400)]
    size, held = taken(clock, 1 << 20)
    assert (size, held) == (12, pytest.approx(0.001))  # 5,200 bytes: the last does not fit
    assert len(clock.queue) == 1
