"""Local artifacts: unpinned tokenizers that a user registered as `local/NAME`, never certified by their name.

    artifacts/local/NAME.json   {"schema", "schema_version", "name", "files": [{"path", "sha256", "size"}], …}

The record says which blobs are the artifact's, so it is what the user said on this host, not what a container claimed;
blobs are hashed as those of pinned families are. Not here: how files are brought in (`bundle_import`).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from pathlib import Path

from toktier.artifacts.cache import ArtifactCache
from toktier.artifacts.pins import TOKENIZER_FILE, Family, PinnedFile, Pins
from toktier.canonical import canonical_json
from toktier.errors import AliasConflict, ArtifactDamaged, ArtifactNotFound, EnvironmentFault, UsageError
from toktier.labels import shown, shown_path
from toktier.regular_files import open_regular
from toktier.storage import atomic_write, environment_fault, make_directory

PREFIX = "local/"
ALIAS_PREFIX = "local-"  # of a bundle that carries one; no pinned family's alias
SCHEMA = "toktier.local_artifact"
MAX_RECORD_BYTES = 2 << 20
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9])?", re.ASCII)
_HEX = re.compile(r"[0-9a-f]{64}", re.ASCII)


def is_local_name(name: str) -> bool:
    """Whether `name` is of the form local/NAME. `local/x.json` and deeper ones are paths."""
    return name.startswith(PREFIX) and _valid(name.removeprefix(PREFIX))


def _valid(name: str) -> bool:
    return bool(_NAME.fullmatch(name)) and not name.lower().endswith((".json", ".tar", ".zst"))


def parse_name(given: str) -> str:
    """NAME of what was given for --as. UsageError for anything but local/NAME."""
    if not is_local_name(given):
        raise UsageError(
            f"{shown(given)!r} is no name of a local artifact: expected {PREFIX}NAME, with up to 64 letters, digits, "
            "dots, hyphens and underscores, a letter or digit at both ends",
            details={"name": shown(given)},
            remedy="toktier artifacts import tokenizer.json --as local/my-tokenizer",
        )
    return given.removeprefix(PREFIX)


def local_family(name: str, files: dict[str, tuple[str, int]]) -> Family:
    """A local artifact as the rest of the code sees families. `files`: path to (sha256, size)."""
    full = PREFIX + name
    pinned = {path: PinnedFile(full, path, sha256, size) for path, (sha256, size) in sorted(files.items())}
    return Family(name=full, repo_id=None, revision=None, shipped=False, files=pinned, inputs={}, publications=())


def find_local(name: str, cache: ArtifactCache | None) -> Family:
    """The local artifact `local/NAME`. ArtifactNotFound names those there are; ArtifactDamaged for a bad record."""
    plain = parse_name(name)
    for root in () if cache is None else (cache.root, *cache.shared):
        path = _record(root, plain)
        if path.exists():
            return _read(path, plain)
    known = [] if cache is None else [family.name for family in local_families(cache)]
    hint = f"; there are: {', '.join(known[:20])}" if known else ""
    raise ArtifactNotFound(
        f"no local artifact is named {shown(name)}{hint}",
        details={"family": shown(name), "local": known[:20]},
        remedy=f"toktier artifacts import PATH --as {shown(name)}",
    )


def local_families(cache: ArtifactCache) -> list[Family]:
    """All local artifacts of the cache and the shared ones, by name; records that cannot be read are left out."""
    found: dict[str, Family] = {}
    for root in (cache.root, *cache.shared):
        for name in _names(root):
            with contextlib.suppress(ArtifactDamaged, EnvironmentFault):
                found.setdefault(name, _read(_record(root, name), name))
    return [family for _, family in sorted(found.items())]


def damaged_records(cache: ArtifactCache) -> list[tuple[Path, ArtifactDamaged | EnvironmentFault]]:
    """The records of the user's own cache that cannot be read, and why: what `local_families` leaves out."""
    found: list[tuple[Path, ArtifactDamaged | EnvironmentFault]] = []
    for name in _names(cache.root):
        path = _record(cache.root, name)
        try:
            _read(path, name)
        except (ArtifactDamaged, EnvironmentFault) as error:
            found.append((path, error))
    return found


