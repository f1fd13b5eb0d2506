"""Which cubin a device gets: one compiled on this host, or one that came with the installation.

`auto` compiles where NVRTC is installed, else takes what was shipped; where compiling fails, or gives kernels that are
not listed, a shipped cubin is taken in its place. A shipped one is held to the listed digests. Nothing here touches a
device. Not here: what a status admits (`toktier.routing`), evidence about a digest (`toktier.evidence`).
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from toktier import resources
from toktier.config import Settings
from toktier.errors import EnvironmentFault, KernelBuildFailed, KernelDigestMismatch, KernelsUnavailable
from toktier.gpu import cubin as cubin_format
from toktier.gpu import jit
from toktier.gpu.architectures import ARCHITECTURES, compiled_for
from toktier.gpu.cubin_cache import CubinCache
from toktier.gpu.digests import shipped_digests
from toktier.gpu.kernel_sources import read_sources
from toktier.gpu.toolchain import Missing, Places, Toolchain, find_toolchain, install_line
from toktier.routing.vocabulary import GpuDelivery, Status, parse_delivery

PREBUILT = "prebuilt"  # in the directory of kernels: sm_90.cubin and its like


@dataclass(frozen=True)
class Cubin:
    """Kernels that may be loaded. `architecture`: what they are compiled for. `listed`: their digest is in the table.
    `toolchain`: version of the NVRTC that made them. `notices`: what people should be told of it, sentences."""

    data: bytes
    sha256: str
    architecture: str
    delivery: GpuDelivery
    listed: bool
    toolchain: str
    notices: tuple[str, ...] = ()

    @property
    def status(self) -> Status:
        """Without evidence: the digest is listed and nobody judged it on hardware, or it is not listed."""
        return Status.COMPILED_UNJUDGED if self.listed else Status.EXPERIMENTAL


def available(delivery: GpuDelivery | str = GpuDelivery.AUTO, places: Places | None = None) -> GpuDelivery | None:
    """Which delivery `deliver` would try first; None: neither is here. Looks at names of files alone."""
    wanted = parse_delivery(delivery)
    if wanted is not GpuDelivery.PREBUILT and isinstance(find_toolchain(places), Toolchain):
        return GpuDelivery.JIT
    if wanted is not GpuDelivery.JIT and prebuilt_architectures():
        return GpuDelivery.PREBUILT
    return None


def deliver(
    architecture: str,
    delivery: GpuDelivery | str,
    settings: Settings,
    places: Places | None = None,
) -> Cubin:
    """The kernels for a device of `architecture` (`sm_90`).

    Raises KernelsUnavailable (its `reason` is a reason code), KernelBuildFailed and KernelDigestMismatch, which are
    kinds of it. `places`: where NVRTC is looked for.
    """
    wanted = parse_delivery(delivery)
    compiled = compiled_for(architecture)
    if compiled is None:
        raise KernelsUnavailable(
            f"there are no kernels for {architecture}: they are compiled for {', '.join(ARCHITECTURES)}",
            details={"architecture": architecture, "architectures": list(ARCHITECTURES)},
            remedy="the CPU engine serves",
        )
    if wanted is GpuDelivery.PREBUILT:
        return prebuilt(compiled)
    cache = None if settings.cubins_dir is None else CubinCache(settings.cubins_dir)
    toolchain = find_toolchain(places, memory=None if cache is None else cache.libraries)
    can_ship = wanted is GpuDelivery.AUTO and compiled in prebuilt_architectures()
    if isinstance(toolchain, Missing):
        if wanted is GpuDelivery.JIT:
            raise toolchain.error()
        return prebuilt(compiled)
    try:
        made = _compiled(toolchain, compiled, cache)
    except KernelsUnavailable as error:
        if not can_ship:
            raise
        return prebuilt(compiled, (f"the kernels that came with the installation are taken: {error.message}",))
    if made.listed or not can_ship:
        return made
    return prebuilt(
        compiled,
        (f"the kernels that came with the installation are taken: those of NVRTC {made.toolchain} are not listed",),
    )


def _compiled(toolchain: Toolchain, architecture: str, cache: CubinCache | None) -> Cubin:
    try:
        made = jit.make(toolchain, read_sources(), architecture, cache)
    except EnvironmentFault as error:  # NVRTC's files cannot be read
        raise KernelBuildFailed(error.message, details=error.details, remedy=error.remedy) from None
    return _described(made.data, architecture, GpuDelivery.JIT, made.notices, toolchain.version)


def prebuilt(architecture: str, notices: tuple[str, ...] = ()) -> Cubin:
    """The kernels that came with the installation. Raises KernelsUnavailable and KernelDigestMismatch."""
    path = prebuilt_path(architecture)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        what = "no compiled kernels" if not prebuilt_architectures() else f"no kernels for {architecture}"
        raise KernelsUnavailable(
            f"this installation brought {what}: release wheels bring them, an installation from source does not",
            details={"architecture": architecture},
            remedy=f"{install_line()}, or install a release wheel",
        ) from None
    except OSError as error:
        raise KernelsUnavailable(f"the kernels for {architecture} cannot be read: {error.strerror}") from None
    problem = cubin_format.problem_of(data, architecture)
    if problem is None:
        found = _described(data, architecture, GpuDelivery.PREBUILT, notices)
        if found.listed:
            return found
    raise KernelDigestMismatch(
        f"the kernels for {architecture} that came with the installation are not those that are listed"
        + ("" if problem is None else f": {problem}"),
        details={"architecture": architecture, "sha256": hashlib.sha256(data).hexdigest(), "file": str(path)},
        remedy="install toktier again; the CPU engine serves",
    )


def prebuilt_path(architecture: str) -> Path:
    return resources.data_root() / "kernels" / PREBUILT / f"{architecture}.cubin"


def prebuilt_architectures() -> list[str]:
    """Architectures of which the installation brought kernels, whether they hold or not."""
    try:
        names = set(os.listdir(resources.data_root() / "kernels" / PREBUILT))
    except OSError:
        return []
    return [name for name in ARCHITECTURES if f"{name}.cubin" in names]


def _described(
    data: bytes, architecture: str, delivery: GpuDelivery, notices: tuple[str, ...], version: str = ""
) -> Cubin:
    sha256 = hashlib.sha256(data).hexdigest()
    listed = shipped_digests().is_listed(sha256, architecture)
    return Cubin(
        data, sha256, architecture, delivery, listed, cubin_format.read_cubin(data).compiler or version, notices
    )
