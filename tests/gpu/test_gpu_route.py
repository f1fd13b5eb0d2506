"""Tokenizers whose long texts go through the real host engine, on the fake driver with emulated kernels: who served is
asked each time, and the ids are the CPU engine's and the reference's."""

from __future__ import annotations

import functools
import hashlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import toktier
from tests.gpu.test_host_engine import device_ids
from tests.support.fake_cuda import LAUNCH_FAILED, FakeCuda, fake_cuda, small_lanes
from tests.support.material import ROOT, SMALL_DIR
from toktier import ToktierWarning
from toktier.errors import EnvironmentFault, RegistryInvalid
from toktier.gpu import delivery as gpu_delivery
from toktier.routing import probe as probe_module
from toktier.routing.gpu_route import GpuRoute
from toktier.routing.vocabulary import GpuDelivery

pytestmark = pytest.mark.unsanitized
FILE = SMALL_DIR / "cl100k_like.json"
NAMES = ("english", "languages", "code", "chat")
TEXTS = [(ROOT / "tests/data/text" / f"{name}.txt").read_text(encoding="utf-8") for name in NAMES]
WHOLE = "\n".join(TEXTS)
MIN = 1000


@dataclass(frozen=True)
class Emulated:
    """As `toktier.gpu.delivery.Cubin`: the image that the fake driver loads."""

    data: bytes
    architecture: str = "sm_90"
    delivery: GpuDelivery = GpuDelivery.JIT
    listed: bool = True
    toolchain: str = "emulator"

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    """A host with a device: the fake driver, in place of the system's."""
    cuda = fake_cuda()
    cuda.reset()
    small_lanes(monkeypatch)
    route = functools.partialmethod(GpuRoute.__init__, driver=cuda.path)
    monkeypatch.setattr(GpuRoute, "__init__", route)
    monkeypatch.setattr(probe_module, "gpu_count", lambda: 1)
    monkeypatch.setattr(gpu_delivery, "available", lambda wanted: "jit")
    monkeypatch.setattr(gpu_delivery, "deliver", lambda *_: Emulated(cuda.image()))
    yield cuda
    cuda.reset()


