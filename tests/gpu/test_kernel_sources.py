"""The sources of kernels: whole, in memory, each under its bare name, with a digest that any change of them moves."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.support.material import ROOT
from toktier.errors import RegistryInvalid
from toktier.gpu.kernel_sources import UNIT, read_sources


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(ROOT / "kernels", tmp_path / "kernels"))


def test_whatever_a_source_includes_is_there_under_that_name() -> None:
    sources = read_sources()
    assert sources.headers
    for text in (sources.unit, *sources.headers.values()):
        named = re.findall(r'^#include "([^"]+)"', text, re.MULTILINE)
        assert [name for name in named if name not in sources.headers and name != "simt.h"] == []
        assert not re.findall(r"^#include <", text, re.MULTILINE)


@pytest.mark.parametrize("name", [UNIT, "device/abi.h", "shared/target.h"])
def test_any_change_moves_the_digest(name: str, copy: Path) -> None:
    before = read_sources(copy).digest
    assert before == read_sources().digest
    (copy / name).write_bytes((copy / name).read_bytes() + b"\n")
    assert read_sources(copy).digest != before


def test_other_files_do_not(copy: Path) -> None:
    before = read_sources(copy).digest
    (copy / "README.md").write_text("notes")
    (copy / "prebuilt").mkdir()
    assert read_sources(copy).digest == before


def test_sources_that_are_not_whole_are_refused(copy: Path) -> None:
    shutil.copy(copy / "device" / "abi.h", copy / "shared" / "abi.h")
    with pytest.raises(RegistryInvalid, match=r"two headers of the kernels are named abi\.h"):
        read_sources(copy)
    (copy / "shared" / "abi.h").write_bytes(b"\0")
    (copy / "device" / "abi.h").unlink()
    with pytest.raises(RegistryInvalid, match="zero byte"):
        read_sources(copy)
    (copy / "shared" / "abi.h").write_bytes(b"\xff")
    with pytest.raises(RegistryInvalid, match="cannot be read"):
        read_sources(copy)
    (copy / "shared" / "abi.h").unlink()
    (copy / UNIT).unlink()
    with pytest.raises(RegistryInvalid, match="cannot be read"):
        read_sources(copy)
