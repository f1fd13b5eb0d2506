"""Facts about this installation that the plan needs. No side effect: nothing is imported, opened or initialised for it.

Not here: judgements. A fact is what was seen; `toktier.routing.plan` says what follows from it.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class ProbeFacts:
    """`reference_version`: version of the installed `tokenizers` distribution, None when absent. `gpu_backend`: this
    installation has the GPU backend. `gpu_count`: usable devices; None: not looked for."""

    reference_version: str | None
    gpu_backend: bool = False
    gpu_count: int | None = None


def probe() -> ProbeFacts:
    """Looks at the installation. `tokenizers` is not imported: that costs more than loading a program."""
    return ProbeFacts(reference_version=_reference_version())


def _reference_version() -> str | None:
    loaded = getattr(sys.modules.get("tokenizers"), "__version__", None)
    if isinstance(loaded, str):
        return loaded
    for directory in sys.path:
        version = _version_beside_package(directory or os.curdir)
        if version is not None:
            return version
    # Zip imports, editable installs, leftovers of an upgrade: the general way, 40 ms slower.
    import importlib.metadata

    try:
        return importlib.metadata.version("tokenizers")
    except importlib.metadata.PackageNotFoundError:
        return None


def _version_beside_package(directory: str) -> str | None:
    """Version in the name of the one .dist-info beside the package; None when it takes more than that to tell."""
    if not os.path.isfile(os.path.join(directory, "tokenizers", "__init__.py")):
        return None
    prefix, suffix = "tokenizers-", ".dist-info"
    names = [name for name in os.listdir(directory) if name.startswith(prefix) and name.endswith(suffix)]
    return names[0][len(prefix) : -len(suffix)] if len(names) == 1 else None
