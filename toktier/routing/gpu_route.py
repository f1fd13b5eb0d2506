"""The way of long texts to a GPU: opened by the first of them, closed for good by what will not get better.

A plan that has the GPU on top of its chain was made without asking a driver. The first text that is long enough has the
device asked, its kernels chosen and the plan made again, with what evidence says of exactly these kernels on this
device; only then they are loaded, and where no evidence stands behind them they pass a self-test before they serve.
Whatever fails closes a gate of the plan, which says so from then on, and the backend below serves. A text that comes
while another thread opens waits for it. Not here: what is decided (`plan`), the engine (`toktier.backends.gpu`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from toktier.errors import BackendExecutionFault, BackendUnavailable, ToktierError
from toktier.evidence.admission import Admission
from toktier.evidence.kernels import Kernels, KernelsHere
from toktier.routing.gates import Gate
from toktier.routing.plan import Plan, remedy_of
from toktier.routing.probe import OpenedGpu, Problem
from toktier.routing.vocabulary import CERTIFYING, REASON_MEANINGS, BackendId, GpuDelivery, Reason, Status
from toktier.sessions.turns import Turns

if TYPE_CHECKING:
    from toktier._native import Encoding, EncodingBatch, GpuIds, Program
    from toktier.backends.fast_cpu import FastCpuBackend
    from toktier.backends.gpu import GpuBackend, GpuDevice
    from toktier.backends.text import Text
    from toktier.config import Settings

MOST_FAULTS = 8  # that pass: a device that fails again and again costs more than it brings

Admit = Callable[[KernelsHere], Admission]
Tell = Callable[[Plan], None]


class GpuRoute:
    """Of one tokenizer. Thread-safe. `plan` is the one that holds now: it changes when the device is asked, and when
    the route closes."""

    def __init__(
        self,
        plan: Plan,
        native: FastCpuBackend,
        settings: Settings,
        admit: Admit,
        tell: Tell,
        *,
        driver: str | None = None,
    ) -> None:
        """`plan`: has the GPU on top of its chain. `admit`: what evidence says with these kernels at hand. `tell`: is
        called with the plan when the device was asked and when the route closes. `driver`: path of libcuda, None: the
        system's."""
        self.plan = plan
        self._native, self._settings, self._admit, self._tell, self._driver = native, settings, admit, tell, driver
        # Bytes from which on texts and batches come here. Where nothing else may serve: every one.
        self.min_bytes = plan.request.gpu_min_bytes if len(plan.chain) > 1 else 1
        self._turns = Turns()
        self._backend: GpuBackend | None = None
        self._device: GpuDevice | None = None
        self._admission = plan.admission
        self._asked = False
        self._texts = 0
        self._counted: dict[str, Any] | None = None  # by an engine that is closed
        self._fallen: Counter[Reason] = Counter()  # texts that the backend below got instead, and why

    def encode(self, text: Text, add_special_tokens: bool, plain: bool) -> Encoding | None:
        """The ids, or None: the backend below is to serve."""
        backend = self._ready(1)
        if backend is None:
            return None
        encoding = backend.encode(text, add_special_tokens, plain)
        self._served(backend, 1, encoding.backend)
        return encoding

    def encode_batch(self, texts: tuple[Text, ...], add_special_tokens: bool, plain: bool) -> EncodingBatch | None:
        """The same of many."""
        backend = self._ready(len(texts))
        if backend is None:
            return None
        batch = backend.encode_batch(texts, add_special_tokens, plain)
        self._served(backend, len(texts), batch.backend)
        return batch

    def encode_on_device(
        self, texts: tuple[Text, ...], add_special_tokens: bool, plain: bool, stream: object
    ) -> GpuIds:
        """The ids in memory of the device. Raises BackendUnavailable where it does not serve, BackendExecutionFault
        where it fails."""
        from toktier.backends.gpu import GpuFault

        backend = self._ready(0)
        if backend is None:
            raise no_device(self.plan)
        try:
            ids = backend.encode_on_device(texts, add_special_tokens, plain, stream)
        except GpuFault as fault:
            self._served(backend, 0, BackendId.FAST_CPU)
            raise BackendExecutionFault(
                f"the GPU failed, so that no ids are on it: {fault.text}",
                details={"reason": fault.reason.value},
                remedy="encode_batch, which the CPU engine serves then",
            ) from None
        self._served(backend, len(texts), BackendId.GPU)
        return ids

    def open(self) -> bool:
        """Asks the device now, if nobody has. Whether the GPU serves. Raises the refusal of the plan where nothing else
        may serve."""
        return self._ready(0) is not None

    def _ready(self, texts: int) -> GpuBackend | None:
        if not self._asked:
            with self._turns.lock:
                if not self._asked:
                    self._open()
                    self._asked = True
        backend = self._backend
        if backend is not None and backend.is_inherited:
            self._close(backend)
            backend = None
        if backend is None:
            gate = closed_gate(self.plan)
            if gate is not None and gate.reason is not None:
                with self._turns.lock:
                    self._fallen[gate.reason] += texts
            if self.plan.refusal is not None:
                raise self.plan.refusal
        return backend

    def _served(self, backend: GpuBackend, texts: int, by: str) -> None:
        """Counts texts that the engine answered, and closes the route where the device is lost or hangs, or fails again
        and again. What it has served in part before that is right."""
        with self._turns.lock:
            self._texts += texts
        if backend.fault is None and (by == BackendId.GPU or backend.counters()["faults"] < MOST_FAULTS):
            return
        self._close(backend)
        if by != BackendId.GPU and self.plan.refusal is not None:
            raise self.plan.refusal

    def _open(self) -> None:
        from toktier.backends import gpu

        found, backend, problem = OpenedGpu(), None, None
        try:
            self._device = device = gpu.ask_device(driver=self._driver)
            found = replace(
                found,
                architecture=device.architecture,
                compute_capability=device.compute_capability,
                name=device.name,
                driver_version=device.driver_version,
            )
            cubin = gpu.choose_kernels(device, self.plan.request.gpu_delivery, self._settings)
            found = replace(found, cubin=cubin.sha256, delivery=GpuDelivery(cubin.delivery), listed=cubin.listed)
            here = KernelsHere(kernels_at_hand(self._native.program, device, cubin.sha256), cubin.listed)
            self._admission = self._admit(here)
            self.plan = self.plan.again(found, self._admission)
            if closed_gate(self.plan) is None:
                backend = gpu.GpuBackend(self._native.program, cubin.data, driver=self._driver)
                if self._admission.status(BackendId.GPU) not in CERTIFYING:
                    found = replace(found, self_tested=True)
                    backend.self_test(self._native)
        except gpu.GpuFault as fault:
            problem = Problem(fault.gate, fault.reason, fault.text)
        except (ToktierError, OSError, MemoryError) as error:
            # An installation that is not whole, or a host without memory: no fault of the text, and not asked again.
            problem = Problem("kernels", Reason.KERNEL_BUILD_FAILED, str(error) or "the host has no memory for them")
        if problem is not None:
            if backend is not None:
                backend.close()
            backend, found = None, replace(found, problem=problem)
        self.plan = self.plan.again(found, self._admission)
        self._backend = backend
        self._tell(self.plan)

    def _close(self, backend: GpuBackend) -> None:
        """For good. What it was and counted is still told."""
        fault = backend.fault
        with self._turns.lock:
            if self._backend is None:
                return
            self._backend, self._counted = None, backend.counters()
            text = f"the device failed {MOST_FAULTS} times" if fault is None else fault.text
            problem = Problem("execution", Reason.EXEC_FAULT if fault is None else fault.reason, text)
            self.plan = self.plan.again(replace(self.plan.facts.gpu or OpenedGpu(), problem=problem), self._admission)
        if not backend.is_inherited:
            backend.close()
        self._tell(self.plan)

    # what is told

    @property
    def texts(self) -> int:
        """Texts that the engine of the GPU answered."""
        return self._texts

    @property
    def fallen(self) -> dict[Reason, int]:
        """Texts that were long enough and that the backend below got, by reason."""
        return dict(self._fallen)

    def counters(self) -> dict[str, Any] | None:
        """Of the engine, open or closed since; None: it was never open."""
        return self._counted if self._backend is None else self._backend.counters()

    def facts(self) -> dict[str, Any]:
        """The member `gpu_backend` of explain()."""
        backend, opened = self._backend, self.plan.facts.gpu
        finding = self._admission.finding(BackendId.GPU)
        return {
            "loaded": backend is not None,
            "delivery": None if self.plan.facts.gpu_delivery is None else self.plan.facts.gpu_delivery.value,
            "status": finding.status.value,
            "architecture": None if opened is None else opened.architecture,
            "compute_capability": None if opened is None else opened.compute_capability,
            "cubin": None if opened is None else opened.cubin,
            "cubin_listed": None if opened is None or opened.cubin is None else opened.listed,
            "kernels": None if finding.kernels is None else finding.kernels.to_dict(),
            "device": None if self._device is None else {
                "name": self._device.name,
                "driver_version": self._device.driver_version,
                "memory_bytes": self._device.memory_bytes,
            },
            "self_tested": None if opened is None else opened.self_tested,
            "engine": None if backend is None else backend.facts(),
            "counters": self.counters(),
            "sessions": {
                "backend": BackendId.FAST_CPU.value,
                "reason": Reason.GPU_SESSION.value,
                "meaning": REASON_MEANINGS[Reason.GPU_SESSION],
            },
            "fault": None if opened is None or opened.problem is None else opened.problem.text,
        }  # fmt: skip


