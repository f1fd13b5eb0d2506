"""What a server puts before a tokenizer: bounded batches for many callers, sessions in turn, and metrics.

Nothing but this file is loaded before a name is used: tokenizers import their calls from here.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from toktier.serving.async_session import AsyncSession
    from toktier.serving.batcher import Batcher
    from toktier.serving.limits import Limits

_HOMES = {
    "AsyncSession": "toktier.serving.async_session",
    "Batcher": "toktier.serving.batcher",
    "Limits": "toktier.serving.limits",
}

__all__ = ["AsyncSession", "Batcher", "Limits"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'toktier.serving' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value
