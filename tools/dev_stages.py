"""What the stages of the CI tier are made of: a command beside others, a second build of the package, and packages that
stay out of `.venv`; and the stage that needs all of them.

Not here: the environment (`dev_environment`), and the verbs (`dev.py`).
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from dev_environment import (
    BUILD,
    CORES,
    OLD_REFERENCE,
    PYTHON,
    ROOT,
    VENV,
    call,
    digest_of,
    old_reference,
    site_packages,
)  # fmt: skip


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


def under_old_reference() -> dict[str, str]:
    """The environment of the ordinary build beside the oldest certified reference."""
    env = {**os.environ, "PYTHONPATH": str(old_reference())}
    call(PYTHON, "-c", f"import tokenizers; assert tokenizers.__version__ == {OLD_REFERENCE!r}", env=env)
    return env


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


def test_variants(counting: Variant, sanitizing: Variant, *sites: Site, all_data: bool) -> None:
    """What only other builds, another reference, or packages that stay out of `.venv` can show. `sites`: of the
    publishers' encoders, the engines of others, the loader, the indexer, the embeddings and the tester of documents.
    `all_data`: under sanitizers, too."""
    sanitized_ones = "not full and not unsanitized" + ("" if all_data else " and not ordinary")
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
    call(*over_all_cores(sanitized_ones, "tests/native"), env=sanitized(sanitizing))
    faults.wait()