def closed_gate(plan: Plan) -> Gate | None:
    """The first gate that keeps the GPU from serving; None: it serves."""
    return next((gate for gate in plan.gates if gate.backend is BackendId.GPU and not gate.is_open), None)


def no_device(plan: Plan) -> BackendUnavailable:
    """The error of whoever wants ids on a device that does not serve."""
    gate = closed_gate(plan)
    why = "the caller named another backend" if gate is None else gate.summary
    return BackendUnavailable(
        f"no ids can be put on a GPU: {why}",
        details={"reason": None if gate is None or gate.reason is None else gate.reason.value},
        remedy=(None if gate is None else remedy_of(gate)) or "encode_batch, whose ids are on the host",
    )


def kernels_at_hand(program: Program, device: GpuDevice, cubin: str) -> Kernels:
    """What evidence binds. Raises GpuFault for a program that kernels have not."""
    from toktier import _native
    from toktier.backends.gpu import tables_digest
    from toktier.gpu.host_identity import host_identity

    return Kernels(
        cubin=cubin,
        abi=int(_native.gpu_abi()[1]),
        architecture=device.architecture,
        compute_capability=device.compute_capability,
        host=host_identity(),
        tables=tables_digest(program),
    )


def is_uncertified_jit(plan: Plan) -> bool:
    """Whether kernels serve that nothing but the caller's word stands behind."""
    return plan.serves is BackendId.GPU and plan.admission.status(BackendId.GPU) is Status.EXPERIMENTAL
