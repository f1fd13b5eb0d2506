"""The fake libcuda of tests/simt/fake_cuda.cpp, built once and told what to do; GPU engines that are opened on it.

One library for the process: a test begins with `reset`, and what it left behind is for `assert_clean` to see.
"""

from __future__ import annotations

import ctypes
import functools
import re
import struct
from typing import Any

import pytest

from tests.support import simt_build
from tests.support.material import ROOT
from toktier import _native

OUT_OF_MEMORY = 2
INVALID_VALUE = 1
LAUNCH_FAILED = 719  # the device is lost
LANE_BYTES = 1 << 16  # memory of the usual size is 660 MB, and to poison it takes a second

_DECLARED = (ROOT / "native" / "gpu" / "driver.h").read_text(encoding="utf-8")
DRIVER_CALLS: tuple[str, ...] = tuple(re.findall(r"^  X\((cu\w+), cu\w+,", _DECLARED, re.MULTILINE))
"""Every function of the driver that the engine calls, beside cuDriverGetVersion."""


class FakeCuda:
    def __init__(self) -> None:
        sources = [simt_build.SIMT / f"fake_cuda{part}.cpp" for part in ("", "_control", "_state")]
        self.path = str(simt_build.build_library("fakecuda", [simt_build.TOKTIER, *sources]))
        self._library = ctypes.CDLL(self.path)
        for name in ("fake_cuda_calls", "fake_cuda_get"):
            getattr(self._library, name).restype = ctypes.c_longlong
        self._library.fake_cuda_report.restype = ctypes.c_char_p
        self._library.fake_cuda_set.argtypes = (ctypes.c_char_p, ctypes.c_longlong)
        self._library.fake_cuda_stream.restype = ctypes.c_size_t
        self._library.fake_cuda_settle.argtypes = (ctypes.c_size_t,)

    def reset(self) -> None:
        """As it was loaded: nothing lives, nothing fails."""
        self._library.fake_cuda_reset()

    def fail(self, call: str, nth: int = 1, code: int = INVALID_VALUE) -> None:
        """The nth such call from now on fails, once; 0: every one. `kernel` is the run of one, which a wait reports."""
        self._library.fake_cuda_fail(call.encode(), nth, code)

    def calls(self, call: str) -> int:
        return int(self._library.fake_cuda_calls(call.encode()))

    def set(self, **knobs: int) -> None:
        for name, value in knobs.items():
            assert self._library.fake_cuda_set(name.encode(), value) == 0, name

    def get(self, name: str) -> int:
        value = int(self._library.fake_cuda_get(name.encode()))
        assert value >= 0, name
        return value

    def stream(self) -> int:
        """The handle of a stream that somebody else made."""
        return int(self._library.fake_cuda_stream())

    def settle(self, stream: int = 0) -> None:
        """Runs what is queued in a stream, as if its owner had waited for it; 0: everywhere."""
        assert self._library.fake_cuda_settle(stream) == 0

    @property
    def report(self) -> str:
        """The first thing that a driver would have left undefined."""
        return str(self._library.fake_cuda_report().decode())

    def assert_clean(self, left_behind: bool = False) -> None:
        """Nothing undefined was asked for, and nothing lives; `left_behind`: what could not be freed may."""
        assert self.get("violations") == 0, self.report
        assert left_behind or (self.get("objects"), self.get("contexts")) == (0, 0)

    def image(self) -> bytes:
        """Kernels as the driver loads them."""
        room = ctypes.create_string_buffer(4096)
        size = self._library.fake_cuda_image(room, len(room))
        return room.raw[:size]

    def image_with(self, word: int, value: int) -> bytes:
        """An image whose block `tt_abi` reads `value` at `word`."""
        image = bytearray(self.image())
        struct.pack_into("<I", image, 12 + 4 * word, value)
        return bytes(image)

    def engine(self, program: _native.Program, **options: Any) -> _native.GpuEngine:
        """With lanes of 64 KiB unless told."""
        given = {"cubin": self.image(), "lane_bytes": LANE_BYTES, "driver": self.path, **options}
        return _native.GpuEngine(program, **given)


def small_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines that the package opens by itself get lanes of 64 KiB too."""
    monkeypatch.setattr(_native, "GpuEngine", functools.partial(_native.GpuEngine, lane_bytes=LANE_BYTES))


@functools.cache
def fake_cuda() -> FakeCuda:
    return FakeCuda()
