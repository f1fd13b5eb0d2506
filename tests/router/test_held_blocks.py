"""Changes of held blocks, applied in order, always give the union of the full blocks of all slots."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.router.event_reader import Index, full_blocks
from toktier.router.block_hashes import Identity, block_hasher
from toktier.router.held_blocks import MAX_BLOCKS, Change, Cleared, HeldBlocks, Removed, Stored
from toktier.router.kv_event_form import EventWriter
from toktier.router.token_ids import TokenIds
from toktier.router.vocabulary import KvForm

# Few IDs and few lengths, so that slots share prefixes and part again.
CONTENTS = st.one_of(
    st.none(),
    st.lists(st.integers(0, 1), max_size=14),
    st.integers(0, 30).map(lambda n: [7] * n),
)
STEPS = st.lists(st.tuples(st.integers(0, 3), CONTENTS) | st.just("clear"), max_size=25)


class Counting:
    """A hasher that says how many IDs it was given."""

    def __init__(self, size: int) -> None:
        self._inner = block_hasher("dynamo", size)
        self.block_size = size
        self.hashed = 0

    def links(self, ids: TokenIds, parent: int | None = None) -> list[int]:
        self.hashed += len(ids)
        return self._inner.links(ids, parent)


def array(ids: list[int]) -> TokenIds:
    return np.array(ids, dtype=np.uint32)


def applied(index: Index, changes: list[Change], form: KvForm, size: int) -> None:
    index.apply(EventWriter(form, size, Identity()).batch(changes, 0.0, 0))


@pytest.mark.parametrize("form", list(KvForm))
@pytest.mark.parametrize("scheme", ["dynamo", "vllm-sha256-cbor"])
@settings(deadline=None, max_examples=60)
@given(STEPS, st.integers(1, 4))
def test_law_an_index_holds_exactly_the_full_blocks_of_all_slots(
    scheme: str, form: KvForm, steps: list[tuple[int, list[int] | None] | str], size: int
) -> None:
    held, index, late = HeldBlocks(block_hasher(scheme, size)), Index(), Index()
    slots: dict[int, list[int]] = {}
    for step in steps:
        if isinstance(step, str):
            slots.clear()
            applied(index, held.clear(), form, size)
        else:
            slot, ids = step
            slots[slot] = ids or []
            applied(index, held.slot_now(slot, None if ids is None else array(ids)), form, size)
        expected = full_blocks(list(slots.values()), size)
        assert index.prefixes == expected
        assert len(held) == len(expected)
        applied(late, held.everything(), form, size)
        assert late.blocks == index.blocks


def test_a_content_that_grew_is_hashed_from_its_last_full_block_on() -> None:
    hasher = Counting(16)
    held = HeldBlocks(hasher)
    held.slot_now(0, array(list(range(1000))))
    assert hasher.hashed == 1000 // 16 * 16
    hasher.hashed = 0
    (stored,) = held.slot_now(0, array(list(range(1040))))
    assert hasher.hashed == 1040 - 1000 // 16 * 16
    assert isinstance(stored, Stored)
    assert stored.ids.tolist() == list(range(992, 1040))


def test_the_same_content_changes_nothing_and_hashes_nothing() -> None:
    hasher = Counting(4)
    held = HeldBlocks(hasher)
    held.slot_now(0, array([1, 2, 3, 4, 5]))
    hasher.hashed = 0
    assert held.slot_now(0, array([1, 2, 3, 4, 9])) == []
    assert hasher.hashed == 0


def test_a_block_that_another_slot_holds_is_neither_told_again_nor_removed() -> None:
    held = HeldBlocks(block_hasher("dynamo", 2))
    (first,) = held.slot_now(0, array([1, 2, 3, 4]))
    assert isinstance(first, Stored)
    assert held.slot_now(1, array([1, 2, 3, 4])) == []
    assert held.slot_now(0, None) == []
    assert held.slot_now(1, array([1, 2])) == [Removed([first.keys[1]])]
    (gone,) = held.slot_now(1, array([]))
    assert gone == Removed([first.keys[0]])
    assert len(held) == 0


def test_the_deepest_blocks_are_removed_first() -> None:
    held = HeldBlocks(block_hasher("dynamo", 1))
    (stored,) = held.slot_now(0, array([1, 2, 3]))
    assert isinstance(stored, Stored)
    assert held.slot_now(0, None) == [Removed(stored.keys[::-1])]


def test_a_long_content_is_told_in_parts_that_follow_each_other() -> None:
    held = HeldBlocks(block_hasher("dynamo", 1))
    ids = list(range(MAX_BLOCKS * 2 + 5))
    changes = held.slot_now(0, array(ids))
    parts = [change for change in changes if isinstance(change, Stored)]
    assert [len(part.keys) for part in parts] == [MAX_BLOCKS, MAX_BLOCKS, 5]
    assert [part.parent for part in parts] == [None, parts[0].keys[-1], parts[1].keys[-1]]
    assert [n for part in parts for n in part.ids.tolist()] == ids
    cleared, *again = held.everything()
    assert cleared == Cleared()
    assert [part.keys for part in again if isinstance(part, Stored)] == [part.keys for part in parts]


def test_clearing_removes_every_block_first_the_deepest_before_its_parent() -> None:
    held = HeldBlocks(block_hasher("dynamo", 1))
    (one,) = held.slot_now(0, array([1, 2]))
    (other,) = held.slot_now(1, array([1, 3]))
    assert isinstance(one, Stored)
    assert isinstance(other, Stored)
    assert held.clear() == [Removed([*other.keys, *one.keys[::-1]]), Cleared()]
    assert len(held) == 0


def test_clearing_what_holds_nothing_is_told_too() -> None:
    assert HeldBlocks(block_hasher("dynamo", 4)).clear() == [Cleared()]
