"""Finds a bundle where archives and directories are only searched for pinned files: gzipped, in a directory, in a zip.

There its signature is not looked at, so where signatures are demanded such a path is refused whole. Not here: reading
bundles (`bundle_reader`), which keys are demanded.
"""

from __future__ import annotations

from pathlib import Path

from toktier.artifacts.bundle_manifest import INDEX_NAME, MANIFEST_NAME
from toktier.artifacts.containers import candidates
from toktier.errors import SignatureMissing
from toktier.labels import escaped, shown_path


def inner_bundle(path: Path) -> SignatureMissing | None:
    """The error for a path that is searched and holds a bundle, packed or unpacked; None where it holds none.

    Names are compared and nothing is read. Raises as `candidates`.
    """
    for candidate in candidates(path, []):
        name = candidate.where.rpartition("!")[2]
        if name.rpartition("/")[2] in (MANIFEST_NAME, INDEX_NAME):
            return SignatureMissing(
                f"{shown_path(path)} holds a bundle ({candidate.where}), and signatures are demanded: that of a bundle "
                "is checked only where the bundle itself is imported",
                details={"path": escaped(path), "found": candidate.where},
                remedy="toktier artifacts import BUNDLE, with the .tar or .tar.zst itself and its .sig.json beside it",
            )
    return None
