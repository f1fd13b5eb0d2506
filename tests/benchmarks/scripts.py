"""The modules of benchmarks/, which are scripts of one directory and no package."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

from tests.support.material import ROOT

PLACE = ROOT / "benchmarks"


def script(name: str) -> ModuleType:
    """A module of benchmarks/ by its name."""
    if str(PLACE) not in sys.path:
        sys.path.append(str(PLACE))  # behind all others: its names are short
    module = importlib.import_module(name)
    assert module.__file__ is not None
    assert module.__file__.startswith(str(PLACE)), f"{name} is {module.__file__}"
    return module
