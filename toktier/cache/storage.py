"""Where entries of prefix caches are kept: one budget that any number of wrappers share, each under its namespace.

Entries outlive the wrappers that made them. Not here: what an entry is (native/cache), keys, encoding
(`toktier.cache.prefix_cache`).
"""

from __future__ import annotations

from typing import Any

from toktier._native import PrefixStore
from toktier.cache.level import SecondLevel
from toktier.errors import ConfigInvalid
from toktier.labels import quoted

DEFAULT_CAPACITY = 64 << 20
BUDGETS = ("payload", "resident")


class PrefixStorage:
    """Thread-safe. A process that is forked has a copy of its own."""

    def __init__(
        self, capacity: int = DEFAULT_CAPACITY, *, budget: str = "payload", second_level: SecondLevel | None = None
    ) -> None:
        """`capacity`: bytes of `stats()["bytes"]` ("payload": 4 for each id of every entry's whole prefix) or of
        `stats()["resident_bytes"]` ("resident": what is held), never exceeded; 0 keeps nothing. As n turns of a
        conversation share what they hold, "resident" has room for many more of them. `second_level`: asked for what is
        not here, and told of what comes in. Raises ConfigInvalid."""
        if type(capacity) is not int or not 0 <= capacity < 1 << 60:
            raise ConfigInvalid(
                f"capacity is {quoted(str(capacity))}: expected a number of bytes from 0 on",
                details={"argument": "capacity"},
                remedy=f"give an int, for example {DEFAULT_CAPACITY} (64 MiB)",
            )
        if budget not in BUDGETS:
            raise ConfigInvalid(
                f"budget is {quoted(str(budget))}: expected one of {', '.join(BUDGETS)}",
                details={"argument": "budget"},
                remedy="leave budget out",
            )
        self.capacity, self.budget = capacity, budget
        self.second_level = second_level
        self._native = PrefixStore(capacity, budget == "resident")

    @property
    def native(self) -> PrefixStore:
        """For wrappers."""
        return self._native

    def stats(self) -> dict[str, Any]:
        """Of all namespaces: entries, bytes, resident_bytes; capacity and budget; evicted and refused entries; what the
        second level says, None without one."""
        second = self.second_level
        return {
            **self._native.stats(),
            "budget": self.budget,
            "second_level": None if second is None else second.stats(),
        }

    def clear(self) -> None:
        """Drops all entries; counters stay."""
        self._native.clear()
