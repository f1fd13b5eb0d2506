"""Blocks run in forked processes: the parent plans first, so that children inherit plans and tables without a copy.

The parent starts no thread. A child that dies, hangs or raises makes its block a fault, named; the others go on, and a
new child takes its place. A request to stop lets running blocks finish for a moment, then drops them. Not here: what
becomes of the results (`checkpoint`, `evidence`).
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from toktier.certify.checkpoint import BlockResult
from toktier.certify.plan import Prepared
from toktier.certify.tally import Tally
from toktier.errors import ToktierError
from toktier.labels import shown

BLOCK_SECONDS = 300.0
GRACE_SECONDS = 2.0  # for running blocks, after a request to stop
POLL_SECONDS = 0.2  # a signal is noticed after at most this
MAX_WORKERS = 256
DEVICE_WORKERS = 4


@dataclass(frozen=True, slots=True)
class BlockFault:
    """A block without a result, and why."""

    index: int
    reason: str


Stop = Callable[[], bool]


def run_block(prepared: Prepared, index: int) -> BlockResult:
    """One block, here. Raises what the suite raises."""
    suite, block = prepared.plan.locate(index)
    tally = Tally(prepared.subject, prepared.suites[suite].name, block)
    prepared.suites[suite].run(
        prepared.subject, prepared.plan.level, prepared.plan.seed, prepared.plans[suite], block, tally
    )
    return BlockResult(index, tally.counts, tally.digest(), tally.failures)


def default_workers(on_device: bool = False) -> int:
    """As many as this process may use cores; on a device a few, each of which has memory of its own there."""
    return max(1, min(len(os.sched_getaffinity(0)), DEVICE_WORKERS if on_device else MAX_WORKERS))


def run_blocks(
    prepared: Prepared,
    indices: Iterable[int],
    workers: int,
    *,
    stop: Stop = lambda: False,
    enough: Stop = lambda: False,
    block_seconds: float = BLOCK_SECONDS,
) -> Iterator[BlockResult | BlockFault]:
    """Results as they come. `stop`: end now, running blocks have `GRACE_SECONDS`. `enough`: begin no further block."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the reference would start threads, and warn about the fork
    _ = prepared.subject.reference, prepared.subject.tokenizer  # a second or two, once instead of in every child
    queue = iter(indices)
    pool = _Pool(prepared, block_seconds)
    drop_at: float | None = None
    try:
        while True:
            if drop_at is None and stop():
                drop_at = time.monotonic() + GRACE_SECONDS
            while drop_at is None and len(pool.busy) < workers and not enough():
                index = next(queue, None)
                if index is None:
                    break
                pool.start(index)
            if not pool.busy or (drop_at is not None and time.monotonic() >= drop_at):
                return
            yield from pool.collect(POLL_SECONDS)
    finally:
        pool.end()


class _Worker:
    def __init__(self, process: BaseProcess, connection: Connection) -> None:
        self.process, self.connection = process, connection
        self.index = -1
        self.deadline = 0.0


class _Pool:
    def __init__(self, prepared: Prepared, block_seconds: float) -> None:
        self._prepared, self._block_seconds = prepared, block_seconds
        self._fork = multiprocessing.get_context("fork")
        self._idle: list[_Worker] = []
        self.busy: list[_Worker] = []

    def start(self, index: int) -> None:
        worker = self._idle.pop() if self._idle else self._new()
        worker.index, worker.deadline = index, time.monotonic() + self._block_seconds
        self.busy.append(worker)
        with contextlib.suppress(OSError):  # it died idle: `collect` finds its end of the pipe closed
            worker.connection.send(index)

    def collect(self, seconds: float) -> Iterator[BlockResult | BlockFault]:
        by_connection: dict[Any, _Worker] = {worker.connection: worker for worker in self.busy}
        for connection in wait(list(by_connection), seconds):
            worker = by_connection[connection]
            self.busy.remove(worker)
            try:
                answer: BlockResult | BlockFault = worker.connection.recv()
            except (EOFError, OSError):
                worker.process.join()
                yield BlockFault(worker.index, _end_of(worker.process.exitcode))
                continue
            self._idle.append(worker)
            yield answer
        now = time.monotonic()
        for worker in [w for w in self.busy if now >= w.deadline]:
            self.busy.remove(worker)
            _kill(worker)
            yield BlockFault(worker.index, f"no result after {self._block_seconds:g} s")

    def end(self) -> None:
        for worker in self.busy:
            _kill(worker)
        for worker in self._idle:
            worker.connection.close()
            worker.process.join(GRACE_SECONDS)
            if worker.process.is_alive():
                _kill(worker)
        self._idle, self.busy = [], []

    def _new(self) -> _Worker:
        ours, theirs = self._fork.Pipe()
        others = [worker.connection for worker in (*self._idle, *self.busy)]
        process = self._fork.Process(target=_serve, args=(self._prepared, theirs, [ours, *others]), daemon=True)
        process.start()
        theirs.close()
        return _Worker(process, ours)


def _serve(prepared: Prepared, connection: Connection, foreign: list[Connection]) -> None:
    """A child: one block at a time until the parent's end of the pipe closes, however the parent ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in foreign:  # a copy kept open here would hide the parent's end from a sister
        other.close()
    with contextlib.suppress(EOFError, OSError):
        while True:
            index = connection.recv()
            answer: BlockResult | BlockFault
            try:
                answer = run_block(prepared, index)
            except Exception as error:
                answer = BlockFault(index, _reason(error))
            connection.send(answer)
    os._exit(0)  # nothing that the parent registered for its own end is to happen here


def _reason(error: Exception) -> str:
    name = error.code if isinstance(error, ToktierError) else type(error).__name__
    return f"{name}: {shown(' '.join(str(error).split()), 300)}"


def _end_of(code: int | None) -> str:
    if code is not None and code < 0:
        try:
            return f"its process was ended by {signal.Signals(-code).name}"
        except ValueError:
            pass
    return f"its process ended with exit code {code}"


def _kill(worker: _Worker) -> None:
    worker.process.kill()
    worker.process.join()
    worker.connection.close()
