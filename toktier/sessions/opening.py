"""Which store is meant, and opening it: the one place that tells a directory from a URL.

Nothing is made for somebody who only looks. Not here: what a store does (`toktier.sessions.store`).
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Literal

from toktier.config import STORE_SCHEMES, Settings, store_scheme, without_credentials
from toktier.errors import ConfigInvalid, StoreNotFound
from toktier.labels import quoted, shown_path
from toktier.sessions.database import FILE, NAMED_BY
from toktier.sessions.protocol import Store
from toktier.sessions.store import BUDGET_BYTES, TIMEOUT_SECONDS, SessionStore
from toktier.storage import environment_fault


def place_of(where: str | os.PathLike[str] | None, settings: Settings) -> str:
    """The directory or URL that is meant; None: what the settings say. Raises ConfigInvalid for what is neither."""
    place = settings.require_store() if where is None else os.fspath(where)
    scheme = store_scheme(place)
    if not place or "\0" in place or scheme not in (None, *STORE_SCHEMES):
        raise ConfigInvalid(
            f"{quoted(without_credentials(place))} is no place of a session store: expected a directory, or a URL of "
            f"{', '.join(STORE_SCHEMES)}",
            details={"store": without_credentials(place)},
            remedy="point store= (or --store) at a directory",
        )
    return place


def open_store(
    where: str | os.PathLike[str] | None,
    settings: Settings,
    *,
    create: bool = True,
    durability: Literal["process", "full"] = "process",
    budget_bytes: int = BUDGET_BYTES,
    timeout: float | None = None,
) -> Store:
    """The store `where`; None: that of the settings. `create`: made where there is none, which else is StoreNotFound; a
    server is there or is not. `durability` is for directories: what a server keeps is its own setting.

    Raises also ConfigInvalid, EnvironmentFault, StoreCorrupt and StoreFormatUnsupported, and for a server
    BackendUnavailable where the extra `redis` is missing; it is connected on first use.
    """
    place = place_of(where, settings)
    if store_scheme(place) is not None:
        from toktier.sessions import redis_store

        seconds = redis_store.TIMEOUT_SECONDS if timeout is None else timeout
        return redis_store.RedisStore(place, budget_bytes=budget_bytes, timeout=seconds)
    if not create:
        _require(Path(place))
    seconds = TIMEOUT_SECONDS if timeout is None else timeout
    return SessionStore(place, durability=durability, budget_bytes=budget_bytes, timeout=seconds)


def _require(directory: Path) -> None:
    """Raises StoreNotFound unless there is a store. By its name alone: to open and close the file of a store that this
    process has open elsewhere would let go the locks that SQLite holds on it."""
    file = directory / FILE
    try:
        regular = stat.S_ISREG(os.stat(file).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        raise _absent(directory, f"has no {FILE}" if directory.is_dir() else _what(directory)) from None
    except OSError as error:
        raise environment_fault(error, "read", file, NAMED_BY) from None
    if not regular:
        raise _absent(directory, f"has a {FILE} that is no regular file")


def _what(directory: Path) -> str:
    return "is no directory" if os.path.lexists(directory) else "does not exist"


def _absent(directory: Path, what: str) -> StoreNotFound:
    return StoreNotFound(
        f"there is no session store: {shown_path(directory)} {what}",
        details={"path": os.fspath(directory)},
        remedy="name another place (--store DIR, `store` in config.toml); a program makes one with store=DIR",
    )
