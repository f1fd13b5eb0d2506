"""Which full blocks the slots of one upstream hold together, and what changes when a slot's content does.

A block is counted once for each slot that holds it: it is stored when the first one does, and removed when none does
any more. Applied in order, the changes always give the union of the full blocks of all slots.

No sockets, and no locks: one thread has it. Not here: how changes are written (`kv_event_form`) and sent
(`kv_event_feed`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from toktier.router.block_hashes import BlockHasher, keys_of
from toktier.router.token_ids import NO_IDS, TokenIds, shared_prefix

# Of one Stored. Hashing or writing so many takes about a millisecond, after which other threads may run: a slot of
# 128 Ki tokens has 16 times as many, and a request must not wait for all of them.
MAX_BLOCKS: Final = 512


@dataclass(frozen=True, slots=True)
class Stored:
    """Blocks that follow each other. `parent`: the key before the first; None: it begins a sequence. `ids`:
    [len(keys) x block size]."""

    keys: list[int]
    parent: int | None
    ids: TokenIds


@dataclass(frozen=True, slots=True)
class Removed:
    """The deepest blocks come first."""

    keys: list[int]


@dataclass(frozen=True, slots=True)
class Cleared:
    """All blocks of the upstream are gone."""


Change = Stored | Removed | Cleared


@dataclass(frozen=True, slots=True)
class _Content:
    ids: TokenIds  # whole blocks
    links: list[int]


class HeldBlocks:
    """Of one upstream. Memory: the IDs in its slots, and two numbers for each block."""

    def __init__(self, hasher: BlockHasher) -> None:
        self._hasher = hasher
        self._slots: dict[int, _Content] = {}
        self._holders: dict[int, int] = {}  # of each key: how many slots

    def __len__(self) -> int:
        """Different blocks that are held."""
        return len(self._holders)

    def slot_now(self, slot: int, ids: TokenIds | None) -> list[Change]:
        """The slot holds `ids` [n] and nothing else; None: nothing that is known. The array is kept: nobody may write
        to it. Hashes what differs from what the slot held."""
        was = self._slots.pop(slot, _NOTHING)
        size = self._hasher.block_size
        whole = NO_IDS if ids is None else ids[: len(ids) // size * size]
        same = shared_prefix(was.ids, whole) // size
        links = was.links[:same]
        step = MAX_BLOCKS * size
        for begin in range(same * size, len(whole), step):
            if begin > same * size:
                time.sleep(0)  # lets other threads run
            links += self._hasher.links(whole[begin : begin + step], links[-1] if links else None)
        if links:
            self._slots[slot] = _Content(whole, links)
        changes: list[Change] = []
        gone = self._let_go(keys_of(was.links[same:]))
        if gone:
            changes.append(Removed(gone))
        first = self._hold(keys_of(links[same:]))
        if first is not None:
            changes += self._stored(_Content(whole, links), same + first)
        return changes

    def clear(self) -> list[Change]:
        """Nothing is held: the upstream has begun anew. Blocks are removed one by one first: llm-d ignores that all
        are cleared."""
        # A block came into the table after its parent.
        removed: list[Change] = [Removed(list(reversed(self._holders)))] if self._holders else []
        self._slots.clear()
        self._holders.clear()
        return [*removed, Cleared()]

    def everything(self) -> list[Change]:
        """What makes whoever knew anything, or nothing, know all that is held."""
        changes: list[Change] = [Cleared()]
        told: set[int] = set()
        for content in self._slots.values():
            keys = keys_of(content.links)
            # The first that is new: what follows it is new too, for a key names all that comes before.
            first = next((at for at, key in enumerate(keys) if key not in told), None)
            if first is not None:
                told.update(keys[first:])
                changes += self._stored(content, first)
        return changes

    def _stored(self, content: _Content, first: int) -> list[Stored]:
        size, keys = self._hasher.block_size, keys_of(content.links)
        return [
            Stored(
                keys[at : at + MAX_BLOCKS], keys[at - 1] if at else None, content.ids[at * size :][: MAX_BLOCKS * size]
            )
            for at in range(first, len(keys), MAX_BLOCKS)
        ]

    def _let_go(self, keys: list[int]) -> list[int]:
        gone = []
        for key in reversed(keys):
            left = self._holders[key] - 1
            if left:
                self._holders[key] = left
            else:
                del self._holders[key]
                gone.append(key)
        return gone

    def _hold(self, keys: list[int]) -> int | None:
        """Where the first is that nobody held."""
        first = None
        for at, key in enumerate(keys):
            holders = self._holders.get(key, 0)
            self._holders[key] = holders + 1
            if not holders and first is None:
                first = at
        return first


_NOTHING: Final = _Content(NO_IDS, [])
