"""The keyword `prefix_cache` of load() and its like: what was asked for, and whether it is done.

"auto" takes a cache where the reference serves: a hit there spares 95 % of the time and more (docs/prefix-cache.md). It
leaves it off on the native engine, where a hit spares half of the time and a miss costs twice as much: an operator who
knows that most texts go on from earlier ones gives a budget. Not here: the cache itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from toktier.errors import ConfigInvalid
from toktier.labels import quoted

if TYPE_CHECKING:
    from toktier.cache.level import SecondLevel
    from toktier.cache.prefix_cache import PrefixCache
    from toktier.cache.storage import PrefixStorage

OFF_ON_ENGINE = "auto: encoding anew on the native engine is cheaper than the misses"
OFF_ON_GPU = "a GPU serves long texts"

PrefixCacheArgument: TypeAlias = "int | Literal['auto'] | PrefixCache | PrefixStorage | None"


@dataclass(frozen=True, slots=True)
class PrefixCacheSetting:
    """`capacity`: bytes held, where there is no `storage`. `automatic`: "auto" was given. `second_level`: None: that of
    the storage. `name`: kept apart from others of the same tokenizer."""

    capacity: int
    storage: PrefixStorage | None = None
    extend: bool = True
    automatic: bool = False
    second_level: SecondLevel | None = None
    name: str | None = None

    def over(self, inner: Any, *, warn: bool = True) -> PrefixCache:
        from toktier.cache.prefix_cache import PrefixCache
        from toktier.cache.storage import PrefixStorage

        # A budget that a process is given means its memory.
        storage = self.storage or PrefixStorage(self.capacity, budget="resident")
        own = None if self.name is None else inner.prefix_cache_facts().namespace
        return PrefixCache(
            inner,
            namespace=None if own is None else f"{own} {self.name}",
            storage=storage,
            extend=self.extend,
            second_level=self.second_level,
            warn=warn and not self.automatic,
        )

    def off_because(self, native: bool, gpu: bool) -> str | None:
        """Why there is no cache for an engine; None: there is one."""
        if gpu:
            return OFF_ON_GPU
        return OFF_ON_ENGINE if native and self.automatic else None

    def __reduce__(self) -> tuple[type[PrefixCacheSetting], tuple[Any, ...]]:
        """Entries and connections stay in their process: another one begins with an empty storage of the capacity."""
        return PrefixCacheSetting, (self.capacity, None, self.extend, self.automatic, None, self.name)


def setting_of(value: PrefixCacheArgument) -> PrefixCacheSetting | None:
    """None: no cache. Raises ConfigInvalid."""
    if value is None or (value == 0 and type(value) is int):
        return None
    from toktier.cache.prefix_cache import PrefixCache
    from toktier.cache.storage import DEFAULT_CAPACITY, PrefixStorage

    if isinstance(value, PrefixCache):
        return PrefixCacheSetting(
            value.storage.capacity,
            value.storage,
            value.extend,
            second_level=value.second_level,
            name=value.given_namespace,
        )
    if isinstance(value, PrefixStorage):
        return PrefixCacheSetting(value.capacity, value)
    if value == "auto":
        return PrefixCacheSetting(DEFAULT_CAPACITY, automatic=True)
    if type(value) is int:
        PrefixStorage(value)  # refuses what is no capacity
        return PrefixCacheSetting(value)
    raise ConfigInvalid(
        f"prefix_cache is {quoted(str(value))}: expected a number of bytes, a PrefixCache, a PrefixStorage or 'auto'",
        details={"argument": "prefix_cache"},
        remedy="leave prefix_cache out, or give a budget, for example prefix_cache=64 << 20",
    )
