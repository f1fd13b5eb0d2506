"""KV events on the wire are what subscribers of vLLM's format read, field by field."""

from __future__ import annotations

import msgpack  # type: ignore[import-untyped]
import numpy as np
import pytest

from toktier.errors import ConfigInvalid, ToktierError
from toktier.router.block_hashes import Identity
from toktier.router.held_blocks import Change, Cleared, Removed, Stored
from toktier.router.kv_event_form import EventWriter
from toktier.router.vocabulary import KV_FORM_MEANINGS, KvForm

KEYS = [2**64 - 1, 5]
CHANGES: list[Change] = [
    Stored(KEYS, 3, np.array([1, 2, 3, 4], dtype=np.uint32)),
    Removed(KEYS),
    Cleared(),
]


def test_e4_the_array_form() -> None:
    batch = msgpack.unpackb(EventWriter("array", 2, Identity()).batch(CHANGES, 12.5, 0))
    assert batch == [
        12.5,
        [
            ["BlockStored", KEYS, 3, [1, 2, 3, 4], 2, None, "GPU", None],
            ["BlockRemoved", KEYS, "GPU"],
            ["AllBlocksCleared"],
        ],
        0,
    ]


def test_e4_the_map_form() -> None:
    writer = EventWriter("map", 2, Identity(lora_name="adapter", cache_salt="tenant"))
    batch = msgpack.unpackb(writer.batch(CHANGES, 12.5, 3))
    stored = {
        "type": "BlockStored",
        "block_hashes": KEYS,
        "parent_block_hash": 3,
        "token_ids": [1, 2, 3, 4],
        "block_size": 2,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": "adapter",
        "cache_salt": "tenant",
    }
    removed = {"type": "BlockRemoved", "block_hashes": KEYS, "medium": "GPU"}
    assert batch == [12.5, [stored, removed, {"type": "AllBlocksCleared"}], 3]


def test_the_adapter_is_in_arrays_too() -> None:
    batch = msgpack.unpackb(EventWriter("array", 2, Identity(lora_name="adapter")).batch(CHANGES, 0.0, 0))
    assert batch[1][0][7] == "adapter"


def test_a_salt_is_refused_where_it_has_no_place() -> None:
    with pytest.raises(ConfigInvalid, match="salt") as caught:
        EventWriter("array", 2, Identity(cache_salt="tenant"))
    assert "map" in str(caught.value.remedy)


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(ConfigInvalid, match="expected array or map"):
        EventWriter("json", 2, Identity())


def test_every_form_has_a_meaning() -> None:
    assert list(KV_FORM_MEANINGS) == list(KvForm)


def test_a_missing_distribution_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "msgpack", None)
    with pytest.raises(ToktierError, match="msgpack"):
        EventWriter("array", 2, Identity())
