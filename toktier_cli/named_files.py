"""What the words of a line name as files: files themselves, patterns that the shell left alone, and directories.

A word that names nothing gives its error in place, so that the rest goes on. Not here: reading (`inputs`).
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence

from toktier.errors import ArtifactNotFound, EnvironmentFault, ToktierError, UsageError
from toktier.labels import shown_path

_WILD = frozenset("*?[")


def named_files(
    words: Sequence[str], *, recursive: bool, suffixes: Sequence[str]
) -> Iterator[tuple[str, ToktierError | None]]:
    """Paths in the order of the words, sorted within one, and what is wrong with a path. `-` stays as it is.

    Patterns are `*`, `?`, `[...]`, and `**` for any directories; a file that is called so is meant first. Directories
    are walked with `recursive`: hidden files and directories are left out, links to directories not followed, and only
    regular files whose names end in one of `suffixes` (none: all) are taken.
    """
    for word in words:
        if word == "-":
            yield word, None
        elif os.path.isdir(word):
            yield from _directory(word, recursive, suffixes)
        elif _WILD.isdisjoint(word) or os.path.lexists(word):
            yield word, None
        else:
            yield from _pattern(word)


def _directory(word: str, recursive: bool, suffixes: Sequence[str]) -> Iterator[tuple[str, ToktierError | None]]:
    if recursive:
        yield from _walk(word, tuple(suffixes) or ("",))
        return
    yield (
        word,
        UsageError(
            f"{shown_path(word)} is a directory",
            details={"path": word},
            remedy=f"toktier count --recursive {shlex.quote(word)}",
        ),
    )


def _walk(top: str, suffixes: tuple[str, ...]) -> Iterator[tuple[str, ToktierError | None]]:
    try:
        with os.scandir(top) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError as error:
        yield (
            top,
            EnvironmentFault(
                f"{shown_path(top)} cannot be read: {error.strerror}",
                details={"path": top},
                remedy="check the permissions of the directory",
            ),
        )
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        try:
            below, regular = entry.is_dir(follow_symlinks=False), entry.is_file()
        except OSError:  # a ring of links
            below, regular = False, True  # reading it says what is wrong
        if below:
            yield from _walk(entry.path, suffixes)
        elif regular and entry.name.endswith(suffixes):
            yield entry.path, None


def _pattern(word: str) -> Iterator[tuple[str, ToktierError | None]]:
    import glob

    paths = sorted(path for path in glob.iglob(word, recursive=True) if not os.path.isdir(path))
    if not paths:
        yield (
            word,
            ArtifactNotFound(
                f"no file matches {shown_path(word)}",
                details={"path": word},
                remedy="check the pattern, and its quotes",
            ),
        )
    for path in paths:
        yield path, None
