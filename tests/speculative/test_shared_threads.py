"""Several threads on one cache, children of fork, and no memory for a scope."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from array import array

import numpy
import pytest

from toktier.speculative import SharedTokenCache


def test_eight_threads_in_all_scopes() -> None:
    """What a scope is given tells the scope: a copy from another one, or of two requests at once, would show."""
    cache = SharedTokenCache(3 * 16384, 3, 2)
    failures: list[str] = []
    copies = [0] * 8

    def document(scope: int, number: int) -> array[int]:
        return array("I", ((7, 9, *(scope * 1_000_000 + number * 100 + i for i in range(60)))))

    def work(thread: int) -> None:
        generator = random.Random(thread)
        for turn in range(1500):
            scope = generator.randrange(5)
            if generator.random() < 0.4:
                cache.insert((0, 0, 0, scope), document(scope, generator.randrange(2000)))
                continue
            if turn % 500 == 499:
                cache.remove((0, 0, 0, scope))
            copy = cache.propose((0, 0, 0, scope), [7, 9], 20)
            if copy is not None:
                copies[thread] += 1
                if copy != list(range(copy[0], copy[0] + len(copy))) or copy[0] // 1_000_000 != scope or copy[0] % 100:
                    failures.append(f"scope {scope}: {copy}")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert min(copies) > 0
    stats = cache.stats()
    assert stats["scopes"] <= 3
    assert stats["bytes"] == stats["scopes"] * cache.bytes_per_scope
    assert stats["dropped_scopes"] > 0


@pytest.mark.unsanitized
def test_a_child_of_fork_has_a_copy() -> None:
    cache, scope, stop = SharedTokenCache(1 << 20, 1, 2), (0, 0, 0, 0), threading.Event()
    cache.insert(scope, [1, 2, 3])

    def keep_inserting() -> None:
        generator = random.Random(1)
        while not stop.is_set():
            cache.insert((0, 0, 0, 0), array("I", (generator.randrange(4, 1 << 20) for _ in range(5000))))

    thread = threading.Thread(target=keep_inserting)
    thread.start()
    try:
        for _ in range(10):
            child = os.fork()
            if child == 0:
                cache.insert(scope, [1, 2, 4])
                os._exit(0 if cache.propose(scope, [1, 2], 1) == [4] else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        stop.set()
        thread.join()
    assert cache.propose(scope, [1, 2], 1) != [4], "what a child inserts is its own"


NO_MEMORY = """
import resource
from toktier.speculative import SharedTokenCache
cache = SharedTokenCache(2 << 30, 2, 2)
assert cache.bytes_per_scope == 1 << 30
cache.insert((0, 0, 0, 0), [1, 2, 3])
cache.insert((0, 0, 0, 1), [1, 2, 4])
held = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (held + (100 << 20), -1))
for _ in range(3):
    try:
        cache.insert((0, 0, 0, 2), [1, 2, 5])
    except MemoryError:
        pass
    else:
        raise SystemExit("a scope of 1 GiB was made of 100 MiB")
assert cache.propose((0, 0, 0, 0), [1, 2], 1) == [3]
assert cache.propose((0, 0, 0, 1), [1, 2], 1) == [4]
assert cache.stats()["inserts"] == 2
assert cache.stats()["dropped_scopes"] == 0
"""


@pytest.mark.unsanitized
def test_where_there_is_no_memory_for_a_scope_nothing_changes() -> None:
    run = subprocess.run([sys.executable, "-c", NO_MEMORY], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_memory_is_fixed_and_given_back() -> None:
    def resident() -> int:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    cache, scope, generator = SharedTokenCache(32 << 20, 1, 8), (0, 0, 0, 0), numpy.random.default_rng(3)
    before = resident()
    for _ in range(25):
        cache.insert(scope, generator.integers(0, 150_000, 200_000, dtype=numpy.uint32))
    assert cache.stored(scope) > cache.ring_tokens
    assert resident() - before < (32 << 20) + (8 << 20)
    assert cache.stats()["bytes"] == cache.bytes_per_scope == 32 << 20
    cache.clear()
    assert resident() - before < 8 << 20
