"""Facts about this installation that the plan needs. No side effect: nothing is imported, opened or initialised for it.

Of a GPU only what names of files tell is looked at here; a host without one pays for one of them. What the driver says
of it is known once it was opened (`OpenedGpu`), and the plan is made again with it; so with what a third-party engine
says of a file, once it was given it.
Not here: judgements. A fact is what was seen; `toktier.routing.plan` says what follows from it.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass

from toktier.routing.vocabulary import THIRD_PARTY, BackendId, GpuDelivery, Reason

_CONTROL, _WSL = "dev/nvidiactl", "dev/dxg"  # of the driver, and of the paravirtual device of WSL
_DEVICE = re.compile(r"nvidia[0-9]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a GPU or a third-party engine that was asked for cannot be used: the gate that it closes, its reason, a
    clause for people."""

    gate: str
    reason: Reason
    text: str


@dataclass(frozen=True, slots=True)
class OpenedGpu:
    """What is known of a GPU once its driver was asked. `listed`: the digest of the kernels is one of those that the
    sources of this version give. What was not reached before a problem is None."""

    architecture: str | None = None
    compute_capability: str | None = None
    name: str | None = None
    driver_version: str | None = None
    cubin: str | None = None
    delivery: GpuDelivery | None = None
    listed: bool = False
    self_tested: bool = False
    problem: Problem | None = None


@dataclass(frozen=True, slots=True)
class ThirdPartyFacts:
    """Of the third-party engine that was asked for. `version`: of the installed distribution, None where there is none;
    `problem`: why it cannot serve this tokenizer, None: it can, or was not asked yet."""

    backend: BackendId
    version: str | None
    problem: Problem | None = None


@dataclass(frozen=True)
class ProbeFacts:
    """`reference_version`: version of the installed `tokenizers` distribution, None when absent. `gpu_backend`: this
    installation has the GPU backend. `gpu_count`: devices that the system shows; None: not looked for. `gpu_delivery`:
    where kernels would come from, None: from nowhere, or not looked for. `gpu`: what opening it gave; None: not yet.
    `third_party`: of the engine that was asked for by name; None: none was."""

    reference_version: str | None
    gpu_backend: bool = False
    gpu_count: int | None = None
    gpu_delivery: GpuDelivery | None = None
    gpu: OpenedGpu | None = None
    third_party: ThirdPartyFacts | None = None


def probe(
    delivery: GpuDelivery = GpuDelivery.AUTO, *, look_for_gpu: bool = True, backend: BackendId | None = None
) -> ProbeFacts:
    """Looks at the installation. `tokenizers` is not imported: that costs more than loading a program. `delivery` and
    `backend`: those that were asked for; `look_for_gpu` False: the GPU is switched off."""
    version = installed_version("tokenizers")
    third_party = None
    if backend is not None and backend in THIRD_PARTY:
        third_party = ThirdPartyFacts(backend, installed_version(backend.value))
    if not gpu_backend():
        return ProbeFacts(version, third_party=third_party)
    count = gpu_count() if look_for_gpu else None
    return ProbeFacts(version, True, count, _delivery(delivery) if count else None, third_party=third_party)


def gpu_backend() -> bool:
    """Whether the native module has the host side of the GPU."""
    from toktier import _native

    return hasattr(_native, "GpuEngine")


def gpu_count(system: str = "/") -> int:
    """NVIDIA devices by the nodes that their driver makes; it is not asked itself. `system`: where /dev lies."""
    if os.path.exists(os.path.join(system, _CONTROL)):
        try:
            return sum(1 for name in os.listdir(os.path.join(system, "dev")) if _DEVICE.fullmatch(name))
        except OSError:
            return 1  # the driver will tell
    return int(os.path.exists(os.path.join(system, _WSL)))


def _delivery(wanted: GpuDelivery) -> GpuDelivery | None:
    from toktier.gpu.delivery import available

    found = available(wanted)
    return None if found is None else GpuDelivery(found)


def installed_version(name: str) -> str | None:
    """Version of the distribution `name`, whose module is called the same; None where there is none."""
    loaded = getattr(sys.modules.get(name), "__version__", None)
    if isinstance(loaded, str):
        return loaded
    holder = next((d for d in sys.path if os.path.isfile(os.path.join(d, name, "__init__.py"))), None)
    if holder is not None:
        prefix, suffix = f"{name}-", ".dist-info"
        names = [n for n in os.listdir(holder or os.curdir) if n.startswith(prefix) and n.endswith(suffix)]
        if len(names) == 1:
            return names[0][len(prefix) : -len(suffix)]
    # Zip imports, editable installs, leftovers of an upgrade: the general way, 40 ms slower.
    import importlib.metadata

    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
