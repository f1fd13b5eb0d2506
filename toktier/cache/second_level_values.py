"""Keys and values of the second level of the prefix cache, as bytes. Format 1.

A value is 4 bytes of magic and format, the ids of a whole prefix (uint32, little-endian), and a SHA-256 over format,
key and ids: whatever was cut off, changed, or put under another key is known for it. That is a checksum, no signature:
who may write to the server can make a value that holds. Not here: who asks and when (`toktier.cache.second_level`).
"""

from __future__ import annotations

from hashlib import sha256

from toktier.cache.level import KEY_BYTES

FORMAT = 1
MAX_IDS = 262_144  # 1 MiB: 8 ms of a network of 1 Gbit/s; larger ones would only ever time out

_HEAD = b"tkp" + bytes([FORMAT])
_SEAL_BYTES = 32
MIN_VALUE_BYTES = len(_HEAD) + 4 + _SEAL_BYTES
MAX_VALUE_BYTES = len(_HEAD) + 4 * MAX_IDS + _SEAL_BYTES


def key_prefix(prefix: str) -> bytes:
    """What keys of the server begin with; the 32 bytes of a key of the cache follow.

    The format is in it, so that versions with different ones never meet; all keys have one hash tag, because one script
    asks for all of them.
    """
    return f"{{{prefix}}}:prefix:{FORMAT}:".encode("ascii")


def is_storable(key: bytes, ids: bytes) -> bool:
    return len(key) == KEY_BYTES and 0 < len(ids) <= 4 * MAX_IDS and len(ids) % 4 == 0


def packed(key: bytes, ids: bytes) -> bytes:
    return b"".join((_HEAD, ids, _seal(key, ids)))


def unpacked(key: bytes, value: bytes | memoryview) -> bytes | None:
    """The ids of a value that was packed for this key; None: it is no such value."""
    view = memoryview(value)
    if not MIN_VALUE_BYTES <= len(view) <= MAX_VALUE_BYTES or len(view) % 4 or view[: len(_HEAD)] != _HEAD:
        return None
    ids = bytes(view[len(_HEAD) : -_SEAL_BYTES])
    return ids if _seal(key, ids) == view[-_SEAL_BYTES:] else None


def _seal(key: bytes, ids: bytes) -> bytes:
    seal = sha256(_HEAD + key)
    seal.update(ids)
    return seal.digest()
