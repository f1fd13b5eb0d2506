"""Writes a mirror: a static tree of `<repo_id>/resolve/<revision>/<file>`, the hub's own layout, from the cache.

Any file server can serve it; `artifacts fetch` reads it by `--from URL` and by `HF_ENDPOINT`. Everyone may read what
is written. Files that are right already are left alone, so a tree is brought up to date by writing it again.
Not here: reading one (`mirror_source`).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from toktier.artifacts.cache import ArtifactCache, hash_file
from toktier.artifacts.mirror_source import tree_path
from toktier.artifacts.pins import TOKENIZER_FILE, Family, PinnedFile
from toktier.errors import ArtifactNotFound
from toktier.regular_files import open_regular
from toktier.storage import OUT, atomic_write, environment_fault, make_directory, require_space

FILE_MODE, DIRECTORY_MODE = 0o644, 0o755
SUMS = "SHA256SUMS"


@dataclass(frozen=True, slots=True)
class MirroredFile:
    """One file of the tree. `outcome`: written, unchanged, or missing (the cache lacks it)."""

    file: PinnedFile
    path: str
    outcome: str


@dataclass(slots=True)
class MirrorReport:
    """What one family gave."""

    family: Family
    files: list[MirroredFile] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        return all(entry.outcome != "missing" for entry in self.files)


def write_family(family: Family, cache: ArtifactCache, out: Path) -> MirrorReport:
    """Writes what the cache holds of a family, hashed on the way.

    Raises ArtifactNotFound when its tokenizer.json is not in the cache, ArtifactHashMismatch or ArtifactDamaged for a
    bad blob, SourceUnreachable for a family of no repository, EnvironmentFault when the host refuses.
    """
    report = MirrorReport(family)
    for file in {**family.inputs, **family.files}.values():
        path = tree_path(family, file)
        state = cache.inspect(file)
        if state.status == "damaged":
            raise cache.damage(file, state)
        if state.status == "missing":
            if file.name == TOKENIZER_FILE:
                raise ArtifactNotFound(
                    f"{family.name} is not in the cache, so there is nothing to mirror",
                    details={"family": family.name},
                    remedy=f"toktier artifacts fetch {family.name} --complete",
                )
            report.files.append(MirroredFile(file, path, "missing"))
        else:
            report.files.append(MirroredFile(file, path, _write(file, state.path, out / path)))
    return report


def _write(file: PinnedFile, blob: Path, target: Path) -> str:
    try:
        if hash_file(target)[0] == file.sha256:
            return "unchanged"
    except OSError:
        pass  # not there, or not readable: written anew
    try:
        with open_regular(blob) as stream:
            data = stream.readall()
    except OSError as error:
        raise environment_fault(error, "read", blob) from None
    require_space(target, len(data), named_by=OUT)
    make_directory(target.parent, DIRECTORY_MODE, named_by=OUT)
    atomic_write(target, data, FILE_MODE, named_by=OUT)
    return "written"


def write_sums(out: Path) -> Path:
    """Writes SHA256SUMS over every file of the tree, for `sha256sum --check`. Raises EnvironmentFault."""
    lines = []
    try:
        for directory, names, files in os.walk(out):
            names.sort()
            for name in files:
                path = Path(directory, name)
                if path != out / SUMS and not name.startswith(".tmp-"):
                    lines.append((path.relative_to(out).as_posix(), hash_file(path)[0]))
    except OSError as error:
        raise environment_fault(error, "read", error.filename or out) from None
    text = "".join(f"{digest}  {path}\n" for path, digest in sorted(lines))
    atomic_write(out / SUMS, text.encode("utf-8", "surrogateescape"), FILE_MODE, named_by=OUT)
    return out / SUMS
