"""What waits to be written is bounded, and what is dropped is counted."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toktier.cache.second_level_writes import PendingWrites

KEYS = st.binary(min_size=1, max_size=1)
OPERATIONS = st.lists(st.tuples(st.sampled_from(["store", "remove", "pop", "clear"]), KEYS, st.integers(1, 9)))


@settings(deadline=None)
@given(OPERATIONS, st.integers(1, 5), st.integers(4, 60))
def test_law_number_and_bytes_stay_within_their_bounds(
    steps: list[tuple[str, bytes, int]], most: int, most_bytes: int
) -> None:
    pending = PendingWrites(most, most_bytes)
    for what, key, size in steps:
        if what == "store":
            pending.store(key, bytes(size))
        elif what == "remove":
            pending.remove(key)
        elif what == "clear":
            pending.clear()
        elif pending:
            pending.pop()
        assert 0 <= len(pending) <= most
        assert 0 <= pending.bytes <= most_bytes
    while pending:
        pending.pop()
    assert pending.bytes == 0


@settings(deadline=None)
@given(st.lists(st.integers(1, 9), max_size=30), st.integers(1, 5), st.integers(4, 60))
def test_law_the_newest_are_kept_in_their_order_and_the_others_counted(
    sizes: list[int], most: int, most_bytes: int
) -> None:
    pending = PendingWrites(most, most_bytes)
    writes = [(bytes([k]), bytes([k]) * size) for k, size in enumerate(sizes)]
    for key, ids in writes:
        pending.store(key, ids)
    kept = []
    while pending:
        kept.append(pending.pop())
    fitting = [write for write in writes if len(write[1]) <= most_bytes]
    assert kept == fitting[len(fitting) - len(kept) :]
    assert not fitting or kept[-1] == fitting[-1]
    assert pending.dropped == len(writes) - len(kept)


def test_a_key_is_written_once_with_what_came_last() -> None:
    pending = PendingWrites(4, 100)
    pending.store(b"a", b"1")
    pending.store(b"b", b"2")
    pending.store(b"a", b"33")
    assert (len(pending), pending.bytes, pending.dropped) == (2, 3, 0)
    assert [pending.pop(), pending.pop()] == [(b"b", b"2"), (b"a", b"33")]
    with pytest.raises(KeyError):
        pending.pop()


def test_a_removal_takes_nobodys_room_and_gives_way_to_what_is_stored_under_its_key() -> None:
    pending = PendingWrites(2, 100)
    pending.store(b"a", b"1")
    assert not pending.remove(b"a")
    assert pending.remove(b"b")
    assert not pending.remove(b"b")
    assert not pending.remove(b"c")
    pending.store(b"b", b"2")
    assert [pending.pop(), pending.pop()] == [(b"a", b"1"), (b"b", b"2")]
    assert pending.dropped == 0
