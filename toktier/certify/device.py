"""Kernels on a device as what a certification compares: the engine of the GPU itself, without routing around it.

Every process opens its own engine when it first encodes, and none before it forks: a driver does not outlive a fork. So
what the plan must know of device and kernels is asked in a child that ends. A text of which a kernel left any part to
the CPU engine is answered by that one, whatever the rest: it counts as routed. Counts, batches and malformed texts are
asked of the same engine. Decoding and sessions are the CPU engine's, whatever serves other calls. The emulator is the
same engine with another driver library. Not here: what is compared (`suites`).
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from toktier import _native
from toktier._native import Encoding
from toktier.errors import BackendUnavailable
from toktier.labels import shown_path
from toktier.routing.vocabulary import Compared, GpuDelivery, Reason

if TYPE_CHECKING:
    from toktier._native import EncodingBatch, GpuEngine, Program
    from toktier.backends.text import Text
    from toktier.config import Settings
    from toktier.evidence.kernels import Kernels

T = TypeVar("T")
MAX_EMULATED = 1 << 16  # bytes of what stands for a cubin there
LANE_BYTES = 4 << 20  # of text: small enough that a corpus has documents that are parted
REDONE = "fast_cpu"  # who answered what a kernel left


@dataclass(frozen=True, slots=True)
class Chosen:
    """A device and the kernels for it."""

    cubin: bytes
    sha256: str
    listed: bool
    architecture: str
    compute_capability: str
    device: str
    driver_version: str


def choose(settings: Settings, delivery: GpuDelivery = GpuDelivery.AUTO, driver: Path | None = None) -> Chosen:
    """The kernels that certification runs. `driver`: of the emulator. Raises BackendUnavailable. The driver is asked in
    a child process."""
    return _in_child(lambda: _choose(settings, delivery, driver))


def _choose(settings: Settings, delivery: GpuDelivery, driver: Path | None) -> Chosen:
    from toktier.backends.gpu import ask_device, choose_kernels

    device = ask_device(driver=None if driver is None else str(driver))
    if driver is not None:
        data = _emulated_kernels(driver)
        sha256, listed = hashlib.sha256(data).hexdigest(), False
    else:
        cubin = choose_kernels(device, delivery, settings)
        data, sha256, listed = cubin.data, cubin.sha256, cubin.listed
    return Chosen(
        data,
        sha256,
        listed,
        device.architecture,
        device.compute_capability,
        device.name,
        device.driver_version,
    )


def _emulated_kernels(driver: Path) -> bytes:
    """The emulator's library brings the kernels that it runs (tests/simt/fake_cuda.cpp). Raises GpuFault."""
    import ctypes

    from toktier.backends.gpu import GpuFault

    room = ctypes.create_string_buffer(MAX_EMULATED)
    try:
        size = ctypes.CDLL(str(driver)).fake_cuda_image(room, len(room))
    except (OSError, AttributeError):
        raise GpuFault("kernels", Reason.KERNEL_BUILD_FAILED, f"{shown_path(driver)} is no emulator") from None
    return room.raw[:size]


def _in_child(make: Callable[[], T]) -> T:
    """What `make` gives in a process of its own. Raises BackendUnavailable for a GpuFault of it, and where it gives
    nothing."""
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe(duplex=False)
    child = fork.Process(target=_answer, args=(make, theirs), daemon=True)
    child.start()
    theirs.close()
    try:
        answer, told = ours.recv()
    except EOFError:
        child.join()
        answer, told = None, f"the process that asked the driver ended with {child.exitcode}"
    finally:
        ours.close()
    child.join()
    if answer is None:
        raise BackendUnavailable(
            f"the GPU cannot be certified: {told}",
            details={"backend": Compared.GPU.value},
            remedy="toktier doctor --only gpu says what is missing",
        )
    found: T = answer
    return found


def _answer(make: Callable[[], Any], connection: Any) -> None:
    from toktier.backends.gpu import GpuFault

    try:
        connection.send((make(), None))
    except GpuFault as fault:
        connection.send((None, fault.text))


def kernels_of(chosen: Chosen, program: Program) -> Kernels:
    """The identity that evidence binds. Raises BackendUnavailable for a program that the kernels have not."""
    from toktier.backends.gpu import GpuDevice, GpuFault
    from toktier.routing.gpu_route import kernels_at_hand

    device = GpuDevice(chosen.device, chosen.architecture, chosen.compute_capability, chosen.driver_version, 0)
    try:
        return kernels_at_hand(program, device, chosen.sha256)
    except GpuFault as fault:
        raise BackendUnavailable(
            f"the kernels cannot follow this tokenizer: {fault.text}",
            details={"reason": fault.reason.value},
            remedy="certify it on fast_cpu, which serves it",
        ) from None


class DeviceTokenizer:
    """The calls of a tokenizer that suites make, each answered by the device or said not to be."""

    def __init__(self, program: Program, chosen: Chosen, backend: Compared, driver: Path | None) -> None:
        self._program, self._chosen, self._driver = program, chosen, None if driver is None else str(driver)
        self._backend = backend
        self._opened: tuple[int, GpuEngine] | None = None

    @property
    def engine(self) -> GpuEngine:
        """This process's own."""
        opened = self._opened
        if opened is None or opened[0] != os.getpid():
            # An engine that the parent had is left to the parent.
            engine = _native.GpuEngine(self._program, self._chosen.cubin, lane_bytes=LANE_BYTES, driver=self._driver)
            opened = self._opened = os.getpid(), engine
        return opened[1]

    def encode(
        self, text: Text, add_special_tokens: bool = False, *, plain: bool = False, offsets: bool = False
    ) -> Encoding:
        """`offsets` are computed from the text when they are asked for, as for every result of this engine."""
        engine = self.engine
        before = _device_texts(engine)
        encoding = engine.encode(text, add_special_tokens, plain)
        if len(text) and _device_texts(engine) != before + 1:
            return Encoding.from_ids(encoding.ids, encoding.offsets, encoding.tokens, REDONE)
        return encoding

    def encode_batch(
        self,
        texts: Iterable[Text],
        add_special_tokens: bool = False,
        *,
        workers: int | None = None,
        plain: bool = False,
    ) -> EncodingBatch:
        """`workers` are the engine's own affair."""
        return self.engine.encode_batch(tuple(texts), add_special_tokens, plain)

    def count(self, text: Text, add_special_tokens: bool = False, *, plain: bool = False) -> int:
        return len(self.engine.encode(text, add_special_tokens, plain))

    def count_batch(self, texts: Sequence[Text], add_special_tokens: bool = False) -> list[int]:
        return [len(row) for row in self.encode_batch(texts, add_special_tokens)]

    def explain(self, summary: bool = False) -> dict[str, Any]:
        """What a plan and suites ask of a tokenizer; opens nothing."""
        return {"backend": self._backend.value, "decode": REDONE, "program": None}

    def answered(self) -> tuple[int, int]:
        """Texts that the device served, and documents that it did not, in this process."""
        counters = self.engine.counters()
        return counters["device_texts"], sum(counters["redone"].values()) + counters["fallen"]


def _device_texts(engine: GpuEngine) -> int:
    return int(engine.counters()["device_texts"])
