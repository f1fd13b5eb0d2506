"""Hashes of blocks of token IDs, by the rules of the indexers that look for them.

A sequence is cut into full blocks; what is left over has no hash. The hash of a block depends on all blocks before it
(it names a prefix, not a run of IDs), and on the adapter and the salt, where there are any. A *link* is an int that the
next block can be chained to; its low 64 bits are the *key* of the block, which events carry.

Not here: who holds the blocks (`held_blocks`), and how events about them are written (`kv_event_form`).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from toktier.errors import ConfigInvalid
from toktier.integer_argument import integer_argument
from toktier.labels import quoted
from toktier.missing_distribution import missing_distribution
from toktier.router.token_ids import TokenIds
from toktier.router.vocabulary import KvScheme

KEY_MASK: Final = (1 << 64) - 1
DYNAMO_SEED: Final = 1337
MAX_BLOCK_SIZE: Final = 1 << 15  # of Dynamo; one block of it is more than most contexts


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What tells equal IDs apart. `lora_name`: of the adapter. `cache_salt`: of a tenant or a model; Dynamo calls it
    the cache namespace. Empty is the same as None. `hash_seed`: what PYTHONHASHSEED is where vLLM runs; None: random,
    so that no other process has the same keys. Dynamo has no seed.
    """

    lora_name: str | None = None
    cache_salt: str | None = None
    hash_seed: str | None = "0"


class BlockHasher(Protocol):
    @property
    def block_size(self) -> int: ...

    def links(self, ids: TokenIds, parent: int | None = None) -> list[int]:
        """One for each full block of `ids` [n], in order. `parent`: the link before `ids`; None: they begin the
        sequence. What grew is hashed from its last full block on: O(len(ids)), whatever came before."""
        ...


def block_hasher(scheme: str, block_size: int, identity: Identity | None = None) -> BlockHasher:
    """Raises ConfigInvalid, and BackendUnavailable where a distribution is missing."""
    identity = Identity() if identity is None else identity
    size = integer_argument(block_size, "block_size")
    if not 1 <= size <= MAX_BLOCK_SIZE:
        raise ConfigInvalid(
            f"the block size is {size}: expected 1 to {MAX_BLOCK_SIZE:,} tokens",
            remedy="give the block size that the indexer was told of; 16 is usual",
        )
    if scheme not in _MAKERS:
        raise ConfigInvalid(
            f"there is no scheme of block hashes {quoted(scheme)}: expected one of {', '.join(KvScheme)}",
            remedy=f"name one of {', '.join(KvScheme)}",
        )
    return _MAKERS[KvScheme(scheme)](size, identity)


def keys_of(links: Sequence[int]) -> list[int]:
    """The 64-bit keys of blocks, which events carry."""
    return [link & KEY_MASK for link in links]


class DynamoHasher:
    """Dynamo's local block hashes and rolling sequence hashes.

    The first link is the local hash of its block; each further one is the hash of the link before it and the local
    hash of its own block. Adapter and salt shift the seed of the local hashes; the chain has a seed that never changes.
    """

    def __init__(self, block_size: int, identity: Identity) -> None:
        try:
            from xxhash import xxh3_64_intdigest
        except ImportError:
            raise missing_distribution("block hashes of Dynamo need", "xxhash", "kv-events", "'xxhash>=3.4'") from None
        self.block_size = block_size
        self._hash = xxh3_64_intdigest
        seed = DYNAMO_SEED
        for text, salt in ((identity.lora_name, 0), (identity.cache_salt, 1)):
            if text:
                seed += xxh3_64_intdigest(text.encode(), salt)
        self._seed = seed & KEY_MASK

    def local_hashes(self, ids: TokenIds) -> list[int]:
        """Of each full block of `ids` [n] by itself: what the indexer computes of a prompt."""
        data, step = _little_endian(ids), 4 * self.block_size
        hashed, seed = self._hash, self._seed
        return [hashed(data[at : at + step], seed) for at in range(0, len(data) - step + 1, step)]

    def links(self, ids: TokenIds, parent: int | None = None) -> list[int]:
        hashed, links = self._hash, []
        for local in self.local_hashes(ids):
            if parent is None:
                parent = local
            else:
                parent = hashed(parent.to_bytes(8, "little") + local.to_bytes(8, "little"), DYNAMO_SEED)
            links.append(parent)
        return links