def remove_record(name: str, cache: ArtifactCache) -> bool:
    """Takes out the record of local/NAME where it cannot be read; its blobs are then nobody's. Gives False when it can,
    or is not there. Raises EnvironmentFault."""
    path = _record(cache.root, parse_name(name))
    with cache.lock("local-registry"):
        if path not in [damaged for damaged, _ in damaged_records(cache)]:
            return False
        try:
            os.unlink(path)
        except OSError as error:
            raise environment_fault(error, "remove", path) from None
    return True


def register(family: Family, cache: ArtifactCache, source: str) -> bool:
    """Writes the record of a local artifact whose blobs are stored; gives False when the same one is there.

    Raises AliasConflict where the name, in any case, is taken by other content; EnvironmentFault.
    """
    name = family.name.removeprefix(PREFIX)
    with cache.lock("local-registry"):
        check_free(family, cache)
        path = _record(cache.root, name)
        if path.exists():
            return False
        make_directory(path.parent, cache.modes.directory)
        document = {
            "schema": SCHEMA,
            "schema_version": 1,
            "name": name,
            "files": [{"path": f.name, "sha256": f.sha256, "size": f.size} for f in family.files.values()],
            "source": shown(source, 300),
            "stored_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        atomic_write(path, canonical_json(document) + b"\n", cache.modes.file)
    return True


def check_free(family: Family, cache: ArtifactCache) -> None:
    """Raises AliasConflict where the name of `family` is taken by other content."""
    name = family.name.removeprefix(PREFIX)
    for taken in _names(cache.root):
        if taken.casefold() != name.casefold():
            continue
        there = _contents(_read(_record(cache.root, taken), taken))
        if taken != name or there != _contents(family):
            raise AliasConflict(
                f"{PREFIX}{taken} is there already, and {PREFIX}{name} is not the same name with the same content",
                details={"name": PREFIX + taken, "there": there.get(TOKENIZER_FILE)},
                remedy=f"toktier artifacts remove {PREFIX}{taken}, or take another name",
            )


def remove_local(family: Family, pins: Pins, cache: ArtifactCache) -> tuple[int, list[str]]:
    """Takes a local artifact out of the cache. Gives the bytes freed, and who else holds some of its content."""
    name = family.name.removeprefix(PREFIX)
    freed, keepers = 0, set()
    with cache.lock("local-registry"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_record(cache.root, name))
        others = local_families(cache)
        for file in family.files.values():
            holding = {f.name for f in others if f.name != family.name and file.sha256 in _digests(f)}
            holding |= {f.family for f in pins.of_digest(file.sha256) if cache.read_note(f.family) is not None}
            keepers |= holding
            freed += 0 if holding else cache.remove(file)
    return freed, sorted(keepers)


def local_digests(cache: ArtifactCache) -> set[str]:
    """Digests of all content that belongs to a local artifact."""
    return {digest for family in local_families(cache) for digest in _digests(family)}


def _digests(family: Family) -> set[str]:
    return {file.sha256 for file in family.files.values()}


def _contents(family: Family) -> dict[str, str]:
    return {file.name: file.sha256 for file in family.files.values()}


def _record(root: Path, name: str) -> Path:
    return root / "local" / f"{name}.json"


def _names(root: Path) -> list[str]:
    try:
        names = os.listdir(root / "local")
    except OSError:
        return []
    plain = (n.removesuffix(".json") for n in names if n.endswith(".json"))
    return sorted(n for n in plain if _valid(n))


def _read(path: Path, name: str) -> Family:
    try:
        with open_regular(path) as stream:
            document = json.loads(stream.read(MAX_RECORD_BYTES))
        if (document["schema"], document["schema_version"], document["name"]) != (SCHEMA, 1, name):
            raise ValueError("it is the record of something else")
        files: dict[str, tuple[str, int]] = {}
        for entry in document["files"]:
            path_name, sha256, size = entry["path"], entry["sha256"], entry["size"]
            if not (isinstance(path_name, str) and isinstance(size, int) and _HEX.fullmatch(sha256)):
                raise ValueError("an entry of files is malformed")
            files[path_name] = (sha256, size)
        if TOKENIZER_FILE not in files:
            raise ValueError(f"it names no {TOKENIZER_FILE}")
        return local_family(name, files)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ArtifactDamaged(
            f"the record of the local artifact {PREFIX}{name}, {shown_path(path)}, is damaged: {shown(str(error))}",
            details={"path": str(path), "name": PREFIX + name},
            remedy=f"toktier artifacts remove {PREFIX}{name}, then import it again",
        ) from None
