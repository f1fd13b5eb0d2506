"""A host with a toolchain that is not NVRTC, an installation of its own, and a table that lists what it makes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kernels import FakeToolchain, list_digests
from tests.support.material import ROOT
from toktier import resources
from toktier.gpu.digests import shipped_digests


@pytest.fixture
def fake(tmp_path: Path) -> FakeToolchain:
    return FakeToolchain(tmp_path / "site")


@pytest.fixture
def installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The shipped data, copied, with kernels of the fake toolchain listed and none shipped."""
    root = tmp_path / "data"
    shutil.copytree(ROOT / "tables", root / "tables")
    shutil.copytree(ROOT / "kernels", root / "kernels")
    monkeypatch.setattr(resources, "data_root", lambda: root)
    shipped_digests.cache_clear()
    list_digests(root)
    yield root
    shipped_digests.cache_clear()
