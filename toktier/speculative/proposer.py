"""Copies for one request as it is decoded: its own history is asked first, then its scope of a shared cache.

It keeps what a decoding loop would have to: the history, how long a copy may be, when to pause after copies that the
model refused. Not here: the model, and what its verification costs. One request, one thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from toktier._native import CopyWindow, MissBackoff, PromptLookup, SharedTokenCache
from toktier.errors import ConfigInvalid
from toktier.integer_argument import integer_argument
from toktier.speculative.scope import Scope

USUAL_KEY_LEN = 8  # tokens; shorter matches on prose are mostly chance
Source = Literal["own", "shared"]


class Proposer:
    """Each round: `propose()`, the model verifies, `settle(accepted)`, `append(what the model said)`. At the end of a
    request that ended well: `finish()`.

    `cache` with `scope`: where other requests' tokens come from, or neither. `key_len`: tokens of the own history that
    must match; None: that of the cache, else 8. `window` and `backoff` are this request's alone; None: the usual ones.
    ConfigInvalid for one of `cache` and `scope` without the other.
    """

    def __init__(
        self,
        cache: SharedTokenCache | None = None,
        scope: Scope | tuple[str | int, str | int, str | int, str | int] | None = None,
        *,
        key_len: int | None = None,
        window: CopyWindow | None = None,
        backoff: MissBackoff | None = None,
    ) -> None:
        if (cache is None) != (scope is None):
            raise ConfigInvalid(
                f"{'scope' if cache is None else 'cache'} is given alone: expected cache and scope, or neither",
                remedy="give both, or leave both out to copy from the own history alone",
            )
        # What is none of these is refused now, and not in the middle of a request.
        for name, given, kind in (
            ("cache", cache, SharedTokenCache),
            ("window", window, CopyWindow),
            ("backoff", backoff, MissBackoff),
        ):
            if given is not None and not isinstance(given, kind):
                raise TypeError(f"{name} must be a {kind.__name__}, not {type(given).__name__}")
        if cache is not None and scope is not None:
            cache.stored(scope)
        self._cache, self._scope = cache, scope
        if key_len is None:
            key_len = USUAL_KEY_LEN if cache is None else cache.key_len
        self.history = PromptLookup(key_len)
        self.window = CopyWindow() if window is None else window
        self.backoff = MissBackoff() if backoff is None else backoff
        self._in_flight = 0
        self._source: Source | None = None
        self._counts = dict.fromkeys(("own_copies", "shared_copies", "proposed_tokens", "accepted_tokens", "paused"), 0)

    def append(self, tokens: Iterable[int] | Any) -> None:
        """The prompt, then what was generated: a uint32 buffer or integers."""
        self.history.append(tokens)

    def propose(self, max_len: int | None = None) -> list[int] | None:
        """Tokens that may come next, at most the window and `max_len`; None: nothing to copy, or a pause, of which each
        call is one round. A copy that was not settled is forgotten."""
        if max_len is not None:  # refused in a pause, too
            max_len = integer_argument(max_len, "max_len")
            if max_len < 0:
                raise ConfigInvalid(f"max_len is {max_len}: expected 0 or more")
        self.abandon()
        if self.backoff.skip():
            self._counts["paused"] += 1
            return None
        room = self.window.current if max_len is None else min(max_len, self.window.current)
        source: Source = "own"
        copy = self.history.propose(room)
        if copy is None and self._cache is not None and self._scope is not None:
            source, copy = "shared", self._cache.propose(self._scope, self.history, room)
        if copy is not None:
            self._in_flight, self._source = len(copy), source
            self._counts[f"{source}_copies"] += 1
            self._counts["proposed_tokens"] += len(copy)
        return copy

    @property
    def source(self) -> Source | None:
        """Where the copy came from that awaits its verdict; None: there is none."""
        return self._source

    def settle(self, accepted: int) -> None:
        """The first `accepted` tokens of the copy were the model's own. Without a copy: nothing happens.

        ConfigInvalid for less than 0 or more than the copy has.
        """
        accepted = integer_argument(accepted, "accepted")
        if not 0 <= accepted <= self._in_flight:
            raise ConfigInvalid(f"accepted is {accepted}: expected 0 to {self._in_flight}, the tokens of the copy")
        self.window.record(self._in_flight, accepted)
        self.backoff.record(self._in_flight, accepted)
        self._counts["accepted_tokens"] += accepted
        self.abandon()

    def abandon(self) -> None:
        """Forgets a copy that nobody verified: neither window nor pause change."""
        self._in_flight, self._source = 0, None

    def finish(self) -> int:
        """Leaves the history to later requests of the scope; the ring tokens that took. Without a cache: 0.

        InvalidToken where it holds the ID 4294967295.
        """
        self.abandon()
        if self._cache is None or self._scope is None:
            return 0
        return self._cache.insert(self._scope, self.history)

    def stats(self) -> dict[str, int]:
        """Copies by source, tokens proposed and accepted, rounds that were pauses."""
        return dict(self._counts)
