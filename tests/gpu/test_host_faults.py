"""Faults of a driver: each in turn, and the host engine either refuses to open, with a code, or the CPU engine does
what is left, with the same ids. Nothing of the driver is ever used in a way that it would leave undefined."""

from __future__ import annotations

import contextlib
import functools
import subprocess
import sys
from typing import Any

import pytest

from tests.gpu.test_host_engine import LINES, NFC, SMALL, by_cpu, mixed, rows
from tests.support.fake_cuda import DRIVER_CALLS, INVALID_VALUE, LAUNCH_FAILED, OUT_OF_MEMORY, FakeCuda, fake_cuda
from tests.support.material import ROOT
from tests.support.native_encoders import program_bytes
from toktier import _native

TEXTS = ["", *mixed(6, seed=7), "cafe\u0301", "\n".join(LINES)[:5_000]]
GIVING_BACK = (
    "cuCtxPushCurrent",
    "cuDevicePrimaryCtxRelease",
    "cuEventDestroy",
    "cuLibraryUnload",
    "cuMemFree",
    "cuMemFreeHost",
    "cuStreamDestroy",
)
"""Where one of these fails, something stays behind."""


def program(name: str = "cl100k_like", **changes: Any) -> _native.Program:
    return _native.Program(program_bytes(name, **changes))


def refused(cuda: FakeCuda, code: str, match: str, with_program: _native.Program | None = None, **options: Any) -> None:
    with pytest.raises(_native.GpuError, match=match) as raised:
        cuda.engine(with_program or program(), **options)
    assert raised.value.code == code
    assert isinstance(raised.value, RuntimeError)


def test_no_driver() -> None:
    for make in (
        lambda: _native.GpuEngine(program(), b"", driver="/nowhere/libcuda.so.1"),
        lambda: _native.gpu_device(driver="/nowhere/libcuda.so.1"),
    ):
        with pytest.raises(_native.GpuError, match="no NVIDIA driver: /nowhere/libcuda") as raised:
            make()
        assert raised.value.code == "driver_missing"


def test_a_library_that_is_no_driver() -> None:
    with pytest.raises(_native.GpuError, match="has no cuDriverGetVersion") as raised:
        _native.gpu_device(driver="libm.so.6")
    assert raised.value.code == "driver_missing"


def test_an_old_driver(cuda: FakeCuda) -> None:
    cuda.set(driver_version=11080)
    refused(cuda, "driver_too_old", r"of CUDA 11\.8; CUDA 12\.0 or newer is needed: update the driver")
    with pytest.raises(_native.GpuError, match=r"11\.8") as raised:
        _native.gpu_device(driver=cuda.path)
    assert raised.value.code == "driver_too_old"


def test_a_driver_that_names_its_functions_by_symbol_alone(cuda: FakeCuda) -> None:
    cuda.set(by_name=0)
    engine = cuda.engine(program())
    assert engine.encode("text").backend == "gpu"


def test_no_device(cuda: FakeCuda) -> None:
    refused(cuda, "no_device", "there is no device 1: the driver lists 1", device=1)
    refused(cuda, "no_device", "there is no device -1", device=-1)
    cuda.set(devices=0)
    refused(cuda, "no_device", "CUDA_ERROR_NO_DEVICE from cuInit")
    cuda.assert_clean()


@pytest.mark.parametrize("code", [3, 34, 803, 804, 999])
def test_a_driver_that_does_not_start(cuda: FakeCuda, code: int) -> None:
    cuda.fail("cuInit", code=code)
    expected = {34: "driver_missing", 803: "driver_too_old", 804: "driver_too_old"}.get(code, "no_device")
    refused(cuda, expected, "from cuInit")
    cuda.assert_clean(left_behind=True)


def test_a_program_that_kernels_cannot_follow(cuda: FakeCuda) -> None:
    refused(cuda, "unsuitable_program", "code points", program("llama_like"))
    assert cuda.calls("cuInit") == 0


@pytest.mark.parametrize("word", range(14))
def test_kernels_of_another_contract(cuda: FakeCuda, word: int) -> None:
    refused(cuda, "abi_mismatch", "another version of toktier.*expected", cubin=cuda.image_with(word, 77))
    cuda.assert_clean()


def test_an_image_that_the_driver_refuses(cuda: FakeCuda) -> None:
    message = "CUDA_ERROR_NO_BINARY_FOR_GPU from cuLibraryLoadData"
    refused(cuda, "load_failed", message, cubin=b"\x7fELF of another architecture")
    cuda.assert_clean()
    cuda.set(blocks_each=0)
    refused(cuda, "load_failed", "no block of tt_documents fits")
    cuda.assert_clean()


def test_memory_decides_how_long_a_lane_is(cuda: FakeCuda) -> None:
    cuda.set(free_memory=60 << 20)
    engine = cuda.engine(program(), lane_bytes=16 << 20)
    facts = engine.facts()
    assert facts["lane_bytes"] == 1 << 20
    for told, of_each_byte in ((facts["device_bytes"] - facts["table_bytes"], 15), (facts["host_bytes"], 5.75)):
        assert told / (facts["lanes"] << 20) == pytest.approx(of_each_byte, rel=0.01)  # docs/gpu.md, "Memory"
    assert engine.encode("text").backend == "gpu"
    engine.close()
    cuda.set(free_memory=30 << 20)
    refused(cuda, "out_of_memory", "the device has 29 MiB free", lane_bytes=16 << 20)
    cuda.assert_clean()


def opened(cuda: FakeCuda, used: _native.Program) -> _native.GpuEngine | _native.GpuError:
    try:
        return cuda.engine(used, lane_bytes=SMALL)
    except _native.GpuError as error:
        return error


