"""The pinned NVRTC, where `dev.py` puts it. Tests skip without it; with NVRTC=required, as in CI, they fail."""

from __future__ import annotations

import os

import pytest

from tests.support.material import ROOT
from toktier.gpu.toolchain import Missing, Places, Toolchain, find_toolchain

SITE = ROOT / "build" / "nvrtc" / "site"
NOWHERE = ROOT / "build" / "nvrtc" / "nowhere"
PLACES = Places((str(SITE),), {}, NOWHERE)


def required_toolchain() -> Toolchain:
    found = find_toolchain(PLACES)
    if isinstance(found, Missing):
        if os.environ.get("NVRTC") == "required":
            pytest.fail(f"NVRTC is required here, and {SITE} lacks {' and '.join(found.lacks)}")
        pytest.skip("the pinned NVRTC is not here (tools/dev.py kernels brings it)")
    return found
