"""Builds what runs under the SIMT emulator of tests/simt: programs and shared libraries, plain or under a sanitizer.

Each object and each result is kept in build/simt under a digest of all that it is made from, so that a run compiles
only what changed, and workers of one run wait for each other instead of compiling twice. Where there is ccache, a fresh
checkout finds the objects of another one. A sanitizer must be loaded before anything else: its variants make programs,
started as children. Not here: what is built, which callers say.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from tests.support.material import ROOT

SIMT = ROOT / "tests" / "simt"
KERNELS = ROOT / "kernels"
CACHE = ROOT / "build" / "simt"
KEPT_DAYS = 14
INCLUDES = (KERNELS, KERNELS / "device", KERNELS / "shared", SIMT)
HEADERS = (".h", ".cuh", ".cu")  # what another source may include
RUNTIME = tuple(SIMT / name for name in ("block.cpp", "fiber.cpp", "launch.cpp", "report.cpp", "shared_memory.cpp"))
TOKTIER = SIMT / "kernels.cpp"  # every kernel of kernels/toktier.cu

_STANDARD = ("-std=c++17", "-fPIC", "-pthread", "-Wall", "-Wextra", "-Wno-unused-parameter", "-g1")


@dataclasses.dataclass(frozen=True)
class Variant:
    """How kernels are compiled, what the emulator itself is told, and what a child that runs them needs."""

    kernel: tuple[str, ...]
    runtime: tuple[str, ...] = ()
    link: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()


_SHARED_TOO = ("-fsanitize-sections=simt_shared",)  # where simt.h puts shared variables
_UNDEFINED = ("-fsanitize=undefined", "-fno-sanitize=object-size", "-fno-sanitize-recover=undefined")
VARIANTS = {
    "plain": Variant(("-O2",)),
    "ucontext": Variant(("-O2",), ("-DSIMT_UCONTEXT",)),  # as on processors without a switch of their own in fiber.cpp
    # Races: of memory that barriers, warp barriers, atomics and acquire-release do not order.
    "tsan": Variant(
        ("-O1", "-fsanitize=thread"),
        ("-DSIMT_TSAN",),
        ("-fsanitize=thread",),
        (("TSAN_OPTIONS", "halt_on_error=1:exitcode=66:report_signal_unsafe=0"),),
    ),
    # Memory beyond a buffer or a shared variable, indices beyond an array, addresses that a GPU refuses as misaligned.
    "asan": Variant(
        ("-O1", "-fno-omit-frame-pointer", "-DSIMT_ASAN", "-fsanitize=address", *_SHARED_TOO, *_UNDEFINED),
        ("-DSIMT_ASAN",),
        ("-fsanitize=address,undefined",),
        (("ASAN_OPTIONS", "detect_leaks=0:exitcode=67"), ("UBSAN_OPTIONS", "print_stacktrace=1:exitcode=68")),
    ),
}


def compiler() -> str | None:
    return os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")


@functools.cache
def _compiler_version() -> tuple[str, str]:
    found = compiler()
    assert found is not None, "a C++ compiler: $CXX, g++ or c++"
    said = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
    return found, said.splitlines()[0]


def _digest(names: Iterable[str], files: Iterable[Path]) -> str:
    state = hashlib.sha256()
    for name in names:
        state.update(name.encode() + b"\0")
    for file in files:
        state.update(str(file).encode() + b"\0" + file.read_bytes() + b"\0")
    return state.hexdigest()[:24]


def _headers(directories: Iterable[Path]) -> list[Path]:
    return sorted({f for d in directories for f in d.rglob("*") if f.suffix in HEADERS})


def _remove_old() -> None:
    """What no run has used for KEPT_DAYS is of sources that are no more."""
    oldest = time.time() - KEPT_DAYS * 86400
    for path in CACHE.iterdir():
        with contextlib.suppress(FileNotFoundError):
            if path.is_file() and path.stat().st_mtime < oldest:
                path.unlink()


def _made_once(name: str, make: Callable[[Path], None]) -> Path:
    """`name` in the cache; where it is missing, one process makes it and the others wait for that one."""
    path = CACHE / name
    if path.exists():
        os.utime(path)
        return path
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            _remove_old()
            with tempfile.TemporaryDirectory(dir=CACHE) as directory:
                made = Path(directory) / name
                make(made)
                made.rename(path)
    return path


def _call(command: Sequence[str | Path]) -> None:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stderr}"


def compile_object(source: Path, flags: Sequence[str], includes: Sequence[Path] = ()) -> Path:
    found, version = _compiler_version()
    searched = (*INCLUDES, *includes)
    line = [*_STANDARD, *flags, *(f"-I{directory}" for directory in searched)]
    digest = _digest([version, *line], [source, *_headers((*searched, source.parent))])
    command = [*_launcher(), found, *line, "-c", source]
    return _made_once(f"{source.stem}-{digest}.o", lambda made: _call([*command, "-o", made]))


def _launcher() -> list[str]:
    """ccache, where it is, told that it does not matter where the checkout lies."""
    if shutil.which("ccache") is None:
        return []
    return ["env", f"CCACHE_BASEDIR={ROOT}", "CCACHE_NOHASHDIR=1", "ccache"]


def _link(name: str, suffix: str, objects: Sequence[Path], flags: Sequence[str]) -> Path:
    found, version = _compiler_version()
    digest = _digest([version, *flags, *(each.name for each in objects)], ())
    line = [found, "-pthread", *flags]
    return _made_once(f"{name}-{digest}{suffix}", lambda made: _call([*line, "-o", made, *objects]))


def _objects(
    sources: Sequence[Path], variant: str, plants: Sequence[str], flags: Sequence[str], includes: Sequence[Path]
) -> list[Path]:
    kind = VARIANTS[variant]
    planted = [f"-DTT_PLANT_{name}" for name in sorted(plants)]
    return [
        *(compile_object(source, [*kind.kernel, *planted, *flags], includes) for source in sources),
        *(compile_object(source, ["-O2", *kind.runtime]) for source in RUNTIME),
    ]


def build_program(
    name: str,
    sources: Sequence[Path],
    *,
    variant: str = "plain",
    plants: Sequence[str] = (),
    flags: Sequence[str] = (),
    includes: Sequence[Path] = (),
) -> Path:
    """`sources`, one with main(), and the emulator. `plants`: names of TT_FAULT that are true; `flags`: more of g++."""
    return _link(name, "", _objects(sources, variant, plants, flags, includes), VARIANTS[variant].link)


def build_library(
    name: str,
    sources: Sequence[Path],
    *,
    plants: Sequence[str] = (),
    flags: Sequence[str] = (),
    includes: Sequence[Path] = (),
    link: Sequence[str] = (),
) -> Path:
    """The same as a shared library that holds the emulator; without a sanitizer, which must be loaded first."""
    return _link(name, ".so", _objects(sources, "plain", plants, flags, includes), ("-shared", *link))


def run(
    program: Path, *arguments: str | int, variant: str = "plain", timeout: float = 1200
) -> subprocess.CompletedProcess[str]:
    """A program of that variant; what a sanitizer finds is in its stderr and its exit code."""
    environment = {**os.environ, **dict(VARIANTS[variant].environment)}
    line = [str(program), *(str(argument) for argument in arguments)]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=timeout, env=environment)
