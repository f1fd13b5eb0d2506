"""GPU facts from a stub of NVML: two architectures, a refusal, a crash, a driver that hangs; and hosts without one."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support import nvml_stub
from toktier.config import Config
from toktier.diagnosis import gpu_hardware
from toktier.diagnosis.checks import selected
from toktier.diagnosis.context import Context
from toktier.diagnosis.model import Row
from toktier.diagnosis.runner import run
from toktier.gpu.cubin_cache import CubinCache
from toktier.gpu.digests import shipped_digests

pytestmark = [
    pytest.mark.unsanitized,
    pytest.mark.skipif(nvml_stub.compiler() is None, reason="the stub needs a C compiler"),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nvml_stub.build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(autouse=True)
def patient(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that answers does so through an interpreter of its own, whose start is the host's matter."""
    if request.function is not test_a_driver_that_hangs_is_not_waited_for:
        monkeypatch.setattr(gpu_hardware, "DRIVER_SECONDS", 200.0)


def context(tmp_path: Path, library: Path, mode: str = "", **more: Any) -> Context:
    environ = {**os.environ, "LD_LIBRARY_PATH": str(library), "NVML_STUB": mode}
    config = Config(home=tmp_path / "home", **more)
    return Context(config=config, environ=environ, system=nvml_stub.system_root(tmp_path / "system"), import_path=())


def rows(given: Context) -> dict[str, Row]:
    return {row.check.id: row for row in run(selected(["gpu"], [], with_family=False), given, 600)}


def test_two_devices_and_the_first_closed_gate(tmp_path: Path, library: Path) -> None:
    found = rows(context(tmp_path, library))
    assert {name: row.finding.status.value for name, row in found.items()} == {
        "gpu.hardware": "ok", "gpu.driver": "ok", "gpu.devices": "ok", "gpu.binding": "skip", "gpu.nvrtc": "skip",
        "gpu.cubins": "skip", "gpu.certification": "skip", "gpu.route": "warn",
    }  # fmt: skip
    assert found["gpu.driver"].finding.facts == {"driver_version": "570.86.15", "cuda_driver_version": "12.8"}
    assert found["gpu.devices"].finding.facts["devices"] == nvml_stub.DEVICES
    told = found["gpu.certification"].finding.facts["automatic_gpu_delivery_certification"]
    assert told == {"sm_86": "compiled_unjudged", "sm_90": "compiled_unjudged"}
    route = found["gpu.route"].finding
    assert route.facts["automatic_gpu_candidate"] is True
    assert route.facts["automatic_gpu_eligible"] is False
    assert route.facts["first_closed_gate"]["gate"] == "kernels"
    assert "R_BACKEND_UNAVAILABLE" in route.summary
    assert route.remedy is not None


def test_a_gpu_that_is_switched_off_is_no_warning(tmp_path: Path, library: Path) -> None:
    route = rows(context(tmp_path, library, disable_gpu=True))["gpu.route"].finding
    assert route.status.value == "skip"
    assert route.facts["automatic_gpu_candidate"] is False
    assert route.facts["first_closed_gate"]["reason"] == "R_GPU_DISABLED"


@pytest.mark.parametrize(
    ("mode", "said"),
    [("mismatch", "nvmlInit_v2: Driver/library version mismatch"), ("crash", "ended with -6")],
)
def test_a_driver_that_refuses_is_a_row(tmp_path: Path, library: Path, mode: str, said: str) -> None:
    found = rows(context(tmp_path, library, mode))
    driver = found["gpu.driver"].finding
    assert driver.status.value == "warn"
    assert said in driver.summary
    assert driver.reasons[0].code.value == "DRIVER_NOT_USABLE"
    assert found["gpu.devices"].finding.status.value == "unknown"
    assert found["gpu.nvrtc"].finding.status.value == "skip"


def test_a_driver_that_shows_no_device(tmp_path: Path, library: Path) -> None:
    assert rows(context(tmp_path, library, "none"))["gpu.devices"].finding.status.value == "warn"


def test_a_driver_that_hangs_is_not_waited_for(tmp_path: Path, library: Path) -> None:
    before = time.monotonic()
    found = rows(context(tmp_path, library, "hang"))
    assert time.monotonic() - before < 180  # a hang would be for ever
    driver = found["gpu.driver"].finding
    assert driver.status.value == "unknown"
    assert driver.reasons[0].code.value in ("DRIVER_TIMED_OUT", "CHECK_TIMED_OUT")
    assert driver.remedy is not None
    assert found["gpu.binding"].finding.status.value == "skip"


def test_without_a_library_the_hardware_is_still_told(tmp_path: Path) -> None:
    found = rows(context(tmp_path, tmp_path))
    if "cannot be loaded" not in found["gpu.driver"].finding.summary:
        pytest.skip("this host has an NVML of its own")
    assert found["gpu.hardware"].finding.status.value == "ok"
    assert found["gpu.driver"].finding.status.value == "warn"


def test_no_process_is_started_where_there_is_no_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def started(*_: object, **__: object) -> None:
        raise AssertionError("a process")

    monkeypatch.setattr(gpu_hardware.subprocess, "Popen", started)
    (tmp_path / "empty").mkdir()
    found = rows(Context(config=Config(home=tmp_path), system=tmp_path / "empty", import_path=()))
    assert {row.finding.status.value for row in found.values()} == {"skip"}


