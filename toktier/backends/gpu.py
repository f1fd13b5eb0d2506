"""The engine on a GPU as a backend: kernels chosen and loaded, texts encoded, every way to fail as one kind of fault.

Opening asks the driver, so it happens once and late. Texts that a kernel leaves are redone by the CPU engine inside the
native engine, in their place, and counted there; so is whatever was under way when the device failed.
Not here: whether it may serve, and who does instead (`toktier.routing`), where kernels come from (`toktier.gpu`).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from toktier import _native
from toktier.routing.vocabulary import BackendId, GpuDelivery, Reason

if TYPE_CHECKING:
    from toktier._native import Encoding, EncodingBatch, GpuIds, Program
    from toktier.backends.fast_cpu import FastCpuBackend
    from toktier.backends.text import Text
    from toktier.config import Settings
    from toktier.gpu.delivery import Cubin

# Codes of `_native.GpuError`: the gate that each closes, and its reason.
GATES: Mapping[str, tuple[str, Reason]] = {
    "driver_missing": ("device", Reason.NO_GPU_DETECTED),
    "driver_too_old": ("device", Reason.DRIVER_TOO_OLD),
    "no_device": ("device", Reason.NO_GPU_DETECTED),
    "unsuitable_program": ("kernels", Reason.GPU_PROGRAM_UNSUITABLE),
    "abi_mismatch": ("kernels", Reason.KERNEL_BUILD_FAILED),
    "load_failed": ("kernels", Reason.KERNEL_BUILD_FAILED),
    "out_of_memory": ("execution", Reason.EXEC_FAULT),
    "launch_failed": ("execution", Reason.EXEC_FAULT),
    "device_lost": ("execution", Reason.EXEC_FAULT),
    "hung": ("execution", Reason.EXEC_FAULT),
    "closed": ("execution", Reason.EXEC_FAULT),
    "forked": ("execution", Reason.GPU_FORKED),
}


class GpuFault(Exception):
    """What a GPU could not do: the gate that it closes, the reason, a clause for people."""

    def __init__(self, gate: str, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.gate, self.reason, self.text = gate, reason, text


def _fault(code: str, message: object) -> GpuFault:
    gate, reason = GATES.get(code, ("execution", Reason.EXEC_FAULT))
    return GpuFault(gate, reason, " ".join(str(message).split()))


@dataclass(frozen=True, slots=True)
class GpuDevice:
    """What the driver says of a device. `architecture`: that cubins are made for; no context was made for it."""

    name: str
    architecture: str
    compute_capability: str
    driver_version: str
    memory_bytes: int


def ask_device(index: int = 0, driver: str | None = None) -> GpuDevice:
    """The device of this number. `driver`: path of libcuda, None: the system's. Raises GpuFault."""
    try:
        told = _native.gpu_device(index, driver)
    except _native.GpuError as error:
        raise _fault(error.code, error) from None
    return GpuDevice(*(told[name] for name in GpuDevice.__slots__))


def choose_kernels(device: GpuDevice, delivery: GpuDelivery, settings: Settings) -> Cubin:
    """The kernels for a device. Raises GpuFault."""
    from toktier.errors import KernelsUnavailable
    from toktier.gpu.delivery import deliver

    try:
        return deliver(device.architecture, delivery, settings)
    except KernelsUnavailable as error:
        raise GpuFault("kernels", Reason(error.reason), error.message) from None


def tables_digest(program: Program) -> str:
    """SHA-256 (hex) of what a program becomes in the memory of a device. Raises GpuFault for one that kernels cannot
    follow."""
    try:
        return hashlib.sha256(_native.device_tables(program)).hexdigest()
    except _native.UnsuitableProgram as error:
        raise GpuFault("kernels", Reason.GPU_PROGRAM_UNSUITABLE, str(error)) from None


class GpuBackend:
    """One program on one device. Thread-safe; of no use in a fork of its process, and says so there."""

    id: ClassVar[BackendId] = BackendId.GPU

    def __init__(self, program: Program, cubin: bytes, *, device: int = 0, driver: str | None = None) -> None:
        """Makes a context and loads the kernels. Raises GpuFault."""
        try:
            self._engine = _native.GpuEngine(program, cubin, device=device, driver=driver)
        except _native.GpuError as error:
            raise _fault(error.code, error) from None
        self._process = os.getpid()

    def encode(self, text: Text, add_special_tokens: bool, plain: bool) -> Encoding:
        """The ids, whatever happens on the device; `backend` of the result says whether it served. Raises what the CPU
        engine raises for a text."""
        return self._engine.encode(text, add_special_tokens, plain)

    def encode_batch(self, texts: tuple[Text, ...], add_special_tokens: bool, plain: bool) -> EncodingBatch:
        """The same of many."""
        return self._engine.encode_batch(texts, add_special_tokens, plain)

    def encode_on_device(
        self, texts: tuple[Text, ...], add_special_tokens: bool, plain: bool, stream: object
    ) -> GpuIds:
        """The ids in memory of the device. Raises GpuFault where it does not serve, and what the engine raises for a
        text or a stream."""
        try:
            return self._engine.encode_on_device(texts, add_special_tokens, plain, stream=stream)
        except _native.GpuError as error:
            raise _fault(error.code, error) from None

    @property
    def fault(self) -> GpuFault | None:
        """Why nothing runs on the device any more; None: it does."""
        if self.is_inherited:
            return GpuFault("execution", Reason.GPU_FORKED, "it was opened before this process was forked")
        if self._engine.is_open:
            return None
        last = self._engine.counters()["last_fault"] or {"code": "closed", "message": "it was closed"}
        return _fault(last["code"], last["message"])

    def self_test(self, native: FastCpuBackend) -> None:
        """Compares built-in texts with the CPU engine on the same program. Raises GpuFault."""
        from toktier.gpu.self_test import self_test

        problem = self_test(self._engine, _native.EncoderBase(native.program), native.meta)
        if problem is not None:
            raise GpuFault("self_test", Reason.GPU_SELF_TEST_FAILED, f"the self-test failed: {problem}")

    @property
    def is_inherited(self) -> bool:
        """This process is a fork of the one that made it."""
        return os.getpid() != self._process

    def facts(self) -> dict[str, Any]:
        """Of the loaded engine: lanes, memory, kernels."""
        return dict(self._engine.facts())

    def counters(self) -> dict[str, Any]:
        """What it was given, what the device served, what the CPU engine redid and why, faults."""
        return dict(self._engine.counters())

    def close(self) -> None:
        self._engine.close()
