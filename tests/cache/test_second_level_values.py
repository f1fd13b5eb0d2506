"""A value is given back for its own key alone, and nothing that was changed, cut or moved is."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toktier.cache import second_level_values as values

keys = st.binary(min_size=32, max_size=32)
id_lists = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=40)


def as_bytes(ids: list[int]) -> bytes:
    return b"".join(one.to_bytes(4, "little") for one in ids)


@settings(deadline=None)
@given(keys, id_lists)
def test_law_what_was_packed_is_unpacked_and_holds_the_ids_as_they_are(key: bytes, ids: list[int]) -> None:
    value = values.packed(key, as_bytes(ids))
    assert values.unpacked(key, value) == as_bytes(ids)
    assert values.unpacked(key, memoryview(value)) == as_bytes(ids)
    assert values.MIN_VALUE_BYTES <= len(value) == values.MIN_VALUE_BYTES + 4 * (len(ids) - 1)


@settings(deadline=None)
@given(keys, id_lists, st.data())
def test_law_a_changed_bit_is_known(key: bytes, ids: list[int], data: st.DataObject) -> None:
    value = bytearray(values.packed(key, as_bytes(ids)))
    value[data.draw(st.integers(0, len(value) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    assert values.unpacked(key, bytes(value)) is None


@settings(deadline=None)
@given(keys, id_lists, st.data())
def test_law_a_value_cut_or_lengthened_is_known(key: bytes, ids: list[int], data: st.DataObject) -> None:
    value = values.packed(key, as_bytes(ids))
    assert values.unpacked(key, value[: data.draw(st.integers(0, len(value) - 1))]) is None
    assert values.unpacked(key, value[data.draw(st.integers(1, len(value))) :]) is None
    assert values.unpacked(key, value + data.draw(st.binary(min_size=1, max_size=8))) is None


@settings(deadline=None)
@given(keys, keys, id_lists)
def test_law_a_value_under_another_key_is_known(key: bytes, other: bytes, ids: list[int]) -> None:
    assert (values.unpacked(other, values.packed(key, as_bytes(ids))) is None) == (key != other)


@settings(deadline=None)
@given(keys, st.binary(max_size=200))
def test_law_what_is_no_value_gives_no_ids(key: bytes, value: bytes) -> None:
    assert values.unpacked(key, value) is None


def test_bounds_of_what_is_storable() -> None:
    key = bytes(32)
    assert values.is_storable(key, bytes(4))
    assert values.is_storable(key, bytes(4 * values.MAX_IDS))
    for ids in (b"", bytes(3), bytes(4 * values.MAX_IDS + 4)):
        assert not values.is_storable(key, ids)
    assert not values.is_storable(bytes(31), bytes(4))
    largest = values.packed(key, bytes(4 * values.MAX_IDS))
    assert len(largest) == values.MAX_VALUE_BYTES
    assert values.unpacked(key, largest) is not None


@pytest.mark.parametrize("prefix", ["toktier", "a.b_c:d-e"])
def test_all_keys_have_one_hash_tag_and_name_the_format(prefix: str) -> None:
    assert values.key_prefix(prefix) == b"{%s}:prefix:%d:" % (prefix.encode(), values.FORMAT)
