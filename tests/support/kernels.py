"""Cubins and toolchains without NVRTC: a CUDA ELF file written field by field, and a binding that "compiles" by script.

The toolchain is a directory of the import path with a module cuda.bindings.nvrtc, which gives a cubin that was written
beforehand or misbehaves as it is told, and two small shared libraries in the places of NVRTC's. Not here: NVRTC itself
(`nvrtc_site`).
"""

from __future__ import annotations

import hashlib
import json
import shutil
import struct
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from toktier.gpu import cubin, digests
from toktier.gpu.architectures import ARCHITECTURES
from toktier.gpu.kernel_sources import read_sources
from toktier.gpu.nvrtc import FIXED_OPTIONS
from toktier.gpu.toolchain import Places, Toolchain, find_toolchain

COMPILER = "13.5.37"
_HEADER, _SECTION, _SYMBOL = struct.Struct("<16sHHIQQQIHHHHHH"), struct.Struct("<IIQQQQIIQQ"), struct.Struct("<IBBHQQ")


def make_cubin(
    architecture: str = "sm_90",
    *,
    abi: Sequence[int] | None = None,
    kernels: Sequence[str] | None = None,
    compiler: str = COMPILER,
    salt: bytes = b"",
) -> bytes:
    """A CUDA ELF file with an ABI block, kernels without code, and the note of a compiler. `salt`: other bytes for the
    same facts."""
    words = cubin.expected_abi() if abi is None else abi
    names = cubin.expected_kernels() if kernels is None else kernels
    strings, at = b"\0", {}
    for name in (cubin.ABI_SYMBOL, *names):
        at[name] = len(strings)
        strings += name.encode() + b"\0"
    block = struct.pack(f"<{len(words)}I", *words)
    symbols = _SYMBOL.pack(0, 0, 0, 0, 0, 0) + _SYMBOL.pack(at[cubin.ABI_SYMBOL], 0x11, 0, 1, 0, len(block))
    symbols += b"".join(_SYMBOL.pack(at[name], 0x12, 0, 2, 0, 0) for name in names)
    release = compiler.rpartition(".")[0]
    told = f"ptxas\0Cuda compilation tools, release {release}, V{compiler}\0-arch {architecture} \0".encode()
    told += b"\0" * (-len(told) % 4)
    note = struct.pack("<III", 12, len(told), 2000) + b"NVIDIA Corp\0" + told
    contents = [
        ("", 0, b"", 0),
        (".nv.global.init", 1, block, 0),
        (".text", 1, salt + b"\0", 0),
        (".strtab", 3, strings, 0),
        (".symtab", 2, symbols, 3),
        (".note.nv.tkinfo", 7, note, 0),
    ]
    section_names, name_at = b"", []
    for name, *_ in (*contents, (".shstrtab",)):
        name_at.append(len(section_names))
        section_names += name.encode() + b"\0"
    contents.append((".shstrtab", 3, section_names, 0))
    body, headers = b"", b""
    for (_, kind, content, link), name in zip(contents, name_at, strict=True):
        headers += _SECTION.pack(name, kind, 0, 0, _HEADER.size + len(body), len(content), link, 0, 1, 0)
        body += content
    flags = int(architecture.removeprefix("sm_")) << 8
    ident = b"\x7fELF\x02\x01\x01\x41\x08".ljust(16, b"\0")
    count = len(contents)
    header = _HEADER.pack(ident, 2, 190, 1, 0, 0, _HEADER.size + len(body), flags, 64, 0, 0, 64, count, count - 1)
    return header + body + headers


