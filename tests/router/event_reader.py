"""What a subscriber does with KV events: reads either form, keeps what it was told is held."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgpack  # type: ignore[import-untyped]

FIELDS = {
    "BlockStored": (
        "type", "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name",
    ),
    "BlockRemoved": ("type", "block_hashes", "medium"),
    "AllBlocksCleared": ("type",),
}  # fmt: skip


def events_of(payload: bytes) -> list[dict[str, Any]]:
    """By name, whatever their form; a payload of another shape fails."""
    batch = msgpack.unpackb(payload)
    assert len(batch) == 3
    assert isinstance(batch[0], float)
    assert batch[2] == 0
    named = []
    for event in batch[1]:
        fields = event if isinstance(event, dict) else dict(zip(FIELDS[event[0]], event, strict=True))
        assert set(fields) - {"cache_salt"} == set(FIELDS[fields["type"]])
        named.append(fields)
    return named


@dataclass
class Index:
    """Blocks by their keys, each with what it was told of it: the prefix of token IDs that it ends. A subscriber that
    is told of a child without its parent, or to remove what it does not hold, fails."""

    blocks: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def apply(self, payload: bytes) -> None:
        for event in events_of(payload):
            if event["type"] == "AllBlocksCleared":
                self.blocks.clear()
            elif event["type"] == "BlockRemoved":
                for key in event["block_hashes"]:
                    prefix = self.blocks.pop(key)
                    size = len(prefix)
                    assert not any(len(p) > size and p[:size] == prefix for p in self.blocks.values()), "not a leaf"
            else:
                self._store(event)

    def _store(self, event: dict[str, Any]) -> None:
        size, ids = event["block_size"], event["token_ids"]
        assert len(ids) == size * len(event["block_hashes"]) > 0
        parent = event["parent_block_hash"]
        prefix = () if parent is None else self.blocks[parent]
        for at, key in enumerate(event["block_hashes"]):
            prefix = (*prefix, *ids[at * size : (at + 1) * size])
            assert key not in self.blocks, "told twice"
            self.blocks[key] = prefix

    @property
    def prefixes(self) -> set[tuple[int, ...]]:
        return set(self.blocks.values())


def full_blocks(contents: list[list[int]], size: int) -> set[tuple[int, ...]]:
    """Every prefix of whole blocks of every content: what an index has to hold."""
    return {tuple(ids[:end]) for ids in contents for end in range(size, len(ids) + 1, size)}
