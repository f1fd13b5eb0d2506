"""The compiling process: what it is given, how it can fail, and that NVRTC gives the same bytes always."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.kernels import FakeToolchain, make_cubin
from tests.support.nvrtc_site import PLACES, required_toolchain
from toktier.artifacts import child_process
from toktier.errors import KernelBuildFailed, KernelsUnavailable
from toktier.gpu.architectures import ARCHITECTURES
from toktier.gpu.cubin import read_cubin
from toktier.gpu.digests import Finding, shipped_digests
from toktier.gpu.kernel_sources import KernelSources, read_sources
from toktier.gpu.nvrtc import checked, compile_kernels, options_for
from toktier.gpu.reproduce import reproduce

TINY = KernelSources('#include "tiny.h"\nextern "C" __global__ void tt_tiny(unsigned* out) { *out = TT_TINY; }\n',
                     {"tiny.h": "#define TT_TINY 7u\n"})  # fmt: skip


def test_the_request_and_nothing_of_the_environment(fake: FakeToolchain, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NVRTC_APPEND_FLAGS", "NVCC_APPEND_FLAGS", "CUDA_HOME", "LD_PRELOAD_TEST", "PYTHONPATH", "HOME"):
        monkeypatch.setenv(name, "/nonexistent")
    made = compile_kernels(fake.toolchain, read_sources(), "sm_90")
    assert checked(made, "sm_90") == make_cubin("sm_90")
    (told,) = fake.compilations
    assert told["options"] == ["--gpu-architecture=sm_90", "--std=c++17", "--no-cache"] == list(options_for("sm_90"))
    assert set(told["environ"]) <= {"LC_ALL", "LD_LIBRARY_PATH"}
    assert "cuda" not in {name.partition(".")[0] for name in sys.modules}


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("crash", f"ended by signal {signal.SIGABRT.value}"),
        ("exit", "ended with exit code 3"),
        ("memory", "MemoryError"),
        ("raise", "KeyError: 'what nobody expected'"),
        ("refuse", 'error: identifier "x" is undefined'),
    ],
)
def test_every_failure_is_a_build_that_failed(fake: FakeToolchain, mode: str, said: str) -> None:
    fake.plan(mode)
    with pytest.raises(KernelBuildFailed) as caught:
        compile_kernels(fake.toolchain, read_sources(), "sm_90")
    assert said in caught.value.message
    assert caught.value.exit_code == 8
    assert caught.value.reason == "R_KERNEL_BUILD_FAILED"
    assert caught.value.details["architecture"] == "sm_90"
    assert caught.value.remedy is not None
    assert "pip install" in caught.value.remedy
    if mode == "refuse":
        assert caught.value.details["log"].startswith("toktier.cu(7)")


def test_a_compiler_that_hangs_is_ended_with_its_children(fake: FakeToolchain, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.plan("hang")
    communicate = child_process._communicate

    def from_its_compilation_on(
        child: subprocess.Popen[bytes], given: bytes, _: float, watch: Callable[[], None] | None
    ) -> tuple[bytes, bytes]:
        """The time runs when it compiles: on a busy host an interpreter may need all of it to begin."""
        end = time.monotonic() + 120
        while not fake.compilations:
            assert time.monotonic() < end
            try:
                return communicate(child, given, time.monotonic() + 0.05, watch)
            except subprocess.TimeoutExpired:
                given = b""  # it was taken over
        return communicate(child, given, time.monotonic() + 1.5, watch)

    monkeypatch.setattr(child_process, "_communicate", from_its_compilation_on)
    with pytest.raises(KernelBuildFailed, match=r"no answer within 1\.5 s"):
        compile_kernels(fake.toolchain, read_sources(), "sm_90", timeout=1.5)
    assert fake.compilations  # it hung where it compiles, not before
    children = Path(f"/proc/{os.getpid()}/task/{threading.get_native_id()}/children").read_text().split()
    assert not [pid for pid in children if "compile_worker" in Path(f"/proc/{pid}/cmdline").read_text()]


def test_what_libraries_print_is_no_answer(fake: FakeToolchain) -> None:
    fake.plan("noise")
    assert compile_kernels(fake.toolchain, read_sources(), "sm_90").cubin == make_cubin("sm_90")


def test_another_version_than_was_found_is_a_failure(fake: FakeToolchain) -> None:
    fake.plan(version=(13, 4))
    with pytest.raises(KernelBuildFailed, match="another NVRTC compiled than was found"):
        compile_kernels(fake.toolchain, read_sources(), "sm_90")


def test_other_files_than_were_found_are_a_failure(fake: FakeToolchain, tmp_path: Path) -> None:
    toolchain = fake.toolchain
    extra = tmp_path / "libnvrtc.so.13"
    extra.write_bytes(toolchain.library.read_bytes())
    plan = fake.binding / "nvrtc.py"
    plan.write_text(f"import ctypes\nctypes.CDLL({str(extra)!r})\n{plan.read_text()}")
    with pytest.raises(KernelBuildFailed, match="another NVRTC compiled than was found"):
        compile_kernels(toolchain, read_sources(), "sm_90")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "shorter than an ELF header"),
        (make_cubin("sm_80"), "it is for sm_80"),
        (make_cubin(abi=[1]), "its ABI block"),
    ],
)
def test_what_is_no_cubin_of_ours_is_a_failure(tmp_path: Path, data: bytes, said: str) -> None:
    fake = FakeToolchain(tmp_path / "site", {"sm_90": data})
    made = compile_kernels(fake.toolchain, read_sources(), "sm_90")
    with pytest.raises(KernelBuildFailed, match=said):
        checked(made, "sm_90")


def test_a_library_that_cannot_be_loaded_is_a_toolchain_that_is_missing(fake: FakeToolchain) -> None:
    (fake.libraries / "libnvrtc.so.13").write_bytes(b"\x7fELF")
    with pytest.raises(KernelsUnavailable, match=r"libnvrtc\.so\.13 cannot be loaded") as caught:
        compile_kernels(fake.toolchain, read_sources(), "sm_90")
    assert caught.value.reason == "R_BACKEND_UNAVAILABLE"
    assert caught.value.details["lacks"] == ["library"]


def test_a_binding_that_cannot_be_imported_is_a_toolchain_that_is_missing(fake: FakeToolchain) -> None:
    (fake.binding / "nvrtc.py").write_text("import a_module_that_is_not_there\n")
    with pytest.raises(KernelsUnavailable, match="a_module_that_is_not_there") as caught:
        compile_kernels(fake.toolchain, read_sources(), "sm_90")
    assert caught.value.details["lacks"] == ["binding"]


def test_no_interpreter_to_start(fake: FakeToolchain, monkeypatch: pytest.MonkeyPatch) -> None:
    toolchain = fake.toolchain
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(KernelsUnavailable, match="no interpreter"):
        compile_kernels(toolchain, read_sources(), "sm_90")
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    with pytest.raises(KernelBuildFailed, match="cannot be started: No such file"):
        compile_kernels(toolchain, read_sources(), "sm_90")


def test_two_different_cubins_of_the_same_kernels_are_a_failure(fake: FakeToolchain) -> None:
    fake.plan("differ")
    with pytest.raises(KernelBuildFailed, match="two different cubins"):
        reproduce(fake.toolchain, read_sources(), "sm_90")


# With NVRTC itself


def test_nvrtc_compiles_texts_in_memory_and_says_what_it_is() -> None:
    made = compile_kernels(required_toolchain(), TINY, "sm_90")
    assert made.cubin[:4] == b"\x7fELF"
    assert made.peak_rss_kb < 600_000
    assert not set(PLACES.import_path) & set(sys.path)


def test_nvrtc_tells_of_an_error_with_its_line() -> None:
    wrong = KernelSources(TINY.unit.replace("TT_TINY;", "TT_TINI;"), TINY.headers)
    with pytest.raises(KernelBuildFailed, match=r'toktier\.cu\(2\): error: identifier "TT_TINI" is undefined'):
        compile_kernels(required_toolchain(), wrong, "sm_90")


def test_nvrtc_refuses_an_architecture_that_it_does_not_know() -> None:
    with pytest.raises(KernelBuildFailed, match="sm_42"):
        compile_kernels(required_toolchain(), TINY, "sm_42")


def test_a_header_that_is_not_handed_over_is_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tiny.h").write_text("#define TT_TINY 8u\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(KernelBuildFailed, match=r"tiny\.h"):
        compile_kernels(required_toolchain(), KernelSources(TINY.unit, {}), "sm_90")


_ELSEWHERE = """
import hashlib, json, sys
from toktier.gpu.kernel_sources import read_sources
from toktier.gpu.nvrtc import checked, compile_kernels
from toktier.gpu.toolchain import Places, find_toolchain
toolchain = find_toolchain(Places((sys.argv[1],), {}))
print(hashlib.sha256(checked(compile_kernels(toolchain, read_sources(), sys.argv[2]), sys.argv[2])).hexdigest())
"""


@pytest.mark.ci
def test_every_architecture_compiles_to_the_listed_bytes() -> None:
    toolchain, sources = required_toolchain(), read_sources()
    for architecture in ARCHITECTURES:
        made = reproduce(toolchain, sources, architecture)
        assert read_cubin(made.data).architecture == architecture
        assert made.finding(sources) is Finding.LISTED, architecture
        assert made.log == "" or "warning" not in made.log, made.log


@pytest.mark.ci
def test_the_bytes_do_not_depend_on_directory_environment_or_place_of_the_library(tmp_path: Path) -> None:
    required_toolchain()
    listed = shipped_digests().builds[0].cubins["sm_90"]
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "site").symlink_to(PLACES.import_path[0])
    environ = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "HOME": "/",
        "TZ": "Asia/Tokyo",
    }
    environ |= {"NVRTC_APPEND_FLAGS": "-lineinfo", "NVCC_APPEND_FLAGS": "-lineinfo", "LANG": "de_DE.UTF-8"}
    said = subprocess.run(
        [sys.executable, "-c", _ELSEWHERE, str(tmp_path / "site"), "sm_90"],
        cwd=tmp_path / "elsewhere", env=environ, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert said.stdout.strip() == listed
