"""Second levels on a real server of the tests' own, and what they need: keys, ids, and waiting for the background."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any

import pytest
import redis

from tests.sessions.redis_process import RedisProcess
from toktier.cache import second_level, second_level_upkeep
from toktier.cache.second_level import RedisSecondLevel
from toktier.cache.second_level_values import key_prefix

PATIENT = 10.0  # seconds of a look-up, the most that it takes: where a busy host must not look like a server that hangs


def keys_of(name: str, count: int = 1) -> list[bytes]:
    return [sha256(f"{name} {k}".encode()).digest() for k in range(count)]


def ids_of(key: bytes, count: int = 3) -> bytes:
    """Made of the key, so that a wrong one is seen."""
    return (key * (count // 8 + 1))[: 4 * count]


class Shared:
    """One prefix on a server: levels of it, and a client of it that is not ours."""

    def __init__(self, process: RedisProcess) -> None:
        self.process = process
        self.prefix = f"test-{os.urandom(6).hex()}"
        self.levels: list[RedisSecondLevel] = []

    def level(self, url: str | None = None, **options: Any) -> RedisSecondLevel:
        made = RedisSecondLevel(url or self.process.url, prefix=self.prefix, **{"timeout": PATIENT, **options})
        self.levels.append(made)
        return made

    @contextlib.contextmanager
    def client(self) -> Iterator[Any]:
        with redis.Redis.from_url(self.process.url) as client:
            yield client

    def key(self, key: bytes) -> bytes:
        return key_prefix(self.prefix) + key

    def close(self) -> None:
        for level in self.levels:
            level.close()


def until(holds: Callable[[], bool], seconds: float = 180.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def written(level: RedisSecondLevel, count: int = 1) -> None:
    """Waits for so many writes since the level was made."""
    until(lambda: level.stats()["written"] >= count)


@contextlib.contextmanager
def patience() -> Iterator[None]:
    """Steps of the background take as long as they take, on a busy host too: beside a server that answers, none is
    ended by a time-out of its own. Closing beside one that hangs would wait for a minute."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(second_level_upkeep, "TIMEOUT_SECONDS", 60.0)
        patch.setattr(second_level, "CLOSE_SECONDS", 60.0)
        yield


def stored(level: RedisSecondLevel, keys: list[bytes], ids: int = 3) -> None:
    before = level.stats()["written"]
    with patience():
        for done, key in enumerate(keys, 1):
            level.store(key, ids_of(key, ids))
            written(level, before + done)


def balanced(stats: dict[str, Any]) -> bool:
    """Every look-up is counted once."""
    ends = ("hits", "misses", "not_asked", "timeouts", "errors", "damaged")
    return bool(stats["lookups"] == sum(stats[end] for end in ends))
