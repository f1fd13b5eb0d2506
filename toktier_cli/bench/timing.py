"""How a pass is timed: fresh texts, processor time beside wall time, results kept until the pass has ended.

The standard library alone, and nothing of this package: a worker inside another environment loads this file by its
path. Not here: engines (`engines.py`), what a figure is compared with.

- The texts of every pass are new str objects: what an engine left on the old ones (a cached UTF-8 form) does not help.
- Processor time is the process's, not the thread's: an engine that starts threads pays for them.
- Results are kept while the clock runs and compared afterwards. Memory for them would come from the system anew in each
  pass (7 % of an engine that allocates one array a text), where a serving process has it already: `settle_heap`.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
_HELD_BYTES = 31 << 20  # glibc keeps no larger blocks in its heap
KEPT_CALLS = 64


class Pass(NamedTuple):
    """Nanoseconds of one timed section."""

    wall_ns: int
    cpu_ns: int


def fresh(texts: Sequence[str]) -> list[str]:
    """Equal texts as new objects; the interpreter has one object alone for a text of one Latin-1 character."""
    return [(text + "x")[:-1] for text in texts]


def settle_heap() -> bool:
    """From here on the heap keeps the memory that it got, as that of a process which has served for a while. False
    where the C library has no such setting."""
    try:
        libc = ctypes.CDLL(None)
        done = bool(libc.mallopt(_M_MMAP_THRESHOLD, 1 << 25)) and bool(libc.mallopt(_M_TRIM_THRESHOLD, 1 << 30))
        libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
        libc.free.argtypes = [ctypes.c_void_p]
        block = libc.malloc(_HELD_BYTES)
        if block:
            ctypes.memset(block, 1, _HELD_BYTES)
            libc.free(block)
    except (AttributeError, OSError):
        return False
    return done


@contextmanager
def _quiet() -> Iterator[None]:
    """No collection of garbage inside a timed section."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def timed_pass(encode: Callable[[str], Any], texts: Sequence[str]) -> tuple[Pass, list[Any]]:
    """One pass over the texts, each encoded once, and the results. `texts`: see `fresh`."""
    with _quiet():
        wall, cpu = time.perf_counter_ns(), time.process_time_ns()
        results = [encode(text) for text in texts]
        cpu, wall = time.process_time_ns() - cpu, time.perf_counter_ns() - wall
    return Pass(wall, cpu), results


def timed_calls(encode: Callable[[str], Any], texts: Sequence[str]) -> tuple[Pass, list[Any]]:
    """As `timed_pass` for short calls: the loop is the interpreter's own, and the last results alone are kept. They
    cost as much as the call itself otherwise; who serves short texts drops them too."""
    with _quiet():
        wall, cpu = time.perf_counter_ns(), time.process_time_ns()
        kept = deque(map(encode, texts), maxlen=KEPT_CALLS)
        cpu, wall = time.process_time_ns() - cpu, time.perf_counter_ns() - wall
    return Pass(wall, cpu), list(kept)


def digest(ids: bytes) -> str:
    """What is compared of one result: a digest of its ids as little-endian uint32."""
    return hashlib.blake2b(ids, digest_size=12).hexdigest()
