"""Keys that clients must have, and the one that upstreams ask for: files with a key a line.

A key is kept as its SHA-256 and compared in constant time, with every key of the file whatever matched before. Keys are
in no message, document or log. Not here: the header and what happens without a key (`guards`).
"""

from __future__ import annotations

import hashlib
import hmac
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from toktier.errors import ConfigInvalid
from toktier.labels import shown_path
from toktier.regular_files import open_regular

_MAX_FILE: Final = 1 << 20
_MAX_KEYS: Final = 1000  # each is compared at every request: 0.05 ms for all of them
_SHORT: Final = 16
MAX_KEY: Final = 512


class ApiKeys:
    """Some keys. None at all accepts nothing."""

    __slots__ = ("_digests",)

    def __init__(self, keys: Iterable[bytes]) -> None:
        self._digests = tuple(hashlib.sha256(key).digest() for key in dict.fromkeys(keys))

    def __len__(self) -> int:
        return len(self._digests)

    def accepts(self, key: bytes) -> bool:
        digest = hashlib.sha256(key).digest()
        found = False
        for one in self._digests:
            found |= hmac.compare_digest(digest, one)
        return found


def read_api_keys(path: Path) -> tuple[ApiKeys, list[str]]:
    """The keys of a file, and what is to be said about it. Raises ConfigInvalid."""
    keys, cautions = _keys_of(path, "api_key_file")
    if any(len(key) < _SHORT for key in keys):
        cautions.append(f"{shown_path(path)} has a key of fewer than {_SHORT} characters, which can be guessed")
    return ApiKeys(keys), cautions


def read_upstream_key(path: Path) -> tuple[str, list[str]]:
    """The one key of a file, and what is to be said about it. Raises ConfigInvalid."""
    keys, cautions = _keys_of(path, "upstream_api_key_file")
    if len(keys) != 1:
        raise _bad_file(path, "upstream_api_key_file", f"holds {len(keys):,} keys: expected one")
    return keys[0].decode("ascii"), cautions


def _keys_of(path: Path, setting: str) -> tuple[list[bytes], list[str]]:
    try:
        with open_regular(path) as stream:
            status = os.fstat(stream.fileno())
            data = stream.read(_MAX_FILE + 1)
    except OSError as error:
        raise _bad_file(path, setting, f"cannot be read: {error.strerror}", "check the path") from None
    if len(data) > _MAX_FILE:
        raise _bad_file(path, setting, f"is larger than {_MAX_FILE:,} bytes")
    keys = [line.strip(b" \t\r") for line in data.split(b"\n")]
    keys = [key for key in keys if key and not key.startswith(b"#")]
    for number, key in enumerate(keys, 1):
        if len(key) > MAX_KEY or not all(0x21 <= byte <= 0x7E for byte in key):
            raise _bad_file(
                path,
                setting,
                f"has a line that is no key, number {number:,}: expected up to {MAX_KEY} ASCII characters",
            )
    if not keys:
        raise _bad_file(path, setting, "holds no key: expected one a line", f"write a key into {shown_path(path)}")
    if len(keys) > _MAX_KEYS:
        raise _bad_file(path, setting, f"holds {len(keys):,} keys: expected at most {_MAX_KEYS:,}")
    return keys, _cautions(path, status)


def _cautions(path: Path, status: os.stat_result) -> list[str]:
    said = []
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        said.append(f"other users may open {shown_path(path)}: chmod 600 keeps its keys private")
    if status.st_uid not in (0, os.geteuid()):
        said.append(f"{shown_path(path)} belongs to another user, who may change its keys")
    return said


def _bad_file(path: Path, setting: str, problem: str, remedy: str | None = None) -> ConfigInvalid:
    return ConfigInvalid(
        f"{shown_path(path)} {problem}",
        details={"setting": setting, "file": str(path)},
        remedy=remedy or f"correct {shown_path(path)}",
    )
