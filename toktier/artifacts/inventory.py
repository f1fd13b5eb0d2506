"""What the cache holds, whether it is right, and taking it out again. Looking writes nothing."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path

from toktier.artifacts.cache import ArtifactCache
from toktier.artifacts.local_artifacts import is_local_name, local_digests, local_families, remove_local
from toktier.artifacts.pins import TOKENIZER_FILE, Family, PinnedFile, Pins, shipped_file
from toktier.errors import ToktierError


@dataclass(frozen=True, slots=True)
class FileState:
    """One pinned file of a family. `status`: ok, missing, damaged (`error` says how), or present (not hashed)."""

    file: PinnedFile
    status: str
    path: Path | None = None
    error: ToktierError | None = None
    shared: bool = False


@dataclass(slots=True)
class FamilyState:
    """A family as the cache has it. Loadable: its tokenizer.json is there and, if hashed, right. `verified_by`: hashed,
    or stored when its bytes were hashed last before they were written."""

    family: Family
    files: list[FileState] = field(default_factory=list)
    verified_at: str | None = None
    verified_by: str | None = None
    source: str | None = None

    @property
    def loadable(self) -> bool:
        return any(s.file.name == TOKENIZER_FILE and s.status in ("ok", "present") for s in self.files)

    @property
    def complete(self) -> bool:
        return all(s.status in ("ok", "present") for s in self.files)

    @property
    def damaged(self) -> list[FileState]:
        return [s for s in self.files if s.status == "damaged"]

    @property
    def shared(self) -> bool:
        """Whether its tokenizer.json is that of a shared cache."""
        return any(s.file.name == TOKENIZER_FILE and s.shared for s in self.files)

    @property
    def size(self) -> int:
        """Bytes of the files that are there."""
        return sum(s.file.size for s in self.files if s.status in ("ok", "present"))


def survey(family: Family, cache: ArtifactCache | None, *, deep: bool, trust_hint: bool = False) -> FamilyState:
    """The state of one family; `deep` hashes every file, else sizes are compared. With `trust_hint` what was hashed
    before and did not change since is not hashed again (`ArtifactCache.state`)."""
    state = FamilyState(family)
    if family.shipped:
        state.files.append(_shipped(family, deep))
        state.source = "shipped"
        return state
    for file in family.files.values():
        state.files.append(_file(file, cache, deep, trust_hint))
    for name, file in family.inputs.items():  # nobody lacks them: what is made from them may be there
        if name not in family.files and (entry := _file(file, cache, deep, trust_hint)).status != "missing":
            state.files.append(entry)
    if cache is not None:
        note = cache.read_note(family.name)
        state.source = str(note["source"])[:300] if note is not None and "source" in note else None
        if (verified := cache.verified_at(family.tokenizer.sha256)) is not None:
            state.verified_at, state.verified_by = verified
    return state


def _shipped(family: Family, deep: bool) -> FileState:
    if not deep:
        return FileState(family.tokenizer, "present", family.shipped_path)
    try:
        return FileState(family.tokenizer, "ok", shipped_file(family))
    except ToktierError as error:
        return FileState(family.tokenizer, "damaged", family.shipped_path, error)


def _file(file: PinnedFile, cache: ArtifactCache | None, deep: bool, trust_hint: bool) -> FileState:
    if cache is None:
        return FileState(file, "missing")
    hashed = cache.state if trust_hint else cache.inspect
    state = hashed(file) if deep else cache.glance(file)
    error = cache.damage(file, state) if state.status == "damaged" else None
    return FileState(file, state.status, None if state.status == "missing" else state.path, error, state.shared)


def cached_families(pins: Pins, cache: ArtifactCache | None, *, deep: bool = False) -> list[FamilyState]:
    """Every family of which the cache has some file, in name order, then the local artifacts. Shipped families are not
    in the cache."""
    states = (survey(f, cache, deep=deep) for _, f in sorted(pins.families.items()) if not f.shipped)
    there = [s for s in states if any(f.status != "missing" for f in s.files)]
    # A local artifact is there by its record, also when its blobs are not.
    return there + ([] if cache is None else [survey(f, cache, deep=deep) for f in local_families(cache)])


def extra_blobs(pins: Pins, cache: ArtifactCache) -> list[Path]:
    """Files among the blobs that no pin and no local artifact names, sorted."""
    root = cache.root / "blobs"
    local = local_digests(cache)
    found = []
    with contextlib.suppress(OSError):
        for directory, _, names in os.walk(root):
            unknown = (n for n in names if not pins.of_digest(n) and n not in local)
            found += [Path(directory, n) for n in unknown if not n.startswith(".tmp-")]
    return sorted(found)


def remove_family(family: Family, pins: Pins, cache: ArtifactCache) -> tuple[int, list[str]]:
    """Takes a family's files out of the cache. Gives the bytes freed and the names of the other families that lost
    nothing because they hold the same content and keep it."""
    if is_local_name(family.name):
        return remove_local(family, pins, cache)
    freed = 0
    shared: set[str] = set()
    for file in {**family.inputs, **family.files}.values():
        others = {f.family for f in pins.of_digest(file.sha256)} - {family.name}
        keepers = {name for name in others if cache.read_note(name) is not None}
        keepers |= {f.name for f in local_families(cache) if file.sha256 in {held.sha256 for held in f.files.values()}}
        if keepers:
            shared |= keepers
        else:
            freed += cache.remove(file)
    cache.remove_note(family.name)
    return freed, sorted(shared)