def test_a_device_on_the_bus_without_a_driver(tmp_path: Path) -> None:
    for name, vendor, kind in (("a", "0x10de", "0x030200"), ("b", "0x8086", "0x030000")):
        device = tmp_path / "sys/bus/pci/devices" / name
        device.mkdir(parents=True)
        (device / "vendor").write_text(f"{vendor}\n")
        (device / "class").write_text(f"{kind}\n")
    assert gpu_hardware.present(Context(system=tmp_path))
    (tmp_path / "sys/bus/pci/devices/a/vendor").write_text("0x1002\n")
    assert not gpu_hardware.present(Context(system=tmp_path))


def site_with(tmp_path: Path, *distributions: str) -> Path:
    """An import path with a toolchain, and the distributions that it is said to be of."""
    site = tmp_path / "site"
    for name in distributions:
        (site / f"{name}.dist-info").mkdir(parents=True)
    for place, files in (
        ("cuda/bindings", ("nvrtc.abi3.so",)),
        ("nvidia/cu13/lib", ("libnvrtc.so.13", "libnvrtc-builtins.so.13.5")),
    ):
        (site / place).mkdir(parents=True)
        for file in files:
            (site / place / file).touch()
    return site


def test_binding_and_nvrtc_by_their_distributions(tmp_path: Path) -> None:
    site = site_with(tmp_path, "cuda_bindings-13.0.1", "nvidia_cuda_nvrtc_cu12-12.8.93")
    given = Context(config=Config(home=tmp_path), system=tmp_path, import_path=(str(site),), environ={})
    found = rows(given)
    assert found["gpu.binding"].finding.facts == {"cuda_available": True, "cuda_binding": {"cuda-bindings": "13.0.1"}}
    nvrtc = found["gpu.nvrtc"].finding.facts
    assert nvrtc["jit_toolchain_observed"] == "nvidia-cuda-nvrtc-cu12 12.8.93"
    assert nvrtc["automatic_gpu_delivery"] == "jit"
    assert nvrtc["jit_toolchain_satisfied"] is False  # what it makes is not listed


def test_an_nvrtc_whose_kernels_are_listed_satisfies(tmp_path: Path) -> None:
    listed = shipped_digests().builds[0]
    site = site_with(tmp_path, f"{listed.distribution.replace('-', '_')}-{listed.version}")
    given = Context(config=Config(home=tmp_path), system=tmp_path, import_path=(str(site),), environ={})
    nvrtc = rows(given)["gpu.nvrtc"].finding.facts
    assert f"{listed.distribution}=={listed.version}" in nvrtc["jit_toolchain_constraint"].split(" or ")
    assert nvrtc["jit_toolchain_satisfied"] is True
    for file in (site / "cuda" / "bindings").iterdir():
        file.unlink()
    nvrtc = rows(Context(config=Config(home=tmp_path), system=tmp_path, import_path=(str(site),), environ={}))[
        "gpu.nvrtc"
    ]
    assert nvrtc.finding.facts["jit_toolchain_satisfied"] is False  # nothing can call it
    assert nvrtc.finding.facts["automatic_gpu_delivery"] is None


def test_an_nvrtc_of_the_system_is_told_by_its_place(tmp_path: Path) -> None:
    place = tmp_path / "usr" / "local" / "cuda-13.1" / "lib64"
    place.mkdir(parents=True)
    for file in ("libnvrtc.so.13", "libnvrtc-builtins.so.13.1"):
        (place / file).touch()
    (tmp_path / "site" / "cuda" / "bindings").mkdir(parents=True)
    (tmp_path / "site" / "cuda" / "bindings" / "nvrtc.py").touch()
    given = Context(config=Config(home=tmp_path), system=tmp_path, import_path=(str(tmp_path / "site"),), environ={})
    assert rows(given)["gpu.nvrtc"].finding.facts["jit_toolchain_observed"] == "NVRTC 13.1 (system)"


def test_cubins_that_were_compiled_here_are_counted(tmp_path: Path) -> None:
    given = Context(config=Config(home=tmp_path), system=tmp_path, import_path=(), environ={})
    assert given.settings.cubins_dir is not None
    CubinCache(given.settings.cubins_dir).store({"n": 1}, b"cubin", {})
    assert rows(given)["gpu.cubins"].finding.facts["cubins_cached"] == 1


def test_a_listed_toolchain_leaves_the_tokenizer_to_be_asked_about(tmp_path: Path, library: Path) -> None:
    listed = shipped_digests().builds[0]
    site = site_with(tmp_path, f"{listed.distribution.replace('-', '_')}-{listed.version}")
    found = rows(replace(context(tmp_path, library), import_path=(str(site),)))
    assert found["gpu.nvrtc"].finding.facts["automatic_gpu_delivery"] == "jit"
    route = found["gpu.route"].finding
    assert route.facts["automatic_effective_backend"] == "fast_cpu"
    assert route.facts["first_closed_gate"]["reason"] == "R_UNCERTIFIED_ARTIFACT"
    assert route.remedy is not None
    assert route.remedy.command == "toktier doctor --family NAME"


def test_the_crossover_is_the_one_of_the_settings(tmp_path: Path, library: Path) -> None:
    route = rows(context(tmp_path, library, gpu_min_bytes=1234))["gpu.route"].finding
    assert route.facts["gpu_min_bytes"] == 1234