class VllmCborHasher:
    """vLLM's prefix caching with `sha256_cbor`. A link is the whole digest, as a big-endian number.

    The chain begins with a digest of the seed. The extra keys of a block are the adapter, and in the first block the
    salt. The arrays of IDs are encoded many at once: cbor2, which does the rest and is compared with in tests, takes
    three times as long as hashing does.
    """

    def __init__(self, block_size: int, identity: Identity) -> None:
        try:
            from cbor2 import dumps
        except ImportError:
            raise missing_distribution("block hashes of vLLM need", "cbor2", "kv-events", "'cbor2>=5.6'") from None
        self.block_size = block_size
        seed = identity.hash_seed
        self._root = os.urandom(32) if seed is None else hashlib.sha256(dumps(seed, canonical=True)).digest()
        lora = [identity.lora_name] if identity.lora_name else []
        first = [*lora, identity.cache_salt] if identity.cache_salt else lora
        self._first_extra = dumps(first or None, canonical=True)
        self._extra = dumps(lora or None, canonical=True)
        # (parent, IDs, extra keys) is an array of three: its head, that of 32 bytes, and that of block_size numbers.
        self._before_parent = b"\x83\x58\x20"
        self._before_ids = dumps([0] * block_size, canonical=True)[:-block_size]

    def links(self, ids: TokenIds, parent: int | None = None) -> list[int]:
        full = len(ids) // self.block_size
        data, ends = _cbor_numbers(ids[: full * self.block_size])
        extra = self._first_extra if parent is None else self._extra
        digest = self._root if parent is None else parent.to_bytes(32, "big")
        before_parent, before_ids, sha256, begin, links = self._before_parent, self._before_ids, hashlib.sha256, 0, []
        for end in ends[self.block_size - 1 :: self.block_size].tolist():
            digest = sha256(before_parent + digest + before_ids + data[begin:end] + extra).digest()
            links.append(int.from_bytes(digest, "big"))
            begin, extra = end, self._extra
        return links


_MAKERS: Final[dict[KvScheme, Callable[[int, Identity], BlockHasher]]] = {
    KvScheme.DYNAMO: DynamoHasher,
    KvScheme.VLLM_SHA256_CBOR: VllmCborHasher,
}


def _little_endian(ids: TokenIds) -> bytes:
    return np.ascontiguousarray(ids, dtype="<u4").tobytes()


def _cbor_numbers(ids: TokenIds) -> tuple[bytes, npt.NDArray[np.int64]]:
    """`ids` [n] in CBOR, one after the other in their shortest forms, and where each ends [n].

    A number below 24 is one byte; else a head says how many follow, most significant first: 0x18 one, 0x19 two, 0x1A
    four.
    """
    if not len(ids):
        return b"", np.empty(0, dtype=np.int64)
    octets = np.ascontiguousarray(ids, dtype="<u4").view(np.uint8).reshape(-1, 4)
    form = (ids > 23).view(np.int8) + (ids > 0xFF) + (ids > 0xFFFF)
    ends = np.cumsum(_LENGTHS.take(form))
    out = np.empty(int(ends[-1]), dtype=np.uint8)
    out[0] = _HEADS[form[0]]
    out[ends[:-1]] = _HEADS.take(form[1:])
    out[ends - 1] = octets[:, 0]  # over the head where there is none
    wide, widest = np.flatnonzero(form > 1), np.flatnonzero(form > 2)
    out[ends[wide] - 2] = octets[wide, 1]
    out[ends[widest] - 3] = octets[widest, 2]
    out[ends[widest] - 4] = octets[widest, 3]
    return out.tobytes(), ends


_LENGTHS: Final = np.array((1, 2, 3, 5), dtype=np.int64)
_HEADS: Final = np.array((0, 0x18, 0x19, 0x1A), dtype=np.uint8)
