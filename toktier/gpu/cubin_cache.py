"""Cubins that this host compiled: <cache>/gpu/v1/<key[:2]>/<key>/{unit.cubin,record.json}.

The key is the digest of all that decides the bytes, so an entry is never stale, only unused. An entry counts when its
record is of that key and names the digest of its cubin, which is hashed at every load; anything else is damage, and is
compiled again. The record is written last. Not here: compiling, and whether a digest is listed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toktier import storage
from toktier.canonical import TAG_CUBIN_KEY, canonical_json, document_digest
from toktier.errors import EnvironmentFault
from toktier.gpu.cubin import MAX_BYTES
from toktier.program.trust import only_owner_writes

FORMAT_DIRECTORY = "v1"
CUBIN, RECORD = "unit.cubin", "record.json"
SCHEMA, SCHEMA_VERSION = "toktier.cubin", 1
LOCK_SECONDS = 60.0
KEPT_ENTRIES = 64  # one architecture of one NVRTC and one version of the sources each; 0.2 MB
MAX_RECORD_BYTES = 64 << 10
LIBRARIES = "libraries"  # beside the entries: digests of NVRTC's files, by path
_HEX = frozenset("0123456789abcdef")


class Damaged(Exception):
    """An entry that does not hold; the message is a clause."""


@dataclass(frozen=True)
class Stored:
    """An entry that holds."""

    key: str
    path: Path
    data: bytes
    record: dict[str, Any]


def key_of(inputs: dict[str, Any]) -> str:
    """The key of what decides the bytes of a cubin."""
    return document_digest(TAG_CUBIN_KEY, inputs)


class CubinCache:
    """The cache in a directory, which is made when something is stored. Any number of processes may use it."""

    def __init__(self, root: Path) -> None:
        self.root = root / FORMAT_DIRECTORY

    @property
    def libraries(self) -> Path:
        return self.root / LIBRARIES

    def path_of(self, key: str) -> Path:
        return self.root / key[:2] / key

    def lock(self, key: str) -> storage.FileLock:
        """Held while an entry is made; its directory must exist (`prepare`)."""
        return storage.FileLock(self.path_of(key).with_suffix(".lock"), LOCK_SECONDS)

    def prepare(self, key: str) -> None:
        """The directory above an entry. Raises EnvironmentFault."""
        storage.make_directory(self.path_of(key).parent)

    def load(self, key: str) -> Stored | None:
        """The entry; None where there is none. Damaged where it does not hold."""
        path = self.path_of(key)
        record_bytes = _read(path / RECORD, MAX_RECORD_BYTES)
        if record_bytes is None:
            if os.path.lexists(path):
                raise Damaged("it has no record")
            return None
        record = _parsed(record_bytes, key)
        data = _read(path / CUBIN, MAX_BYTES)
        if data is None:
            raise Damaged("it has no cubin")
        if hashlib.sha256(data).hexdigest() != record["sha256"]:
            raise Damaged("its cubin is not the one that was stored")
        _note_use(path / RECORD)
        return Stored(key, path, data, record)

    def store(self, inputs: dict[str, Any], data: bytes, facts: dict[str, Any]) -> Path:
        """Writes an entry in the place of whatever lies there. `facts` go into its record. Raises EnvironmentFault."""
        key = key_of(inputs)
        path = self.path_of(key)
        self.remove(key)
        storage.make_directory(path)
        storage.atomic_write(path / CUBIN, data)
        record = {
            **facts,
            "schema": SCHEMA,
            "schema_version": SCHEMA_VERSION,
            "key": key,
            "inputs": inputs,
            "sha256": hashlib.sha256(data).hexdigest(),
            "bytes": len(data),
            "stored": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        storage.atomic_write(path / RECORD, canonical_json(record))
        self._bound(key)
        return path

    def remove(self, key: str) -> bool:
        """Takes an entry out, its record first. Raises EnvironmentFault."""
        path = self.path_of(key)
        if not os.path.lexists(path):
            return False
        try:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                os.unlink(path / RECORD)
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        except FileNotFoundError:
            return True  # by another process
        except OSError as error:
            raise storage.environment_fault(error, "remove", path) from None
        return True

    def entries(self) -> Iterator[str]:
        """Keys of everything that lies where an entry would, whether it holds or not, in order."""
        for prefix in sorted(_names(self.root)):
            if len(prefix) == 2 and _HEX.issuperset(prefix):
                for name in sorted(_names(self.root / prefix)):
                    if len(name) == 64 and name.startswith(prefix) and _HEX.issuperset(name):
                        yield name

    def clean(self) -> tuple[int, int]:
        """Removes all entries and notes; how many entries, and their bytes. Raises EnvironmentFault."""
        removed = freed = 0
        for key in list(self.entries()):
            size = size_of(self.path_of(key))
            if self.remove(key):
                removed, freed = removed + 1, freed + size
        for name in _names(self.libraries):
            with contextlib.suppress(OSError):
                os.unlink(self.libraries / name)
        return removed, freed

    def _bound(self, newest: str) -> None:
        """Beyond KEPT_ENTRIES the least recently used go; never `newest`."""
        with contextlib.suppress(OSError, EnvironmentFault):
            for place in (self.path_of(newest), self.libraries):
                storage.remove_stale_temporaries(place)
            used = [(_last_use(self.path_of(key) / RECORD), key) for key in self.entries() if key != newest]
            for _, key in sorted(used)[: max(0, len(used) + 1 - KEPT_ENTRIES)]:
                self.remove(key)


def size_of(path: Path) -> int:
    """Bytes of an entry's files, whatever they are."""
    total = 0
    for name in (CUBIN, RECORD):
        with contextlib.suppress(OSError):
            total += os.lstat(path / name).st_size
    return total


def _read(path: Path, most: int) -> bytes | None:
    """A file of the cache, whole; None where there is none. Another's word is damage: a digest says that bytes are
    whole, not who wrote them."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Damaged(f"{path.name} cannot be read: {error.strerror}") from None
    try:
        if not only_owner_writes(os.fstat(descriptor)):
            raise Damaged(f"{path.name} is no regular file that its owner alone may write")
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(most + 1)
    finally:
        os.close(descriptor)
    if len(data) > most:
        raise Damaged(f"{path.name} is larger than anything that is stored")
    return data


def _parsed(data: bytes, key: str) -> dict[str, Any]:
    try:
        record = json.loads(data)
        if not isinstance(record, dict) or record.get("schema") != SCHEMA or record["schema_version"] != SCHEMA_VERSION:
            raise ValueError("another schema")
        if record["key"] != key or key_of(record["inputs"]) != key:
            raise Damaged("its record is of another entry")
        if not isinstance(record["sha256"], str):
            raise TypeError("a digest that is none")
        return record
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Damaged("its record is no record") from None


def _note_use(record: Path) -> None:
    with contextlib.suppress(OSError):  # a cache that is only read
        if time.time() - os.stat(record).st_mtime > 86_400.0:
            os.utime(record)


def _last_use(record: Path) -> float:
    try:
        return os.lstat(record).st_mtime
    except OSError:
        return 0.0


def _names(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []
