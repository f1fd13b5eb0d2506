"""The environment of a checkout: `.venv`, the native module in it, and what is installed beside it, in build/.

It is made by whatever Python `dev.py` was started with, so nothing but the standard library is imported here. Not here:
what runs in it (`dev.py`), second builds of the package and commands beside others (`dev_stages`).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
from collections.abc import Iterable
from pathlib import Path

import nvrtc_builds

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
BUILD = ROOT / "build"
PYTHON = VENV / "bin" / "python"
# The Python part of the engine is not compiled, but the module carries its digest (toktier/program/engine_identity.py).
NATIVE_SOURCES = (
    "CMakeLists.txt", "pyproject.toml", "native", "kernels", "tables/unicode", "toktier/program",
    "toktier/canonical.py", "toktier/gpu/host_identity.py", "tools/compute_identity.py",
)  # fmt: skip
COMPILED = ("toktier", "toktier_cli", "tests/support", "tests/router")  # what processes of tests import
OLD_REFERENCE = "0.22.2"  # the oldest certified reference version; the newest is what pip resolves
CORES = len(os.sched_getaffinity(0))


def fail(sentence: str) -> None:
    """Stop with one sentence: what is missing and what to do."""
    sys.exit(f"dev.py: {sentence}")


def call(*argv: str | Path, env: dict[str, str] | None = None, cwd: Path = ROOT) -> None:
    """Run a command; a failure ends this program with its exit code."""
    print("+", " ".join(str(a) for a in argv), file=sys.stderr, flush=True)
    code = subprocess.call([str(a) for a in argv], env=env, cwd=cwd)
    if code:
        sys.exit(code)


def digest_of(paths: Iterable[str | Path]) -> str:
    """SHA-256 over names and contents of files and trees."""
    state = hashlib.sha256()
    for entry in paths:
        path = ROOT / entry
        files = sorted(p for p in path.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
        for file in files if path.is_dir() else [path]:
            state.update(str(file.relative_to(ROOT)).encode() + b"\0" + file.read_bytes() + b"\0")
    return state.hexdigest()


def require_compiler() -> None:
    """A C++ compiler on the PATH, or one sentence."""
    if os.environ.get("CXX") or any(shutil.which(name) for name in ("c++", "g++", "clang++")):
        return
    fail("no C++ compiler was found (looked for $CXX, c++, g++, clang++); install one, for example the package g++.")


def pip(*arguments: str | Path, python: Path = PYTHON) -> None:
    """pip of an environment, quiet unless it fails."""
    call(python, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments)


def requirements() -> tuple[list[str], list[str]]:
    """What pyproject.toml names: for building, and for running and testing."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = document["project"]
    return document["build-system"]["requires"], [*project["dependencies"], *project["optional-dependencies"]["dev"]]


def make_environment() -> None:
    """`.venv` with build requirements, run-time dependencies and the dev extra; redone when pyproject.toml changes."""
    if sys.version_info < (3, 11):  # noqa: UP036 - the oldest Python is who needs this sentence
        fail(f"Python 3.11 or newer is needed, this is {sys.version.split()[0]}.")
    stamp = VENV / "dev-requirements.sha256"
    wanted = digest_of(["pyproject.toml"])
    if PYTHON.exists() and stamp.exists() and stamp.read_text() == wanted:
        return
    if not PYTHON.exists():
        venv.create(VENV, with_pip=True)
    build, run = requirements()
    pip("install", "cmake>=3.18", "ninja", *build, *run)
    stamp.write_text(wanted)


def install_editable() -> None:
    """The package in `.venv`, Python from the checkout, native module rebuilt only when its sources changed."""
    require_compiler()
    make_environment()
    stamp = VENV / "dev-native.sha256"
    wanted = digest_of(NATIVE_SOURCES)
    if not (stamp.exists() and stamp.read_text() == wanted and native_present()):
        pip("install", "--no-build-isolation", "--no-deps", "--editable", ROOT)
        stamp.write_text(wanted)
    # Tests start a thousand processes that may write none: each would compile what it imports, for as long as it then
    # runs. A second when all is new; whatever cannot be written is compiled as before.
    subprocess.call([str(PYTHON), "-m", "compileall", "-qq", *COMPILED], cwd=ROOT)


def native_present() -> bool:
    """Whether `toktier._native` imports in `.venv`."""
    return subprocess.call([str(PYTHON), "-c", "import toktier._native"], stderr=subprocess.DEVNULL, cwd=ROOT) == 0


def site_packages(python_prefix: Path) -> Path:
    return Path(sysconfig.get_path("purelib", vars={"base": str(python_prefix), "platbase": str(python_prefix)}))


def install_nvrtc(*, every_build: bool = False) -> None:
    """The pinned NVRTC with its binding, or every build whose kernels are listed, below build/nvrtc (65 MB each to
    fetch). Out of `.venv`: most of what is tested there is a host that has none."""
    wanted = digest_of(["pyproject.toml", "tools/nvrtc_builds.py"])
    sites = [(nvrtc_builds.SITE, nvrtc_builds.extras()[nvrtc_builds.EXTRA], ())]
    if every_build:
        alone = ("--no-deps",)
        sites += [(nvrtc_builds.site_of(*build), ["{}=={}".format(*build)], alone) for build in nvrtc_builds.OTHERS]
    for site, requirements_of_site, flags in sites:
        stamp = site.with_suffix(".sha256") if site == nvrtc_builds.SITE else site.parent / f"{site.name}.sha256"
        if stamp.exists() and stamp.read_text() == wanted:
            continue
        shutil.rmtree(site, ignore_errors=True)
        pip("install", *flags, "--target", site, *requirements_of_site)
        stamp.write_text(wanted)


def old_reference() -> Path:
    """A directory that holds the oldest certified reference, to come before the dependencies in `.venv`."""
    site = BUILD / f"reference-{OLD_REFERENCE}"
    if not site.exists():
        pip("install", "--no-deps", "--target", site, f"tokenizers=={OLD_REFERENCE}")
    return site
