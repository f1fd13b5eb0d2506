"""Compiles one unit with NVRTC, alone in a process: `python -I -S compile_worker.py`, JSON on stdin and stdout.

NVRTC can crash, hang or fill the memory, another NVRTC may be loaded in a process that uses torch, and 140 MB of it
need not stay anywhere: so it never runs in the process that asks. Both libraries are loaded by the paths that the
request names, and the answer says which ones are mapped when the work is done. Imports nothing of toktier.
"""

import base64
import contextlib
import ctypes
import json
import os
import resource
import sys
from typing import Any

MEMORY_BYTES = 4 << 30  # of address space; compiling these kernels takes a tenth of it
SECONDS = 300  # of processor time, for a child whose parent is gone
MAX_LOG = 64 << 10


class Refused(Exception):
    """`kind`: binding, library, compile; what the parent turns into an error of its own."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def peak_rss_kb() -> int:
    """Of this program alone: what getrusage() tells begins with the process that was forked to start it."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def limit(what: int, most: int) -> None:
    with contextlib.suppress(ValueError, OSError):
        _, hard = resource.getrlimit(what)
        resource.setrlimit(what, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def load(path: str) -> None:
    try:
        ctypes.CDLL(path, os.RTLD_NOW | os.RTLD_GLOBAL)
    except OSError as error:
        raise Refused("library", f"{path} cannot be loaded: {error}") from None


def bound() -> Any:
    """The binding, on the library that is loaded already: it takes that one."""
    try:
        from cuda.bindings import nvrtc  # type: ignore[import-not-found,unused-ignore]
    except Exception as error:
        raise Refused("binding", f"cuda.bindings.nvrtc cannot be imported: {error}") from None
    return nvrtc


def mapped() -> "list[str]":
    """The real paths of all NVRTC files in this process."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as lines:
        paths = {line.split(None, 5)[5].rstrip("\n") for line in lines if "libnvrtc" in line}
    return sorted(os.path.realpath(path) for path in paths)


def compile_unit(request: "dict[str, Any]") -> "dict[str, Any]":
    load(request["builtins"])
    load(request["library"])
    nvrtc = bound()

    def call(function: Any, *arguments: Any) -> Any:
        code, *values = function(*arguments)
        if code != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise Refused("compile", f"{function.__name__}: {code.name}")
        return values[0] if len(values) == 1 else values

    def text_of(size: Any, get: Any, program: Any) -> bytes:
        buffer = bytearray(call(size, program) or 1)  # the binding writes into it
        call(get, program, buffer)
        return bytes(buffer)

    major, minor = call(nvrtc.nvrtcVersion)
    headers = list(request["headers"].items())
    program = call(
        nvrtc.nvrtcCreateProgram,
        request["unit"].encode(),
        request["name"].encode(),
        len(headers),
        [text.encode() for _, text in headers],
        [name.encode() for name, _ in headers],
    )
    options = [option.encode() for option in request["options"]]
    (code,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    said = text_of(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
    log = said.rstrip(b"\0").decode("utf-8", "replace")
    if code != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise Refused("compile", log[:MAX_LOG].strip() or code.name)
    cubin = text_of(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
    return {
        "version": f"{major}.{minor}",
        "mapped": mapped(),
        "log": log[:MAX_LOG],
        "cubin": base64.b64encode(cubin).decode("ascii"),
        "peak_rss_kb": peak_rss_kb(),
    }


def main() -> None:
    answers = os.dup(1)
    os.dup2(2, 1)  # whatever a library prints is no answer
    limit(resource.RLIMIT_CORE, 0)
    limit(resource.RLIMIT_AS, MEMORY_BYTES)
    limit(resource.RLIMIT_CPU, SECONDS)
    request = json.load(sys.stdin)
    sys.path[:] = [*sys.path, *request["import_path"]]
    try:
        answer = compile_unit(request)
    except Refused as refused:
        answer = {"refused": refused.kind, "message": str(refused)[:MAX_LOG]}
    except Exception as error:
        answer = {"refused": "compile", "message": f"{type(error).__name__}: {error}"[:MAX_LOG]}
    with os.fdopen(answers, "w", encoding="ascii") as out:
        json.dump(answer, out)


if __name__ == "__main__":
    main()
