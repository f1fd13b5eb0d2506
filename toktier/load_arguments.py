"""What load(), from_file() and from_pretrained() have in common: their arguments, checked, and the settings behind.

Not here: finding the file (`toktier.api`), opening it (`toktier.opening`).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toktier.cache.setting import PrefixCacheArgument, PrefixCacheSetting, setting_of
from toktier.config import Settings
from toktier.errors import ConfigInvalid
from toktier.labels import quoted
from toktier.routing.gates import Request
from toktier.routing.vocabulary import (
    BackendId,
    Device,
    GpuDelivery,
    RoutingPolicy,
    parse_backend,
    parse_delivery,
    parse_device,
    parse_policy,
)
from toktier.tokenizer import LOOKUPS

if TYPE_CHECKING:
    from toktier.sessions.protocol import Store


@dataclass(frozen=True, slots=True)
class Keeping:
    """Where sessions are kept, whether texts are looked up there, and the cache of prefixes."""

    store: str | Store | None
    lookup: str
    prefix_cache: PrefixCacheSetting | None = None

    def opened(self, settings: Settings) -> Store | None:
        if self.store is None or not isinstance(self.store, str):
            return self.store
        from toktier.sessions.opening import open_store

        return open_store(self.store, settings)

    def __reduce__(self) -> tuple[type[Keeping], tuple[str | None, str, PrefixCacheSetting | None]]:
        """A pickle opens the same place again; an open store stays in its process."""
        return Keeping, (self.store if isinstance(self.store, str) else None, self.lookup, self.prefix_cache)


def keeping_of(
    store: str | os.PathLike[str] | Store | None,
    lookup: str,
    settings: Settings,
    prefix_cache: PrefixCacheArgument = None,
) -> Keeping:
    if lookup not in LOOKUPS:
        raise ConfigInvalid(
            f"lookup is {lookup!r}: expected one of {', '.join(LOOKUPS)}",
            details={"argument": "lookup"},
            remedy="leave lookup out",
        )
    cache = setting_of(prefix_cache)
    if store is None:
        return Keeping(settings.store, lookup, cache)
    if isinstance(store, (str, os.PathLike)):
        from toktier.config import store_scheme

        place = os.fspath(store)
        return Keeping(place if store_scheme(place) is not None else os.path.abspath(place), lookup, cache)
    if not hasattr(store, "longest_prefix"):
        raise ConfigInvalid(
            f"store is of type {type(store).__name__}: expected a directory, a URL or an open store",
            details={"argument": "store"},
            remedy="give a directory as str or Path, or what open_store() gave",
        )
    return Keeping(store, lookup, cache)


def request_of(
    settings: Settings,
    policy: RoutingPolicy | str,
    tokenizer: BackendId | str | None,
    device: Device | str,
    gpu_min_bytes: int | None,
    gpu_delivery: GpuDelivery | str | None,
) -> Request:
    if gpu_min_bytes is not None and (type(gpu_min_bytes) is not int or gpu_min_bytes < 1):
        raise ConfigInvalid(
            f"gpu_min_bytes is {quoted(str(gpu_min_bytes))}: expected a number of bytes from 1 on",
            details={"argument": "gpu_min_bytes"},
            remedy='leave gpu_min_bytes out; device="cpu" keeps texts from a GPU',
        )
    return Request(
        policy=parse_policy(policy),
        backend=parse_backend(settings.tokenizer if tokenizer is None else tokenizer),
        device=parse_device(device),
        fallback=settings.tokenizer_fallback,
        gpu_disabled=settings.disable_gpu,
        gpu_min_bytes=settings.gpu_min_bytes if gpu_min_bytes is None else gpu_min_bytes,
        gpu_delivery=parse_delivery(settings.gpu_delivery if gpu_delivery is None else gpu_delivery),
    )
