"""Where the shipped data lies: tables/, kernels/, evidence/; inside the package when installed, else beside it.

Data only, read-only, never an import package.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def data_root() -> Path:
    """The directory that holds `tables`, `kernels` and `evidence`."""
    installed = _PACKAGE / "data"
    return installed if (installed / "tables").is_dir() else _PACKAGE.parent


def tables_dir() -> Path:
    """Directory of the shipped tables."""
    return data_root() / "tables"
