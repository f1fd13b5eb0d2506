"""The GPU of a tokenizer that is being loaded: whether the kernels can follow its program, the way of long texts to it,
and what people are told when the device was asked or lost.

Imports the rest of the GPU where a plan has one. Not here: what the plan decides (`toktier.routing`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

from toktier import diagnostics_ring
from toktier.errors import ToktierWarning
from toktier.routing.gates import Gate
from toktier.routing.plan import Plan, remedy_of
from toktier.routing.vocabulary import BackendId

if TYPE_CHECKING:
    from toktier._native import Program
    from toktier.backends.fast_cpu import FastCpuBackend
    from toktier.config import Settings
    from toktier.evidence.admission import Admission
    from toktier.evidence.kernels import KernelsHere
    from toktier.routing.gpu_route import GpuRoute


def unsuitable(program: Program) -> str | None:
    """Which premise of the kernels a program fails; None: none."""
    from toktier.gpu.suitability import unsuitable as of_program

    return of_program(program)


def route(
    decided: Plan,
    native: FastCpuBackend,
    settings: Settings,
    admit: Callable[[KernelsHere], Admission],
    name: str | None,
) -> GpuRoute:
    """The way to the GPU. Opened now where nothing else may serve: whoever demanded it learns of a closed gate here.
    `name`: what warnings call the tokenizer, None: they were given before."""
    from toktier.routing.gpu_route import GpuRoute

    def tell(now: Plan) -> None:
        if name is not None:
            _tell(now, settings, name)

    made = GpuRoute(decided, native, settings, admit, tell)
    if len(decided.chain) == 1:
        made.open()
    return made


def _tell(now: Plan, settings: Settings, name: str) -> None:
    """Called when the device was asked, and when it is lost: twice at most. A GPU that nobody asked for and that is not
    admitted is worth no word."""
    from toktier.routing.gpu_route import closed_gate, is_uncertified_jit

    gate = closed_gate(now)
    if gate is None:
        if is_uncertified_jit(now):
            text = (
                f"{name}: UNCERTIFIED JIT OPT-IN: policy experimental runs kernels on the GPU that nobody has judged: "
                f"{now.admission.finding(BackendId.GPU).summary}"
            )
            warnings.warn(text, ToktierWarning, stacklevel=5)
        return
    if gate.reason is not None and settings.diagnostics:
        diagnostics_ring.record(settings, diagnostics_ring.FALLBACK, gate.reason.value, backend=BackendId.GPU.value)
    if now.serves is not None and (now.asked_for_gpu or gate.name in ("self_test", "execution")):
        warn(now, gate, name, stacklevel=6)


def warn(decided: Plan, gate: Gate, name: str, stacklevel: int) -> None:
    """That another backend serves, and what would mend it."""
    assert decided.serves is not None
    text = f"{name}: {decided.serves.value} serves, not gpu: {gate.summary}"
    if gate.reason is not None:
        text += f" ({gate.reason.value})"
    mend = f"`{decided.program.certify} --backend gpu`" if gate.name == "registry" else remedy_of(gate)
    if mend is not None:
        text += f"; mended by: {mend}"
    warnings.warn(text, ToktierWarning, stacklevel=stacklevel)
