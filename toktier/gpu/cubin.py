"""What a cubin of ours holds: the ABI block, the kernels, the architecture, and the build of the compiler that made it.

A cubin is run only when all of this is as the native module expects, whoever made it and wherever it lay. Not here: how
ELF is read (`elf`), whether a digest is listed (`digests`).
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

from toktier.gpu.elf import MACHINE_CUDA, Elf, NotElf

ABI_SYMBOL = "tt_abi"
MAX_BYTES = 16 << 20  # of a cubin; ours have a few hundred kilobytes
MAX_ABI_WORDS = 64
_TOOLS_NOTE = ".note.nv.tkinfo"
_VERSION = re.compile(rb"[ -~]{0,100}release \d+\.\d+, V(\d+\.\d+\.\d+)", re.ASCII)


@dataclass(frozen=True)
class CubinFacts:
    """`abi`: the words of `tt_abi`. `kernels`: names, sorted. `compiler`: version as `13.5.37`; `build`: the line that
    holds it. Both are empty where the cubin does not tell, as those of NVRTC 12 for sm_90 and older."""

    abi: tuple[int, ...]
    kernels: tuple[str, ...]
    architecture: str
    compiler: str
    build: str


def read_cubin(data: bytes) -> CubinFacts:
    """Raises NotElf for what is no cubin with an ABI block."""
    if len(data) > MAX_BYTES:
        raise NotElf(f"it has more than {MAX_BYTES >> 20} MiB")
    elf = Elf(data)
    if elf.machine != MACHINE_CUDA:
        raise NotElf("it is no CUDA binary")
    kernels, abi = [], None
    for symbol in elf.symbols():
        if symbol.is_function and symbol.is_global and symbol.section:
            kernels.append(symbol.name)
        if symbol.name == ABI_SYMBOL and not symbol.is_function:
            words = elf.bytes_of(symbol)
            if abi is not None or len(words) % 4 or not 4 <= len(words) <= 4 * MAX_ABI_WORDS:
                raise NotElf(f"{ABI_SYMBOL} is no block of words")
            abi = struct.unpack(f"<{len(words) // 4}I", words)
    if abi is None:
        raise NotElf(f"it holds no {ABI_SYMBOL}")
    told = b"\0".join(content for _, content in elf.notes(_TOOLS_NOTE))
    version = _VERSION.search(told)
    return CubinFacts(
        abi,
        tuple(sorted(kernels)),
        _architecture(elf),
        version[1].decode("ascii") if version else "",
        version[0].decode("ascii") if version else "",
    )


def _architecture(elf: Elf) -> str:
    """The flags hold it in their lowest byte, since ABI version 8 of CUDA binaries in the next one."""
    return f"sm_{elf.flags >> 8 & 255 if elf.abi_version >= 8 else elf.flags & 255}"


def expected_abi() -> tuple[int, ...]:
    """What the native module was built for."""
    from toktier import _native

    return tuple(_native.gpu_abi())


def expected_kernels() -> tuple[str, ...]:
    from toktier import _native

    return tuple(sorted(_native.gpu_kernels()))


def problem_of(data: bytes, architecture: str) -> str | None:
    """Why these bytes are not the kernels for `architecture` that the native module can launch, a clause; None: they
    are."""
    try:
        facts = read_cubin(data)
    except NotElf as error:
        return str(error)
    if facts.architecture != architecture:
        return f"it is for {facts.architecture}"
    if facts.abi != expected_abi():
        return f"its ABI block is {list(facts.abi)}, and the native module expects {list(expected_abi())}"
    lacking = [name for name in expected_kernels() if name not in facts.kernels]
    return f"it lacks the kernels {', '.join(lacking)}" if lacking else None
