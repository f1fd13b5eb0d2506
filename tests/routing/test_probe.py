"""The probe tells the truth about the installed reference without importing anything heavy."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from toktier.routing import probe as probe_module
from toktier.routing.probe import gpu_count, installed_version, probe
from toktier.routing.vocabulary import GpuDelivery

INSTALLED = version("tokenizers")


def run(script: str, *arguments: str) -> str:
    """Output of a script in a fresh interpreter: what is loaded here must not answer."""
    return subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True).stdout


def test_the_installed_version_without_an_import() -> None:
    script = (
        "import sys; from toktier.routing.probe import probe; "
        "print(probe().reference_version, *(m for m in ('tokenizers', 'importlib.metadata') if m in sys.modules))"
    )
    assert run(script).split() == [INSTALLED]


def test_the_general_way_when_names_do_not_tell(tmp_path: Path) -> None:
    """Two .dist-info beside the package, as a broken upgrade leaves them: importlib's answer counts."""
    (tmp_path / "tokenizers").mkdir()
    (tmp_path / "tokenizers" / "__init__.py").touch()
    for number in ("0.1", "0.2"):
        directory = tmp_path / f"tokenizers-{number}.dist-info"
        directory.mkdir()
        (directory / "METADATA").write_text(f"Metadata-Version: 2.1\nName: tokenizers\nVersion: {number}\n")
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); from toktier.routing.probe import probe; "
        "import importlib.metadata; "
        "print(probe().reference_version == importlib.metadata.version('tokenizers'), probe().reference_version)"
    )
    same, found = run(script, str(tmp_path)).split()
    assert same == "True"
    assert found in ("0.1", "0.2")


def test_the_first_package_on_the_path_counts(tmp_path: Path) -> None:
    (tmp_path / "tokenizers").mkdir()
    (tmp_path / "tokenizers" / "__init__.py").touch()
    (tmp_path / "tokenizers-0.19.9.dist-info").mkdir()
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); from toktier.routing.probe import probe; "
        "print(probe().reference_version)"
    )
    assert run(script, str(tmp_path)).strip() == "0.19.9"


def test_none_where_it_is_not_installed() -> None:
    script = (
        "import sys; from toktier.routing import probe\n"
        "sys.path[:] = [p for p in sys.path if 'site-packages' not in p]\nprint(probe.probe().reference_version)"
    )
    assert run(script).strip() == "None"


def test_a_loaded_module_speaks_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    import tokenizers

    monkeypatch.setattr(tokenizers, "__version__", "9.9.9")
    assert installed_version("tokenizers") == "9.9.9"


def test_a_host_without_a_device_pays_for_one_look(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    looked: list[str] = []
    real = os.path.exists

    def exists(path: str) -> bool:
        looked.append(path)
        return False

    monkeypatch.setattr(os.path, "exists", exists)
    assert gpu_count(str(tmp_path)) == 0
    monkeypatch.setattr(os.path, "exists", real)
    assert looked == [str(tmp_path / "dev/nvidiactl"), str(tmp_path / "dev/dxg")]


def test_devices_are_counted_by_their_nodes(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    for name in ("nvidia0", "nvidia1", "nvidia10", "nvidia-uvm", "nvidiactl", "nvidia-caps", "null"):
        (tmp_path / "dev" / name).touch()
    assert gpu_count(str(tmp_path)) == 3
    (tmp_path / "dev/nvidiactl").unlink()
    assert gpu_count(str(tmp_path)) == 0
    (tmp_path / "dev/dxg").touch()
    assert gpu_count(str(tmp_path)) == 1


def test_nobody_looks_for_a_gpu_that_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    def count(system: str = "/") -> int:
        raise AssertionError("looked")

    monkeypatch.setattr(probe_module, "gpu_count", count)
    assert probe(look_for_gpu=False).gpu_count is None
    with pytest.raises(AssertionError, match="looked"):
        probe()


@pytest.mark.parametrize("wanted", list(GpuDelivery))
def test_kernels_are_looked_for_where_there_is_a_device_alone(
    wanted: GpuDelivery, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[GpuDelivery] = []

    def available(delivery: GpuDelivery) -> str:
        asked.append(delivery)
        return "jit"

    monkeypatch.setattr("toktier.gpu.delivery.available", available)
    monkeypatch.setattr(probe_module, "gpu_count", lambda: 0)
    assert probe(wanted).gpu_delivery is None
    assert asked == []
    monkeypatch.setattr(probe_module, "gpu_count", lambda: 2)
    found = probe(wanted)
    assert (found.gpu_count, found.gpu_delivery, asked) == (2, GpuDelivery.JIT, [wanted])