def opened(**more: object) -> toktier.Tokenizer:
    arguments: dict[str, object] = {"policy": "supported", "gpu_min_bytes": MIN, **more}
    return toktier.from_file(FILE, **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "error",
    [
        RegistryInvalid("the sources of the kernels cannot be read", remedy="install toktier again"),
        EnvironmentFault("the cache cannot be read"),
        PermissionError(13, "Permission denied"),
        MemoryError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_whatever_keeps_kernels_away_the_cpu_serves(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    asked = []

    def deliver(*_: object) -> Emulated:
        asked.append(1)
        raise error

    monkeypatch.setattr(gpu_delivery, "deliver", deliver)
    tok, native = opened(), toktier.from_file(FILE, policy="supported", device="cpu")
    for _ in range(2):
        encoding = tok.encode(WHOLE)
        assert (encoding.backend, encoding.ids) == ("fast_cpu", native.encode(WHOLE).ids)
    assert len(asked) == 1
    gate = next(g for g in tok.explain()["gates"] if g["backend"] == "gpu" and not g["open"])
    assert (gate["gate"], gate["reason"]) == ("kernels", "R_KERNEL_BUILD_FAILED")


def test_long_texts_and_batches_go_to_the_device(cuda: FakeCuda) -> None:
    tok, native = opened(), toktier.from_file(FILE, policy="supported", device="cpu")
    reference = toktier.from_file(FILE, policy="reference")
    launched = cuda.calls("cuLaunchKernel")
    assert launched == 0
    encoding = tok.encode(WHOLE)
    assert encoding.backend == "gpu"
    assert encoding.ids == native.encode(WHOLE).ids == reference.encode(WHOLE).ids
    assert encoding.offsets == native.encode(WHOLE).offsets
    assert encoding.tokens == native.encode(WHOLE).tokens
    batch = tok.encode_batch(TEXTS, add_special_tokens=True)
    assert batch.backend == "gpu"
    assert [row.ids for row in batch] == [native.encode(text, add_special_tokens=True).ids for text in TEXTS]
    assert tok.count(WHOLE) == len(encoding)
    assert tok.encode(WHOLE.encode()).ids == encoding.ids
    assert cuda.calls("cuLaunchKernel") > launched
    told = tok.explain()["gpu_backend"]
    assert (told["loaded"], told["self_tested"], told["status"]) == (True, True, "compiled_unjudged")
    assert told["engine"]["lanes"] >= 1
    assert told["counters"]["faults"] == 0
    assert tok.explain()["counters"]["calls"] == {"fast_cpu": 0, "hf": 0, "gpu": 3 + len(TEXTS)}


def test_kernels_that_nobody_judged_serve_under_supported_alone(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """compiled_unjudged: listed digest, no evidence. Without a listed digest not even there."""
    with pytest.warns(ToktierWarning, match="status compiled_unjudged, policy certified"):
        certified = toktier.load("toktier_mini", device="cuda", gpu_min_bytes=MIN)
    assert certified.encode(WHOLE).backend != "gpu"
    report = certified.explain()
    assert report["certification"]["statuses"]["gpu"] == "compiled_unjudged"
    gate = next(g for g in report["gates"] if g["backend"] == "gpu" and not g["open"])
    assert (gate["gate"], report["gpu_backend"]["loaded"]) == ("registry", False)
    assert cuda.calls("cuInit") == 0
    assert opened().encode(WHOLE).backend == "gpu"
    monkeypatch.setattr(gpu_delivery, "deliver", lambda *_: Emulated(cuda.image(), listed=False))
    unlisted = opened(device="cuda")
    with pytest.warns(ToktierWarning, match="fast_cpu serves, not gpu"):
        assert unlisted.encode(WHOLE).backend == "fast_cpu"
    assert unlisted.explain()["certification"]["statuses"]["gpu"] == "experimental"
    with pytest.warns(ToktierWarning, match="UNCERTIFIED JIT OPT-IN"):
        assert opened(policy="experimental").encode(WHOLE).backend == "gpu"


def test_kernels_that_fail_the_self_test_serve_under_no_policy(cuda: FakeCuda) -> None:
    cuda.set(idle_kernels=1)
    for policy in ("supported", "experimental"):
        tok = opened(policy=policy)
        with pytest.warns(ToktierWarning, match="the self-test failed"):
            assert tok.encode(WHOLE).backend == "fast_cpu"
        gate = next(g for g in tok.explain()["gates"] if g["backend"] == "gpu" and not g["open"])
        assert (gate["gate"], gate["reason"]) == ("self_test", "R_GPU_SELF_TEST_FAILED")


def test_a_text_that_is_too_short_asks_no_driver(cuda: FakeCuda) -> None:
    tok = opened()
    assert tok.encode("short").backend == "fast_cpu"
    assert cuda.calls("cuInit") == 0


def test_malformed_text_is_the_error_that_it_always_is(cuda: FakeCuda) -> None:
    tok = opened()
    data = WHOLE.encode()
    for call in (tok.encode, tok.count):
        with pytest.raises(toktier.errors.InvalidText) as raised:
            call(data + b"\xff")
        assert raised.value.details["position"] == len(data)
    with pytest.raises(toktier.errors.InvalidText) as raised:
        tok.encode_batch([WHOLE, "a", data + b"\xff"])
    assert raised.value.details["item"] == 2
    assert tok.encode(WHOLE).backend == "gpu"


def test_a_device_that_is_lost_costs_no_text(cuda: FakeCuda) -> None:
    tok, native = opened(), toktier.from_file(FILE, policy="supported", device="cpu")
    assert tok.encode(WHOLE).backend == "gpu"
    cuda.fail("kernel", 1, LAUNCH_FAILED)
    with pytest.warns(ToktierWarning, match="fast_cpu serves, not gpu"):
        assert tok.encode(WHOLE).ids == native.encode(WHOLE).ids
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tok.encode(WHOLE).backend == "fast_cpu"
    report = tok.explain()
    assert report["backend"] == "fast_cpu"
    assert report["counters"]["reasons"]["R_EXEC_FAULT"] >= 2
    assert not report["gpu_backend"]["loaded"]


@pytest.mark.parametrize("call", ["cuInit", "cuDevicePrimaryCtxRetain", "cuLibraryLoadData", "cuMemAlloc"])
def test_a_driver_that_refuses_leaves_the_cpu_to_serve(cuda: FakeCuda, call: str) -> None:
    cuda.fail(call, 0)
    tok = opened(device="cuda")
    with pytest.warns(ToktierWarning, match="fast_cpu serves, not gpu"):
        assert tok.encode(WHOLE).backend == "fast_cpu"
    gates = [g for g in tok.explain()["gates"] if g["backend"] == "gpu" and not g["open"]]
    assert gates[0]["gate"] in ("device", "kernels", "execution")


def test_what_a_kernel_leaves_is_counted_by_its_reason(cuda: FakeCuda, tmp_path: object) -> None:
    tok = opened()
    giant = "a" * 10_000 + " " + WHOLE
    assert tok.encode(giant).ids == toktier.from_file(FILE, policy="supported", device="cpu").encode(giant).ids
    report = tok.explain()
    engine = report["gpu_backend"]["counters"]
    assert {code: n for code, n in engine["redone"].items() if n}.items() <= report["counters"]["reasons"].items()


def test_sessions_stay_on_the_cpu_and_explain_says_why(cuda: FakeCuda, tmp_path: Path) -> None:
    tok, native = opened(store=tmp_path / "store"), toktier.from_file(FILE, policy="supported", device="cpu")
    assert tok.encode(WHOLE, lookup="off").backend == "gpu"
    launched = cuda.calls("cuLaunchKernel")
    with tok.session("chat") as session:
        session.append(WHOLE)
        assert list(session.ids) == native.encode(WHOLE).ids
    tok.encode(WHOLE + "more", session="other")
    assert tok.encode(WHOLE).backend == "fast_cpu"  # asked of the store
    assert cuda.calls("cuLaunchKernel") == launched
    report = tok.explain()
    assert report["gpu_backend"]["sessions"]["backend"] == "fast_cpu"
    assert report["gpu_backend"]["sessions"]["reason"] == "R_GPU_SESSION"
    assert report["counters"]["reasons"]["R_GPU_SESSION"] >= 2
    assert "R_GPU_SESSION" in report["reason_meanings"]
    assert "R_INPUT_BELOW_GPU_THRESHOLD" not in report["counters"]["reasons"]


def test_ids_stay_on_the_device_for_a_stream_of_the_caller(cuda: FakeCuda) -> None:
    tok, native = opened(), toktier.from_file(FILE, policy="supported", device="cpu")
    stream = cuda.stream()
    ids = tok.encode_on_device(iter(["short", *TEXTS]), add_special_tokens=True, stream=stream)
    expected = [native.encode(text, add_special_tokens=True).ids for text in ("short", *TEXTS)]
    cuda.settle(stream)
    assert device_ids(ids) == [identity for row in expected for identity in row]
    assert ids.row_splits[1] == len(expected[0])
    assert tok.explain()["counters"]["calls"]["gpu"] == 1 + len(TEXTS)
    cuda.fail("kernel", 1, LAUNCH_FAILED)
    # One text, in one lane: of two the other one may be first, and say that the engine is closed.
    with (
        pytest.warns(ToktierWarning, match="fast_cpu serves, not gpu"),
        pytest.raises(toktier.errors.BackendExecutionFault, match=r"no ids are on it: .*LAUNCH_FAILED"),
    ):
        tok.encode_on_device(["short"])
    with pytest.raises(toktier.errors.BackendUnavailable, match=r"no ids can be put on a GPU: .*LAUNCH_FAILED"):
        tok.encode_on_device(TEXTS)


def test_ids_on_a_device_need_a_gpu_that_serves() -> None:
    tok = toktier.from_file(FILE, policy="supported", device="cpu")
    with pytest.raises(toktier.errors.BackendUnavailable, match="no ids can be put on a GPU: device cpu") as raised:
        tok.encode_on_device(["a"])
    assert raised.value.details["reason"] == "R_GPU_DISABLED"
