"""Facts about this installation that the plan needs. No side effect: nothing is imported, opened or initialised for it.

Not here: judgements. A fact is what was seen; `toktier.routing.plan` says what follows from it.
"""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass


@dataclass(frozen=True)
class ProbeFacts:
    """`reference_version`: version of the installed `tokenizers` distribution, None when absent. `gpu_backend`: this
    installation has the GPU backend. `gpu_count`: usable devices; None: not looked for."""

    reference_version: str | None
    gpu_backend: bool = False
    gpu_count: int | None = None


def probe() -> ProbeFacts:
    """Looks at the installation. The metadata of the distribution is read, the distribution is not imported."""
    try:
        version: str | None = importlib.metadata.version("tokenizers")
    except importlib.metadata.PackageNotFoundError:
        version = None
    return ProbeFacts(reference_version=version)
