"""Stores of every kind, and servers of the tests' own for those that need one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sessions.places import KINDS, Place, Places
from tests.sessions.redis_process import RedisProcess
from toktier.sessions import opening, redis_store


@pytest.fixture(autouse=True)
def _patient_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores that are opened without a time-out of their own: a busy host must not look like a server that is away, nor
    like a writer who never ends."""
    monkeypatch.setattr(redis_store, "TIMEOUT_SECONDS", 60.0)
    monkeypatch.setattr(opening, "TIMEOUT_SECONDS", 120.0)


@pytest.fixture(scope="session")
def redis_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    """One that forgets, for all tests that do not end it."""
    process = RedisProcess(tmp_path_factory.mktemp("redis"))
    yield process
    process.close()


@pytest.fixture(scope="session")
def cluster_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    """A cluster of one node: it refuses what touches two slots at once, as any other does."""
    process = RedisProcess(tmp_path_factory.mktemp("cluster"), cluster=True)
    yield process
    process.close()


@pytest.fixture(scope="session", params=KINDS)
def places(request: pytest.FixtureRequest) -> Places:
    if request.param == "sqlite":
        return Places(None)
    if request.param == "redis":
        return Places(request.getfixturevalue("redis_process").url)
    process = request.getfixturevalue("cluster_process")
    return Places(f"redis+cluster://127.0.0.1:{process.port}")


@pytest.fixture
def place(places: Places) -> Iterator[Place]:
    with places.fresh() as one:
        yield one
