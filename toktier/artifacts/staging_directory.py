"""A private directory for an import that is under way, on the file system of the blobs, so that its files can be moved.

Not here: what is staged (`bundle_import`), and how it gets its place (`ArtifactCache.adopt`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from toktier.artifacts.cache import ArtifactCache
from toktier.storage import make_directory

STALE_SECONDS = 86_400.0


@contextlib.contextmanager
def staging_directory(cache: ArtifactCache) -> Iterator[Path]:
    """A fresh directory; it and what is left in it vanish at the end. What killed runs left is removed after a day.

    Raises ConfigInvalid or EnvironmentFault where nothing may be stored.
    """
    cache.require_writable()
    parent = make_directory(cache.root / "staging", cache.modes.directory)
    _remove_stale(parent)
    directory = make_directory(parent / f"{os.getpid()}-{os.urandom(8).hex()}")
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _remove_stale(parent: Path) -> None:
    oldest = time.time() - STALE_SECONDS
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if entry.stat(follow_symlinks=False).st_mtime < oldest:
                    shutil.rmtree(entry.path, ignore_errors=True)
