"""The library whose call shape `toktier.compat.transformers` has. Tests skip without it; with TRANSFORMERS=required, as
in the job of `dev.py test --tier ci` that has it on its path, they fail.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType

import pytest


def required_transformers() -> ModuleType:
    """The library, offline. It says at its import that it has no torch, which nothing here needs."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        return importlib.import_module("transformers")
    except ImportError as error:
        reason = f"needs transformers (extra transformers-test): {error}"
        if os.environ.get("TRANSFORMERS") == "required":
            pytest.fail(reason)
        pytest.skip(reason)
