"""How changes of held blocks are written: batches of KV events in msgpack, as vLLM's publisher writes them.

A batch is `[seconds since the epoch, [event, ...], data-parallel rank]`. An event is an array that begins with its
name, or a map with the name under `type`; docs/kv-events.md lists the fields. Not here: frames and sequence numbers
(`kv_event_feed`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, Final

from toktier.errors import ConfigInvalid
from toktier.labels import quoted
from toktier.missing_distribution import missing_distribution
from toktier.router.block_hashes import Identity
from toktier.router.held_blocks import Change, Removed, Stored
from toktier.router.vocabulary import KvForm

# The tier that routers count as the engine's own, wherever it really lies; they know no name for a CPU's.
MEDIUM: Final = "GPU"


class EventWriter:
    def __init__(self, form: str, block_size: int, identity: Identity) -> None:
        """Raises ConfigInvalid for a form that there is not, or that has no place for the salt."""
        try:
            from msgpack import Packer  # type: ignore[import-untyped]
        except ImportError:
            raise missing_distribution("KV events need", "msgpack", "kv-events", "'msgpack>=1.1'") from None
        if form not in tuple(KvForm):
            raise ConfigInvalid(
                f"there is no form of KV events {quoted(form)}: expected {KvForm.ARRAY} or {KvForm.MAP}",
                remedy=f"name {KvForm.ARRAY} or {KvForm.MAP}",
            )
        if form == KvForm.ARRAY and identity.cache_salt:
            raise ConfigInvalid(
                "events in the form of arrays have no place for a salt: subscribers would compute other hashes",
                remedy=f"choose the form {KvForm.MAP}, or no salt",
            )
        self._packer = Packer()
        self._as_map = form == KvForm.MAP
        self._block_size = block_size
        self._lora_name, self._cache_salt = identity.lora_name or None, identity.cache_salt or None

    def batch(self, changes: Iterable[Change], seconds: float, rank: int) -> bytes:
        events = [self._packer.pack(self._event(change)) for change in changes]
        head = self._packer.pack_array_header(3) + self._packer.pack(seconds)
        return b"".join((head, self._packer.pack_array_header(len(events)), *events, self._packer.pack(rank)))

    def _event(self, change: Change) -> list[Any] | dict[str, Any]:
        if isinstance(change, Stored):
            fields: dict[str, Any] = {
                "type": "BlockStored",
                "block_hashes": change.keys,
                "parent_block_hash": change.parent,
                "token_ids": change.ids.tolist(),
                "block_size": self._block_size,
                "lora_id": None,  # its place; names took over
                "medium": MEDIUM,
                "lora_name": self._lora_name,
            }
            if self._cache_salt is not None:
                fields["cache_salt"] = self._cache_salt
        elif isinstance(change, Removed):
            fields = {"type": "BlockRemoved", "block_hashes": change.keys, "medium": MEDIUM}
        else:
            fields = {"type": "AllBlocksCleared"}
        return fields if self._as_map else list(fields.values())


SEQUENCE: Final = struct.Struct(">Q")
# What ends a replay: -1 in the place of the sequence number, and no payload.
REPLAY_END: Final = struct.pack(">q", -1)
