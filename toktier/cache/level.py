"""What a second level of the prefix cache is to the first: keys in, ids out, and nothing that could hold a request up.

A key is the SHA-256 of everything that the ids depend on (namespace, add_special_tokens, prefix of the text), so that a
level never sees a text, and an equal key is the same prefix. Not here: a level (`toktier.cache.second_level`), who asks
one and when (`toktier.cache.prefix_cache`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

KEY_BYTES = 32
MAX_KEYS = 16_384
"""Of one look-up: the deepest boundaries of a text with more."""


class SecondLevel(Protocol):
    """Called by any number of threads at once. No method raises for what a server, a network or a value does: a level
    that cannot answer is one that knows nothing."""

    def lookup(self, keys: Sequence[bytes], /) -> tuple[int, bytes] | None:
        """The first of `keys` that is known, and its ids; None: none of them, or no answer in time.

        `keys`: 1 to MAX_KEYS keys of KEY_BYTES, the longest prefix first. The answer is the index of the key, and the
        ids of its whole prefix as uint32 little-endian; a value whose checksum fails counts as unknown. Bounded in
        time by the level's own time-out.
        """

    def store(self, key: bytes, ids: bytes, /) -> None:
        """Keeps the ids (uint32 little-endian) of the whole prefix of `key`, or drops them. Returns at once."""

    def stats(self) -> dict[str, Any]:
        """Counters and facts for people, JSON values only."""

    def close(self) -> None:
        """Ends the level's threads and connections. Calls after it find nothing and keep nothing."""
