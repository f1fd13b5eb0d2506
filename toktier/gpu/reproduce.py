"""Compiles kernels twice, in two processes, and holds the outcome against the listed digests.

What `toktier gpu compile`, the generator of the table and a release wheel do: equal bytes are what a digest in evidence
rests on, so they are shown, not assumed. Not here: keeping a cubin, running it.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass

from toktier.errors import KernelBuildFailed
from toktier.gpu.cubin import CubinFacts, read_cubin
from toktier.gpu.digests import Finding, shipped_digests
from toktier.gpu.kernel_sources import KernelSources
from toktier.gpu.nvrtc import checked, compile_kernels
from toktier.gpu.toolchain import Toolchain


@dataclass(frozen=True)
class Reproduced:
    """`data`: the bytes that both processes made. `compiler`: version of NVRTC, as much of it as is told. `seconds`:
    both, one beside the other."""

    architecture: str
    data: bytes
    sha256: str
    facts: CubinFacts
    compiler: str
    log: str
    seconds: float

    def finding(self, sources: KernelSources) -> Finding:
        """What the shipped table says."""
        return shipped_digests().finding(self.sha256, self.architecture, sources=sources.digest, version=self.compiler)


def reproduce(toolchain: Toolchain, sources: KernelSources, architecture: str) -> Reproduced:
    """Raises what compiling raises, and KernelBuildFailed where the two differ."""
    from concurrent.futures import ThreadPoolExecutor

    begin = time.monotonic()
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: compile_kernels(toolchain, sources, architecture), range(2))
    data = checked(first, architecture)
    if second.cubin != data:
        raise KernelBuildFailed(
            f"NVRTC {toolchain.version} made two different cubins of the same kernels for {architecture}",
            details={"architecture": architecture},
            remedy="see that nothing else changes what NVRTC reads, and report it; the CPU engine serves",
        )
    seconds = time.monotonic() - begin
    sha256 = hashlib.sha256(data).hexdigest()
    facts = read_cubin(data)
    compiler = facts.compiler or toolchain.version
    return Reproduced(architecture, data, sha256, facts, compiler, first.log, seconds)
