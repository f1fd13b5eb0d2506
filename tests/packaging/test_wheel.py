"""The wheel installs with no index and no compiler on the PATH, and encodes; a source build without one says so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from toktier.gpu.architectures import ARCHITECTURES

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = Path(sys.prefix) / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, str(ROOT / "tools/dev.py"), "wheel", "--out", str(out)], check=True, cwd=ROOT)
    (built,) = out.glob("*.whl")
    return built


@pytest.mark.ci
def test_wheel_is_manylinux_and_carries_the_data(wheel: Path) -> None:
    import zipfile

    assert "manylinux" in wheel.name
    names = zipfile.ZipFile(wheel).namelist()
    for needed in (
        "toktier/data/tables/artifact_pins.json",
        "toktier/data/tables/artifacts/toktier_mini/tokenizer.json",
        "toktier/data/kernels/shared/boundary.h",
        "toktier/data/kernels/toktier.cu",
        *(f"toktier/data/kernels/prebuilt/{architecture}.cubin" for architecture in ARCHITECTURES),
        "toktier/data/tables/schemas/serve_stats.schema.json",
        "toktier/router/status_page.html",
        "toktier_cli/main.py",
    ):
        assert needed in names
    assert not [n for n in names if n.startswith(("tests/", "tools/"))]
    for needed in ("licenses/LICENSE", "licenses/THIRD-PARTY-NOTICES.txt", "sboms/toktier.cdx.json"):
        assert [n for n in names if n.endswith(f".dist-info/{needed}")], needed
    assert not [n for n in names if ".libs/" in n], "a shared library that the notices do not name"


@pytest.mark.ci
def test_wheel_installs_without_index_and_compiler_and_encodes(wheel: Path, tmp_path: Path) -> None:
    home = tmp_path / "venv"
    venv.create(home, with_pip=True)
    env = {
        "PATH": str(home / "bin"),
        "HOME": str(tmp_path),
        "TOKTIER_HOME": str(tmp_path / "home"),
        "LC_ALL": "C.UTF-8",
    }
    python = home / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", str(wheel)]
    subprocess.run(install, check=True, env=env, cwd=tmp_path)
    # Dependencies are the ones of this environment: what is tested is our wheel, not theirs.
    (dependencies,) = home.glob("lib/python*/site-packages")
    (dependencies / "dependencies.pth").write_text(f"{PACKAGES}\n")
    code = (
        "import toktier, tokenizers; p = toktier.__file__; assert 'site-packages' in p, p;"
        "t = toktier.load('toktier_mini', policy='require_accelerated'); e = t.encode('wheel: 12 boats, Größe 日本');"
        "r = tokenizers.Tokenizer.from_file(t.explain()['model_resolution']['path']);"
        "assert e.ids == r.encode('wheel: 12 boats, Größe 日本', add_special_tokens=False).ids; print(e.backend)"
    )
    ran = subprocess.run([str(python), "-c", code], env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout.strip()) == (0, "fast_cpu"), ran.stderr
    said = subprocess.run(
        [str(home / "bin" / "toktier"), "encode", "--family", "toktier_mini", "hello"],
        env=env, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    assert said.stdout.split()[0].isdigit()
    told = subprocess.run(
        [str(home / "bin" / "toktier"), "gpu", "list", "--json"],
        env=env, cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    shipped = json.loads(told.stdout)["shipped"]
    assert [row["architecture"] for row in shipped] == list(ARCHITECTURES)
    assert all(row["listed"] and row["problem"] is None for row in shipped)


@pytest.mark.ci
def test_source_install_without_a_compiler_says_so_in_one_sentence(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("cmake", "ninja", "python"):
        (tools / name).symlink_to(Path(sys.prefix) / "bin" / name)
    env = {k: v for k, v in os.environ.items() if k not in ("CXX", "CC")} | {"PATH": str(tools), "HOME": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--no-build-isolation", "--no-deps", "--no-index",
         "--target", str(tmp_path / "site"), f"--config-settings=build-dir={tmp_path / 'build'}", str(ROOT)],
        env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode != 0
    said = " ".join((ran.stdout + ran.stderr).split())
    assert "no C++ compiler was found: install one (for example g++), or install a wheel" in said
    assert not (tmp_path / "site" / "toktier").exists()
