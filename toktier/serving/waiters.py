"""Who waits for an answer, and how it gets there: a thread, a task of asyncio, a task of trio.

Every task gets its answer on the thread of its own event loop. A batch wakes each loop once, with all answers for it: a
wake-up is a system call, an answer is not. Which library runs a task is asked of those that the program has imported
itself; anyio runs on one of the two. Not here: what is encoded, and when.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from toktier.errors import UnsupportedConfig

T = TypeVar("T")

Outcome = Any  # what a call gave, or the exception that it raised, which no call gives


class Withdraws(Protocol):
    def _withdraw(self, waiter: Any) -> None: ...


class Answer(concurrent.futures.Future[T]):
    """For threads. Cancelled before it is encoded, it leaves the queue; afterwards it cannot be cancelled."""

    def __init__(self, owner: Withdraws) -> None:
        super().__init__()
        self._owner = owner

    def cancel(self) -> bool:
        cancelled = super().cancel()
        if cancelled:
            self._owner._withdraw(self)
        return cancelled

    def begin(self) -> bool:
        """Whether its answer is still wanted, which from here on cannot be cancelled. Never raises: its holder, who
        may have settled it himself, must not fail the answers of others."""
        if self.done() and not self.cancelled():
            return False
        with contextlib.suppress(RuntimeError):  # it was told before that it is cancelled, or running
            return self.set_running_or_notify_cancel()
        return self.running()

    def settle(self, outcome: Outcome) -> None:
        """Nothing happens to one that was cancelled, or settled by its holder."""
        if not self.running() and not self.begin():
            return
        with contextlib.suppress(concurrent.futures.InvalidStateError):
            if isinstance(outcome, BaseException):
                self.set_exception(outcome)
            else:
                self.set_result(outcome)

    def abandon(self) -> None:
        """In a forked child, where nobody will answer and a lock may be held by a thread that is not there: the same
        object anew, and cancelled."""
        super().__init__()
        super().cancel()
        self.set_running_or_notify_cancel()


class TrioWaiter:
    """For one task of trio, which awaits it once."""

    __slots__ = ("_event", "_outcome", "token")

    def __init__(self, trio: Any) -> None:
        """Raises RuntimeError where no run of trio is under way."""
        self.token = trio.lowlevel.current_trio_token()
        self._event = trio.Event()
        self._outcome: Outcome = None

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._wait().__await__()

    async def _wait(self) -> Any:
        await self._event.wait()
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        return self._outcome

    def settle(self, outcome: Outcome) -> None:
        """On the thread of the loop."""
        self._outcome = outcome
        self._event.set()


def task_waiter() -> Any:
    """An awaitable for the running task. Raises UnsupportedConfig where neither asyncio nor trio runs one."""
    asyncio, trio = sys.modules.get("asyncio"), sys.modules.get("trio")
    loop = None
    if asyncio is not None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            # Where trio is the guest of this loop, its tasks run inside of it, and none of asyncio does then.
            if trio is None or asyncio.current_task(loop) is not None:
                return loop.create_future()
    if trio is not None:
        with contextlib.suppress(RuntimeError):
            return TrioWaiter(trio)
    if loop is not None:
        return loop.create_future()
    raise UnsupportedConfig(
        "there is no running task of asyncio or trio to wait in",
        remedy="await it in one, or use submit(text).result() of a toktier.serving.Batcher in a thread",
    )


class _Turn:
    """Awaited in asyncio: once around the loop."""

    def __await__(self) -> Generator[None, None, None]:
        yield


_TURN = _Turn()


def checkpoint() -> Any:
    """An awaitable that lets other tasks run, and is where this one may be cancelled: whoever awaits call after call
    must not keep the loop for himself. Raises UnsupportedConfig where no task is running."""
    if "trio" not in sys.modules and "asyncio" in sys.modules:
        return _TURN
    waiter = task_waiter()
    return sys.modules["trio"].lowlevel.checkpoint() if isinstance(waiter, TrioWaiter) else _TURN


def deliver(waiters: Sequence[Any], outcomes: Iterable[Outcome]) -> int:
    """Gives each its outcome. How many loops were gone: those that were closed before their answers came.

    Never raises: nobody's answer may hang on what another does with his.
    """
    by_loop: dict[Any, list[tuple[Any, Outcome]]] = {}
    for waiter, outcome in zip(waiters, outcomes, strict=True):
        if isinstance(waiter, Answer):
            _guarded(waiter.settle, outcome)
            continue
        home = waiter.token if isinstance(waiter, TrioWaiter) else waiter.get_loop()
        pairs = by_loop.get(home)
        if pairs is None:
            by_loop[home] = [(waiter, outcome)]
        else:
            pairs.append((waiter, outcome))
    gone = 0
    for home, pairs in by_loop.items():
        try:
            if hasattr(home, "call_soon_threadsafe"):
                home.call_soon_threadsafe(_settle_futures, pairs)
            else:
                home.run_sync_soon(_settle_waiters, pairs)
        except Exception:
            # The loop is closed, the run has finished: so has everybody who waited there.
            gone += 1
    return gone


def tell(waiters: Sequence[Any], error: BaseException) -> None:
    """Gives an error to those whose calls were taken out before they began. None of them can be cancelled from here on:
    a callback of one may try to cancel another."""
    left = [waiter for waiter in waiters if not isinstance(waiter, Answer) or waiter.begin()]
    deliver(left, [error] * len(left))


def _settle_futures(pairs: list[tuple[Any, Outcome]]) -> None:
    for future, outcome in pairs:
        if future.done():
            continue  # cancelled
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)


def _settle_waiters(pairs: list[tuple[TrioWaiter, Outcome]]) -> None:
    for waiter, outcome in pairs:
        waiter.settle(outcome)


def _guarded(call: Callable[[Outcome], None], outcome: Outcome) -> None:
    """A callback of a future may raise what is no Exception: it is reported as of any thread, and goes no further."""
    try:
        call(outcome)
    except BaseException as error:
        threading.excepthook(threading.ExceptHookArgs((type(error), error, error.__traceback__, None)))


def outcome_of(call: Callable[[], Any]) -> Outcome:
    """What a call gives, or raises. StopIteration is a RuntimeError, as in a generator: no future of asyncio takes it,
    and whoever awaits that one would wait for good."""
    try:
        return call()
    except StopIteration as error:
        stopped = RuntimeError("the call raised StopIteration")
        stopped.__cause__ = error
        return stopped
    except BaseException as error:
        return error
