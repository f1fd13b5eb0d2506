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
    holder = next((d for d in sys.path if os.path.isfile(os.path.join(d, "tokenizers", "__init__.py"))), None)
    if holder is not None:
        prefix, suffix = "tokenizers-", ".dist-info"
        names = [n for n in os.listdir(holder or os.curdir) if n.startswith(prefix) and n.endswith(suffix)]
        if len(names) == 1:
            return names[0][len(prefix) : -len(suffix)]
    # Zip imports, editable installs, leftovers of an upgrade: the general way, 40 ms slower.
    import importlib.metadata

    try:
        return importlib.metadata.version("tokenizers")
    except importlib.metadata.PackageNotFoundError:
        return None
