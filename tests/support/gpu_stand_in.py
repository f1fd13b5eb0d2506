"""A GPU that is none: device, kernels and engine of the native module replaced, the CPU engine behind them.

For tests of who is asked and told what. What kernels compute is tested through the emulated driver (tests/gpu).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from toktier import _native
from toktier._native import EncoderBase, Encoding, EncodingBatch, Program
from toktier.gpu import delivery as gpu_delivery
from toktier.routing import probe as probe_module
from toktier.routing.vocabulary import GpuDelivery

CUBIN = b"a cubin that nobody compiled"
SHA256 = hashlib.sha256(CUBIN).hexdigest()
DEVICE = {
    "name": "a device",
    "architecture": "sm_90",
    "compute_capability": "9.0",
    "driver_version": "13.0",
    "memory_bytes": 1 << 30,
    "devices": 1,
}


class GpuError(RuntimeError):
    """As `_native.GpuError`."""

    def __init__(self, code: str) -> None:
        super().__init__(f"the device says {code}")
        self.code = code


@dataclass(frozen=True)
class Kernels:
    """As `toktier.gpu.delivery.Cubin`."""

    data: bytes = CUBIN
    sha256: str = SHA256
    architecture: str = "sm_90"
    delivery: GpuDelivery = GpuDelivery.JIT
    listed: bool = True
    toolchain: str = "13.0"


@dataclass
class StandIn:
    """What the device does, and what was asked of it. `fails`: code with which the next opening fails; `lost`: the
    engine loses the device at the next call; `wrong`: it gives other ids; `faults`: calls that the CPU answered."""

    listed: bool = True
    fails: str | None = None
    lost: bool = False
    wrong: bool = False
    faults: int = 0
    asked: int = 0
    engines: list[Any] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)
    test_calls: int = 3  # of the self-test, which are no calls of users

    def engine(self, program: Program, cubin: bytes, **_: Any) -> Any:
        if self.fails:
            raise GpuError(self.fails)
        assert cubin == CUBIN
        made = _Engine(self, program)
        self.engines.append(made)
        return made


class _Engine:
    def __init__(self, stand_in: StandIn, program: Program) -> None:
        self._stand_in, self._native = stand_in, EncoderBase(program)
        self.is_open = True
        self._texts = self._faults = self._fallen = 0

    def encode(self, text: Any, add_special_tokens: bool = False, plain: bool = False) -> Encoding:
        self._stand_in.calls.append(1)
        encoding = self._native.encode(text, add_special_tokens, plain=plain)
        if self._falls(1):
            return encoding
        return Encoding.from_ids(encoding.ids, encoding.offsets, encoding.tokens, "gpu")

    def encode_batch(self, texts: Any, add_special_tokens: bool = False, plain: bool = False) -> EncodingBatch:
        self._stand_in.calls.append(len(texts))
        rows = list(self._native.encode_batch(texts, add_special_tokens, plain=plain))
        if self._falls(len(texts)):
            return EncodingBatch.from_encodings(rows)
        if self._stand_in.wrong:
            rows[-1] = Encoding.from_ids([0, *rows[-1].ids])
        made = [Encoding.from_ids(row.ids, backend="gpu") for row in rows]
        return EncodingBatch.from_encodings(made, "gpu")

    def _falls(self, texts: int) -> bool:
        if self._stand_in.lost:
            self.is_open = False
        elif self._stand_in.faults:
            self._stand_in.faults -= 1
        else:
            self._texts += texts
            return False
        self._faults += 1
        self._fallen += texts
        return True

    def counters(self) -> dict[str, Any]:
        last = {"code": "device_lost", "message": "the device fell off the bus"} if self._faults else None
        return {
            "texts": self._texts + self._fallen,
            "bytes": 0,
            "device_texts": self._texts,
            "redone": {"R_INPUT_NORMALIZED": 0},
            "fallen": self._fallen,
            "faults": self._faults,
            "last_fault": last,
        }

    def facts(self) -> dict[str, Any]:
        return {"lanes": 2}

    def close(self) -> None:
        self.is_open = False


def install(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """The stand-in, in place of a driver, for the rest of a test."""
    stand_in = StandIn()

    def gpu_device(index: int = 0, driver: str | None = None) -> dict[str, Any]:
        stand_in.asked += 1
        if stand_in.fails and stand_in.fails.startswith(("driver", "no_")):
            raise GpuError(stand_in.fails)
        return dict(DEVICE)

    def deliver(architecture: str, delivery: object, settings: object) -> Kernels:
        assert architecture == DEVICE["architecture"]
        return Kernels(listed=stand_in.listed)

    replaced: dict[str, Callable[..., Any] | type] = {
        "GpuError": GpuError,
        "gpu_device": gpu_device,
        "GpuEngine": stand_in.engine,
        "device_tables": lambda program: b"tables",
    }
    for name, value in replaced.items():
        monkeypatch.setattr(_native, name, value, raising=False)
    monkeypatch.setattr(gpu_delivery, "deliver", deliver)
    monkeypatch.setattr(gpu_delivery, "available", lambda wanted: "jit")
    monkeypatch.setattr(probe_module, "gpu_count", lambda: 1)
    monkeypatch.setattr("toktier.gpu_loading.unsuitable", lambda program: None)
    return stand_in
