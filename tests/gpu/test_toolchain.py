"""Where NVRTC and its binding are found: by names of files, in one order, and with digests that are hashed once."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import pytest

from toktier.gpu.digests import shipped_digests
from toktier.gpu.toolchain import Missing, Places, Toolchain, find_toolchain


def library(directory: Path, name: str = "libnvrtc.so.13", builtins: str = "13.5") -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_bytes(f"{directory}{name}".encode())
    (directory / f"libnvrtc-builtins.so.{builtins}").write_bytes(b"builtins")
    return directory / name


def binding(site: Path, name: str = "nvrtc.cpython-311-x86_64-linux-gnu.so") -> Path:
    (site / "cuda" / "bindings").mkdir(parents=True)
    (site / "cuda" / "bindings" / name).touch()
    return site


def found(
    import_path: list[Path], environ: dict[str, str] | None = None, system: Path = Path("/nonexistent")
) -> Toolchain:
    toolchain = find_toolchain(Places(tuple(map(str, import_path)), environ or {}, system))
    assert isinstance(toolchain, Toolchain)
    return toolchain


def test_the_order_of_places(tmp_path: Path) -> None:
    first, second = binding(tmp_path / "first"), tmp_path / "second"
    system = tmp_path / "system"
    environ = {name: str(tmp_path / name) for name in ("CUDA_PATH", "CUDA_HOME", "CONDA_PREFIX")}
    wanted = [
        (library(second / "nvidia" / "cu13" / "lib"), "import path"),
        (library(second / "nvidia" / "cuda_nvrtc" / "lib", "libnvrtc.so.12", "12.9"), "import path"),
        (library(tmp_path / "CUDA_PATH" / "lib64"), "CUDA_PATH"),
        (library(tmp_path / "CUDA_HOME" / "targets" / "x86_64-linux" / "lib"), "CUDA_HOME"),
        (library(tmp_path / "CONDA_PREFIX" / "lib"), "CONDA_PREFIX"),
        (library(system / "usr" / "local" / "cuda-13.10" / "lib64"), "system"),
        (library(system / "usr" / "local" / "cuda-13.9" / "lib64"), "system"),
        (library(system / "usr" / "lib64"), "system"),
        (library(system / "usr" / "lib" / "x86_64-linux-gnu"), "system"),
    ]
    for path, found_via in wanted:
        toolchain = found([first, second], environ, system)
        assert (toolchain.library, toolchain.found_via) == (path, found_via)
        path.unlink()
    assert find_toolchain(Places((str(first),), environ, system)) == Missing(("nvrtc",))


def test_what_is_missing_is_told_with_what_brings_it(tmp_path: Path) -> None:
    nothing = find_toolchain(Places((), {}, tmp_path))
    assert nothing == Missing(("binding", "nvrtc"))
    error = Missing(("binding", "nvrtc")).error()
    assert error.message.endswith("cuda.bindings.nvrtc) and NVRTC (libnvrtc) are not installed")
    assert error.exit_code == 8
    assert error.reason == "R_BACKEND_UNAVAILABLE"
    assert f"pip install 'cuda-python>=13,<14' {shipped_digests().pinned}" == error.remedy
    library(tmp_path / "nvidia" / "cu13" / "lib")
    assert find_toolchain(Places((str(tmp_path),), {}, tmp_path)) == Missing(("binding",))


@pytest.mark.parametrize("name", ["nvrtc.py", "nvrtc.abi3.so", "nvrtc.so"])
def test_forms_of_the_binding(tmp_path: Path, name: str) -> None:
    library(tmp_path / "nvidia" / "cu13" / "lib")
    assert found([binding(tmp_path, name)])


@pytest.mark.parametrize("name", ["nvrtc.pyi", "driver.so", "nvrtc.txt"])
def test_what_is_no_binding(tmp_path: Path, name: str) -> None:
    library(tmp_path / "nvidia" / "cu13" / "lib")
    assert find_toolchain(Places((str(binding(tmp_path, name)),), {}, tmp_path)) == Missing(("binding",))


def test_builtins_are_of_the_library_s_major_version_and_the_newest(tmp_path: Path) -> None:
    site = binding(tmp_path)
    place = site / "nvidia" / "cu13" / "lib"
    library(place, builtins="13.9")
    for version in ("13.10", "12.9", "14.0"):
        (place / f"libnvrtc-builtins.so.{version}").touch()
    assert found([site]).version == "13.10"
    (place / "libnvrtc.so.12").touch()
    (place / "libnvrtc.so.13").unlink()
    assert found([site]).version == "12.9"
    (place / "libnvrtc-builtins.so.12.9").unlink()
    assert find_toolchain(Places((str(site),), {}, tmp_path)) == Missing(("nvrtc",))


def test_links_are_followed_to_what_will_be_mapped(tmp_path: Path) -> None:
    site = binding(tmp_path)
    path = library(site / "nvidia" / "cu13" / "lib")
    path.rename(path.with_name("libnvrtc.so.13.5.37"))
    path.symlink_to("libnvrtc.so.13.5.37")
    assert found([site]).library.name == "libnvrtc.so.13.5.37"


def test_digests_are_noted_and_a_changed_file_is_hashed_again(tmp_path: Path) -> None:
    site, memory = binding(tmp_path / "site"), tmp_path / "memory"
    path = library(site / "nvidia" / "cu13" / "lib")

    def digest() -> str:
        toolchain = find_toolchain(Places((str(site),), {}, tmp_path), memory=memory)
        assert isinstance(toolchain, Toolchain)
        return toolchain.digests["library_sha256"]

    def settle() -> None:
        long_ago = time.time() - 10
        os.utime(path, (long_ago, long_ago))
        time.sleep(2.1)  # the time of the change of times cannot be set

    settle()
    real = hashlib.sha256(path.read_bytes()).hexdigest()
    assert digest() == real
    notes = list(memory.iterdir())
    assert len(notes) == 2
    for note in notes:
        note.write_bytes(note.read_bytes().replace(real.encode(), b"a" * 64))
    assert digest() == "a" * 64  # believed: the file is as it was
    path.write_bytes(b"another build")
    assert digest() == hashlib.sha256(b"another build").hexdigest()
