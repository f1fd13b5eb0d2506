"""The identity of kernels on a device, which evidence of the GPU binds beside the engine: nothing else may be believed.

The cubin's SHA-256 stands for the sources in kernels/, the options and the compiler. The same bytes may run on several
compute capabilities, and each is judged by itself. The host side (native/gpu, toktier/gpu) splices what kernels leave,
and the device tables are what a program becomes in the memory of a device: a digest of each.
Driver, model of the device and operating system are recorded by a certification and bind nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

_HEX = re.compile(r"[0-9a-f]{64}", re.ASCII)
_ARCHITECTURE = re.compile(r"sm_[0-9]{2,3}[af]?", re.ASCII)
_CAPABILITY = re.compile(r"[0-9]{1,2}\.[0-9]", re.ASCII)


@dataclass(frozen=True, slots=True)
class Kernels:
    """`cubin`, `host`, `tables`: SHA-256 (hex) of the kernels, of the sources of the host side, of the image of a
    program's tables that is uploaded. `abi`: version of the contract between host and kernels. `architecture`: that
    the cubin was compiled for; `compute_capability`: of the device."""

    cubin: str
    abi: int
    architecture: str
    compute_capability: str
    host: str
    tables: str

    @property
    def place(self) -> str:
        """Part of a file's name: one record for each compute capability."""
        return "sm_" + self.compute_capability.replace(".", "")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def differs(self, other: Kernels) -> str | None:
        """What of `other` is another, in words; None: nothing is. The first that people would ask for."""
        if self.compute_capability != other.compute_capability:
            return f"compute capability {other.compute_capability}"
        if self.cubin != other.cubin:
            return f"the kernels {other.cubin[:12]}"
        if (self.abi, self.host) != (other.abi, other.host):
            return f"the host side {other.host[:12]}"
        return f"the device tables {other.tables[:12]}" if self.tables != other.tables else None


@dataclass(frozen=True, slots=True)
class KernelsHere:
    """Kernels that are about to run. `listed`: their digest is one of those that the sources of this version give."""

    kernels: Kernels
    listed: bool


def read_kernels(given: Mapping[str, Any]) -> Kernels:
    """Of a document. Raises KeyError, TypeError or ValueError for what has not the form."""
    kernels = Kernels(**given)
    for name in ("cubin", "host", "tables"):
        if not _HEX.fullmatch(getattr(kernels, name)):
            raise ValueError(f"the {name} of its kernels is no SHA-256")
    if type(kernels.abi) is not int or not _ARCHITECTURE.fullmatch(kernels.architecture):
        raise ValueError("its kernels have no architecture")
    if not _CAPABILITY.fullmatch(kernels.compute_capability):
        raise ValueError("its kernels have no compute capability")
    return kernels
