"""Caches of token ids in front of a backend: `PrefixCache` and the `PrefixStorage` that several may share
(docs/prefix-cache.md).

The names are imported when they are first used: a tokenizer without a cache needs none of it.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from toktier.cache.level import SecondLevel
    from toktier.cache.prefix_cache import PrefixCache
    from toktier.cache.second_level import RedisSecondLevel
    from toktier.cache.storage import PrefixStorage

_HOMES = {
    "PrefixCache": "toktier.cache.prefix_cache",
    "PrefixStorage": "toktier.cache.storage",
    "RedisSecondLevel": "toktier.cache.second_level",
    "SecondLevel": "toktier.cache.level",
}

__all__ = ["PrefixCache", "PrefixStorage", "RedisSecondLevel", "SecondLevel"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'toktier.cache' has no attribute {name!r}")
    return getattr(import_module(home), name)
