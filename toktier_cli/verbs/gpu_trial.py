"""What freshly compiled kernels show on the device of this host: for `toktier gpu compile`.

Those of its architecture are loaded as routing loads them, held to the budget of local memory, of which no kernel may
use any, and run the self-test with every tokenizer that is named, and with the one that is shipped. Evidence is made of
nothing here: that is for `toktier certify --backend gpu`. A host that shows no device is not asked.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from toktier.artifacts.pins import shipped_pins
from toktier.config import Settings
from toktier.errors import (
    BackendExecutionFault,
    BackendUnavailable,
    CudaDriverTooOld,
    ExitCode,
    KernelBuildFailed,
    ToktierError,
)
from toktier.gpu.architectures import compiled_for
from toktier.labels import shown
from toktier.routing.vocabulary import Reason
from toktier_cli.invocation import Invocation
from toktier_cli.verbs.gpu_families import Named, named_tokenizer


class Outcome(enum.StrEnum):
    """What came of it."""

    PASSED = "passed"
    NOT_COMPILED = "not_compiled"
    NO_DRIVER = "no_driver"
    NOT_LOADED = "not_loaded"
    LOCAL_MEMORY = "local_memory"
    SELF_TEST_FAILED = "self_test_failed"
    EXECUTION = "execution"


MEANINGS: dict[Outcome, tuple[str, ExitCode]] = {
    Outcome.PASSED: ("loaded, within the budget of local memory, and the self-test passed", ExitCode.DONE),
    Outcome.NOT_COMPILED: ("kernels of its architecture are none of those that were compiled", ExitCode.DONE),
    Outcome.NO_DRIVER: ("its driver cannot be used", ExitCode.UNAVAILABLE),
    Outcome.NOT_LOADED: ("the driver does not load the kernels, or has no room for them", ExitCode.UNAVAILABLE),
    Outcome.LOCAL_MEMORY: ("a kernel uses local memory there, which the budget allows to none", ExitCode.NO),
    Outcome.SELF_TEST_FAILED: ("the kernels give other ids than the CPU engine", ExitCode.NO),
    Outcome.EXECUTION: ("the device failed, or a run of it did not end", ExitCode.UNAVAILABLE),
}
"""For people, and the exit code that an outcome asks for."""

_ERRORS: dict[Outcome, type[ToktierError]] = {
    Outcome.NO_DRIVER: BackendUnavailable,
    Outcome.NOT_LOADED: KernelBuildFailed,
    Outcome.LOCAL_MEMORY: KernelBuildFailed,
    Outcome.SELF_TEST_FAILED: BackendExecutionFault,
    Outcome.EXECUTION: BackendExecutionFault,
}


@dataclass
class Trial:
    """`device`: what its driver says of it, None where it says nothing. `kernels`: architecture of the cubin that was
    run; `local_bytes`: of each kernel; `self_tested`: tokenizers whose self-test passed."""

    outcome: Outcome
    device: dict[str, Any] | None = None
    kernels: str | None = None
    problem: str | None = None
    reason: Reason | None = None
    local_bytes: dict[str, int] | None = None
    self_tested: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> ExitCode:
        return MEANINGS[self.outcome][1]

    @property
    def error(self) -> ToktierError | None:
        """The sentence of a trial that failed."""
        kind = _ERRORS.get(self.outcome)
        if kind is None:
            return None
        if self.reason is Reason.DRIVER_TOO_OLD:
            kind = CudaDriverTooOld
        where = "" if self.device is None else f"{shown(self.device['name'])}: "
        return kind(
            f"{where}{self.problem}; the CPU engine serves",
            details={"outcome": self.outcome.value, "reason": None if self.reason is None else self.reason.value},
            remedy="toktier doctor --only gpu",
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "outcome": self.outcome.value,
            "device": self.device,
            "kernels": self.kernels,
            "problem": self.problem,
            "reason": None if self.reason is None else self.reason.value,
            "local_bytes": self.local_bytes,
            "self_tested": self.self_tested,
        }


def trial(cubins: dict[str, bytes], named: Sequence[Named], settings: Settings, invocation: Invocation) -> Trial | None:
    """`cubins`: by architecture. None: this host shows no device. Never raises for what a device does."""
    from toktier.backends import gpu
    from toktier.routing import probe

    if not probe.gpu_count():
        return None
    try:
        told = gpu.ask_device()
    except gpu.GpuFault as fault:
        return Trial(Outcome.NO_DRIVER, problem=fault.text, reason=fault.reason)
    found = Trial(Outcome.NOT_COMPILED, {name: getattr(told, name) for name in gpu.GpuDevice.__slots__})
    architecture = compiled_for(told.architecture)
    if architecture not in cubins:
        return found
    found.kernels = architecture
    try:
        for one in _tried(named, settings, invocation):
            _run(found, one, cubins[architecture])
            found.self_tested.append(one.name)
    except _Failed as failed:
        found.outcome, found.problem, found.reason = failed.outcome, failed.problem, failed.reason
    else:
        found.outcome = Outcome.PASSED
    return found


class _Failed(Exception):
    def __init__(self, outcome: Outcome, problem: str, reason: Reason | None) -> None:
        super().__init__(problem)
        self.outcome, self.problem, self.reason = outcome, problem, reason


def _tried(named: Sequence[Named], settings: Settings, invocation: Invocation) -> list[Named]:
    """Those that a device can run, the shipped one first: it is small, so that a device that fails is known soon."""
    shipped = [family.name for family in shipped_pins().families.values() if family.shipped]
    given = {one.name for one in named}
    own = [named_tokenizer(name, settings, invocation) for name in shipped if name not in given]
    return [one for one in (*own, *named) if one.native is not None and one.reason is None]


def _run(found: Trial, one: Named, cubin: bytes) -> None:
    from toktier.backends.gpu import GpuBackend, GpuFault

    assert one.native is not None
    try:
        backend = GpuBackend(one.native.program, cubin)
    except GpuFault as fault:
        outcome = Outcome.NOT_LOADED if fault.gate == "kernels" else Outcome.EXECUTION
        raise _Failed(outcome, f"the kernels do not load: {fault.text}", fault.reason) from None
    try:
        found.local_bytes = {name: row["local_bytes"] for name, row in backend.facts()["kernels"].items()}
        over = [f"{name} {size} bytes" for name, size in found.local_bytes.items() if size]
        if over:
            raise _Failed(Outcome.LOCAL_MEMORY, f"kernels use local memory: {', '.join(over)}", None)
        backend.self_test(one.native)
    except GpuFault as fault:
        gone = backend.fault
        if gone is not None:
            raise _Failed(Outcome.EXECUTION, f"{gone.text} (self-test with {one.name})", gone.reason) from None
        raise _Failed(Outcome.SELF_TEST_FAILED, f"{fault.text} (with {one.name})", fault.reason) from None
    finally:
        backend.close()


def trial_text(found: Trial | None) -> str:
    """For people, on lines of their own."""
    if found is None:
        return ""
    if found.device is None:
        return f"device: {found.problem}\n"
    name = f"{shown(found.device['name'])} ({found.device['architecture']}, driver {found.device['driver_version']})"
    if found.outcome is Outcome.PASSED:
        return f"{name}: loaded, no local memory, self-test passed with {', '.join(map(shown, found.self_tested))}\n"
    return f"{name}: {found.problem or MEANINGS[found.outcome][0]}\n"
