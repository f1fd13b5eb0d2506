"""Where a store lies, of each kind, so that one test holds over all of them."""

from __future__ import annotations

import contextlib
import itertools
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from toktier.sessions.protocol import Store
from toktier.sessions.redis_store import RedisStore
from toktier.sessions.store import SessionStore

KINDS = ("sqlite", "redis", "redis-cluster")


class Place(Protocol):
    def open(self, **settings: Any) -> Store: ...

    def __truediv__(self, name: str) -> Place: ...


@dataclass(frozen=True)
class Directory:
    path: Path

    def open(self, **settings: Any) -> Store:
        return SessionStore(self.path, **{"timeout": 120.0, **settings})

    def __truediv__(self, name: str) -> Directory:
        return Directory(self.path / name)


@dataclass(frozen=True)
class Namespace:
    url: str
    name: str

    def open(self, **settings: Any) -> Store:
        return RedisStore(self.url, namespace=self.name, **{"timeout": 60.0, **settings})

    def __truediv__(self, name: str) -> Namespace:
        return Namespace(self.url, f"{self.name}.{name}")


_numbers = itertools.count()


@dataclass(frozen=True)
class Places:
    """Of one kind; `url` is None for directories."""

    url: str | None

    @contextlib.contextmanager
    def fresh(self) -> Iterator[Place]:
        """Directories in memory where there is such a place: closing a store syncs it."""
        if self.url is not None:
            yield Namespace(self.url, f"test-{next(_numbers)}")
            return
        with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as path:
            yield Directory(Path(path) / "store")
