"""`toktier gpu compile` on a host with a device, which is the fake driver with emulated kernels: what they show there,
the exit code and the sentence where they show too little."""

# ruff: noqa: F811 - fixtures are imported, and arguments bear their names

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cli.command import Outcome, check_document
from tests.cli.test_gpu import Here, here, with_fake  # noqa: F401
from tests.support.fake_cuda import INVALID_VALUE, LAUNCH_FAILED, OUT_OF_MEMORY, FakeCuda, fake_cuda
from tests.support.kernel_host import fake, installation  # noqa: F401
from tests.support.material import SMALL_DIR
from toktier import _native
from toktier.errors import error_codes
from toktier.routing import probe
from toktier_cli.verbs import gpu_trial

pytestmark = pytest.mark.unsanitized
LINE = ("gpu", "compile", "--arch", "sm_90")


@pytest.fixture
def patience() -> float:
    """Seconds with a run, of which none hangs unless a test says so."""
    return 600.0


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch, patience: float) -> Iterator[FakeCuda]:
    """A device with little memory, so that lanes are small."""
    cuda = fake_cuda()
    cuda.reset()
    cuda.set(free_memory=60 << 20)
    engine, ask = _native.GpuEngine, _native.gpu_device
    monkeypatch.setattr(probe, "gpu_count", lambda: 1)
    monkeypatch.setattr(_native, "gpu_device", lambda index=0, driver=None: ask(index, cuda.path))
    monkeypatch.setattr(
        _native,
        "GpuEngine",
        lambda program, cubin, device=0, driver=None: engine(
            program, cubin, device=device, driver=cuda.path, patience=patience
        ),
    )
    yield cuda
    cuda.reset()


def told(outcome: Outcome) -> dict[str, Any]:
    found: dict[str, Any] = check_document(outcome)["trial"]
    return found


def test_a_host_without_a_device_is_not_asked(with_fake: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "gpu_count", lambda: 0)
    monkeypatch.setattr(_native, "gpu_device", None)
    assert told(with_fake(*LINE, "--json")) is None


def test_the_kernels_are_loaded_and_tested_with_every_tokenizer(with_fake: Here, cuda: FakeCuda) -> None:
    line = (*LINE, "toktier_mini", str(SMALL_DIR / "o200k_like.json"))
    outcome = with_fake(*line, "--json")
    found = told(outcome)
    assert outcome.code == 0, outcome.stderr
    assert (found["outcome"], found["problem"], found["kernels"]) == ("passed", None, "sm_90")
    assert found["device"]["name"] == "Fake device"
    assert set(found["local_bytes"]) == set(_native.gpu_kernels())
    assert found["self_tested"] == list(line[-2:])
    assert cuda.get("launches") > 0
    cuda.assert_clean()
    text = with_fake(*LINE).text
    assert "Fake device (sm_90, driver 13.0): loaded, no local memory, self-test passed with toktier_mini\n" in text


def test_kernels_of_another_architecture_are_not_run(with_fake: Here, cuda: FakeCuda) -> None:
    cuda.set(major=8, minor=7)
    outcome = with_fake(*LINE, "--json")
    assert (outcome.code, told(outcome)["outcome"]) == (0, "not_compiled")
    found = told(with_fake("gpu", "compile", "--arch", "sm_86", "--json"))
    assert (found["outcome"], found["kernels"], found["device"]["architecture"]) == ("passed", "sm_86", "sm_87")


def test_a_tokenizer_that_no_device_runs_is_not_tried(with_fake: Here, cuda: FakeCuda) -> None:
    outcome = with_fake(*LINE, str(SMALL_DIR / "gemma_like.json"), "--json")
    assert (outcome.code, told(outcome)["self_tested"]) == (1, ["toktier_mini"])


@pytest.mark.parametrize(
    ("call", "code", "outcome", "exit_code", "error", "said"),
    [
        ("cuLibraryLoadData", INVALID_VALUE, "not_loaded", 8, "KERNEL_BUILD_FAILED", "the kernels do not load: CUDA"),
        ("cuMemAlloc", OUT_OF_MEMORY, "execution", 8, "BACKEND_EXECUTION_FAULT", "CUDA_ERROR_OUT_OF_MEMORY"),
        ("kernel", LAUNCH_FAILED, "execution", 8, "BACKEND_EXECUTION_FAULT", "CUDA_ERROR_LAUNCH_FAILED"),
        ("cuInit", INVALID_VALUE, "no_driver", 8, "BACKEND_UNAVAILABLE", "CUDA_ERROR_INVALID_VALUE from cuInit"),
    ],
)
def test_what_a_driver_refuses(
    with_fake: Here, cuda: FakeCuda, call: str, code: int, outcome: str, exit_code: int, error: str, said: str
) -> None:
    cuda.fail(call, 1, code)
    done = with_fake(*LINE, "--json")
    document = check_document(done)
    assert (done.code, document["trial"]["outcome"]) == (exit_code, outcome)
    (reported,) = document["errors"]
    assert reported["code"] == error
    assert said in reported["message"]
    assert reported["message"].endswith("; the CPU engine serves")
    assert f"error: {reported['message']}\n" in done.stderr
    assert document["cubins"][0]["path"] is not None  # kept: another device may take it


def test_a_driver_that_is_too_old(with_fake: Here, cuda: FakeCuda) -> None:
    cuda.set(driver_version=11080)
    outcome = with_fake(*LINE, "--json")
    document = check_document(outcome)
    assert (outcome.code, document["trial"]["reason"]) == (8, "R_DRIVER_TOO_OLD")
    assert document["errors"][0]["code"] == "CUDA_DRIVER_TOO_OLD"
    assert document["trial"]["device"] is None
    assert "device: the NVIDIA driver is of CUDA 11.8" in with_fake(*LINE).text


def test_a_kernel_that_uses_local_memory_there(with_fake: Here, cuda: FakeCuda) -> None:
    cuda.set(local_bytes=48)
    outcome = with_fake(*LINE, "--json")
    found = told(outcome)
    assert (outcome.code, found["outcome"], found["self_tested"]) == (1, "local_memory", [])
    assert found["local_bytes"]["tt_facts"] == 48
    assert "kernels use local memory: tt_documents 48 bytes, " in outcome.stderr


def test_kernels_that_give_nothing_fail_the_self_test(with_fake: Here, cuda: FakeCuda) -> None:
    cuda.set(idle_kernels=1)
    outcome = with_fake(*LINE, "--json")
    found = told(outcome)
    assert (outcome.code, found["outcome"], found["reason"]) == (1, "self_test_failed", "R_GPU_SELF_TEST_FAILED")
    assert "error: Fake device: the self-test failed: the device served 0 of" in outcome.stderr
    assert "the kernels gave rows that are not in order (with toktier_mini)" in found["problem"]


@pytest.mark.parametrize("patience", [0.1])
def test_kernels_that_hang(with_fake: Here, cuda: FakeCuda) -> None:
    cuda.set(hang_from=0)
    outcome = with_fake(*LINE, "--json")
    found = told(outcome)
    assert (outcome.code, found["outcome"], found["reason"]) == (8, "execution", "R_EXEC_FAULT")
    assert "did not end within" in found["problem"]
    assert cuda.get("violations") == 0, cuda.report


def test_every_outcome_has_an_exit_code_and_a_sentence() -> None:
    assert list(gpu_trial.MEANINGS) == list(gpu_trial.Outcome)
    for outcome in gpu_trial.Outcome:
        trial = gpu_trial.Trial(outcome, problem="something")
        assert (trial.error is None) == (trial.exit_code == 0)
        assert trial.error is None or trial.error.code in error_codes()
