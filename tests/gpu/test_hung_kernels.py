"""A kernel that does not end: the run is given up, the CPU engine answers with the same ids, nothing waits for the
device again, and nothing that the kernel may still write to is freed or used again, which the fake driver would
tell."""

from __future__ import annotations

import functools
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import toktier
from tests.gpu.test_gpu_route import FILE, WHOLE, opened
from tests.gpu.test_gpu_route import cuda as host_with_a_device  # noqa: F401
from tests.gpu.test_host_engine import NFC, SMALL, TEMPLATE, by_cpu, device_ids, mixed, rows
from tests.support.fake_cuda import FakeCuda
from tests.support.material import ROOT
from tests.support.native_encoders import program_bytes
from toktier import ToktierWarning, _native

FREEING = (
    "cuMemFree",
    "cuMemFreeHost",
    "cuStreamDestroy",
    "cuEventDestroy",
    "cuLibraryUnload",
    "cuDevicePrimaryCtxRelease",
)
PATIENCE = 0.1


def hang(cuda: FakeCuda, after: int = 0) -> None:
    """Kernels do not end from now on, or from the one so many behind on."""
    cuda.set(hang_from=cuda.get("launches") + after)


def wake(cuda: FakeCuda) -> None:
    """They go on, and write what they would have written."""
    cuda.set(hang_from=-1)
    cuda.settle()
    assert cuda.get("violations") == 0, cuda.report


def assert_left_alone(cuda: FakeCuda, freed: dict[str, int]) -> None:
    assert {name: cuda.calls(name) for name in FREEING} == freed
    assert cuda.get("violations") == 0, cuda.report


@pytest.mark.parametrize("after", [0, 4, 40])
def test_the_cpu_answers_and_nothing_is_freed_under_the_kernel(cuda: FakeCuda, after: int) -> None:
    program = _native.Program(program_bytes())
    engine = cuda.engine(program, lane_bytes=SMALL, patience=PATIENCE)
    texts = mixed(60, seed=11)
    freed = {name: cuda.calls(name) for name in FREEING}
    hang(cuda, after)
    assert rows(engine.encode_batch(texts)) == by_cpu(program, texts)
    counters = engine.counters()
    assert (counters["faults"] >= 1, counters["last_fault"]["code"]) == (True, "hung")
    assert "did not end within 0.1 s: the device is left alone" in counters["last_fault"]["message"]
    assert counters["device_texts"] + counters["fallen"] == sum(1 for text in texts if text)
    assert not engine.is_open
    asked = cuda.calls("cuStreamQuery")
    batch = engine.encode_batch(texts)
    assert (batch.backend, rows(batch)) == ("fast_cpu", by_cpu(program, texts))
    for call in (engine.time, engine.encode_on_device):
        with pytest.raises(_native.GpuError) as raised:
            call(texts)
        assert raised.value.code == "closed"
    engine.close()
    del engine
    assert cuda.calls("cuStreamQuery") == asked
    assert_left_alone(cuda, freed)
    wake(cuda)


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(after=st.integers(0, 80), lanes=st.integers(1, 3), add=st.booleans())
def test_law_a_kernel_that_hangs_changes_no_id(cuda: FakeCuda, after: int, lanes: int, add: bool) -> None:
    cuda.reset()
    program = _native.Program(program_bytes("cl100k_like", **NFC, **TEMPLATE))
    engine = cuda.engine(program, lane_bytes=SMALL, lanes=lanes, patience=0.03)
    texts = ["", *mixed(20, seed=after), "cafe\u0301", "l" * 3 * SMALL]
    expected = by_cpu(program, texts, add_special_tokens=add)
    hang(cuda, after)
    for _ in range(3):
        assert rows(engine.encode_batch(texts, add)) == expected
    engine.close()
    wake(cuda)


def test_a_call_that_wants_ids_on_the_device_says_that_it_hangs(cuda: FakeCuda) -> None:
    program = _native.Program(program_bytes())
    texts = mixed(20)
    for call in (_native.GpuEngine.time, _native.GpuEngine.encode_on_device):
        cuda.reset()
        engine = cuda.engine(program, lane_bytes=SMALL, patience=PATIENCE)
        held = engine.encode_on_device(["ids of before"])
        hang(cuda)
        freed = {name: cuda.calls(name) for name in FREEING}
        with pytest.raises(_native.GpuError) as raised:
            call(engine, texts)
        assert raised.value.code == "hung"
        assert device_ids(held) == by_cpu(program, ["ids of before"])[0]
        del held, engine
        assert_left_alone(cuda, freed)
        wake(cuda)


def test_every_thread_that_waits_is_answered(cuda: FakeCuda) -> None:
    program = _native.Program(program_bytes())
    engine = cuda.engine(program, lane_bytes=SMALL, lanes=3, patience=PATIENCE)
    batches = [mixed(8, seed) for seed in range(9)]
    hang(cuda, 30)
    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(lambda texts: rows(engine.encode_batch(texts)), batches))
    assert results == [by_cpu(program, texts) for texts in batches]
    assert not engine.is_open
    engine.close()
    wake(cuda)


def test_a_run_that_is_slow_is_waited_for(cuda: FakeCuda) -> None:
    program = _native.Program(program_bytes())
    engine = cuda.engine(program, lane_bytes=SMALL)
    found: list[list[list[int]]] = []
    texts = mixed(10)
    hang(cuda)
    thread = threading.Thread(target=lambda: found.append(rows(engine.encode_batch(texts))))
    thread.start()
    while cuda.calls("cuStreamQuery") < 20:
        pass
    cuda.set(hang_from=-1)
    thread.join()
    assert found == [by_cpu(program, texts)]
    assert engine.counters()["faults"] == 0
    engine.close()
    cuda.assert_clean()