_BINDING = """
import json, os, pathlib, sys, time

HERE = pathlib.Path(__file__).parent
PLAN = json.loads((HERE / "plan.json").read_text())


class _Code:
    def __init__(self, name):
        self.name = name


class nvrtcResult:
    NVRTC_SUCCESS = _Code("NVRTC_SUCCESS")
    NVRTC_ERROR_COMPILATION = _Code("NVRTC_ERROR_COMPILATION")


OK = nvrtcResult.NVRTC_SUCCESS


def nvrtcVersion():
    return OK, *PLAN["version"]


def nvrtcCreateProgram(unit, name, count, headers, names):
    return OK, {"log": b"", "unit": unit}


def nvrtcCompileProgram(program, count, options):
    with open(HERE / "compiled", "a") as told:
        told.write(json.dumps({"options": [o.decode() for o in options], "environ": dict(os.environ)}) + "\\n")
    mode = PLAN["mode"]
    if mode == "hang":
        time.sleep(600)
    if mode == "crash":
        os.abort()
    if mode == "exit":
        os._exit(3)
    if mode == "noise":
        os.write(1, b"libraries print what they like\\n")
    if mode == "memory":
        program["hog"] = bytearray(64 << 30)
    if mode == "raise":
        raise KeyError("what nobody expected")
    architecture = options[0].decode().partition("=")[2]
    cubin = HERE / f"{architecture}.cubin"
    if mode == "refuse" or not cubin.exists():
        program["log"] = b"toktier.cu(7): error: identifier \\"x\\" is undefined\\n1 error detected\\n"
        return (nvrtcResult.NVRTC_ERROR_COMPILATION,)
    program["cubin"] = cubin.read_bytes() + (os.urandom(8) if mode == "differ" else b"")
    return (OK,)


def nvrtcGetProgramLogSize(program):
    return OK, len(program["log"]) + 1


def nvrtcGetProgramLog(program, out):
    out[:] = program["log"] + b"\\0"
    return (OK,)


def nvrtcGetCUBINSize(program):
    return OK, len(program["cubin"])


def nvrtcGetCUBIN(program, out):
    out[:] = program["cubin"]
    return (OK,)
"""


class FakeToolchain:
    """A toolchain in `site`. `cubins`: what it makes, by architecture; it refuses others."""

    def __init__(self, site: Path, cubins: Mapping[str, bytes] | None = None) -> None:
        self.site = site
        self.binding = site / "cuda" / "bindings"
        self.libraries = site / "nvidia" / "cu13" / "lib"
        for directory in (self.binding, self.libraries):
            directory.mkdir(parents=True)
        (self.binding / "nvrtc.py").write_text(_BINDING)
        self.plan()
        made = {name: make_cubin(name) for name in ARCHITECTURES} if cubins is None else cubins
        for name, data in made.items():
            (self.binding / f"{name}.cubin").write_bytes(data)
        library = any_library()
        for name in ("libnvrtc.so.13", "libnvrtc-builtins.so.13.5"):
            shutil.copy(library, self.libraries / name)

    def plan(self, mode: str = "", version: tuple[int, int] = (13, 5)) -> None:
        """How it behaves from now on."""
        (self.binding / "plan.json").write_text(json.dumps({"mode": mode, "version": version}))

    @property
    def places(self) -> Places:
        return Places((str(self.site),), {}, self.site / "nowhere")

    @property
    def toolchain(self) -> Toolchain:
        found = find_toolchain(self.places)
        assert isinstance(found, Toolchain)
        return found

    @property
    def compilations(self) -> list[dict[str, Any]]:
        """Options and environment of every compilation so far."""
        told = self.binding / "compiled"
        return [json.loads(line) for line in told.read_text().splitlines()] if told.exists() else []


def any_library() -> Path:
    """A small shared library that any process can load: an extension module of the interpreter."""
    return sorted(Path(sysconfig.get_config_var("DESTSHARED")).glob("*.so"))[0]


def digest_table(cubins: Mapping[str, str], *, version: str = COMPILER, sources: str | None = None) -> bytes:
    """A table of digests with one build."""
    document: dict[str, Any] = {
        "schema": digests.SCHEMA,
        "schema_version": digests.SCHEMA_VERSION,
        "sources": read_sources().digest if sources is None else sources,
        "options": ["--gpu-architecture=ARCH", *FIXED_OPTIONS],
        "builds": [{"distribution": "nvidia-cuda-nvrtc", "version": version, "cubins": dict(cubins)}],
    }
    document["root_digest"] = digests.root_digest(document)
    return json.dumps(document).encode()


def list_digests(data_root: Path, made: Callable[[str], bytes] = make_cubin, **more: str) -> None:
    """Writes the table of an installation: it lists what the fake toolchain makes, or `made`."""
    listed = {name: hashlib.sha256(made(name)).hexdigest() for name in ARCHITECTURES}
    (data_root / "tables" / digests.FILE).write_bytes(digest_table(listed, **more))
    digests.shipped_digests.cache_clear()
