"""What is kept of requests for whoever asks later, in a SQLite file that requests never wait for (`records_file`).

A request pays for one place in a bounded queue; a thread of its own writes what is there, many rows at once. The file
may be lost, damaged, locked or full at any time: requests go on, what could not be kept is counted and shown (`state`),
and the thread tries again, ever less often. Not here: numbers since the router began (`stats`).
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sqlite3
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from toktier.errors import ConfigInvalid
from toktier.labels import shown_path
from toktier.router.records_faults import RECORDS_FAULT_MEANINGS, RecordsFault, fault_of
from toktier.router.records_file import ROW_OVERHEAD, Output, RecordsFile, request_row
from toktier.router.request_facts import RequestFacts
from toktier.router.rows import SlotRow

KEEP_ROWS = 100_000  # 12 MB
KEEP_DAYS = 30.0
KEEP_OUTPUT_BYTES = 64 << 20
MAX_OUTPUT_BYTES = 1 << 20  # of one output; half of it would be compared as something else
QUEUE_ROWS = 10_000
QUEUE_OUTPUT_BYTES = 16 << 20

_BATCH = 1000  # rows of one transaction
_PAUSE = 1.0  # seconds between two transactions: what comes meanwhile is written at once
_RETRY_FIRST, _RETRY_LONGEST = 0.5, 60.0
_MENDED = (RecordsFault.REMOVED, RecordsFault.DAMAGED)  # a new file takes the place of the old one, at once
_AT_EXIT = 2.0  # seconds, where nobody has closed them


class Records:
    """`add` never waits for the file and never raises. Thread-safe; after a fork both sides go on with the same file,
    and only the parent writes what was queued before."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        keep_rows: int = KEEP_ROWS,
        keep_days: float = KEEP_DAYS,
        outputs: bool = False,
        keep_output_bytes: int = KEEP_OUTPUT_BYTES,
        queue_rows: int = QUEUE_ROWS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Nothing is opened here: the thread does, and a fault is told by `state`. `outputs`: whether `add_output`
        keeps anything. `clock`: seconds since the epoch. Raises ConfigInvalid for bounds that hold nothing."""
        for name, value in (("keep_rows", keep_rows), ("keep_days", keep_days), ("queue_rows", queue_rows)):
            if not value > 0:
                raise ConfigInvalid(f"{name} is {value}: expected more than 0", details={"argument": name})
        # Absolute from here on: a later change of the working directory would make another file.
        self._file = RecordsFile(
            Path(os.path.abspath(path)),
            keep_rows=keep_rows,
            keep_days=keep_days,
            keep_output_bytes=keep_output_bytes,
        )
        self.keeps_outputs = outputs
        self._queue_rows, self._clock = queue_rows, clock
        self._rows: deque[RequestFacts] = deque()
        self._outputs: deque[Output] = deque()
        self._output_bytes = 0
        self._slots: Sequence[SlotRow] | None = None
        self._written = self._dropped = self._outputs_written = self._outputs_dropped = self._size = 0
        self._faults = dict.fromkeys(RecordsFault, 0)
        self._fault: RecordsFault | None = None  # None: the last attempt went well
        self._opened = self._closed = False
        self._asked = self._answered = 0  # flushes
        self._retry = _RETRY_FIRST
        self._thread: threading.Thread | None = None
        self._renew_locks()
        _forks.watch(self)
        atexit.register(self.close, _AT_EXIT)
        with self._lock:
            self._start()

    def add(self, facts: RequestFacts) -> None:
        """Queues a row, or counts it as dropped where the queue is full."""
        with self._lock:
            if self._closed or len(self._rows) >= self._queue_rows:
                self._dropped += 1
                return
            self._rows.append(facts)
            self._start()
            if len(self._rows) == 1:  # the thread is woken once for all that comes in its pause
                self._changed.notify_all()

    def add_output(self, request_id: str, prompt_digest: bytes, *, reused: bool, text: str, started: float) -> None:
        """Queues an output for comparison, where outputs are kept at all."""
        if not self.keeps_outputs:
            return
        try:
            row: Output | None = Output(prompt_digest, reused, text, len(text.encode()), started, request_id)
        except UnicodeEncodeError:  # lone surrogates, which a JSON string may name and no file can hold
            row = None
        with self._lock:
            room = QUEUE_OUTPUT_BYTES - self._output_bytes
            if self._closed or row is None or row.bytes > MAX_OUTPUT_BYTES or row.bytes + ROW_OVERHEAD > room:
                self._outputs_dropped += 1
                return
            self._outputs.append(row)
            self._output_bytes += row.bytes + ROW_OVERHEAD
            self._start()
            if len(self._outputs) == 1:
                self._changed.notify_all()

    def slots(self, rows: Sequence[SlotRow]) -> None:
        """What the slots hold now; written with the rows that come next, or at the end. The last call before that
        counts."""
        with self._lock:
            self._slots = tuple(rows)

    def flush(self, timeout: float = 5.0) -> bool:
        """Tries at once, whatever the pause; True when all that was queued before is in the file. `timeout`: seconds,
        after which False."""
        with self._lock:
            if self._closed:
                return False
            self._asked += 1
            mine = self._asked
            self._start()
            self._changed.notify_all()
            answered = self._changed.wait_for(lambda: self._answered >= mine or self._closed, timeout)
            return answered and self._answered >= mine and self._fault is None

    def close(self, timeout: float = 5.0) -> bool:
        """Writes what is queued, in one last attempt, and ends the thread. False: some of it was not written within
        `timeout` seconds, and is counted as dropped. Again: nothing happens."""
        with self._lock:
            thread, self._closed = self._thread, True
            self._changed.notify_all()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)
        atexit.unregister(self.close)
        with self._lock:
            left = len(self._rows) + len(self._outputs)
            self._dropped += len(self._rows)
            self._outputs_dropped += len(self._outputs)
            self._rows.clear()
            self._outputs.clear()
            return not left

    def state(self) -> dict[str, Any]:
        """For documents and metrics. `state`: `opening`, `writing`, `failing` or `closed`; `faults`: how often, by
        word; `fault`: the one of the last attempt, null where it went well; `bytes`: of the file."""
        with self._lock:
            state = "failing" if self._fault is not None else "writing" if self._opened else "opening"
            return {
                "path": shown_path(self._file.path),
                "state": "closed" if self._closed else state,
                "fault": None if self._fault is None else self._fault.value,
                "meaning": None if self._fault is None else RECORDS_FAULT_MEANINGS[self._fault],
                "faults": {fault.value: count for fault, count in self._faults.items()},
                "queued": len(self._rows),
                "written": self._written,
                "dropped": self._dropped,
                "keeps_outputs": self.keeps_outputs,
                "outputs_written": self._outputs_written,
                "outputs_dropped": self._outputs_dropped,
                "bytes": self._size,
            }

    def _renew_locks(self) -> None:
        self._lock = threading.RLock()  # again: a finalizer or a signal handler may come in between
        self._changed = threading.Condition(self._lock)
        self._using_file = threading.Lock()

    def _start(self) -> None:
        """With the lock held. Not a part of the first `add` alone: a child has no thread until it needs one."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="toktier-records", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        self._attempt()  # a fault of the place is known before the first request
        while True:
            with self._lock:
                if self._fault is None:
                    self._changed.wait_for(lambda: self._wanted() or self._queued())
                    pause = _PAUSE
                else:
                    pause, self._retry = self._retry, min(2 * self._retry, _RETRY_LONGEST)
                self._changed.wait_for(self._wanted, pause)
                closed, asked = self._closed, self._asked
                rounds = 1 + max(len(self._rows), len(self._outputs)) // _BATCH
            for _ in range(rounds):
                if not self._attempt():
                    break
            with self._lock:
                self._answered = asked
                self._changed.notify_all()
            if closed:
                with self._using_file:
                    self._file.close()
                return

    def _wanted(self) -> bool:
        return self._closed or self._asked > self._answered

    def _queued(self) -> bool:
        return bool(self._rows or self._outputs)

    def _attempt(self) -> bool:
        """One transaction. False: nothing was written, and it stays queued."""
        with self._lock:
            queue, queue_of_outputs, slots = self._rows, self._outputs, self._slots
            facts, outputs = list(islice(queue, _BATCH)), list(islice(queue_of_outputs, _BATCH))
            wanted = bool(facts or outputs or (self._closed and slots is not None))
        rows = []
        for one in facts:
            with contextlib.suppress(Exception):  # one that cannot be a row must not keep the others out
                rows.append(request_row(one))
        for again in (True, False):
            try:
                with self._using_file:
                    self._file.open()
                    if wanted:
                        self._file.write(rows, outputs, slots, self._clock())
                    size = self._file.size()
                break
            except Exception as error:
                fault = fault_of(error)
                with self._lock:
                    self._faults[fault] += 1
                    if not (again and fault in _MENDED):
                        self._fault = fault
                        return False
        with self._lock:
            for _ in range(min(len(facts), len(queue))):
                queue.popleft()
            for _ in range(min(len(outputs), len(queue_of_outputs))):
                self._output_bytes -= queue_of_outputs.popleft().bytes + ROW_OVERHEAD
            if self._slots is slots and wanted:
                self._slots = None
            self._written += len(rows)
            self._dropped += len(facts) - len(rows)
            self._outputs_written += len(outputs)
            self._size, self._fault, self._opened, self._retry = size, None, True, _RETRY_FIRST
        return True

    def _before_fork(self) -> bool:
        """Both locks, and the file closed. False: the thread was busy for too long, and the file stays open."""
        idle = self._using_file.acquire(timeout=_AT_EXIT)
        if idle:
            self._file.close()
        self._lock.acquire()
        return idle

    def _after_fork(self, idle: bool) -> None:
        self._lock.release()
        if idle:
            self._using_file.release()

    def _in_child(self) -> None:
        self._renew_locks()
        left = self._file.abandon()
        if left is not None:
            _abandoned.append(left)
        self._thread = None
        self._rows, self._outputs, self._output_bytes, self._slots = deque(), deque(), 0, None
        self._written = self._dropped = self._outputs_written = self._outputs_dropped = 0
        self._asked = self._answered = 0


_abandoned: list[sqlite3.Connection] = []  # the parent's: even to close one here would let go its locks' notes


class _Forks:
    """No file is open while its process forks: SQLite's notes of its locks must not reach a child."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._records: weakref.WeakSet[Records] = weakref.WeakSet()
        self._held: list[tuple[Records, bool]] = []
        os.register_at_fork(before=self._before, after_in_parent=self._after, after_in_child=self._in_child)

    def watch(self, records: Records) -> None:
        with self._lock:
            self._records.add(records)

    def _before(self) -> None:
        self._lock.acquire()
        self._held = [(records, records._before_fork()) for records in list(self._records)]

    def _after(self) -> None:
        held, self._held = self._held, []
        for records, idle in held:
            records._after_fork(idle)
        self._lock.release()

    def _in_child(self) -> None:
        held, self._held = self._held, []
        for records, _ in held:
            records._in_child()
        self._lock = threading.RLock()


_forks = _Forks()
