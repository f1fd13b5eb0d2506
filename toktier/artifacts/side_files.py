"""The tokenizer_config.json beside a tokenizer.json: where it lies, and the merged document kept in the cache.

Merged documents are named by the digests of the two files, made again when they are missing, and believed only when
nobody else could have written them, as compiled programs are. Not here: what is merged (`toktier.program.side_file`).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from pathlib import Path

from toktier.artifacts.cache import ArtifactCache
from toktier.artifacts.pins import Family
from toktier.config import Settings
from toktier.errors import ArtifactNotFound
from toktier.program import trust
from toktier.program.side_file import MERGE_VERSION, SIDE_FILE, DeclaredToken, declared_tokens, merged
from toktier.program.strict_json import check_size
from toktier.regular_files import open_regular
from toktier.storage import atomic_write, environment_fault, make_directory


def of_family(family: Family, settings: Settings) -> Path | None:
    """The pinned side file of a family where the cache has it, or None. Raises for a damaged one."""
    pin = family.files.get(SIDE_FILE)
    cache = ArtifactCache.readable(settings)
    if pin is None or cache is None:
        return None
    state = cache.state(pin)
    if state.status == "damaged":
        raise cache.damage(pin, state)
    return state.path if state.status == "ok" else None


def read_declared(path: Path) -> tuple[DeclaredToken, ...]:
    """What a side file declares. Raises EnvironmentFault, and what `declared_tokens` raises."""
    return declared_tokens(_read(path, str(path)), str(path))


def merged_file(path: str | os.PathLike[str], side: Path, settings: Settings, name: str) -> Path:
    """The document of a tokenizer.json and its side file, in the cache. `name` stands in messages.

    Raises ArtifactNotFound, EnvironmentFault, ConfigInvalid on a host without a cache, and what `merged` raises.
    """
    tokenizer, config = _read(Path(path), name), _read(side, str(side))
    parts = [hashlib.sha256(data).hexdigest() for data in (tokenizer, config)]
    target = settings.require_cache() / "merged" / f"{'.'.join(parts)}.v{MERGE_VERSION}.json"
    with contextlib.suppress(OSError):
        status = os.lstat(target)
        if stat.S_ISREG(status.st_mode) and trust.only_owner_writes(status):
            return target
    data = merged(tokenizer, declared_tokens(config, str(side)), name)
    make_directory(target.parent)
    atomic_write(target, data)
    return target


def _read(path: Path, name: str) -> bytes:
    try:
        with open_regular(path) as stream:
            check_size(os.fstat(stream.fileno()).st_size, name)
            return stream.readall()
    except FileNotFoundError:
        raise ArtifactNotFound(f"there is no file {name}", details={"path": str(path)}) from None
    except OSError as error:
        raise environment_fault(error, "read", path) from None
