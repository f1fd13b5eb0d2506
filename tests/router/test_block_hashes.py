"""Block hashes: published vectors, and the laws of chains for every scheme."""

from __future__ import annotations

import hashlib
from typing import Any

import cbor2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toktier.errors import ConfigInvalid, ToktierError
from toktier.router.block_hashes import (
    MAX_BLOCK_SIZE,
    DynamoHasher,
    Identity,
    block_hasher,
    keys_of,
)
from toktier.router.token_ids import TokenIds
from toktier.router.vocabulary import KV_SCHEME_MEANINGS, KvScheme

IDS = st.lists(st.integers(0, 2**32 - 1) | st.integers(0, 300), max_size=80)
SIZES = st.integers(1, 20)
SCHEMES = pytest.mark.parametrize("scheme", list(KvScheme))


def array(ids: list[int]) -> TokenIds:
    return np.array(ids, dtype=np.uint32)


def vllm_digest(before: bytes, ids: list[int], extra: list[str] | None) -> bytes:
    """The published rule, spelled with the library that vLLM uses."""
    return hashlib.sha256(cbor2.dumps((before, tuple(ids), extra), canonical=True)).digest()


def test_e1_the_local_hash_of_dynamo() -> None:
    assert DynamoHasher(4, Identity()).local_hashes(array([1, 2, 3, 4])) == [14643705804678351452]


@SCHEMES
def test_e2_what_fills_no_block_has_no_hash(scheme: KvScheme) -> None:
    ids = array(list(range(70)))
    hasher = block_hasher(scheme, 16)
    assert len(hasher.links(ids)) == 4
    assert hasher.links(ids) == hasher.links(ids[:64])
    assert hasher.links(ids[:15]) == []
    assert hasher.links(ids[:0]) == []


def test_e3_the_rolling_hash_of_dynamo() -> None:
    import xxhash

    ids = array(list(range(1, 13)))
    hasher = DynamoHasher(4, Identity())
    first, second, third = hasher.local_hashes(ids)
    chained = []
    parent = first
    for local in (second, third):
        pair = parent.to_bytes(8, "little") + local.to_bytes(8, "little")
        parent = xxhash.xxh3_64_intdigest(pair, seed=1337)
        chained.append(parent)
    assert hasher.links(ids) == [first, *chained]


def test_e5_vllm_with_sha256_cbor() -> None:
    hasher = block_hasher("vllm-sha256-cbor", 4, Identity(hash_seed="0"))
    (link,) = hasher.links(array([1, 2, 3, 4]))
    assert link.to_bytes(32, "big").hex() == "c9d58ba695280d69b243e1e0df813136ca9196b286fb1a021e0b2e028ef071cb"
    assert keys_of([link]) == [2164874634404590027]


@SCHEMES
def test_e6_adapter_and_salt_change_every_hash(scheme: KvScheme) -> None:
    ids = array(list(range(40)))
    identities = [
        Identity(),
        Identity(lora_name="a"),
        Identity(lora_name="b"),
        Identity(cache_salt="a"),
        Identity(cache_salt="model-b"),
        Identity(lora_name="a", cache_salt="b"),
        Identity(lora_name="b", cache_salt="a"),
    ]
    if scheme is KvScheme.VLLM_SHA256_CBOR:
        identities.append(Identity(hash_seed="1"))
    keys = [keys_of(block_hasher(scheme, 16, identity).links(ids)) for identity in identities]
    if scheme is KvScheme.VLLM_SHA256_CBOR:
        # Its extra keys do not say what they are: an adapter and a salt of one name differ from the second block on.
        assert keys[1][0] == keys[3][0]
        assert keys[1][1] != keys[3][1]
        del keys[3]
    assert len({key for row in keys for key in row}) == sum(map(len, keys))


@SCHEMES
def test_an_empty_name_is_none(scheme: KvScheme) -> None:
    ids = array(list(range(32)))
    empty = block_hasher(scheme, 16, Identity(lora_name="", cache_salt=""))
    assert empty.links(ids) == block_hasher(scheme, 16).links(ids)


def test_without_a_seed_no_two_hashers_of_vllm_agree() -> None:
    ids = array([1, 2, 3, 4])
    one, other = (block_hasher("vllm-sha256-cbor", 4, Identity(hash_seed=None)) for _ in range(2))
    assert one.links(ids) == one.links(ids)
    assert one.links(ids) != other.links(ids)


@settings(deadline=None)
@given(IDS, SIZES, st.sampled_from([None, "adapter"]), st.sampled_from([None, "salt"]))
def test_law_links_of_vllm_are_those_of_the_published_rule(
    ids: list[int], size: int, lora: str | None, salt: str | None
) -> None:
    before = hashlib.sha256(cbor2.dumps("7", canonical=True)).digest()
    expected = []
    for at in range(0, len(ids) - size + 1, size):
        extra: Any = [name for name in (lora, salt if at == 0 else None) if name is not None]
        before = vllm_digest(before, ids[at : at + size], extra or None)
        expected.append(int.from_bytes(before, "big"))
    identity = Identity(lora_name=lora, cache_salt=salt, hash_seed="7")
    assert block_hasher("vllm-sha256-cbor", size, identity).links(array(ids)) == expected


@SCHEMES
@settings(deadline=None)
@given(IDS, SIZES, st.integers(1, 5))
def test_law_what_grew_is_hashed_from_where_it_was(scheme: KvScheme, ids: list[int], size: int, blocks: int) -> None:
    hasher = block_hasher(scheme, size, Identity(lora_name="a", cache_salt="b"))
    whole = hasher.links(array(ids))
    before = whole[:blocks]
    if before:
        assert before + hasher.links(array(ids[len(before) * size :]), before[-1]) == whole


@SCHEMES
@settings(deadline=None)
@given(IDS, SIZES, st.data())
def test_law_a_hash_names_all_that_came_before(
    scheme: KvScheme, ids: list[int], size: int, data: st.DataObject
) -> None:
    hasher = block_hasher(scheme, size)
    links = hasher.links(array(ids))
    if not links:
        return
    at = data.draw(st.integers(0, len(links) * size - 1))
    changed = [*ids]
    changed[at] ^= 1
    other = hasher.links(array(changed))
    same = at // size
    assert other[:same] == links[:same]
    assert not set(other[same:]) & set(links[same:])


@SCHEMES
def test_ids_may_be_a_part_of_an_array_or_of_another_stride(scheme: KvScheme) -> None:
    ids = array(list(range(200)))
    hasher = block_hasher(scheme, 16)
    assert hasher.links(ids[::2]) == hasher.links(ids[::2].copy())
    assert hasher.links(ids[7:]) == hasher.links(ids[7:].copy())


@pytest.mark.parametrize("size", [0, -1, MAX_BLOCK_SIZE + 1])
def test_a_block_size_out_of_bounds_is_refused(size: int) -> None:
    with pytest.raises(ConfigInvalid, match="block size") as caught:
        block_hasher("dynamo", size)
    assert caught.value.remedy


def test_an_unknown_scheme_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigInvalid, match="dynamo, vllm-sha256-cbor"):
        block_hasher("md5\x1b", 16)


def test_every_scheme_has_a_meaning_and_a_hasher() -> None:
    assert list(KV_SCHEME_MEANINGS) == list(KvScheme)
    for scheme in KvScheme:
        assert block_hasher(scheme, 16).block_size == 16


@pytest.mark.parametrize(("scheme", "module"), [("dynamo", "xxhash"), ("vllm-sha256-cbor", "cbor2")])
def test_a_missing_distribution_is_named(scheme: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(ToktierError, match=module) as caught:
        block_hasher(scheme, 16)
    assert module in str(caught.value.remedy)