def test_memory_that_is_given_back_during_a_run_is_freed_behind_it(cuda: FakeCuda) -> None:
    """The driver frees nothing before whatever runs has ended, so whoever drops ids would wait for others."""
    program = _native.Program(program_bytes())
    engine = cuda.engine(program, lane_bytes=SMALL)
    ids = engine.encode_on_device(mixed(5))
    hang(cuda)
    asked, freed = cuda.calls("cuStreamQuery"), cuda.calls("cuMemFree")
    thread = threading.Thread(target=engine.encode_batch, args=(mixed(5),))
    thread.start()
    while cuda.calls("cuStreamQuery") < asked + 5:
        pass
    del ids
    assert cuda.calls("cuMemFree") == freed
    cuda.set(hang_from=-1)
    thread.join()
    assert cuda.calls("cuMemFree") == freed + 1
    engine.close()
    cuda.assert_clean()


@pytest.mark.parametrize("patience", [0, -1, float("nan"), float("inf"), 1e9])
def test_patience_is_a_number_of_seconds(cuda: FakeCuda, patience: float) -> None:
    with pytest.raises(ValueError, match="more than 0 and at most 86,400"):
        cuda.engine(_native.Program(program_bytes()), patience=patience)


def test_patience_grows_with_the_text(cuda: FakeCuda) -> None:
    engine = cuda.engine(_native.Program(program_bytes()), lane_bytes=1 << 20, patience=3)
    assert engine.facts()["patience_seconds"] == 3.25


@pytest.mark.unsanitized
def test_the_route_closes_and_says_why(
    host_with_a_device: FakeCuda,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cuda = host_with_a_device
    monkeypatch.setattr(_native, "GpuEngine", functools.partial(_native.GpuEngine, patience=PATIENCE))
    tok, native = opened(), toktier.from_file(FILE, policy="supported", device="cpu")
    assert tok.encode(WHOLE).backend == "gpu"
    hang(cuda)
    with pytest.warns(ToktierWarning, match=r"fast_cpu serves, not gpu: .*did not end within"):
        assert tok.encode(WHOLE).ids == native.encode(WHOLE).ids
    assert tok.encode(WHOLE).backend == "fast_cpu"
    report = tok.explain()
    assert report["backend"] == "fast_cpu"
    assert report["counters"]["reasons"]["R_EXEC_FAULT"] >= 2
    assert not report["gpu_backend"]["loaded"]
    gate = next(g for g in report["gates"] if g["backend"] == "gpu" and not g["open"])
    assert (gate["gate"], gate["reason"]) == ("execution", "R_EXEC_FAULT")
    del tok
    wake(cuda)


def test_all_engines_of_a_device_are_given_up_together(cuda: FakeCuda) -> None:
    """What hangs for one of them would hold up whatever another gives back."""
    program = _native.Program(program_bytes())
    first, other = (cuda.engine(program, lane_bytes=SMALL, patience=PATIENCE) for _ in range(2))
    texts = mixed(20)
    held = other.encode_on_device(texts)
    freed = {name: cuda.calls(name) for name in FREEING}
    hang(cuda)
    assert rows(first.encode_batch(texts)) == by_cpu(program, texts)
    batch = other.encode_batch(texts)
    assert (batch.backend, rows(batch)) == ("fast_cpu", by_cpu(program, texts))
    assert other.counters()["last_fault"]["code"] == "hung"
    other.close()
    first.close()
    del held, other, first
    assert_left_alone(cuda, freed)
    wake(cuda)


def test_no_engine_is_opened_on_a_device_that_hangs_and_one_is_when_it_has_ended(cuda: FakeCuda) -> None:
    program = _native.Program(program_bytes())
    engine = cuda.engine(program, lane_bytes=SMALL, patience=PATIENCE)
    hang(cuda)
    engine.encode_batch(["a b"])
    loaded = cuda.calls("cuLibraryLoadData")
    with pytest.raises(_native.GpuError, match="given up earlier in this process has not ended") as raised:
        cuda.engine(program, lane_bytes=SMALL)
    assert (raised.value.code, cuda.calls("cuLibraryLoadData")) == ("hung", loaded)
    engine.close()
    assert cuda.get("violations") == 0, cuda.report
    wake(cuda)
    assert cuda.engine(program, lane_bytes=SMALL).encode("a b").backend == "gpu"


END = """
import sys, threading
from tests.support.fake_cuda import fake_cuda
from tests.gpu.test_host_engine import mixed
from tests.support.native_encoders import program_bytes
from toktier import _native
cuda = fake_cuda()
given_up = sys.argv[1] == "given_up"
engine = cuda.engine(_native.Program(program_bytes()), lane_bytes=4096, patience=0.1 if given_up else 3600)
texts = mixed(20)
held = engine.encode_on_device(texts)
cuda.set(hang_from=cuda.get("launches"), hang_blocks=1)
if given_up:
    engine.encode_batch(texts)
    assert not engine.is_open
else:
    threading.Thread(target=engine.encode_batch, args=(texts,), daemon=True).start()
    while cuda.calls("cuStreamQuery") < 30:
        pass
"""


@pytest.mark.unsanitized
@pytest.mark.parametrize("how", ["given_up", "under_way"])
def test_a_process_ends_beside_a_kernel_that_hangs(how: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", END, how], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