def live(engine: _native.GpuEngine, expected: list[list[int]]) -> None:
    """What an engine does in its life; whatever fails, ids are right."""
    assert rows(engine.encode_batch(TEXTS)) == expected
    counters = engine.counters()
    lost = counters["last_fault"] is not None and counters["last_fault"]["code"] == "device_lost"
    assert engine.is_open != lost
    again = engine.encode_batch(TEXTS)
    assert rows(again) == expected
    for other in (engine.time, engine.encode_on_device):
        with contextlib.suppress(_native.GpuError):
            other(TEXTS)
    engine.close()


@functools.cache
def calls_of_a_life() -> dict[str, int]:
    cuda = fake_cuda()
    cuda.reset()
    used = program(**NFC)
    live(cuda.engine(used, lane_bytes=SMALL), by_cpu(used, TEXTS))
    cuda.assert_clean()
    return {name: cuda.calls(name) for name in DRIVER_CALLS}


@pytest.mark.parametrize(
    "code",
    [
        INVALID_VALUE,
        pytest.param(OUT_OF_MEMORY, marks=pytest.mark.ci),
        pytest.param(LAUNCH_FAILED, marks=pytest.mark.ci),
    ],
)
@pytest.mark.parametrize("name", DRIVER_CALLS)
def test_any_call_may_fail_once(cuda: FakeCuda, name: str, code: int) -> None:
    total = calls_of_a_life()[name]
    assert total > 0
    used = program(**NFC)
    expected = by_cpu(used, TEXTS)
    for nth in sorted({1, (total + 1) // 2, total}):
        cuda.reset()
        cuda.fail(name, nth, code)
        engine = opened(cuda, used)
        if isinstance(engine, _native.GpuError):
            # Of the latter two nobody can act on the result: the next call tells it.
            assert f"from {name}" in str(engine) or name in ("cuCtxPopCurrent", "cuStreamDestroy")
            known = {OUT_OF_MEMORY: "out_of_memory", LAUNCH_FAILED: "device_lost"}.get(code, "load_failed")
            assert engine.code == ("no_device" if name == "cuInit" and code != OUT_OF_MEMORY else known)
        else:
            live(engine, expected)
        del engine
        cuda.assert_clean(left_behind=code == LAUNCH_FAILED or name in GIVING_BACK)


RUNNING = (
    "cuMemcpyHtoDAsync",
    "cuMemsetD8Async",
    "cuLaunchKernel",
    "cuMemcpyDtoHAsync",
    "cuStreamQuery",
)


@pytest.mark.parametrize("name", RUNNING)
def test_a_run_that_fails_is_done_by_the_cpu_and_the_next_one_is_not(cuda: FakeCuda, name: str) -> None:
    used = program()
    engine = cuda.engine(used, lane_bytes=SMALL)
    cuda.fail(name, 2)
    texts = mixed(30, seed=9)
    batch = engine.encode_batch(texts)
    assert (batch.backend, rows(batch)) == ("gpu", by_cpu(used, texts))
    counters = engine.counters()
    assert counters["faults"] == 1
    assert counters["last_fault"] == {"code": "launch_failed", "message": f"CUDA_ERROR_INVALID_VALUE from {name}"}
    assert 0 < counters["fallen"] < sum(1 for text in texts if text)
    assert counters["device_texts"] + counters["fallen"] == sum(1 for text in texts if text)
    engine.close()
    cuda.assert_clean()


@pytest.mark.parametrize("nth", [1, 5, 30])
def test_a_device_that_is_lost_in_the_middle_of_a_batch(cuda: FakeCuda, nth: int) -> None:
    used = program()
    engine = cuda.engine(used, lane_bytes=SMALL)
    cuda.fail("kernel", nth, LAUNCH_FAILED)
    texts = mixed(60, seed=11)
    assert rows(engine.encode_batch(texts)) == by_cpu(used, texts)
    counters = engine.counters()
    assert counters["last_fault"]["code"] == "device_lost"
    assert "CUDA_ERROR_LAUNCH_FAILED" in counters["last_fault"]["message"]
    assert counters["device_texts"] + counters["fallen"] == sum(1 for text in texts if text)
    assert not engine.is_open
    launches = cuda.get("launches")
    batch = engine.encode_batch(texts)
    assert (batch.backend, rows(batch)) == ("fast_cpu", by_cpu(used, texts))
    assert cuda.get("launches") == launches
    with pytest.raises(_native.GpuError) as raised:
        engine.time(texts)
    assert raised.value.code == "closed"
    engine.close()
    assert cuda.get("violations") == 0, cuda.report


def test_kernels_that_write_nothing_are_found_out(cuda: FakeCuda) -> None:
    used = program()
    engine = cuda.engine(used)
    cuda.set(idle_kernels=1)
    encoding = engine.encode("some text")
    assert (encoding.backend, encoding.ids) == ("fast_cpu", by_cpu(used, ["some text"])[0])
    assert engine.counters()["last_fault"]["message"] == "the kernels gave rows that are not in order"
    cuda.set(idle_kernels=0)
    assert engine.encode("some text").backend == "gpu"


END = """
import sys, threading
from tests.support.fake_cuda import fake_cuda
from tests.gpu.test_host_engine import mixed
from tests.support.native_encoders import program_bytes
from toktier import _native
engine = fake_cuda().engine(_native.Program(program_bytes()), lane_bytes=4096)
texts = mixed(20)
engine.encode_batch(texts)
if sys.argv[1] == "busy":
    threading.Thread(target=lambda: [engine.encode_batch(texts) for _ in iter(int, 1)], daemon=True).start()
    while engine.counters()["texts"] < 60:
        pass
"""


@pytest.mark.unsanitized
@pytest.mark.parametrize("how", ["idle", "busy"])
def test_a_process_ends_with_an_open_engine(how: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", END, how], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
