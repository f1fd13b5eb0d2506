"""Revisions in the hub client's own cache: a branch, a tag, a full or a short commit → the snapshot on this host.

The layout is the client's and documented: `models--ORG--NAME/refs/REVISION` holds a commit, `snapshots/COMMIT/` the
files. Nothing is asked of a network and nothing is written. Not here: what the files must hash to (`pretrained`).
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from toktier.errors import ConfigInvalid
from toktier.labels import quoted, shown
from toktier.regular_files import open_regular

SHORTEST_COMMIT = 4  # hexadecimal digits, as git
MAX_NAME = 200
MAX_REFS = 1_000  # of one repository; what is beyond is not looked at
COMMIT = re.compile(r"[0-9a-f]{40}")
# What the hub calls a repository: a name, usually with an owner. Neither "." nor ".." can be one of the two.
_PART = r"(?!\.{1,2}(?:/|$))[A-Za-z0-9._-]{1,96}"
_REPOSITORY = re.compile(rf"{_PART}(?:/{_PART})?")


@dataclass(frozen=True, slots=True)
class Revisions:
    """What a host has of one repository. `names`: branch or tag → commit; `commits`: those that have a snapshot."""

    names: dict[str, str]
    commits: tuple[str, ...]

    def commit(self, revision: str, *, also: str | None = None) -> str | None:
        """The commit that `revision` means here, with a snapshot or without; None for one that nothing here names.

        `also`: a commit that is known besides, of which `revision` may be the beginning. Raises ConfigInvalid when the
        beginning is that of several commits. A name holds before a commit, as on the hub.
        """
        if revision in self.names:
            return self.names[revision]
        known = {*self.commits, *self.names.values(), *([] if also is None else [also])}
        if len(revision) < SHORTEST_COMMIT or COMMIT.fullmatch(revision.ljust(40, "0")) is None:
            return None
        found = sorted(commit for commit in known if commit.startswith(revision))
        if len(found) > 1:
            raise ConfigInvalid(
                f"revision {quoted(revision)} is the beginning of several commits: {', '.join(found)}",
                details={"revision": revision, "commits": found},
                remedy="give more digits of the commit",
            )
        return found[0] if found else None

    def described(self) -> list[str]:
        """One entry a revision, for people: names with their commit, then commits that no name has."""
        named = [f"{shown(name)} ({commit[:12]})" for name, commit in sorted(self.names.items())]
        return named + [c for c in self.commits if c not in self.names.values()]


def checked_repository(repo_id: str) -> str:
    """`repo_id` when it can be the name of a repository. ConfigInvalid else: it becomes part of a path."""
    if _REPOSITORY.fullmatch(repo_id):
        return repo_id
    path = os.sep in repo_id and os.path.exists(repo_id)
    raise ConfigInvalid(
        f"{quoted(repo_id)} is no repository: expected OWNER/NAME",
        details={"repo_id": repo_id[:MAX_NAME]},
        remedy="a file on this host opens with toktier.from_file(PATH)"
        if path
        else 'name it as the hub does, for example "Qwen/Qwen3-8B"',
    )


def checked_revision(revision: str) -> str:
    """`revision` when it can be a branch, tag or commit. ConfigInvalid else: it becomes part of a path and a URL."""
    bad = (
        not revision
        or len(revision) > MAX_NAME
        or not revision.isprintable()
        or any(part in ("", ".", "..") for part in revision.split("/"))
        or any(character in revision for character in "\\:?*[~^ ")
    )
    if bad:
        raise ConfigInvalid(
            f"{quoted(revision)} is no revision: expected a branch, a tag or a commit",
            details={"revision": revision[:MAX_NAME]},
            remedy="give a branch such as main, a tag, or a commit in hexadecimal digits",
        )
    return revision


def repository_folder(root: Path, repo_id: str) -> Path:
    """Where the client keeps a repository."""
    return root / ("models--" + repo_id.replace("/", "--"))


def local_revisions(root: Path, repo_id: str) -> Revisions:
    """What the client's cache under `root` has of a repository. What cannot be read is not there."""
    folder = repository_folder(root, repo_id)
    try:
        with os.scandir(folder / "snapshots") as entries:
            commits = tuple(sorted(e.name for e in entries if COMMIT.fullmatch(e.name) and e.is_dir()))
    except OSError:
        commits = ()
    names: dict[str, str] = {}
    for directory, _, files in os.walk(folder / "refs"):
        for file in files[: MAX_REFS - len(names)]:
            path = Path(directory, file)
            commit = _commit_in(path)
            if commit is not None:
                names[path.relative_to(folder / "refs").as_posix()] = commit
    return Revisions(names, commits)


def snapshot_file(root: Path, repo_id: str, commit: str, name: str) -> Path | None:
    """The file of a snapshot, or None when it is not there."""
    path = repository_folder(root, repo_id) / "snapshots" / commit / name
    return path if path.is_file() else None


def _commit_in(path: Path) -> str | None:
    try:
        with open_regular(path) as stream:
            text = stream.read(64).decode("ascii").strip()
    except (OSError, ValueError):
        return None
    return text if COMMIT.fullmatch(text) else None
