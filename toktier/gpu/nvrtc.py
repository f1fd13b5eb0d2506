"""Kernels to a cubin: NVRTC in a child process, with options that are fixed.

A cubin, never PTX: a driver of the same major version loads machine code of a newer NVRTC, and refuses its PTX. The
child gets sources, options and libraries in its request, and of the environment only what the interpreter itself needs.
Not here: finding NVRTC (`toolchain`), keeping what was made (`cubin_cache`).
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toktier.artifacts.child_process import run_child
from toktier.errors import KernelBuildFailed, KernelsUnavailable
from toktier.gpu import cubin as cubin_format
from toktier.gpu.kernel_sources import UNIT, KernelSources
from toktier.gpu.toolchain import Toolchain, install_line
from toktier.labels import shown

WORKER = str(Path(__file__).with_name("compile_worker.py"))  # run, never imported: it would load NVRTC here
COMPILE_SECONDS = 120.0  # one architecture takes about one; the rest is for a machine that does much else
# No line information, no -v, no split compile: each changes the bytes. --no-cache: NVRTC keeps one of its own.
FIXED_OPTIONS = ("--std=c++17", "--no-cache")
# The interpreter may need it to find libpython. NVRTC is loaded by its path, whatever this says.
_KEPT_VARIABLES = ("LD_LIBRARY_PATH",)


@dataclass(frozen=True)
class Compiled:
    """`log`: what NVRTC said, warnings above all. `peak_rss_kb`: of the child."""

    cubin: bytes
    log: str
    peak_rss_kb: int


def options_for(architecture: str) -> tuple[str, ...]:
    return (f"--gpu-architecture={architecture}", *FIXED_OPTIONS)


def compile_kernels(
    toolchain: Toolchain,
    sources: KernelSources,
    architecture: str,
    *,
    more_options: tuple[str, ...] = (),
    timeout: float = COMPILE_SECONDS,
) -> Compiled:
    """The cubin for `architecture`, not yet checked. KernelBuildFailed, or KernelsUnavailable where the binding or the
    library is there and does not load. `more_options` change the bytes: for what is looked at and not run."""
    if not sys.executable:
        raise KernelsUnavailable("kernels cannot be compiled here: there is no interpreter to start")
    request = {
        "library": str(toolchain.library),
        "builtins": str(toolchain.builtins),
        "import_path": [os.path.abspath(entry) for entry in toolchain.import_path],
        "name": UNIT,
        "unit": sources.unit,
        "headers": sources.headers,
        "options": [*options_for(architecture), *more_options],
    }
    environment = {"LC_ALL": "C.UTF-8"} | {n: os.environ[n] for n in _KEPT_VARIABLES if n in os.environ}
    try:
        status, answer, said = run_child(
            [sys.executable, "-I", "-S", WORKER],
            timeout=timeout,
            environment=environment,
            cwd=Path("/"),  # NVRTC looks for headers in the current directory too
            given=json.dumps(request).encode("ascii"),
        )
    except subprocess.TimeoutExpired:
        raise _failed(f"NVRTC gave no answer within {timeout:g} s", architecture) from None
    except OSError as error:
        raise _failed(f"the compiling process cannot be started: {error.strerror}", architecture) from None
    return _compiled(_parsed(status, answer, said, architecture), toolchain, architecture)


def _parsed(status: int, answer: str, said: str, architecture: str) -> dict[str, Any]:
    try:
        told = json.loads(answer)
    except ValueError:
        told = None
    if status != 0 or not isinstance(told, dict):
        ended = f"by signal {-status}" if status < 0 else f"with exit code {status}"
        last = said.strip().rpartition("\n")[2]
        raise _failed(f"the compiling process ended {ended}{f': {shown(last)}' if last else ''}", architecture)
    kind, message = told.get("refused"), str(told.get("message"))
    if kind in ("binding", "library"):
        raise KernelsUnavailable(
            f"kernels cannot be compiled here: {message}", details={"lacks": [kind]}, remedy=install_line()
        )
    if kind is not None:
        first = next((line for line in message.splitlines() if "error" in line), message.partition("\n")[0])
        raise _failed(f"NVRTC refuses the kernels for {architecture}: {shown(first, 240)}", architecture, log=message)
    return told


def _compiled(told: dict[str, Any], toolchain: Toolchain, architecture: str) -> Compiled:
    expected = sorted({str(toolchain.library), str(toolchain.builtins)})
    if told["mapped"] != expected or told["version"] != toolchain.version:
        raise _failed(
            f"another NVRTC compiled than was found: {told['version']} of {', '.join(map(shown, told['mapped']))}",
            architecture,
        )
    return Compiled(base64.b64decode(told["cubin"]), str(told["log"]), int(told["peak_rss_kb"]))


def checked(compiled: Compiled, architecture: str) -> bytes:
    """The cubin, when it is what the native module can launch; KernelBuildFailed otherwise."""
    problem = cubin_format.problem_of(compiled.cubin, architecture)
    if problem is not None:
        raise _failed(f"what NVRTC made for {architecture} cannot be run: {problem}", architecture)
    return compiled.cubin


def _failed(message: str, architecture: str, *, log: str | None = None) -> KernelBuildFailed:
    details: dict[str, Any] = {"architecture": architecture}
    if log is not None:
        details["log"] = log
    return KernelBuildFailed(
        message, details=details, remedy=f"the CPU engine serves; for the listed NVRTC: {install_line()}"
    )
